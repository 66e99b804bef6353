"""Scripts of the study: each writes a file below ``results/study`` or the page ``docs/study.md``."""
