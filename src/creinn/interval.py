r"""Tensors of closed intervals :math:`[\underline a, \overline a]`.

An :class:`Interval` is created from two bounds, from a point, or from a center and a radius. It is
the input and the output of the layers in :mod:`creinn.nn` (Section "Interval neural networks" of
Wang et al.; (forward_inn)). The bounds are inclusive in exact arithmetic. They are not rounded
outwards.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.utils.data._utils.collate import default_collate_fn_map

from creinn.numerics import as_floating, check_bounds, check_radius, traceable, valid_radius

ON_INTERVALS: dict[Any, Callable[..., Any]] = {}
"""The interval version of each torch function, as defined in :mod:`creinn.nn.functional`."""


def _like_tensors(function: Callable[..., Tensor]) -> Callable[..., "Interval"]:
    """Return a method that applies a method of tensors to both bounds."""

    def method(self: "Interval", *args: Any, **kwargs: Any) -> "Interval":
        return self.map_monotone(lambda t: function(t, *args, **kwargs))

    method.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    method.__doc__ = "As the method of ``torch.Tensor``, on both bounds."
    return method


class Interval:
    """A tensor of closed intervals.

    The two bounds, or the center and the radius, are stored in one tensor ``(N, 2, C, ...)``, so
    that a layer is one call. Two flags save time and do not change the bounds. ``is_point`` is true
    if the bounds are the same tensor. ``nonnegative`` is true if they are known to be ``>= 0``.

    Args:
        lower: The lower bounds, as a floating tensor or an argument of ``torch.as_tensor``.
        upper: The upper bounds, with the same shape, dtype and device.

    Raises:
        ValueError: If the shapes, dtypes or devices are not the same, if a bound is NaN or
            infinite, or if ``lower > upper`` for an element.
        TypeError: If the dtype of the tensors is not a floating dtype.

    Example:
        >>> x = Interval(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 1.5]))
        >>> x.center, x.radius
        (tensor([1.0000, 1.2500]), tensor([1.0000, 0.2500]))
        >>> -x + 1
        Interval(lower=tensor([-1.0000, -0.5000]), upper=tensor([1., 0.]))
    """

    __slots__ = ("_bounds", "_center_radius", "_parts", "is_point", "nonnegative")

    _parts: tuple[Any, Any] | None  # (lower, upper)
    _bounds: Tensor | None  # both bounds in one tensor, stacked along `stack_axis`
    _center_radius: (
        Tensor | None
    )  # center and radius in one tensor; rounding can make the radius negative
    is_point: bool
    nonnegative: bool

    def __init__(self, lower: Any, upper: Any) -> None:
        lower, upper = as_floating(lower, "lower"), as_floating(upper, "upper")
        self._parts, self._bounds, self._center_radius = (lower, upper), None, None
        self.is_point = False
        self.nonnegative = check_bounds(lower, upper)

    @classmethod
    def point(cls, value: Any) -> "Interval":
        """Create intervals of width zero; raise a ``ValueError`` for NaN or infinity."""
        value = as_floating(value, "value")
        return cls._of_point(value, check_bounds(value, value))

    @classmethod
    def from_center_radius(cls, center: Any, radius: Any) -> "Interval":
        """Create ``[center - radius, center + radius]``, with a radius ``>= 0``."""
        center, radius = as_floating(center, "center"), as_floating(radius, "radius")
        check_radius(center, radius)
        return cls(center - radius, center + radius)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the interval version of a torch function, or raise a ``TypeError``."""
        if func not in ON_INTERVALS:
            known = ", ".join(sorted({function.__name__ for function in ON_INTERVALS.values()}))
            raise TypeError(
                f"torch's {func.__name__!r} has no interval version; these functions have: {known}."
            )
        return ON_INTERVALS[func](*args, **(kwargs or {}))

    # Constructors without checks, for internal use.

    @classmethod
    def _new(
        cls,
        *,
        parts: Any = None,
        bounds: Any = None,
        center_radius: Any = None,
        point: bool,
        nonnegative: bool,
    ) -> "Interval":
        self = cls.__new__(cls)
        self._parts, self._bounds, self._center_radius = parts, bounds, center_radius
        self.is_point, self.nonnegative = point, nonnegative
        return self

    @classmethod
    def _of_point(cls, value: Tensor, nonnegative: bool = False) -> "Interval":
        return cls._new(parts=(value, value), point=True, nonnegative=nonnegative)

    @classmethod
    def _of_parts(cls, lower: Tensor, upper: Tensor, nonnegative: bool = False) -> "Interval":
        return cls._new(parts=(lower, upper), point=False, nonnegative=nonnegative)

    @classmethod
    def _of_bounds(cls, bounds: Tensor, nonnegative: bool = False) -> "Interval":
        return cls._new(bounds=bounds, point=False, nonnegative=nonnegative)

    @classmethod
    def _of_center_radius(cls, center_radius: Tensor, nonnegative: bool = False) -> "Interval":
        return cls._new(center_radius=center_radius, point=False, nonnegative=nonnegative)

    def _assign(self, other: "Interval") -> "Interval":
        """Replace the value by the one of ``other``, without a change of any tensor."""
        for name in Interval.__slots__:
            setattr(self, name, getattr(other, name))
        return self

    # The two packed forms.

    @property
    def bounds(self) -> Tensor:
        """Both bounds in one tensor ``(N, 2, ...)``, or ``(2, ...)`` if ``ndim < 2``."""
        if self._bounds is None:
            parts = self._parts
            if parts is None:
                center, radius = self._unbind_center_radius()
                parts = center - radius, center + radius
            self._bounds = stack_parts(*parts)
        return self._bounds

    @property
    def center_radius(self) -> Tensor:
        """The center and the radius in one tensor, stacked as in :attr:`bounds`."""
        if self._center_radius is None:
            lower, upper = self.lower, self.upper
            self._center_radius = stack_parts((lower + upper) / 2, (upper - lower) / 2)
        return self._center_radius

    @property
    def has_center_radius(self) -> bool:
        """Whether the center and the radius are stored, so that they are not computed."""
        return self._center_radius is not None

    def _unbind_center_radius(self) -> tuple[Tensor, Tensor]:
        center, radius = self.center_radius.unbind(stack_axis(self.ndim))
        return center, valid_radius(radius)

    @property
    def _any(self) -> Tensor:
        """A tensor with the shape of the interval, in any form that is stored."""
        if self._parts is not None:
            return self._parts[0]
        packed = self._bounds if self._bounds is not None else self._center_radius
        assert packed is not None
        return packed.select(stack_axis(packed.ndim - 1), 0)

    @property
    def lower(self) -> Tensor:
        """Lower bounds."""
        return self._bound(0)

    @property
    def upper(self) -> Tensor:
        """Upper bounds."""
        return self._bound(1)

    def _bound(self, index: int) -> Tensor:
        return (
            self._parts[index]
            if self._parts is not None
            else self.bounds.select(stack_axis(self.ndim), index)
        )

    @property
    def center(self) -> Tensor:
        """Midpoints ``(lower + upper) / 2``."""
        if self.is_point:
            return self.lower
        return (
            self._unbind_center_radius()[0]
            if self.has_center_radius
            else (self.lower + self.upper) / 2
        )

    @property
    def radius(self) -> Tensor:
        """Half widths ``(upper - lower) / 2``."""
        return (
            self._unbind_center_radius()[1]
            if self.has_center_radius
            else (self.upper - self.lower) / 2
        )

    @property
    def width(self) -> Tensor:
        """Widths ``upper - lower``."""
        return self.upper - self.lower

    # Properties of tensors.

    @property
    def shape(self) -> torch.Size:
        """The shape of the bounds."""
        return self._any.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions of the bounds."""
        return self._any.ndim

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the bounds."""
        return self._any.dtype

    @property
    def device(self) -> torch.device:
        """The device of the bounds."""
        return self._any.device

    @property
    def requires_grad(self) -> bool:
        """Whether one of the bounds requires a gradient."""
        return self.lower.requires_grad or self.upper.requires_grad

    def size(self, dim: int | None = None) -> Any:
        """Return the shape, or the size of a dimension, as in ``Tensor.size``."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Return the number of dimensions, as in ``Tensor.dim``."""
        return self.ndim

    def __len__(self) -> int:
        return len(self._any)

    def __repr__(self) -> str:
        return f"Interval(lower={self.lower!r}, upper={self.upper!r})"

    def contains(self, value: Tensor) -> Tensor:
        """Return whether each value is in the interval, including the bounds."""
        return (self.lower <= value) & (value <= self.upper)

    # Monotone functions.

    def map_monotone(
        self, function: Callable[[Tensor], Tensor], nonnegative: bool | None = None
    ) -> "Interval":
        """Apply a function to both bounds.

        The function must be non-decreasing in every element of its argument. ``nonnegative`` is
        true if the result is known to be ``>= 0``. The default is the flag of the argument.
        """
        keep = self.nonnegative if nonnegative is None else nonnegative
        if self.is_point:
            return Interval._of_point(function(self.lower), keep)
        return Interval._of_parts(function(self.lower), function(self.upper), keep)

    def channelwise(self, function: Callable[[Tensor], Tensor], linear: bool = False) -> "Interval":
        """Apply a function of rows to both bounds in one call, as in :meth:`map_monotone`.

        If the function is ``linear``, it can be applied to the center and the radius.
        """
        if self.is_point or self.ndim < 2:
            return self.map_monotone(function)
        by_center = linear and self.has_center_radius
        result = function(
            (self.center_radius if by_center else self.bounds).flatten(0, 1)
        ).unflatten(0, (-1, 2))
        return (Interval._of_center_radius if by_center else Interval._of_bounds)(
            result, self.nonnegative
        )

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> "Interval":
        """Flatten the dimensions, as in ``Tensor.flatten``."""
        is_packed = self._center_radius is not None or self._bounds is not None
        if is_packed and start_dim % max(self.ndim, 1) > 0:
            return self.channelwise(lambda t: t.flatten(start_dim, end_dim), linear=True)
        return self.map_monotone(lambda t: t.flatten(start_dim, end_dim))

    reshape = _like_tensors(lambda t, *shape: t.reshape(*shape))
    unsqueeze = _like_tensors(lambda t, dim: t.unsqueeze(dim))
    squeeze = _like_tensors(lambda t, *dim: t.squeeze(*dim))
    permute = _like_tensors(lambda t, *dims: t.permute(*dims))
    transpose = _like_tensors(lambda t, dim0, dim1: t.transpose(dim0, dim1))
    contiguous = _like_tensors(lambda t: t.contiguous())
    sum = _like_tensors(lambda t, dim=None, keepdim=False: t.sum(dim, keepdim=keepdim))
    mean = _like_tensors(lambda t, dim=None, keepdim=False: t.mean(dim, keepdim=keepdim))
    to = _like_tensors(lambda t, *args, **kwargs: t.to(*args, **kwargs))
    detach = _like_tensors(lambda t: t.detach())
    clone = _like_tensors(lambda t: t.clone())
    pin_memory = _like_tensors(
        lambda t: t.pin_memory()
    )  # used by a DataLoader with ``pin_memory=True``

    def __getitem__(self, index: Any) -> "Interval":
        return self.map_monotone(lambda t: t[index])

    # Arithmetic. The result is the exact range for independent operands.

    def __neg__(self) -> "Interval":
        return (
            Interval._of_point(-self.lower)
            if self.is_point
            else Interval._of_parts(-self.upper, -self.lower)
        )

    def __add__(self, other: Any) -> "Interval":
        if not isinstance(other, _OPERANDS):
            return NotImplemented
        other = _operand(other, self)
        nonnegative = self.nonnegative and other.nonnegative
        if self.is_point and other.is_point:
            return Interval._of_point(self.lower + other.lower, nonnegative)
        if self.shape == other.shape and not (self.is_point or other.is_point):
            if self.has_center_radius and other.has_center_radius:
                return Interval._of_center_radius(
                    self.center_radius + other.center_radius, nonnegative
                )
            return Interval._of_bounds(self.bounds + other.bounds, nonnegative)
        return Interval._of_parts(self.lower + other.lower, self.upper + other.upper, nonnegative)

    def __sub__(self, other: Any) -> "Interval":
        return self + (-other) if isinstance(other, _OPERANDS) else NotImplemented

    def __rsub__(self, other: Any) -> "Interval":
        return -self + other

    def __mul__(self, other: Any) -> "Interval":
        if not isinstance(other, _OPERANDS):
            return NotImplemented
        other = _operand(other, self)
        nonnegative = self.nonnegative and other.nonnegative
        if self.is_point and other.is_point:
            return Interval._of_point(self.lower * other.lower, nonnegative)
        if other.is_point:
            return _ordered(self.lower * other.lower, self.upper * other.lower, nonnegative)
        products = torch.stack(
            [a * b for a in (self.lower, self.upper) for b in (other.lower, other.upper)]
        )
        return Interval._of_parts(products.amin(0), products.amax(0), nonnegative)

    def __truediv__(self, other: Any) -> "Interval":
        if not isinstance(other, Tensor | int | float):
            return NotImplemented
        other = _operand(other, self)
        return _ordered(
            self.lower / other.lower,
            self.upper / other.lower,
            self.nonnegative and other.nonnegative,
        )

    __radd__ = __add__
    __rmul__ = __mul__


_OPERANDS = (Interval, Tensor, int, float)


def as_interval(x: Interval | Tensor) -> Interval:
    """Return an interval, or an unchecked tensor as a point, or raise a ``TypeError``."""
    if isinstance(x, Interval):
        return x
    if isinstance(x, Tensor):
        return Interval._of_point(x)
    raise TypeError(f"Expected an Interval or a tensor (a point), got {type(x).__name__}.")


@traceable
def cat(intervals: Sequence[Interval | Tensor], dim: int = 0) -> Interval:
    """Concatenate intervals, as in ``torch.cat``; a tensor is a point."""
    xs = [as_interval(x) for x in intervals]
    point, nonnegative = all(x.is_point for x in xs), all(x.nonnegative for x in xs)
    lower = torch.cat([x.lower for x in xs], dim)
    upper = lower if point else torch.cat([x.upper for x in xs], dim)
    return Interval._new(parts=(lower, upper), point=point, nonnegative=nonnegative)


@traceable
def stack(intervals: Sequence[Interval | Tensor], dim: int = 0) -> Interval:
    """Stack intervals, as in ``torch.stack``; a tensor is a point."""
    return cat([x.unsqueeze(dim) for x in intervals], dim)


def stack_axis(ndim: int) -> int:
    """Return the axis of the two bounds in the packed form of an interval."""
    return 1 if ndim >= 2 else 0


def stack_parts(first: Tensor, second: Tensor) -> Tensor:
    """Stack two bounds in the packed form of an interval."""
    return torch.stack((first, second), stack_axis(first.ndim))


def _ordered(a: Tensor, b: Tensor, nonnegative: bool) -> Interval:
    return Interval._of_parts(torch.minimum(a, b), torch.maximum(a, b), nonnegative)


def _operand(value: Any, like: Interval) -> Interval:
    if isinstance(value, Interval | Tensor):
        return as_interval(value)
    return Interval._of_point(
        torch.as_tensor(value, dtype=like.dtype, device=like.device), nonnegative=value >= 0
    )


def _flatten_with_keys(x: Interval) -> tuple[list[tuple[Any, Any]], bool]:
    names = ("lower",) if x.is_point else ("lower", "upper")
    return [(pytree.GetAttrKey(name), getattr(x, name)) for name in names], x.is_point


def _flatten(x: Interval) -> tuple[list[Any], bool]:
    return [leaf for _, leaf in _flatten_with_keys(x)[0]], x.is_point


def _unflatten(leaves: Any, is_point: bool) -> Interval:
    # The leaves can be any objects in a tree map. The flag `nonnegative` only affects the speed.
    leaves = list(leaves)
    return Interval._new(parts=(leaves[0], leaves[-1]), point=is_point, nonnegative=False)


pytree.register_pytree_node(
    Interval,
    _flatten,
    _unflatten,
    serialized_type_name="creinn.Interval",
    flatten_with_keys_fn=_flatten_with_keys,
)
default_collate_fn_map[Interval] = lambda batch, *, collate_fn_map=None: stack(batch)
