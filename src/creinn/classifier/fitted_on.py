"""Hashes of the parts of a model, to detect changes after a fit.

They depend on the contents of tensors only, so they can be saved, and
compared between processes and devices.
"""

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from creinn.classifier.compile_cache import has_versions, versions

PARTS = (
    "mode", "combine", "structure", "weights", "feature layers", "distance", "temperature",
)  # fmt: skip
"""Parts of a model; their positions are saved."""

_MAX_CACHE_SIZE = 500
_CACHE: dict[Any, int] = {}  # from version counters to hashes


def part_hashes(parts: Mapping[str, tuple[Any, ...]]) -> dict[str, int]:
    """Return a hash of each part, cached until version counters change."""
    return {name: _cached_digest(values) for name, values in parts.items()}


def clear_hashes() -> None:
    """Remove cached hashes, after writes through ``Tensor.data``."""
    _CACHE.clear()


def _cached_digest(values: tuple[Any, ...]) -> int:
    modules = [value for value in values if isinstance(value, Module)]
    if not all(map(has_versions, modules)):
        return digest(*values)
    key = tuple(versions(value) if value in modules else value for value in values)
    if (code := _CACHE.get(key)) is None:
        if len(_CACHE) >= _MAX_CACHE_SIZE:
            _CACHE.clear()
        code = _CACHE[key] = digest(*values)
    return code


def digest(*values: Any) -> int:
    """Return a 64-bit hash of modules and other values.

    Tensors are rounded to float32, so float64 has the same hash.

    Example:
        >>> layer = torch.nn.Linear(2, 2)
        >>> digest(layer) == digest(layer.double())
        True
    """
    found = hashlib.blake2b(digest_size=8)
    for value in values:
        if not isinstance(value, Module):
            found.update(_text(value).encode() + b"\0")
            continue
        for name, tensor in sorted(value.state_dict().items()):
            if isinstance(tensor, Tensor):
                tensor = tensor.detach().cpu()
                if tensor.is_floating_point():
                    tensor = tensor.float()
                    is_zero = tensor.abs() < torch.finfo(torch.float32).tiny  # or subnormal
                    tensor = tensor.masked_fill(is_zero, 0.0)
                found.update(f"{name} {tuple(tensor.shape)}\0".encode())
                found.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return int.from_bytes(found.digest(), "little", signed=True)


class FittedOn(Module):
    """Hashes of the parts of a model at the time of a fit."""

    _affects_output = False  # for the compile cache

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, int] = {}

    def changes(self, now: Mapping[str, int], names: Collection[str] = PARTS) -> list[str]:
        """Return the names of the parts that have changed."""
        known = (name for name in self.parts if name in names and name in now)
        return [name for name in known if self.parts[name] != now[name]]

    def get_extra_state(self) -> Tensor:
        """Return rows of the position in :data:`PARTS` and the hash."""
        rows = [(PARTS.index(name), code) for name, code in self.parts.items()]
        return torch.tensor(rows, dtype=torch.long, device="cpu").reshape(-1, 2)

    def set_extra_state(self, state: Tensor) -> None:
        """Set the hashes from a ``state_dict``."""
        self.parts = {PARTS[position]: code for position, code in state.tolist()}


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({','.join(map(_text, value))})"
    return value.__qualname__ if isinstance(value, type) else repr(value)
