"""Numerically stable functions, argument checks, messages and tracing."""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, fx

Values = Float[Tensor, "*shape"]
PerClass = Float[Tensor, "*batch classes"]
PerRow = Float[Tensor, "*batch"]


def magnitude(x: Values) -> Values:
    """Compute the absolute value, with a derivative of 1 at 0.

    The derivative of :func:`torch.abs` at 0 is 0, so a radius of 0 would
    not change.

    Example:
        >>> magnitude(torch.tensor([-2.0, 0.0]))
        tensor([2., 0.])
    """
    return torch.where(x < 0, -x, x)


def valid_radius(radius: Values) -> Values:
    """Compute ``max(radius, 0)``, with a gradient of 1 for all values."""
    if torch.is_grad_enabled():
        return radius - radius.detach().clamp_max(0)
    return radius.clamp_min(0)


def xlogx(x: Values) -> Values:
    r"""Compute :math:`x \ln x` for :math:`x \ge 0`, with :math:`0 \ln 0 = 0`.

    The gradient at 0 is :math:`\ln` of the smallest normal number.

    Example:
        >>> xlogx(torch.tensor([0.5, 1.0]))
        tensor([-0.3466,  0.0000])
    """
    return x * x.clamp_min(torch.finfo(x.dtype).tiny).log()


def weight_per_row(weight: Tensor, target: Tensor) -> Tensor:
    """Return the weight of each row, given class weights or a column.

    For a label distribution, this is the mean of the class weights.
    """
    if weight.ndim > 1:
        return weight[..., 0]
    return (target * weight).sum(-1) if target.is_floating_point() else weight[target]


def entropy(probabilities: PerClass) -> PerRow:
    r"""Compute the Shannon entropy of the last axis in bits.

    .. math:: H(q) = -\sum_k q_k \log_2 q_k

    Example:
        >>> entropy(torch.tensor([0.5, 0.5, 0.0]))
        tensor(1.)
    """
    return xlogx(probabilities).neg().sum(-1) / math.log(2.0)


def logsumexp_others(x: PerClass) -> tuple[PerClass, PerClass]:
    r"""Compute :math:`\operatorname{LSE}_{j \ne k} x_j` as two terms per class.

    The first term is the largest of the other entries, without a gradient.
    The second term is in :math:`[0, \ln(K - 1)]`. With two terms,
    ``(a - first) - second`` has no cancellation.

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
    without_k = from_top.sum(-1, keepdim=True) - from_top  # >= 1, or not used
    others = torch.where(is_top, from_second.sum(-1, keepdim=True), without_k)
    return torch.where(is_top, second, top), others.log()


def relu_(center_radius: Tensor) -> Tensor:
    r"""Apply ReLU in place to the center and the radius ``(N, 2, ...)``.

    For radii ``>= 0`` and the upper bound :math:`h = \max(c + r, 0)`, the
    new radius is :math:`r' = \min(r, h / 2)` and the new center is
    :math:`h - r'`.
    """
    center, radius = center_radius.select(1, 0), center_radius.select(1, 1)
    high = F.leaky_relu_(center.add_(radius), 0.0)
    radius.clamp_max_(high / 2)
    center.sub_(radius)
    return center_radius


def widen(x: Values) -> Values:
    """Convert to float64, except on MPS, which does not support it."""
    return x if x.device.type == "mps" else x.double()


def at_least_single(x: Values) -> Values:
    """Convert float16 and bfloat16 to float32."""
    return x.float() if x.dtype.itemsize < 4 else x


def safe_sqrt(x: Tensor) -> Tensor:
    """Return the square root, with value and gradient 0 for ``x <= 0``."""
    positive = x > 0
    return torch.where(positive, x, 1).sqrt() * positive


def first_index(mask: Bool[Tensor, "*shape"]) -> tuple[int, ...]:
    """Return the index of the first true entry.

    Example:
        >>> first_index(torch.tensor([[False, True]]))
        (0, 1)
    """
    return tuple(mask.nonzero()[0].tolist())


def as_floating(value: Any, name: str) -> Tensor:
    """Convert a tensor, array or list to a floating-point tensor."""
    if not isinstance(value, Tensor):
        value = torch.as_tensor(value)
        if not value.is_floating_point() and not value.is_complex():
            value = value.to(torch.get_default_dtype())
    if not value.is_floating_point():
        raise TypeError(f"{name} must have a floating dtype, got {value.dtype}. Use .float().")
    return value


def check_radius(center: Tensor, radius: Tensor) -> None:
    """Raise a ``ValueError`` if a radius is negative or does not match."""
    _check_alike(center=center, radius=radius)
    if _readable(radius) and bool((bad := ~(radius >= 0)).any()):
        at = first_index(bad)
        raise ValueError(f"The radius must be >= 0, got {radius[at].item():g} at index {at}.")


def check_bounds(lower: Tensor, upper: Tensor) -> bool:
    """Check bounds, and return whether they are known to be ``>= 0``."""
    _check_alike(lower=lower, upper=upper)
    if not (_readable(lower) and _readable(upper)):
        return False
    bad = ~(torch.isfinite(lower) & torch.isfinite(upper) & (lower <= upper))
    if bool(bad.any()):
        at = first_index(bad)
        raise ValueError(
            "Bounds must be finite with lower <= upper, got "
            f"[{lower[at].item():g}, {upper[at].item():g}] at index {at}."
        )
    return bool((lower >= 0).all())


def _readable(tensor: Tensor) -> bool:
    """Return ``False`` during tracing, compilation, export and vmap."""
    return not (
        torch.compiler.is_compiling()
        or tensor.is_meta
        or torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        or type(tensor).__name__ in ("FakeTensor", "FunctionalTensor")
    )


def _check_alike(**tensors: Tensor) -> None:
    for what in ("shape", "dtype", "device"):
        one, two = (getattr(tensor, what) for tensor in tensors.values())
        if one != two:
            names = " and ".join(tensors)
            raise ValueError(f"{names} must have the same {what}, got {one} and {two}.")


def check_integers(**values: Any) -> None:
    """Raise an error if a value is not a positive integer."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an integer, got {value!r}.")
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun, such as ``2 rows``."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def list_names(names: Sequence[str], noun: str) -> str:
    """Return a count and names, such as ``2 columns (a, b)``."""
    return f"{pluralize(len(names), noun)} ({shorten_list(names)})"


def shorten_list(names: Sequence[str]) -> str:
    """Return the first ten names, separated by commas."""
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def traceable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make ``function`` record one node if an argument is a ``torch.fx.Proxy``.

    Unlike ``torch.fx.wrap``, this is safe for threads.
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
        found = _find_proxy(value) if isinstance(value, list | tuple) else value
        if isinstance(found, fx.Proxy):
            return found
    return None


def check_share(name: str, value: float) -> float:
    """Raise a ``ValueError`` if a value is not in (0, 1)."""
    if isinstance(value, bool) or not 0 < value < 1:
        raise ValueError(f"{name} must be in (0, 1), got {value!r}.")
    return float(value)


def check_groups(groups: Any, shape: torch.Size) -> Tensor:
    """Return groups as integers, or raise a ``ValueError``."""
    groups = torch.as_tensor(groups).cpu()
    is_integer = not groups.is_floating_point() and groups.dtype != torch.bool
    if not is_integer or groups.shape != shape or bool((groups < 0).any()):
        found = f"{groups.dtype} of shape {tuple(groups.shape)}"
        raise ValueError(f"groups must be integers >= 0 of shape {tuple(shape)}, got {found}.")
    return groups.long()
