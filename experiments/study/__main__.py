"""Entry point of ``python -m experiments.study``, which writes the page of the study."""

import sys

from experiments.study.summary import main

if __name__ == "__main__":
    sys.exit(main())
