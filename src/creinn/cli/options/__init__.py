"""The commands of ``creinn``, one module each: a frozen dataclass of options and ``run(options) -> exit code``.

None of these modules loads torch when imported, so that ``--help`` is quick: ``run`` does.
"""
