"""Credal sets from probability intervals.

A :class:`CredalSet` has a predicted class, uncertainties and the classes that are not ruled out.
The package depends only on torch.

- ``probability``: from interval logits to probability intervals
- ``credal_set``: the class :class:`CredalSet`
- ``entropy``: uncertainties, with the search in ``entropy_search``, and ``entropy_vertices`` for
  exported graphs
- ``decision``: rules for the classes that are not ruled out
- ``conformal``: calibrated sets
- ``loss``: the training losses
"""

from creinn.credal.credal_set import CredalSet
from creinn.credal.loss import bounds_cross_entropy, cross_entropy

__all__ = ["CredalSet", "bounds_cross_entropy", "cross_entropy"]
