"""Fingerprints of a module, to detect that its layers or weights have changed.

Each function returns a value that compares equal to a later one while nothing has changed. Writes
through ``Tensor.data`` or a NumPy view of a tensor are not counted by torch and not detected.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdRef


def structure(module: torch.nn.Module) -> tuple[Any, ...]:
    """Ordered paths and types of the parts of a module; a shared part appears under each path.

    Example:
        >>> network = torch.nn.Sequential(torch.nn.ReLU())
        >>> before = structure(network)
        >>> structure(network.append(network[0])) == before
        False
    """
    return tuple((path, type(part)) for path, part in module.named_modules(remove_duplicate=False))


def versions(module: torch.nn.Module) -> tuple[Any, ...]:
    """Identity, memory address and version counter of each parameter and buffer, in order.

    Tensors made in inference mode have no version counter; see :func:`has_versions`.

    Example:
        >>> layer = torch.nn.Linear(2, 2)
        >>> before = versions(layer)
        >>> versions(layer) == before
        True
        >>> _ = layer.load_state_dict(layer.state_dict())  # writes to the same tensors
        >>> versions(layer) == before
        False
    """
    return tuple(
        (WeakIdRef(tensor), tensor.data_ptr(), None if tensor.is_inference() else tensor._version)
        for tensor in tensors(module)
    )


def has_versions(module: torch.nn.Module) -> bool:
    """Whether torch counts the writes to every parameter and buffer of a module."""
    return not any(tensor.is_inference() for tensor in tensors(module))


def tensors(module: torch.nn.Module) -> list[Tensor]:
    """Return the parameters and buffers of a module, including buffers that are not saved."""
    return [
        tensor
        for part in module.modules()
        for tensor in (*part._parameters.values(), *part._buffers.values())
        if tensor is not None
    ]
