"""Credal sets with a predicted class, uncertainties and possible classes."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from creinn.credal import entropy, probability
from creinn.credal.abstention import CRITERIA, Abstention
from creinn.credal.conformal import Conformal
from creinn.credal.decision import RULES
from creinn.credal.entropy import Uncertain, Uncertainty
from creinn.credal.plot import plot_credal_sets
from creinn.credal.probability import reachable
from creinn.numerics import at_least_single
from creinn.numerics import entropy as shannon_entropy


class CredalSet(Uncertain):
    r"""Batch of credal sets with lower and upper probabilities of the classes.

    A set is
    :math:`\{q : \underline q_k \le q_k \le \overline q_k,\ \sum_k q_k = 1\}`,
    Eq. (CredalPIs) of Wang et al. (2025). The bounds are made reachable
    and stored as float32 or float64. The uncertainties are entropies in
    bits, or the binary measures for two classes.

    Args:
        lower: Lower probabilities ``(..., K)`` with K >= 2; a tensor, an
            array or a list.
        upper: Upper probabilities, with the same shape, dtype and device.

    Raises:
        TypeError: If the dtypes are not the same, or not floating.
        ValueError: If the shapes or the devices differ, or if a set is
            invalid or empty.

    Example:
        >>> s = CredalSet([0.1, 0.2, 0.3], [0.4, 0.5, 0.9])
        >>> s.upper, s.intersection, s.label
        (tensor([0.4000, 0.5000, 0.7000]), tensor([0.2200, 0.3200, 0.4600]), tensor(2))
        >>> s.total, s.aleatoric
        (tensor(1.5850), tensor(1.1568))
    """

    conformal: Conformal | None = None
    """Calibration of the model."""
    abstention: Abstention | None = None
    """Limits for acceptance of the model."""
    _label: Tensor | None = None

    def __init__(self, lower: Any, upper: Any) -> None:
        bounds = probability.probability_intervals(torch.as_tensor(lower), torch.as_tensor(upper))
        self._bounds = reachable(*bounds, check=False)

    @classmethod
    def _trusted(cls, lower: Tensor, upper: Tensor) -> "CredalSet":
        """Create sets from the outputs of a model, which are not checked."""
        return cls._wrap(*reachable(at_least_single(lower), at_least_single(upper), check=False))

    @classmethod
    def _wrap(cls, lower: Any, upper: Any, label: Any = None) -> "CredalSet":
        new = cls.__new__(cls)
        new._bounds, new._label = (lower, upper), label
        return new

    def _with_bounds(self, lower: Tensor, upper: Tensor, label: Tensor | None) -> "CredalSet":
        new = type(self)._wrap(lower, upper, label)
        new.conformal, new.abstention = self.conformal, self.abstention
        return new

    @classmethod
    def binary(cls, q_lower: Any, q_upper: Any) -> "CredalSet":
        """Create sets from the bounds of the probability of class 1.

        Example:
            >>> CredalSet.binary(0.25, 0.5).lower
            tensor([0.5000, 0.2500])
        """
        low, high = (at_least_single(torch.as_tensor(q)) for q in (q_lower, q_upper))
        return cls(torch.stack([1 - high, low], -1), torch.stack([1 - low, high], -1))

    @classmethod
    def average(cls, sets: Sequence["CredalSet"]) -> "CredalSet":
        """Return the mean bounds of an ensemble; Eq. (ensemble of CreINN)."""
        lower, upper = map(torch.stack, _bounds_of(sets, "average"))
        return cls._trusted(lower.mean(0), upper.mean(0))

    @classmethod
    def envelope(cls, sets: Sequence["CredalSet"]) -> "CredalSet":
        """Return the smallest lower and the largest upper probabilities."""
        lower, upper = map(torch.stack, _bounds_of(sets, "envelop"))
        return cls._wrap(lower.amin(0), upper.amax(0))

    @classmethod
    def from_samples(cls, probabilities: Any) -> "CredalSet":
        """Return the smallest and the largest probability of each class.

        This is the credal wrapper of Wang et al. (2024) for distributions
        ``(S, ..., K)``.

        Example:
            >>> CredalSet.from_samples([[0.5, 0.25, 0.25], [0.25, 0.75, 0.0]])
            CredalSet([0.25, 0.5], [0.25, 0.75], [0, 0.25])
        """
        samples = torch.as_tensor(probabilities)
        shape = tuple(samples.shape)
        if len(shape) < 2 or shape[0] == 0:
            raise ValueError(f"The samples must have shape (S, ..., K) with S >= 1, got {shape}.")
        points = cls(samples, samples)  # checks the distributions
        return cls._wrap(points.lower.amin(0), points.upper.amax(0))

    @classmethod
    def concatenate(cls, sets: Sequence["CredalSet"]) -> "CredalSet":
        """Join batches along the first axis.

        The result has the calibration if all of the sets have it.
        """
        lower, upper = _bounds_of(sets, "concatenate", first_axis=1)
        new = cls._wrap(torch.cat(lower), torch.cat(upper))
        if any(s._label is not None for s in sets):
            new._label = torch.cat([s.label for s in sets])
        new.conformal = _common([s.conformal for s in sets])
        new.abstention = _common([s.abstention for s in sets])
        return new

    @property
    def lower(self) -> Tensor:
        """Lower probabilities ``(..., K)``."""
        return self._bounds[0]

    @property
    def upper(self) -> Tensor:
        """Upper probabilities ``(..., K)``."""
        return self._bounds[1]

    @property
    def width(self) -> Tensor:
        """Widths of the intervals ``(..., K)``."""
        return self.upper - self.lower

    @property
    def shape(self) -> torch.Size:
        """The shape of the bounds ``(..., K)``."""
        return self.lower.shape

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return self.lower.shape[-1]

    @cached_property
    def intersection(self) -> Tensor:
        """The intersection probability; Eqs. (IntProb) and (IntSecAlpha)."""
        return probability.intersection_probability(*self._bounds)

    @property
    def probabilities(self) -> Tensor:
        """The predicted distribution, :attr:`intersection`."""
        return self.intersection

    @property
    def label(self) -> Tensor:
        """The class with the largest intersection probability.

        If there are ties, it is the class with the largest lower
        probability. It is not changed by a distance.
        """
        if self._label is not None:
            return self._label
        q = self.intersection
        is_best = q >= q.amax(-1, keepdim=True) * (1 - 4 * torch.finfo(q.dtype).eps)
        return torch.where(is_best, self.lower, -1.0).argmax(-1)

    @cached_property
    def _uncertainty(self) -> Uncertainty:
        return self.uncertainty("interval" if self.num_classes == 2 else "entropy")

    def uncertainty(self, measure: str) -> Uncertainty:
        """Return the uncertainties by a measure.

        The measure is ``"entropy"``, or ``"interval"`` for two classes.
        """
        if measure == "entropy":
            return entropy.entropy_uncertainty(*self._bounds)
        if measure == "interval":
            return entropy.interval_uncertainty(*self._bounds)
        raise ValueError(f"measure must be 'entropy' or 'interval', got {measure!r}.")

    def ranking(self, by: str) -> Tensor:
        """Return an uncertainty of :data:`creinn.credal.abstention.CRITERIA`."""
        if by not in CRITERIA:
            raise ValueError(f"by must be one of {', '.join(map(repr, CRITERIA))}, got {by!r}.")
        if by == "entropy":
            return shannon_entropy(self.intersection)
        if by == "total" and self.num_classes > 2:  # skips the lower entropy
            return self.upper_entropy()
        return getattr(self, by)

    def upper_entropy(self, return_distribution: bool = False) -> Any:
        """See :func:`creinn.credal.entropy.upper_entropy`."""
        return entropy.upper_entropy(*self._bounds, return_distribution=return_distribution)

    def lower_entropy(self, return_distribution: bool = False, return_gap: bool = False) -> Any:
        """See :func:`creinn.credal.entropy.lower_entropy`."""
        return entropy.lower_entropy(
            *self._bounds, return_distribution=return_distribution, return_gap=return_gap
        )

    def classes(
        self, rule: str = "maximality", coverage: float | None = None, groups: Any = None
    ) -> Tensor:
        """Return a mask ``(..., K)`` of the classes that are not ruled out.

        Args:
            rule: ``"maximality"`` or ``"e-admissibility"``; see
                :mod:`creinn.credal.decision`. The rule ``"conformal"`` of
                a calibrated model gives sets that contain the true class
                with probability ``coverage``, and can be empty; see
                :mod:`creinn.credal.conformal`.
            coverage: The coverage of ``"conformal"``, by default that of
                the calibration.
            groups: The groups of the rows, if the calibration was by
                groups.
        """
        if rule == "conformal":
            found = _current(self.conformal, "x, y")
            return found.classes(*self._bounds, self.intersection, coverage, groups)
        if rule not in RULES:
            rules = ", ".join(map(repr, (*RULES, "conformal")))
            raise ValueError(f"rule must be one of {rules}, got {rule!r}.")
        if coverage is not None or groups is not None:
            raise ValueError(f"coverage and groups need rule='conformal', got {rule!r}.")
        return RULES[rule](*self._bounds)

    def widened(self, coverage: float | None = None, groups: Any = None) -> "CredalSet":
        """Return wider sets that contain the distribution of votes.

        The model must be calibrated by distributions; see
        :mod:`creinn.credal.margin`. The arguments and the guarantee are
        those of :meth:`classes`.
        """
        found = _current(self.conformal, "x, distributions")
        lower, upper = found.widened(*self._bounds, coverage, groups)
        return type(self)._wrap(lower, upper, self._label)

    @property
    def accepted(self) -> Tensor:
        """Mask of the accepted rows; see :meth:`accept`."""
        return self.accept()

    def accept(self, groups: Any = None) -> Tensor:
        """Return a boolean mask of the rows whose uncertainty is small enough.

        The model must be calibrated with ``max_error``; see
        :mod:`creinn.credal.abstention`.
        """
        found = _current(self.abstention, "x, y, max_error=0.05")
        return found.accepts(self.ranking(found.by), groups)

    def with_conformal(self, conformal: Conformal | None) -> "CredalSet":
        """Return a copy with this calibration."""
        new = self.with_label(self._label)
        new.conformal = conformal
        return new

    def with_abstention(self, abstention: Abstention | None) -> "CredalSet":
        """Return a copy with these limits."""
        new = self.with_label(self._label)
        new.abstention = abstention
        return new

    def vertices(self) -> Tensor:
        """Return the vertices of one set as rows, in lexicographic order.

        At most 16 intervals can have a positive width.
        """
        if self.lower.ndim != 1:
            raise ValueError(f"vertices() needs one set, got {tuple(self.shape[:-1])}. Use s[i].")
        return probability.vertices(*self.detach()._bounds)

    def contains(self, q: Any, tolerance: float | None = None) -> Tensor:
        """Return whether distributions ``(..., K)`` are members of the sets.

        The default tolerance is 1e-6 for float64 and 1e-5 for float32.
        """
        point = torch.as_tensor(q, dtype=self.lower.dtype, device=self.lower.device)
        slack = probability.tolerance(self.lower.dtype) if tolerance is None else tolerance
        inside = (point >= self.lower - slack) & (point <= self.upper + slack)
        return inside.all(-1) & ((point.sum(-1) - 1).abs() <= slack)

    def plot(self, ax: Any = None, names: Sequence[str] | None = None) -> Any:
        """Plot a set or a few rows with matplotlib, and return the axes.

        Sets of three classes are polygons in the simplex, other sets are
        intervals.
        """
        return plot_credal_sets(*self._bounds, names, ax)

    def to(self, *args: Any, **kwargs: Any) -> "CredalSet":
        """Convert the dtype or the device, as in :meth:`torch.Tensor.to`."""
        lower, upper = (bound.to(*args, **kwargs) for bound in self._bounds)
        if lower.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"The dtype must be float32 or float64, got {lower.dtype}.")
        label = None if self._label is None else self._label.to(lower.device)
        return self._with_bounds(lower, upper, label)

    def detach(self) -> "CredalSet":
        """Detach the sets from the autograd graph."""
        lower, upper = (bound.detach() for bound in self._bounds)
        return self._with_bounds(lower, upper, self._label)

    def with_label(self, label: Tensor | None) -> "CredalSet":
        """Return a copy with this predicted class."""
        return self._with_bounds(*self._bounds, label)

    def __len__(self) -> int:
        if self.lower.ndim == 1:
            raise TypeError("The length of a set is not defined. Use num_classes.")
        return len(self.lower)

    def __getitem__(self, index: Any) -> "CredalSet":
        """Index the batch."""
        key = index if isinstance(index, tuple) else (index,)
        if not any(k is Ellipsis for k in key):
            key = (*key, Ellipsis)
        lower, upper = (bound[(*key, slice(None))] for bound in self._bounds)
        return self._with_bounds(lower, upper, None if self._label is None else self._label[key])

    def __repr__(self) -> str:
        if self.lower.ndim == 1 and self.num_classes <= 10:
            pairs = zip(self.lower.tolist(), self.upper.tolist(), strict=True)
            found = ", ".join(f"[{low:.4g}, {high:.4g}]" for low, high in pairs)
        else:
            dtype, device = self.lower.dtype, self.lower.device
            found = f"shape={tuple(self.shape)}, dtype={dtype}, device={device}"
        return f"CredalSet({found})"


def _bounds_of(
    sets: Sequence[CredalSet], verb: str, first_axis: int = 0
) -> tuple[list[Tensor], list[Tensor]]:
    shapes = [tuple(s.shape) for s in sets]
    ends = [shape[first_axis:] for shape in shapes]
    if not ends or not ends[0] or any(end != ends[0] for end in ends):  # or symbols
        raise ValueError(f"Cannot {verb} credal sets of shapes {shapes}.")
    return [s.lower for s in sets], [s.upper for s in sets]


def _current(calibration: Any, arguments: str) -> Any:
    if calibration is None:
        raise ValueError(
            f"The sets carry no calibration. Use model.calibrate({arguments}) with new rows and "
            "then model.predict."
        )
    if calibration.stale:
        raise RuntimeError(calibration.stale)
    return calibration


def _common(found: Sequence[Any]) -> Any:
    known = [one for one in found if one is not None]
    if any(one != known[0] for one in known):
        raise ValueError(
            "The calibrations of the sets differ. Use s.with_conformal(None) and "
            "s.with_abstention(None)."
        )
    return known[0] if len(known) == len(found) else None


pytree.register_pytree_node(
    CredalSet,
    lambda s: ([s.lower, s.upper] if s._label is None else [s.lower, s.upper, s._label], None),
    lambda leaves, _: CredalSet._wrap(*leaves),
    serialized_type_name="creinn.CredalSet",
)
