"""Readers of published image data sets in the files that their authors distribute.

``formats`` reads single files, ``published`` finds and checks whole data sets.
"""

from experiments.datasets.published import NAMES, available, load

__all__ = ["NAMES", "available", "load"]
