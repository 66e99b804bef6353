"""Credal sets that are defined by probability intervals; the package only depends on torch.

- ``probability``: from interval logits to probability intervals
- ``credal_set``: the class :class:`CredalSet`
- ``entropy``, ``entropy_search``: uncertainties
- ``decision``: rules for the classes that are not ruled out
- ``conformal``, ``margin``, ``abstention``: guarantees by calibration
- ``loss``: the training losses
- ``plot``: plots with matplotlib
"""

from creinn.credal.credal_set import CredalSet
from creinn.credal.loss import bounds_cross_entropy, cross_entropy

__all__ = ["CredalSet", "bounds_cross_entropy", "cross_entropy"]
