"""Credal sets with a predicted class, uncertainties and possible classes."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from creinn.credal import entropy, probability
from creinn.credal.abstention import MEASURES, Abstention
from creinn.credal.conformal import Conformal
from creinn.credal.decision import RULES
from creinn.credal.entropy import Uncertain, Uncertainty
from creinn.credal.plot import plot_credal_sets
from creinn.credal.probability import reachable
from creinn.numerics import at_least_single
from creinn.numerics import entropy as shannon_entropy


class CredalSet(Uncertain):
    r"""Batch of credal sets with lower and upper probabilities of the classes.

    A set is :math:`\{q : \underline q_k \le q_k \le \overline q_k,\ \sum_k q_k = 1\}`, Eq.
    (CredalPIs) of Wang et al. (2025). Rounding errors of the bounds are corrected, and the bounds
    are made reachable. They are stored as float32 or float64. The uncertainties are entropies in
    bits, or the binary measures for two classes.

    Args:
        lower: Lower probabilities ``(..., K)`` with K >= 2, as a floating tensor or an argument of
            :func:`torch.as_tensor`.
        upper: Upper probabilities, with the same shape, dtype and device.

    Raises:
        TypeError: If the dtypes are not the same, or not floating.
        ValueError: If the shapes or the devices do not match, or if a set is not valid or empty.

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
        self._abstention: Abstention | None = None

    @classmethod
    def _trusted(cls, lower: Tensor, upper: Tensor) -> "CredalSet":
        """Create sets from the outputs of a model, which are not checked."""
        return cls._wrap(*reachable(at_least_single(lower), at_least_single(upper), check=False))

    @classmethod
    def _wrap(cls, lower: Any, upper: Any, label: Any = None) -> "CredalSet":
        """Create sets from reachable bounds, or from other leaves of a tree in torch."""
        new = cls.__new__(cls)
        new._lower, new._upper, new._label = lower, upper, label
        new._conformal = new._abstention = None
        return new

    def _with_bounds(self, lower: Tensor, upper: Tensor, label: Tensor | None) -> "CredalSet":
        """Create sets with the calibrations of these sets."""
        new = type(self)._wrap(lower, upper, label)
        new._conformal, new._abstention = self._conformal, self._abstention
        return new

    @classmethod
    def binary(cls, q_lower: Any, q_upper: Any) -> "CredalSet":
        """Create sets of two classes from the interval of the second class.

        Example:
            >>> CredalSet.binary(torch.tensor(0.25), torch.tensor(0.5)).lower
            tensor([0.5000, 0.2500])
        """
        low, high = (at_least_single(torch.as_tensor(q)) for q in (q_lower, q_upper))
        return cls(torch.stack([1 - high, low], -1), torch.stack([1 - low, high], -1))

    @classmethod
    def average(cls, sets: Sequence["CredalSet"]) -> "CredalSet":
        """Return the mean of the bounds of an ensemble; Eq. (ensemble of CreINN)."""
        lower, upper = map(torch.stack, _bounds_of(sets, "average"))
        return cls._trusted(lower.mean(0), upper.mean(0))

    @classmethod
    def envelope(cls, sets: Sequence["CredalSet"]) -> "CredalSet":
        """Return the smallest lower and the largest upper probabilities of all sets.

        In contrast to the average, they include the disagreement of an ensemble.
        """
        lower, upper = map(torch.stack, _bounds_of(sets, "envelop"))
        return cls._wrap(lower.amin(0), upper.amax(0))

    @classmethod
    def from_samples(cls, probabilities: Any) -> "CredalSet":
        """Return the smallest and the largest probability of each class over samples.

        This is the credal wrapper of Wang et al. (2024), "Credal wrapper of model averaging for
        uncertainty estimation in classification".

        The arguments are distributions ``(S, ..., K)`` of an ensemble or of a Bayesian network.

        Example:
            >>> CredalSet.from_samples(torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.75, 0.0]]))
            CredalSet([0.25, 0.5], [0.25, 0.75], [0, 0.25])
        """
        samples = torch.as_tensor(probabilities)
        if samples.ndim < 2 or len(samples) == 0:
            raise ValueError(
                f"The samples must have shape (S, ..., K) with S >= 1, got {tuple(samples.shape)}."
            )
        points = cls(samples, samples)  # checks the distributions
        return cls._wrap(points.lower.amin(0), points.upper.amax(0))

    @classmethod
    def concatenate(cls, sets: Sequence["CredalSet"]) -> "CredalSet":
        """Join batches along the first axis. The result is calibrated if all sets are."""
        lower, upper = _bounds_of(sets, "concatenate", first_axis=1)
        new = cls._wrap(torch.cat(lower), torch.cat(upper))
        if any(s._label is not None for s in sets):
            new._label = torch.cat([s.label for s in sets])
        new._conformal = _common([s._conformal for s in sets])
        new._abstention = _common([s._abstention for s in sets])
        return new

    @property
    def lower(self) -> Tensor:
        """Reachable lower probabilities ``(..., K)``."""
        return self._lower

    @property
    def upper(self) -> Tensor:
        """Reachable upper probabilities ``(..., K)``."""
        return self._upper

    @property
    def width(self) -> Tensor:
        """Widths of the probability intervals ``(..., K)``."""
        return self.upper - self.lower

    @property
    def shape(self) -> torch.Size:
        """The shape of the bounds ``(..., K)``."""
        return self.lower.shape

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return self.lower.shape[-1]

    @functools.cached_property
    def intersection(self) -> Tensor:
        """The intersection probability ``(..., K)``; Eqs. (IntProb) and (IntSecAlpha)."""
        return probability.intersection_probability(self.lower, self.upper)

    @property
    def probabilities(self) -> Tensor:
        """The predicted distribution, which is :attr:`intersection`."""
        return self.intersection

    @property
    def label(self) -> Tensor:
        """The predicted class, i.e. the class with the largest intersection probability.

        Among equal probabilities, it is the class with the largest lower probability. A distance
        does not change the predicted class.
        """
        if self._label is not None:
            return self._label
        q = self.intersection
        is_best = q >= q.amax(-1, keepdim=True) * (1 - 4 * torch.finfo(q.dtype).eps)
        return torch.where(is_best, self.lower, -1.0).argmax(-1)

    @functools.cached_property
    def _uncertainty(self) -> Uncertainty:
        return self.uncertainty("interval" if self.num_classes == 2 else "entropy")

    def uncertainty(self, measure: str) -> Uncertainty:
        """Return the total, aleatoric and epistemic uncertainty.

        Args:
            measure: ``"entropy"`` for entropies in bits, or ``"interval"`` for the binary measures
                of two classes.
        """
        if measure == "entropy":
            return entropy.entropy_uncertainty(self.lower, self.upper)
        if measure == "interval":
            return entropy.interval_uncertainty(self.lower, self.upper)
        raise ValueError(f"measure must be 'entropy' or 'interval', got {measure!r}.")

    def ranking(self, by: str) -> Tensor:
        """Return an uncertainty: total, aleatoric, epistemic, or the entropy of the prediction."""
        if by not in MEASURES:
            raise ValueError(f"by must be one of {', '.join(map(repr, MEASURES))}, got {by!r}.")
        if by == "entropy":
            return shannon_entropy(self.intersection)
        if by == "total" and self.num_classes > 2:  # without the lower entropy, which is slower
            return entropy.upper_entropy(self.lower, self.upper)
        return getattr(self, by)

    def upper_entropy(self, return_distribution: bool = False) -> Any:
        """Return the largest entropy; see :func:`creinn.credal.entropy.upper_entropy`."""
        return entropy.upper_entropy(
            self.lower, self.upper, return_distribution=return_distribution
        )

    def lower_entropy(self, return_distribution: bool = False, return_gap: bool = False) -> Any:
        """Return the smallest entropy; see :func:`creinn.credal.entropy.lower_entropy`."""
        return entropy.lower_entropy(
            self.lower, self.upper, return_distribution=return_distribution, return_gap=return_gap
        )

    def classes(
        self, rule: str = "maximality", coverage: float | None = None, groups: Any = None
    ) -> Tensor:
        """Return a boolean mask ``(..., K)`` of the classes that are not ruled out.

        Args:
            rule: A rule of :mod:`creinn.credal.decision`, ``"maximality"`` or
                ``"e-admissibility"``. Sets by the rule ``"conformal"`` of a calibrated model can be
                empty, and contain the true class with probability ``coverage``; see
                :mod:`creinn.credal.conformal`.
            coverage: The coverage of ``"conformal"``; by default the one of the calibration.
            groups: The group of each row, if the calibration was by groups.
        """
        if rule == "conformal":
            found = _current(self._conformal, "x, y")
            return found.classes(self.lower, self.upper, self.intersection, coverage, groups)
        if rule not in RULES:
            raise ValueError(
                f"rule must be one of {', '.join(map(repr, (*RULES, 'conformal')))}, got {rule!r}."
            )
        if coverage is not None or groups is not None:
            raise ValueError(f"coverage and groups need the rule 'conformal', got {rule!r}.")
        return RULES[rule](self.lower, self.upper)

    def widened(self, coverage: float | None = None, groups: Any = None) -> "CredalSet":
        """Return wider sets with a guaranteed coverage of the true distribution.

        The sets contain the distribution of the votes with probability ``coverage``. The model
        must be calibrated by distributions; see :mod:`creinn.credal.margin`. The arguments and the
        guarantee are those of :meth:`classes`.
        """
        found = _current(self._conformal, "x, distributions")
        lower, upper = found.widened(self.lower, self.upper, coverage, groups)
        return type(self)._wrap(lower, upper, self._label)

    @property
    def accepted(self) -> Tensor:
        """Whether each row is accepted, with a guaranteed error rate; see :meth:`accept`."""
        return self.accept()

    def accept(self, groups: Any = None) -> Tensor:
        """Return a boolean mask of the rows whose uncertainty is small enough.

        The model must be calibrated with ``max_error``, which is then the largest error rate among
        accepted rows; see :mod:`creinn.credal.abstention`. Calibrations by groups need ``groups``.
        """
        found = _current(self._abstention, "x, y, max_error=0.05")
        return found.accepts(self.ranking(found.by), groups)

    @property
    def abstention(self) -> Abstention | None:
        """The limits for acceptance of the model, or None."""
        return self._abstention

    @property
    def conformal(self) -> Conformal | None:
        """The calibration of the model, or None."""
        return self._conformal

    def with_conformal(self, conformal: Conformal | None) -> "CredalSet":
        """Return a copy with this calibration."""
        new = self.with_label(self._label)
        new._conformal = conformal
        return new

    def with_abstention(self, abstention: Abstention | None) -> "CredalSet":
        """Return a copy with these limits for acceptance."""
        new = self.with_label(self._label)
        new._abstention = abstention
        return new

    def vertices(self) -> Tensor:
        """Return the vertices of one set as rows, in lexicographic order.

        At most 16 intervals can have a positive width.
        """
        if self.lower.ndim != 1:
            raise ValueError(f"vertices() needs one set, got {tuple(self.shape[:-1])}. Use s[i].")
        return probability.vertices(self.lower.detach(), self.upper.detach())

    def contains(self, q: Any, tolerance: float | None = None) -> Tensor:
        """Return whether distributions ``(..., K)`` are members of the sets.

        The default tolerance is 1e-5, or 1e-6 for float64.
        """
        point = torch.as_tensor(q, dtype=self.lower.dtype, device=self.lower.device)
        slack = probability.tolerance(self.lower.dtype) if tolerance is None else tolerance
        inside = (point >= self.lower - slack) & (point <= self.upper + slack)
        return inside.all(-1) & ((point.sum(-1) - 1).abs() <= slack)

    def plot(self, ax: Any = None, names: Sequence[str] | None = None) -> Any:
        """Plot one set or a few rows with matplotlib, and return the axes.

        Three classes are polygons in the simplex, other numbers are intervals. The intersection
        probability is a diamond.
        """
        return plot_credal_sets(self.lower, self.upper, names, ax)

    def to(self, *args: Any, **kwargs: Any) -> "CredalSet":
        """Convert the dtype or the device, as in :meth:`torch.Tensor.to`."""
        lower, upper = self.lower.to(*args, **kwargs), self.upper.to(*args, **kwargs)
        if lower.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"The dtype of a credal set must be float32 or float64, got {lower.dtype}."
            )
        label = None if self._label is None else self._label.to(lower.device)
        return self._with_bounds(lower, upper, label)

    def detach(self) -> "CredalSet":
        """Detach the sets from the autograd graph."""
        return self._with_bounds(self.lower.detach(), self.upper.detach(), self._label)

    def with_label(self, label: Tensor | None) -> "CredalSet":
        """Return a copy with this predicted class."""
        return self._with_bounds(self.lower, self.upper, label)

    def __len__(self) -> int:
        if self.lower.ndim == 1:
            raise TypeError("A single set has no length. Use num_classes.")
        return len(self.lower)

    def __getitem__(self, index: Any) -> "CredalSet":
        """Index the batch."""
        key = index if isinstance(index, tuple) else (index,)
        if not any(k is Ellipsis for k in key):
            key = (*key, Ellipsis)
        bounds = self.lower[(*key, slice(None))], self.upper[(*key, slice(None))]
        return self._with_bounds(*bounds, None if self._label is None else self._label[key])

    def __repr__(self) -> str:
        if self.lower.ndim == 1 and self.num_classes <= 10:
            pairs = zip(self.lower.tolist(), self.upper.tolist(), strict=True)
            return "CredalSet(" + ", ".join(f"[{low:.4g}, {high:.4g}]" for low, high in pairs) + ")"
        dtype, device = self.lower.dtype, self.lower.device
        return f"CredalSet(shape={tuple(self.shape)}, dtype={dtype}, device={device})"


def _bounds_of(
    sets: Sequence[CredalSet], verb: str, first_axis: int = 0
) -> tuple[list[Tensor], list[Tensor]]:
    """Check that the shapes are equal from ``first_axis`` on, and return the bounds."""
    shapes = [tuple(s.shape) for s in sets]
    ends = [shape[first_axis:] for shape in shapes]
    if not ends or not ends[0] or any(end != ends[0] for end in ends):  # sizes can be symbols
        raise ValueError(f"Cannot {verb} credal sets of shapes {shapes}.")
    return [s.lower for s in sets], [s.upper for s in sets]


def _current(calibration: Any, arguments: str) -> Any:
    """Return a calibration; raise an error if there is none, or if the model has changed."""
    if calibration is None:
        raise ValueError(
            f"These credal sets carry no calibration. Call model.calibrate({arguments}) with new "
            "rows, then model.predict."
        )
    if calibration.stale:
        raise RuntimeError(calibration.stale)
    return calibration


def _common(found: Sequence[Any]) -> Any:
    """Return the calibration of all sets, or None if some of them have no calibration."""
    known = [one for one in found if one is not None]
    if any(one != known[0] for one in known):
        raise ValueError(
            "The credal sets to concatenate have different calibrations. Use "
            "s.with_conformal(None) and s.with_abstention(None) to remove them."
        )
    return known[0] if len(known) == len(found) else None


pytree.register_pytree_node(
    CredalSet,
    lambda s: ([s.lower, s.upper] if s._label is None else [s.lower, s.upper, s._label], None),
    lambda leaves, _: CredalSet._wrap(*leaves),
    serialized_type_name="creinn.CredalSet",
)
