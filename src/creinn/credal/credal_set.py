r"""Probability intervals in, a credal set out: its point prediction, uncertainty, and the classes it does not rule out.

:class:`CredalSet` holds sets :math:`Q = \{q : \underline q_k \le q_k \le \overline q_k,\ \sum_k q_k = 1\}`,
Eq. (CredalPIs) of Wang et al. (2025), by their reachable bounds.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from creinn.credal import entropy, probability
from creinn.credal.conformal import Conformal
from creinn.credal.decision import RULES
from creinn.credal.entropy import Uncertain, Uncertainty, lower_entropy, upper_entropy
from creinn.credal.probability import reachable
from creinn.numerics import at_least_single


class CredalSet(Uncertain):
    r"""One or many credal sets, from the lower and upper probability of each class.

    Bounds that miss a constraint by rounding (1e-5; 1e-6 in float64; one machine epsilon in half precision) are
    repaired: clamped into [0, 1], scaled so that the lower ones sum to at most 1 and the upper ones to at least 1. Then
    they are made reachable, and held in float32 or float64; halves become float32. The uncertainties are entropies in
    bits, or the binary measures when K = 2.

    Args:
        lower: Lower probabilities (..., K), K >= 2, of a floating dtype; anything :func:`torch.as_tensor` takes.
        upper: Upper probabilities, of the same shape, dtype and device.

    Raises:
        TypeError: If the dtypes differ or are not floating.
        ValueError: If shapes or devices differ, K < 2, a bound is not finite or outside [0, 1], ``lower > upper``, or a
            set is empty. The message names the first offending index.

    Example:
        >>> s = CredalSet(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.4, 0.5, 0.9]))
        >>> s.upper, s.intersection, s.label
        (tensor([0.4000, 0.5000, 0.7000]), tensor([0.2200, 0.3200, 0.4600]), tensor(2))
        >>> s.total, s.aleatoric
        (tensor(1.5850), tensor(1.1568))
        >>> s.classes("maximality")
        tensor([True, True, True])
    """

    def __init__(self, lower: Any, upper: Any) -> None:
        bounds = probability.probability_intervals(torch.as_tensor(lower), torch.as_tensor(upper))
        self._lower, self._upper = reachable(*bounds, check=False)
        self._label: Tensor | None = None
        self._conformal: Conformal | None = None

    @classmethod
    def _trusted(cls, lower: Tensor, upper: Tensor) -> "CredalSet":
        """From bounds known to be probability intervals (a model's output): made reachable, never read on the host."""
        return cls._wrap(*reachable(at_least_single(lower), at_least_single(upper), check=False))

    @classmethod
    def _wrap(
        cls, lower: Any, upper: Any, label: Any = None, conformal: Conformal | None = None
    ) -> "CredalSet":
        """From reachable bounds, or what torch puts in their place in trees; a label, if given, replaces theirs."""
        new = cls.__new__(cls)
        new._lower, new._upper, new._label, new._conformal = lower, upper, label, conformal
        return new

    @classmethod
    def binary(cls, q_lower: Any, q_upper: Any) -> "CredalSet":
        """Two classes, from the probability interval of class 1.

        Example:
            >>> CredalSet.binary(torch.tensor(0.25), torch.tensor(0.5)).lower
            tensor([0.5000, 0.2500])
        """
        low, high = (
            at_least_single(torch.as_tensor(q_lower)),
            at_least_single(torch.as_tensor(q_upper)),
        )
        return cls(torch.stack([1 - high, low], -1), torch.stack([1 - low, high], -1))

    @classmethod
    def average(cls, sets: Sequence["CredalSet"]) -> "CredalSet":
        """Ensemble: the mean of the members' reachable bounds, which is reachable again; Eq. (ensemble of CreINN)."""
        lower, upper = map(torch.stack, _bounds_of(sets, "average"))
        return cls._trusted(lower.mean(0), upper.mean(0))

    @classmethod
    def envelope(cls, sets: Sequence["CredalSet"]) -> "CredalSet":
        r"""Ensemble that keeps disagreement: the least of the lower and the largest of the upper probabilities.

        The smallest set of probability intervals that holds all the members' sets; reachable, as some member's
        distribution attains each bound.

        Example:
            >>> one, two = CredalSet([0.5, 0.25], [0.75, 0.5]), CredalSet([0.125, 0.75], [0.25, 0.875])
            >>> CredalSet.envelope([one, two])
            CredalSet([0.125, 0.75], [0.25, 0.875])
        """
        lower, upper = map(torch.stack, _bounds_of(sets, "envelop"))
        return cls._wrap(lower.amin(0), upper.amax(0))

    @classmethod
    def from_samples(cls, probabilities: Any) -> "CredalSet":
        """Credal wrapper: the lowest and the highest probability of each class over samples of distributions.

        The samples, (S, ..., K), are of an ensemble's members or a Bayesian network's draws. The set is the smallest
        one of intervals that holds them all; reachable, as one of them attains each bound. Wang et al. (2024), "Credal
        wrapper of model averaging for uncertainty estimation in classification".

        Raises:
            TypeError: If they are not of a floating dtype.
            ValueError: If there is none, or one is no distribution.

        Example:
            >>> CredalSet.from_samples(torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.75, 0.0]]))
            CredalSet([0.25, 0.5], [0.25, 0.75], [0, 0.25])
        """
        samples = torch.as_tensor(probabilities)
        if samples.ndim < 2 or len(samples) == 0:
            raise ValueError(
                f"Samples of distributions have shape (S, ..., K) with S >= 1, got {tuple(samples.shape)}."
            )
        points = cls(samples, samples)  # refuses what is none
        return cls._wrap(points.lower.amin(0), points.upper.amax(0))

    @classmethod
    def concatenate(cls, sets: Sequence["CredalSet"]) -> "CredalSet":
        """Join batches along the first axis.

        The result carries the calibration of the sets; it carries none if a set has none.

        Raises:
            ValueError: If shapes do not match, or the sets were calibrated differently.
        """
        lower, upper = _bounds_of(sets, "concatenate", first_axis=1)
        if sets[0].lower.ndim < 2:
            raise ValueError(
                "concatenate needs batches, found single sets. Add a batch axis: s[None]."
            )
        label = None if all(s._label is None for s in sets) else torch.cat([s.label for s in sets])
        found = [s._conformal for s in sets if s._conformal is not None]
        if any(not found[0].equals(other) for other in found):
            raise ValueError(
                "The credal sets to concatenate have different calibrations. Use "
                "s.with_conformal(None) to remove them."
            )
        conformal = found[0] if len(found) == len(sets) else None
        return cls._wrap(torch.cat(lower), torch.cat(upper), label, conformal)

    @property
    def lower(self) -> Tensor:
        """Reachable lower probabilities, (..., K)."""
        return self._lower

    @property
    def upper(self) -> Tensor:
        """Reachable upper probabilities, (..., K)."""
        return self._upper

    @property
    def width(self) -> Tensor:
        """Width of each class's interval, (..., K)."""
        return self.upper - self.lower

    @property
    def shape(self) -> torch.Size:
        """Shape of the bounds: batch axes, then classes."""
        return self.lower.shape

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return self.lower.shape[-1]

    @functools.cached_property
    def intersection(self) -> Tensor:
        """Intersection probability, (..., K): the member that stands for the set; Eqs. (IntProb), (IntSecAlpha)."""
        return probability.intersection_probability(self.lower, self.upper)

    @property
    def probabilities(self) -> Tensor:
        """One distribution as the prediction, the name shared by all kinds of predictions: :attr:`intersection`."""
        return self.intersection

    @property
    def label(self) -> Tensor:
        """Predicted class: the argmax of the intersection probability.

        Of classes that agree to rounding, as in an almost vacuous set, the one of greatest lower probability. It need
        not be the argmax of the logits' centres: a class may win by its upper bound. With a distance, which adds the
        same to all radii, it is the label without one: never ruled out, and the argmax up to rounding.
        """
        if self._label is not None:
            return self._label
        q = self.intersection
        best = q.amax(-1, keepdim=True)
        return torch.where(q >= best * (1 - 4 * torch.finfo(q.dtype).eps), self.lower, -1.0).argmax(
            -1
        )

    @functools.cached_property
    def _uncertainty(self) -> Uncertainty:
        return self.uncertainty("interval" if self.num_classes == 2 else "entropy")

    def uncertainty(self, measure: str) -> Uncertainty:
        """Total, aleatoric and epistemic: by ``"entropy"`` in bits, or ``"interval"``, the binary measures of K = 2.

        Raises a ValueError for another name, or ``"interval"`` with K != 2.
        """
        if measure not in ("entropy", "interval"):
            raise ValueError(f"measure must be 'entropy' or 'interval', found {measure!r}.")
        measures = (
            entropy.entropy_uncertainty if measure == "entropy" else entropy.interval_uncertainty
        )
        return measures(self.lower, self.upper)

    def upper_entropy(self, return_distribution: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Largest entropy of a member, in bits; on request with it. See :func:`creinn.credal.entropy.upper_entropy`."""
        return upper_entropy(self.lower, self.upper, return_distribution=return_distribution)

    def lower_entropy(
        self, return_distribution: bool = False, return_gap: bool = False
    ) -> Tensor | tuple[Tensor, ...]:
        """Least entropy of a member, in bits; on request with it, and with the gap, mostly 0, that the search left."""
        return lower_entropy(
            self.lower, self.upper, return_distribution=return_distribution, return_gap=return_gap
        )

    def classes(
        self, rule: str = "maximality", coverage: float | None = None, groups: Any = None
    ) -> Tensor:
        """Classes not ruled out by ``"maximality"`` or ``"e-admissibility"``, bool (..., K).

        The rules are those of :mod:`creinn.credal.decision`. Sets that a calibrated model predicts have another one,
        ``"conformal"``: on data like those of the calibration they hold the true class with the probability asked for,
        there or here as ``coverage``; see :mod:`creinn.credal.conformal`. On other data nothing is guaranteed. They may
        be empty. ``groups`` (...) are those of the rows, if the calibration was by groups.

        Raises:
            ValueError: For another name; or for ``"conformal"``, if the model was not calibrated.
        """
        if rule == "conformal":
            return self._calibrated.classes(
                self.lower, self.upper, self.intersection, coverage, groups
            )
        if rule not in RULES:
            raise ValueError(
                f"rule must be one of {', '.join(map(repr, (*RULES, 'conformal')))}; found {rule!r}."
            )
        if coverage is not None or groups is not None:
            raise ValueError(f"coverage and groups are for the rule 'conformal', not for {rule!r}.")
        return RULES[rule](self.lower, self.upper)

    def widened(self, coverage: float | None = None, groups: Any = None) -> "CredalSet":
        """Sets that hold the true distribution with the probability asked for, of a model calibrated by distributions.

        Every bound moves outwards by the same; arguments and what is not guaranteed are as in :meth:`classes`.
        """
        return type(self)._wrap(
            *self._calibrated.widened(self.lower, self.upper, coverage, groups), self._label
        )

    @property
    def conformal(self) -> Conformal | None:
        """The calibration of the model that has predicted these sets, if it is calibrated."""
        return self._conformal

    @property
    def _calibrated(self) -> Conformal:
        if self._conformal is None:
            raise ValueError(
                "These sets carry no calibration: call model.calibrate(x, y) with rows that the model has not seen, "
                "then model.predict. Averages and envelopes of sets lose it."
            )
        if self._conformal.stale:
            raise RuntimeError(self._conformal.stale)
        return self._conformal

    def with_conformal(self, conformal: Conformal | None) -> "CredalSet":
        """The same sets, with a calibration."""
        return type(self)._wrap(self.lower, self.upper, self._label, conformal)

    def vertices(self) -> Tensor:
        """All extreme points of one set, (vertices, K), in lexicographic order; widths of rounding count as 0.

        Raises a ValueError for a batch, or when more than 16 classes have an interval with two ends.

        Example:
            >>> CredalSet(torch.tensor([0.0, 0.4, 0.2]), torch.tensor([0.2, 0.6, 0.4])).vertices()
            tensor([[0.0000, 0.6000, 0.4000],
                    [0.2000, 0.4000, 0.4000],
                    [0.2000, 0.6000, 0.2000]])
        """
        if self.lower.ndim != 1:
            found = f"a batch of shape {tuple(self.shape[:-1])}"
            raise ValueError(f"vertices() is for one set, found {found}. Index it: s[i].")
        lower, upper = self.lower.detach(), self.upper.detach()
        noise = 16 * torch.finfo(lower.dtype).eps
        free = (upper - lower > noise).nonzero().squeeze(-1)
        if len(free) > 16:  # 2 ** 16 corners
            found = f"found {len(free)}; a set of K intervals can have more than 2**K / sqrt(K) vertices."
            raise ValueError(
                f"vertices() enumerates at most 16 classes with intervals of positive width, {found}"
            )
        if len(free) == 0:
            return lower.unsqueeze(0)
        low, high = lower[free], upper[free]
        mass = 1 - (lower.sum() - low.sum())
        ends = torch.tensor([False, True], device=lower.device)
        is_high = torch.cartesian_prod(*[ends] * len(free)).reshape(-1, len(free))
        corners, parts = torch.where(is_high, high, low), []
        for k, (least, most) in enumerate(
            zip(low, high, strict=True)
        ):  # class k takes what the others leave
            corner = corners[~is_high[:, k]]
            left = mass - (corner.sum(-1) - least)
            for bound in (least, most):
                left = torch.where((left - bound).abs() <= noise, bound, left)
            corner[:, k] = left
            parts.append(corner[(left >= least) & (left <= most)])
        points = lower.repeat(sum(map(len, parts)), 1)
        points[:, free] = torch.cat(parts)
        return torch.unique(points, dim=0)

    def contains(self, q: Any, tolerance: float | None = None) -> Tensor:
        """Whether distributions q, (..., K), are members; broadcasts over batch axes.

        A violation of a bound or of the sum up to the tolerance passes; by default 1e-5, or 1e-6 in float64.
        """
        point = torch.as_tensor(q, dtype=self.lower.dtype, device=self.lower.device)
        slack = probability.tolerance(self.lower.dtype) if tolerance is None else tolerance
        inside = (point >= self.lower - slack) & (point <= self.upper + slack)
        return inside.all(-1) & ((point.sum(-1) - 1).abs() <= slack)

    def to(self, *args: Any, **kwargs: Any) -> "CredalSet":
        """The same sets on another device or in float32 or float64; arguments as for :meth:`torch.Tensor.to`."""
        lower, upper = self.lower.to(*args, **kwargs), self.upper.to(*args, **kwargs)
        if lower.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"A credal set holds float32 or float64, it cannot be made {lower.dtype}."
            )
        label = None if self._label is None else self._label.to(lower.device)
        return type(self)._wrap(lower, upper, label, self._conformal)

    def detach(self) -> "CredalSet":
        """The same sets, cut from the autograd graph."""
        return type(self)._wrap(
            self.lower.detach(), self.upper.detach(), self._label, self._conformal
        )

    def with_label(self, label: Tensor) -> "CredalSet":
        """The same sets, for which another class is predicted."""
        return type(self)._wrap(self.lower, self.upper, label, self._conformal)

    def __len__(self) -> int:
        if self.lower.ndim == 1:
            raise TypeError("One credal set has no length; num_classes is its number of classes.")
        return len(self.lower)

    def __getitem__(self, index: Any) -> "CredalSet":
        """Index the batch axes; the class axis stays whole."""
        key = index if isinstance(index, tuple) else (index,)
        if not any(k is Ellipsis for k in key):
            key = (*key, Ellipsis)
        bounds = self.lower[(*key, slice(None))], self.upper[(*key, slice(None))]
        return type(self)._wrap(
            *bounds, None if self._label is None else self._label[key], self._conformal
        )

    def __repr__(self) -> str:
        if self.lower.ndim == 1 and self.num_classes <= 10:
            pairs = zip(self.lower.tolist(), self.upper.tolist(), strict=True)
            return "CredalSet(" + ", ".join(f"[{low:.4g}, {high:.4g}]" for low, high in pairs) + ")"
        return f"CredalSet(shape={tuple(self.shape)}, dtype={self.lower.dtype}, device={self.lower.device})"


def _bounds_of(
    sets: Sequence[CredalSet], verb: str, first_axis: int = 0
) -> tuple[list[Tensor], list[Tensor]]:
    """Lower and upper bounds of sets, whose shapes must agree from an axis on."""
    if not sets:
        raise ValueError(f"There is nothing to {verb}: the list of credal sets is empty.")
    for position, other in enumerate(sets):
        if other.shape[first_axis:] != sets[0].shape[first_axis:]:
            found = f"shape {tuple(sets[0].shape)} at position 0, {tuple(other.shape)} at position {position}"
            raise ValueError(f"The credal sets to {verb} do not fit: {found}.")
    return [s.lower for s in sets], [s.upper for s in sets]


pytree.register_pytree_node(
    CredalSet,
    lambda s: ([s.lower, s.upper] if s._label is None else [s.lower, s.upper, s._label], None),
    lambda leaves, _: CredalSet._wrap(*leaves),
    serialized_type_name="creinn.CredalSet",
)
