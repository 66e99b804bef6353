"""Checks of tensors at the public boundary: what is wrong, where, and what to do."""

from typing import Any

import torch
from torch import Tensor

from creinn.numerics import first_index


def as_floating(value: Any, name: str) -> Tensor:
    """A floating tensor from a tensor, array or list; integers outside a tensor become the default dtype."""
    if not isinstance(value, Tensor):
        value = torch.as_tensor(value)
        if not value.is_floating_point() and not value.is_complex():
            value = value.to(torch.get_default_dtype())
    if not value.is_floating_point():
        raise TypeError(
            f"Interval needs a floating dtype, but {name} is {value.dtype}. Convert it first, e.g. with .float()."
        )
    return value


def check_radius(radius: Tensor) -> None:
    """Refuse a negative or NaN radius."""
    if readable(radius) and bool((bad := ~(radius >= 0)).any()):
        at = first_index(bad)
        raise ValueError(f"Radius must be >= 0, but is {radius[at].item():g} at index {at}. Swap or clamp it first.")


def readable(tensor: Tensor) -> bool:
    """Whether the values may be looked at: not while tracing, compiling, exporting or inside vmap."""
    return not (
        torch.compiler.is_compiling() or tensor.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    ) and type(tensor).__name__ not in ("FakeTensor", "FunctionalTensor")


def check_alike(a: Tensor, b: Tensor, names: tuple[str, str]) -> None:
    """Refuse tensors that differ in shape, dtype or device."""
    for what in ("shape", "dtype", "device"):
        found = getattr(a, what), getattr(b, what)
        if found[0] != found[1]:
            shown = [tuple(f) if what == "shape" else f for f in found]
            raise ValueError(
                f"The {what}s differ: {names[0]} has {shown[0]}, {names[1]} has {shown[1]}. Make them alike first."
            )


def check_bounds(lower: Tensor, upper: Tensor) -> bool:
    """Refuse invalid bounds; return whether all of them are ``>= 0`` (``False`` where that cannot be looked up)."""
    check_alike(lower, upper, ("lower", "upper"))
    if not (readable(lower) and readable(upper)):
        return False
    bad = ~(torch.isfinite(lower) & torch.isfinite(upper) & (lower <= upper))
    if bool(bad.any()):
        at = first_index(bad)
        low, high = lower[at].item(), upper[at].item()
        where = f"at index {at} of shape {tuple(lower.shape)}: lower {low:g}, upper {high:g}"
        if low != low or high != high:
            raise ValueError(f"Interval bounds contain NaN {where}. Impute or drop missing values first.")
        if abs(low) == float("inf") or abs(high) == float("inf"):
            raise ValueError(f"Interval bounds are infinite {where}. Clip them to a finite range first.")
        raise ValueError(f"Interval bounds are inverted {where}. The lower bound must not exceed the upper one.")
    return bool((lower >= 0).all())
