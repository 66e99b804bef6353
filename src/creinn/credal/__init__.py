"""Probability intervals to credal sets, and what follows from them; needs torch alone.

In: lower and upper probabilities, or interval logits. Out: :class:`CredalSet`: predicted class, uncertainties, classes
that cannot be ruled out. Read in this order: ``probability``,
``credal_set``, ``entropy`` (with ``entropy_nodes`` and ``entropy_search``), ``uncertainty``, ``decision``.
"""

from creinn.credal.credal_set import CredalSet, bounds_cross_entropy, cross_entropy

__all__ = ["CredalSet", "bounds_cross_entropy", "cross_entropy"]
