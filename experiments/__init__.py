"""Experiments of the paper and of the study; not part of the installed package.

- ``definition`` and ``catalogue`` describe the experiments.
- ``plan`` divides an experiment into tasks, and ``store`` reads and writes the
  records.
- ``datasets`` and ``preparation`` read the images.
- ``tasks`` and ``predictions`` train and evaluate; ``parallel`` and ``run``
  distribute the tasks.
- ``result_tables`` and ``report`` show the results, and ``command`` is the
  command line.
- ``study`` contains the scripts for ``docs/study.md``.
"""
