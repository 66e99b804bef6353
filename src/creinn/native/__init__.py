"""A C++ library for products of intervals ``>= 0``, and for a few rows.

It is built with the package if there is a compiler, and only affects the
speed. If it is not ``available``, ``reason`` contains the reason. The
environment variable ``CREINN_NATIVE=0`` disables it. Compiled models use
it if ``is_vectorized`` is true, which requires AVX2 or AVX-512.
"""

import torch

from creinn.native.kernel import (
    Window,
    available,
    credal_set,
    is_vectorized,
    pack,
    product,
    radius,
    reason,
    unpack,
)

__all__ = [
    "Window", "available", "credal_set", "is_supported", "is_vectorized", "pack", "product",
    "radius", "reason", "unpack",
]  # fmt: skip


def is_supported(*tensors: torch.Tensor) -> bool:
    """Return whether the library is used for tensors."""
    if not (available and is_vectorized) or torch.jit.is_tracing():
        return False
    kinds = (torch.Tensor, torch.nn.Parameter)
    return all(type(t) in kinds and t.dtype == torch.float32 and t.is_cpu for t in tensors)
