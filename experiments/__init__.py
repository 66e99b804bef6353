"""The experiments of the paper and the study of this repository; not part of the installed package.

``definition`` and ``catalogue`` describe the experiments, ``plan`` divides one into tasks, ``store``
keeps the records, ``datasets`` and ``preparation`` read the images, ``tasks`` and ``predictions`` do
the work, ``parallel`` and ``run`` distribute it. ``result_tables`` and ``report`` show the results,
``command`` is the command line. ``study`` holds the scripts behind ``docs/study.md``.
"""
