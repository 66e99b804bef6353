"""Credal sets that are defined by probability intervals.

- ``probability``: intervals from the logits
- ``credal_set``: the class :class:`CredalSet`
- ``entropy``, ``entropy_search``: uncertainties
- ``decision``: decision rules
- ``conformal``, ``margin``, ``abstention``: calibration
- ``loss``: training losses
- ``plot``: plots with matplotlib
"""

from creinn.credal.credal_set import CredalSet
from creinn.credal.loss import bounds_cross_entropy, cross_entropy

__all__ = ["CredalSet", "bounds_cross_entropy", "cross_entropy"]
