r"""Tensors of closed intervals :math:`[\underline a, \overline a]`.

Inputs and outputs of :mod:`creinn.nn` layers (Section "Interval neural
networks" of Wang et al.; (forward_inn)). Bounds are not rounded outwards.
"""

import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.utils.data._utils.collate import default_collate_fn_map

from creinn.numerics import as_floating, check_bounds, check_radius, traceable, valid_radius

ON_INTERVALS: dict[Any, Callable[..., Any]] = {}
"""Interval versions of torch functions; see :mod:`creinn.nn.functional`."""


def _attribute(name: str) -> Any:
    return property(lambda self: getattr(self._any, name), doc=f"As ``Tensor.{name}``.")


def _like_tensors(function: Callable[..., Tensor]) -> Callable[..., "Interval"]:
    def method(self: "Interval", *args: Any, **kwargs: Any) -> "Interval":
        return self.map_monotone(lambda t: function(t, *args, **kwargs))

    method.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    method.__doc__ = "As in ``torch.Tensor``."
    return method


class Interval:
    """A tensor of closed intervals.

    The flags ``is_point`` (the bounds are the same tensor) and
    ``nonnegative`` (they are known to be ``>= 0``) save time.

    Args:
        lower: The lower bounds, as a tensor or an argument of
            ``torch.as_tensor``.
        upper: The upper bounds, with the same shape, dtype and device.

    Raises:
        ValueError: If the tensors do not match, a bound is not finite, or
            ``lower > upper``.
        TypeError: If the dtype is not a floating dtype.

    Example:
        >>> x = Interval(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 1.5]))
        >>> x.center, x.radius
        (tensor([1.0000, 1.2500]), tensor([1.0000, 0.2500]))
        >>> -x + 1
        Interval(lower=tensor([-1.0000, -0.5000]), upper=tensor([1., 0.]))
    """

    __slots__ = ("_bounds", "_center_radius", "_parts", "is_point", "nonnegative")

    _parts: Any  # lower and upper, or None
    _bounds: Tensor | None
    _center_radius: Tensor | None  # rounding can make the radius negative
    is_point: bool
    nonnegative: bool

    def __init__(self, lower: Any, upper: Any) -> None:
        lower, upper = as_floating(lower, "lower"), as_floating(upper, "upper")
        self._assign(Interval._of_parts(lower, upper, check_bounds(lower, upper)))

    @classmethod
    def point(cls, value: Any) -> "Interval":
        """Create intervals of width zero from finite values."""
        value = as_floating(value, "value")
        return cls._of_point(value, check_bounds(value, value))

    @classmethod
    def from_center_radius(cls, center: Any, radius: Any) -> "Interval":
        """Create ``[center - radius, center + radius]`` if ``radius >= 0``."""
        center, radius = as_floating(center, "center"), as_floating(radius, "radius")
        check_radius(center, radius)
        return cls(center - radius, center + radius)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the interval version of a torch function."""
        if func not in ON_INTERVALS:
            known = ", ".join(sorted({version.__name__ for version in ON_INTERVALS.values()}))
            raise TypeError(f"{func.__name__!r} does not support intervals. Use one of {known}.")
        return ON_INTERVALS[func](*args, **(kwargs or {}))

    # Constructors without checks.

    @classmethod
    def _of_parts(cls, lower: Any, upper: Any, nonnegative: bool = False) -> "Interval":
        self = cls.__new__(cls)
        self._parts, self._bounds, self._center_radius = (lower, upper), None, None
        self.is_point, self.nonnegative = False, nonnegative
        return self

    @classmethod
    def _of_point(cls, value: Tensor, nonnegative: bool = False) -> "Interval":
        self = cls._of_parts(value, value, nonnegative)
        self.is_point = True
        return self

    @classmethod
    def _of_bounds(cls, bounds: Tensor, nonnegative: bool = False) -> "Interval":
        self = cls._of_parts(None, None, nonnegative)
        self._parts, self._bounds = None, bounds
        return self

    @classmethod
    def _of_center_radius(cls, center_radius: Tensor, nonnegative: bool = False) -> "Interval":
        self = cls._of_parts(None, None, nonnegative)
        self._parts, self._center_radius = None, center_radius
        return self

    def _assign(self, other: "Interval") -> "Interval":
        for name in Interval.__slots__:
            setattr(self, name, getattr(other, name))
        return self

    # Bounds, center and radius.

    @property
    def bounds(self) -> Tensor:
        """Both bounds as ``(N, 2, ...)``, or ``(2, ...)`` if ``ndim < 2``."""
        if self._bounds is None:
            self._bounds = stack_parts(*self._pair)
        return self._bounds

    @property
    def center_radius(self) -> Tensor:
        """Center and radius, stacked as in :attr:`bounds`."""
        if self._center_radius is None:
            self._center_radius = stack_parts(self.center, self.radius)
        return self._center_radius

    @property
    def has_center_radius(self) -> bool:
        """Whether center and radius are stored."""
        return self._center_radius is not None

    @property
    def _pair(self) -> tuple[Any, Any]:
        if self._parts is None and self._bounds is not None:
            self._parts = self._bounds.unbind(stack_axis(self._bounds.ndim - 1))
        elif self._parts is None:
            center, radius = self.center, self.radius
            self._parts = center - radius, center + radius
        return self._parts

    @property
    def lower(self) -> Tensor:
        """Lower bounds."""
        return self._pair[0]

    @property
    def upper(self) -> Tensor:
        """Upper bounds."""
        return self._pair[1]

    @property
    def center(self) -> Tensor:
        """Midpoints ``(lower + upper) / 2``."""
        if self.has_center_radius:
            return self._select(0)
        return self.lower if self.is_point else (self.lower + self.upper) / 2

    @property
    def radius(self) -> Tensor:
        """Half widths ``(upper - lower) / 2``."""
        return valid_radius(self._select(1)) if self.has_center_radius else self.width / 2

    @property
    def width(self) -> Tensor:
        """Widths ``upper - lower``."""
        return self.upper - self.lower

    def _select(self, index: int) -> Tensor:
        packed: Any = self._center_radius
        return packed.select(stack_axis(packed.ndim - 1), index)

    # Properties of tensors.

    @property
    def _any(self) -> Tensor:
        """A tensor of the same shape."""
        return self._select(0) if self.has_center_radius else self.lower

    shape: torch.Size = _attribute("shape")
    ndim: int = _attribute("ndim")
    dtype: torch.dtype = _attribute("dtype")
    device: torch.device = _attribute("device")

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient is required for one of the bounds."""
        return self.lower.requires_grad or self.upper.requires_grad

    def size(self, dim: int | None = None) -> Any:
        """Return the shape or the size of a dimension."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Return the number of dimensions."""
        return self.ndim

    def __len__(self) -> int:
        return len(self._any)

    def __repr__(self) -> str:
        return f"Interval(lower={self.lower!r}, upper={self.upper!r})"

    def contains(self, value: Tensor) -> Tensor:
        """Return whether the values are in the intervals."""
        return (self.lower <= value) & (value <= self.upper)

    # Monotone functions.

    def map_monotone(
        self, function: Callable[[Tensor], Tensor], nonnegative: bool | None = None
    ) -> "Interval":
        """Apply a function that is non-decreasing in each element.

        By default, ``nonnegative`` does not change.
        """
        nonnegative = self.nonnegative if nonnegative is None else nonnegative
        if self.is_point:
            return Interval._of_point(function(self.lower), nonnegative)
        return Interval._of_parts(function(self.lower), function(self.upper), nonnegative)

    def channelwise(self, function: Callable[[Tensor], Tensor], linear: bool = False) -> "Interval":
        """Apply a non-decreasing function of rows in one call.

        A ``linear`` function is applied to the center and the radius, if
        stored.
        """
        if self.is_point or self.ndim < 2:
            return self.map_monotone(function)
        by_center = linear and self.has_center_radius
        rows = (self.center_radius if by_center else self.bounds).flatten(0, 1)
        create = Interval._of_center_radius if by_center else Interval._of_bounds
        return create(function(rows).unflatten(0, (-1, 2)), self.nonnegative)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> "Interval":
        """Flatten dimensions."""

        def flatten(t: Tensor) -> Tensor:
            return t.flatten(start_dim, end_dim)

        if self.has_center_radius and start_dim > 0:
            return self.channelwise(flatten, linear=True)
        return self.map_monotone(flatten)

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
    pin_memory = _like_tensors(lambda t: t.pin_memory())  # used by data loaders

    def __getitem__(self, index: Any) -> "Interval":
        return self.map_monotone(lambda t: t[index])

    # Arithmetic: the exact range for independent operands.

    def __neg__(self) -> "Interval":
        if self.is_point:
            return Interval._of_point(-self.lower)
        return Interval._of_parts(-self.upper, -self.lower)

    def __add__(self, other: Any) -> "Interval":
        if not isinstance(other, _OPERANDS):
            return NotImplemented
        other = _operand(other, self)
        nonnegative = self.nonnegative and other.nonnegative
        if self.is_point and other.is_point:
            return Interval._of_point(self.lower + other.lower, nonnegative)
        if self.has_center_radius and other.has_center_radius and self.shape == other.shape:
            return Interval._of_center_radius(self.center_radius + other.center_radius, nonnegative)
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
        ends = itertools.product((self.lower, self.upper), (other.lower, other.upper))
        products = torch.stack([a * b for a, b in ends])
        return Interval._of_parts(products.amin(0), products.amax(0), nonnegative)

    def __truediv__(self, other: Any) -> "Interval":
        if not isinstance(other, Tensor | int | float):
            return NotImplemented
        other = _operand(other, self)
        nonnegative = self.nonnegative and other.nonnegative
        return _ordered(self.lower / other.lower, self.upper / other.lower, nonnegative)

    __radd__ = __add__
    __rmul__ = __mul__


_OPERANDS = (Interval, Tensor, int, float)


def as_interval(x: Interval | Tensor) -> Interval:
    """Return an interval; a tensor is a point and is not checked."""
    if isinstance(x, Interval):
        return x
    if isinstance(x, Tensor):
        return Interval._of_point(x)
    raise TypeError(f"Expected an Interval or a tensor, got {type(x).__name__}.")


@traceable
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Concatenate intervals or tensors; a tensor among intervals is a point."""
    if not any(isinstance(x, Interval) for x in tensors):
        return torch.cat(list(tensors), dim)
    xs = [as_interval(x) for x in tensors]
    nonnegative = all(x.nonnegative for x in xs)
    lower = torch.cat([x.lower for x in xs], dim)
    if all(x.is_point for x in xs):
        return Interval._of_point(lower, nonnegative)
    return Interval._of_parts(lower, torch.cat([x.upper for x in xs], dim), nonnegative)


@traceable
def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Stack intervals or tensors, as in :func:`cat`."""
    return cat([x.unsqueeze(dim) for x in tensors], dim)


def stack_axis(ndim: int) -> int:
    """Return the axis of the bounds in a packed tensor."""
    return 1 if ndim >= 2 else 0


def stack_parts(first: Tensor, second: Tensor) -> Tensor:
    """Pack two tensors; contiguous, as oneDNN corrupts other formats."""
    return torch.stack((first, second), stack_axis(first.ndim)).contiguous()


def _ordered(a: Tensor, b: Tensor, nonnegative: bool) -> Interval:
    return Interval._of_parts(torch.minimum(a, b), torch.maximum(a, b), nonnegative)


def _operand(value: Any, like: Interval) -> Interval:
    if isinstance(value, Interval | Tensor):
        return as_interval(value)
    number = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    return Interval._of_point(number, nonnegative=value >= 0)


def _flatten(x: Interval) -> tuple[list[Any], bool]:
    return list(x._pair[:1] if x.is_point else x._pair), x.is_point


def _flatten_with_keys(x: Interval) -> tuple[list[tuple[Any, Any]], bool]:
    keys = [pytree.GetAttrKey(name) for name in ("lower", "upper")]
    return list(zip(keys, _flatten(x)[0], strict=False)), x.is_point


def _unflatten(leaves: Any, is_point: bool) -> Interval:
    # leaves can be any objects
    return Interval._of_point(*leaves) if is_point else Interval._of_parts(*leaves)


pytree.register_pytree_node(
    Interval, _flatten, _unflatten, serialized_type_name="creinn.Interval",
    flatten_with_keys_fn=_flatten_with_keys,
)  # fmt: skip
default_collate_fn_map[Interval] = lambda batch, *, collate_fn_map=None: stack(batch)
