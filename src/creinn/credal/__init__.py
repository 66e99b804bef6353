"""Probability intervals to credal sets, and what follows from them; needs torch alone.

In: lower and upper probabilities, or interval logits. Out: :class:`CredalSet`: predicted class, uncertainties, classes
that cannot be ruled out. Read ``probability``, ``credal_set``, ``entropy`` (its search is ``entropy_search``; exported
graphs have ``entropy_vertices`` instead), ``decision``, ``loss``.
"""

from creinn.credal.credal_set import CredalSet
from creinn.credal.loss import bounds_cross_entropy, cross_entropy

__all__ = ["CredalSet", "bounds_cross_entropy", "cross_entropy"]
