"""Scripts of the study, which write ``results/study`` and ``docs/study.md``."""
