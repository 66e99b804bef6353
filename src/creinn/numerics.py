"""Stable scalar functions, with values and gradients that are right at the edges; and checks at the public boundary.

The functions are elementwise or act on the last axis, and never look at the data from the host; the checks do.
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def magnitude(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Absolute value whose derivative at 0 is 1: with that of :func:`torch.abs`, 0, a radius of 0 would stay there.

    Example:
        >>> magnitude(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([2., 0., 3.])
    """
    return torch.where(x < 0, -x, x)


def valid_radius(radius: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """``max(radius, 0)`` with gradient 1 everywhere: a radius pushed to zero or below is valid, and not dead."""
    return radius - radius.detach().clamp_max(0) if torch.is_grad_enabled() else radius.clamp_min(0)


def xlogx(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Compute :math:`x \ln x` for :math:`x \ge 0`, with :math:`0 \ln 0 = 0`.

    The gradient at 0 is finite, :math:`\ln` of the smallest normal number of the dtype: right in sign, and harmless
    when the chain rule multiplies it by the 0 of a saturated softmax.

    Example:
        >>> xlogx(torch.tensor([0.5, 1.0, 2.0]))
        tensor([-0.3466,  0.0000,  1.3863])
    """
    return x * x.clamp_min(torch.finfo(x.dtype).tiny).log()


def weight_per_row(weight: Tensor, target: Tensor) -> Tensor:
    """The weight of each row in a loss: that of its class if they are ``(K,)``, its own of a column ``(..., 1)``."""
    return weight[target] if weight.ndim == 1 else weight[..., 0]


def entropy(probabilities: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
    r"""Shannon entropy in bits of the last axis, :math:`-\sum_k q_k \log_2 q_k`.

    Example:
        >>> entropy(torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]))
        tensor([1., 0.])
    """
    return xlogx(probabilities).neg().sum(-1) / math.log(2.0)


def logsumexp_others(
    x: Float[Tensor, "*batch classes"],
) -> tuple[Float[Tensor, "*batch classes"], Float[Tensor, "*batch classes"]]:
    r"""Compute :math:`\operatorname{LSE}_{j \ne k} x_j` for every class k, as pivot plus remainder.

    The value is their sum. The pivot is the largest of the other entries (no gradient), the remainder lies in
    :math:`[0, \ln(K - 1)]`. Kept apart, ``(a - pivot) - remainder`` has no cancellation, however large the entries.

    With the sum :math:`S = \sum_j e^{x_j - \max x}`, the other classes of any k but the largest sum to
    :math:`S - e^{x_k - \max x} \ge 1`, a benign subtraction; the others of the largest are summed by themselves.

    Example:
        >>> logsumexp_others(torch.tensor([0.0, 0.0, 10000.0]))
        (tensor([10000., 10000.,     0.]), tensor([0.0000, 0.0000, 0.6931]))
    """
    values = x.detach()
    is_top = torch.arange(x.shape[-1], device=x.device) == values.argmax(-1, keepdim=True)
    top = values.amax(-1, keepdim=True)
    second = values.masked_fill(is_top, -math.inf).amax(-1, keepdim=True)
    from_top = (x - top).exp()
    from_second = (x - second).masked_fill(is_top, -math.inf).exp()
    others = torch.where(
        is_top, from_second.sum(-1, keepdim=True), from_top.sum(-1, keepdim=True) - from_top
    )
    return torch.where(is_top, second, top), others.log()


def widen(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Float64 copy for sums that must be exact, where the device has float64 (all but Apple's MPS); else unchanged."""
    return x if x.device.type == "mps" else x.double()


def at_least_single(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Float32 copy of float16 and bfloat16, whose probabilities need not sum to 1; anything wider unchanged."""
    return x.float() if x.dtype.itemsize < 4 else x


def safe_sqrt(x: Tensor) -> Tensor:
    """Square root with gradient zero at and below zero, where rounding or a row of zeros may put a variance.

    Example:
        >>> x = torch.zeros(1, requires_grad=True)
        >>> safe_sqrt(x).sum().backward()
        >>> x.grad
        tensor([0.])
    """
    result: Tensor = _SafeSqrt.apply(x)
    return result


class _SafeSqrt(torch.autograd.Function):
    """Keeps its result. Signs instead of choices by truth values, which are several times slower on a CPU."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp_min(0).sqrt()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (root,) = ctx.saved_tensors
        positive = root.sign()  # 1 or 0
        return gradient * positive / (2 * (root + (1 - positive)))


# Checks.


def first_index(mask: Bool[Tensor, "*shape"]) -> tuple[int, ...]:
    """Index of the first true entry, for error messages. The mask must hold one.

    Example:
        >>> first_index(torch.tensor([[False, False], [True, True]]))
        (1, 0)
    """
    return tuple(mask.nonzero()[0].tolist())


def as_floating(value: Any, name: str) -> Tensor:
    """A floating tensor from a tensor, array or list; integers outside a tensor become the default dtype."""
    if not isinstance(value, Tensor):
        value = torch.as_tensor(value)
        if not value.is_floating_point() and not value.is_complex():
            value = value.to(torch.get_default_dtype())
    if not value.is_floating_point():
        advice = "Convert it first, e.g. with .float()."
        raise TypeError(f"Interval needs a floating dtype, but {name} is {value.dtype}. {advice}")
    return value


def check_radius(center: Tensor, radius: Tensor) -> None:
    """Refuse a negative or NaN radius, or one that is not like its centre."""
    _check_alike(center, radius, ("center", "radius"))
    if _readable(radius) and bool((bad := ~(radius >= 0)).any()):
        at = first_index(bad)
        raise ValueError(
            f"Radius must be >= 0, but is {radius[at].item():g} at index {at}. Swap or clamp it first."
        )


def _readable(tensor: Tensor) -> bool:
    """Whether the values may be looked at: not while tracing, compiling, exporting or inside vmap."""
    return not (
        torch.compiler.is_compiling()
        or tensor.is_meta
        or torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    ) and type(tensor).__name__ not in ("FakeTensor", "FunctionalTensor")


def _check_alike(a: Tensor, b: Tensor, names: tuple[str, str]) -> None:
    """Refuse tensors that differ in shape, dtype or device."""
    for what in ("shape", "dtype", "device"):
        one, two = getattr(a, what), getattr(b, what)
        if one != two:
            one, two = (tuple(one), tuple(two)) if what == "shape" else (one, two)
            raise ValueError(
                f"The {what}s differ: {names[0]} has {one}, {names[1]} has {two}. Make them alike first."
            )


def check_bounds(lower: Tensor, upper: Tensor) -> bool:
    """Refuse invalid bounds; return whether all of them are ``>= 0`` (``False`` where that cannot be looked up)."""
    _check_alike(lower, upper, ("lower", "upper"))
    if not (_readable(lower) and _readable(upper)):
        return False
    bad = ~(torch.isfinite(lower) & torch.isfinite(upper) & (lower <= upper))
    if bool(bad.any()):
        at = first_index(bad)
        low, high = lower[at].item(), upper[at].item()
        where = f"at index {at} of shape {tuple(lower.shape)}: lower {low:g}, upper {high:g}"
        if low != low or high != high:
            raise ValueError(
                f"Interval bounds contain NaN {where}. Impute or drop missing values first."
            )
        if abs(low) == float("inf") or abs(high) == float("inf"):
            raise ValueError(
                f"Interval bounds are infinite {where}. Clip them to a finite range first."
            )
        raise ValueError(
            f"Interval bounds are inverted {where}. The lower bound must not exceed the upper one."
        )
    return bool((lower >= 0).all())


def at_least_one(**numbers: Any) -> None:
    """Refuse counts that are not whole numbers from 1 on: a ``TypeError``, or a ``ValueError`` for small ones."""
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an integer, got {value!r}.")
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
