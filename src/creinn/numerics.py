"""Numerically stable functions, argument checks, messages and tracing helpers.

The functions are elementwise, or they work on the last axis. They do not copy data to the host, but
the checks do.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, fx


def magnitude(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Compute the absolute value, with a derivative of 1 at 0.

    The derivative of :func:`torch.abs` at 0 is 0, so that a radius of 0 would never change.

    Example:
        >>> magnitude(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([2., 0., 3.])
    """
    return torch.where(x < 0, -x, x)


def valid_radius(radius: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Compute ``max(radius, 0)`` with a gradient of 1 everywhere.

    A radius that becomes negative can therefore grow again.
    """
    return radius - radius.detach().clamp_max(0) if torch.is_grad_enabled() else radius.clamp_min(0)


def xlogx(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Compute :math:`x \ln x` for :math:`x \ge 0`, with :math:`0 \ln 0 = 0`.

    The gradient at 0 is finite. It is :math:`\ln` of the smallest normal number of the dtype.

    Example:
        >>> xlogx(torch.tensor([0.5, 1.0, 2.0]))
        tensor([-0.3466,  0.0000,  1.3863])
    """
    return x * x.clamp_min(torch.finfo(x.dtype).tiny).log()


def weight_per_row(weight: Tensor, target: Tensor) -> Tensor:
    """Return the weight of each row.

    The weights are those of the classes, with shape ``(K,)``, or a column of shape ``(..., 1)``.
    """
    return weight[target] if weight.ndim == 1 else weight[..., 0]


def entropy(probabilities: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch"]:
    r"""Compute the Shannon entropy of the last axis in bits.

    .. math:: H(q) = -\sum_k q_k \log_2 q_k

    Example:
        >>> entropy(torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]))
        tensor([1., 0.])
    """
    return xlogx(probabilities).neg().sum(-1) / math.log(2.0)


def logsumexp_others(
    x: Float[Tensor, "*batch classes"],
) -> tuple[Float[Tensor, "*batch classes"], Float[Tensor, "*batch classes"]]:
    r"""Compute :math:`\operatorname{LSE}_{j \ne k} x_j` for each class k as two terms.

    The first term is the largest of the other entries, without a gradient. The second term is in
    :math:`[0, \ln(K - 1)]`. They are returned separately so that ``(a - first) - second`` has no
    cancellation for large entries.

    Let :math:`S = \sum_j e^{x_j - \max x}`. If k is not the largest class, the sum over the other
    classes is :math:`S - e^{x_k - \max x} \ge 1`, which is a stable difference. For the largest
    class, the sum is computed directly.

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
    """Convert to float64 for exact sums, except on MPS, which does not support it."""
    return x if x.device.type == "mps" else x.double()


def at_least_single(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Convert float16 and bfloat16 to float32; other dtypes are unchanged."""
    return x.float() if x.dtype.itemsize < 4 else x


def safe_sqrt(x: Tensor) -> Tensor:
    """Compute the square root, with a gradient of 0 for inputs that are not positive.

    Example:
        >>> x = torch.zeros(1, requires_grad=True)
        >>> safe_sqrt(x).sum().backward()
        >>> x.grad
        tensor([0.])
    """
    result: Tensor = _SafeSqrt.apply(x)
    return result


class _SafeSqrt(torch.autograd.Function):
    """Square root whose backward pass uses signs, because ``torch.where`` is slower."""

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


def first_index(mask: Bool[Tensor, "*shape"]) -> tuple[int, ...]:
    """Return the index of the first true entry, for error messages.

    Example:
        >>> first_index(torch.tensor([[False, False], [True, True]]))
        (1, 0)
    """
    return tuple(mask.nonzero()[0].tolist())


def as_floating(value: Any, name: str) -> Tensor:
    """Convert a tensor, an array or a list to a floating-point tensor."""
    if not isinstance(value, Tensor):
        value = torch.as_tensor(value)
        if not value.is_floating_point() and not value.is_complex():
            value = value.to(torch.get_default_dtype())
    if not value.is_floating_point():
        raise TypeError(f"{name} must have a floating dtype, got {value.dtype}. Use .float().")
    return value


def check_radius(center: Tensor, radius: Tensor) -> None:
    """Raise a ``ValueError`` if a radius is negative or does not match its center."""
    _check_alike(center, radius, ("center", "radius"))
    if _readable(radius) and bool((bad := ~(radius >= 0)).any()):
        at = first_index(bad)
        raise ValueError(
            f"The radius must be >= 0, got {radius[at].item():g} at index {at}. Clamp it first."
        )


def _readable(tensor: Tensor) -> bool:
    """Return ``False`` during tracing, compilation, export and vmap."""
    return not (
        torch.compiler.is_compiling()
        or tensor.is_meta
        or torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    ) and type(tensor).__name__ not in ("FakeTensor", "FunctionalTensor")


def _check_alike(a: Tensor, b: Tensor, names: tuple[str, str]) -> None:
    """Raise a ``ValueError`` if the shapes, the dtypes or the devices differ."""
    for what in ("shape", "dtype", "device"):
        one, two = getattr(a, what), getattr(b, what)
        if one != two:
            one, two = (tuple(one), tuple(two)) if what == "shape" else (one, two)
            raise ValueError(
                f"{names[0]} and {names[1]} must have the same {what}, got {one} and {two}."
            )


def check_bounds(lower: Tensor, upper: Tensor) -> bool:
    """Check bounds, and return whether all of them are ``>= 0``.

    The result is ``False`` if the values cannot be read.

    Raises:
        ValueError: If a bound is not finite, or a lower bound is larger than its upper bound.
    """
    _check_alike(lower, upper, ("lower", "upper"))
    if not (_readable(lower) and _readable(upper)):
        return False
    bad = ~(torch.isfinite(lower) & torch.isfinite(upper) & (lower <= upper))
    if bool(bad.any()):
        at = first_index(bad)
        low, high = lower[at].item(), upper[at].item()
        found = f"got [{low:g}, {high:g}] at index {at} of shape {tuple(lower.shape)}"
        if low != low or high != high:
            raise ValueError(
                f"The bounds must not be NaN, {found}. Impute or drop missing values first."
            )
        if abs(low) == float("inf") or abs(high) == float("inf"):
            raise ValueError(
                f"The bounds must not be infinite, {found}. Clip them to a finite range first."
            )
        raise ValueError(f"The lower bounds must not be larger than the upper bounds, {found}.")
    return bool((lower >= 0).all())


def check_integers(least: int = 1, **values: Any) -> None:
    """Check that values are integers and not smaller than ``least``.

    Raises:
        TypeError: If a value is not an integer.
        ValueError: If a value is smaller than ``least``.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an integer, got {value!r}.")
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}.")


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun, for messages.

    Example:
        >>> pluralize(1, "row"), pluralize(2, "row")
        ('1 row', '2 rows')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def list_names(names: Sequence[str], noun: str) -> str:
    """Return the number of names and the first ones, for messages.

    Example:
        >>> list_names(["a", "b"], "column")
        '2 columns (a, b)'
    """
    return f"{pluralize(len(names), noun)} ({shorten_list(names)})"


def shorten_list(names: Sequence[str]) -> str:
    """Return the first ten names, separated by commas."""
    return ", ".join([*names[:10], *(["..."] if len(names) > 10 else [])])


def traceable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make ``function`` record one node when an argument is a ``torch.fx.Proxy``.

    Unlike ``torch.fx.wrap``, this needs no patch of the module that defines the function, so other
    threads are not affected while a network is traced.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy((*args, *kwargs.values()))
        if proxy is None:
            return function(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", wrapper, args, kwargs)

    return wrapper


def _find_proxy(values: Iterable[Any]) -> fx.Proxy | None:
    for value in values:
        if isinstance(value, fx.Proxy):
            return value
        if isinstance(value, list | tuple) and (found := _find_proxy(value)) is not None:
            return found
    return None
