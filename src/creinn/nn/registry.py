"""Registry of layer families; functions to describe, build and convert layers.

A layer is described by its family, its class, and its arguments as JSON.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from creinn.nn import activation, affine, batchnorm, pooling
from creinn.nn.affine import IntervalParameters
from creinn.nn.batchnorm import IntervalBatchNorm

Family = Any  # a module or other namespace with layers named as in torch.nn

LAYERS: frozenset[str] = frozenset(
    name
    for module in (activation, affine, batchnorm, pooling)
    for name, value in vars(module).items()
    if inspect.isclass(value) and value.__module__ == module.__name__ and hasattr(torch.nn, name)
)
"""Layers that have an interval version."""

INTERVAL_FAMILIES: tuple[str, ...] = ("interval", "relative")
"""Families of interval layers."""

_FAMILIES: dict[str, Family] = {"ordinary": torch.nn}
_IGNORED = {"device", "dtype", "min_value", "max_value"}  # two are deprecated


def register_family(name: str, namespace: Family) -> None:
    """Register a namespace of layers, so that their networks can be saved."""
    if _FAMILIES.setdefault(name, namespace) is not namespace:
        raise ValueError(f"The family {name!r} already exists. Use another name.")


def family(name: str) -> Family:
    """Return the namespace that is registered as ``name``."""
    if name not in _FAMILIES:
        known = ", ".join(sorted(_FAMILIES))
        raise ValueError(f"Unknown layer family {name!r}. Use one of {known}.")
    return _FAMILIES[name]


def known_families() -> tuple[str, ...]:
    """Return the names of all families."""
    return tuple(_FAMILIES)


def family_name(namespace: Family) -> str | None:
    """Return the name of a namespace, or None."""
    return next((name for name, known in _FAMILIES.items() if known is namespace), None)


def family_of(layer: nn.Module) -> str | None:
    """Return the name of the family of a layer, or None.

    Example:
        >>> family_of(torch.nn.ReLU())
        'ordinary'
    """
    kind = type(layer)
    if kind.__name__ in LAYERS:
        for name, namespace in _FAMILIES.items():
            if getattr(namespace, kind.__name__, None) is kind:
                return name
    return None


def arguments(layer: nn.Module) -> dict[str, Any]:
    """Return the constructor arguments, without ``device`` and ``dtype``.

    Example:
        >>> arguments(torch.nn.Linear(3, 2))
        {'in_features': 3, 'out_features': 2, 'bias': True}
    """
    if family_of(layer) is None:
        raise ValueError(f"Unknown layer {type(layer).__name__}. {_known_layers()}")
    found = {name: getattr(layer, name) for name in _parameter_names(type(layer))}
    if "bias" in found:
        found["bias"] = isinstance(found["bias"], Tensor)
        if "affine" in found and (found["bias"] or not found["affine"]):
            del found["bias"]  # not in all versions of torch
    return plain(found)


def build_layer(family_name: str, class_name: str, arguments: Mapping[str, Any]) -> nn.Module:
    """Return a layer with these arguments; lists become tuples.

    Raises:
        ValueError: If the family, the class or an argument is unknown.

    Example:
        >>> build_layer("ordinary", "Linear", {"in_features": 3, "out_features": 2})
        Linear(in_features=3, out_features=2, bias=True)
    """
    kind = getattr(family(family_name), class_name, None) if class_name in LAYERS else None
    layer = f"{class_name!r} of family {family_name!r}"
    if kind is None:
        raise ValueError(f"Unknown layer {layer}. {_known_layers()}")
    unknown = sorted(set(arguments) - set(_parameter_names(kind)))
    if unknown:
        raise ValueError(f"{layer} has no argument {unknown[0]!r}.")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in arguments.items()}
    try:
        return kind(**values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{layer} cannot be built from {dict(arguments)}: {error}") from error


def twin(layer: nn.Module, family_name: str = "interval") -> nn.Module:
    """Return the interval version of a layer of ``torch.nn``.

    It has the same state and new radii. Batch norm is in paper mode, with
    the exact bounds in eval mode.
    """
    if family_name not in INTERVAL_FAMILIES:
        raise ValueError(f"The family must be in {INTERVAL_FAMILIES}, got {family_name!r}.")
    kind = type(layer)
    if family_of(layer) != "ordinary":
        found = f"{kind.__module__}.{kind.__name__}"
        raise ValueError(f"The layer must be a known layer of torch.nn, got {found}.")
    options = arguments(layer)
    if "inplace" in options:
        options["inplace"] = False  # as all interval layers
    copy = build_layer(family_name, kind.__name__, options)
    for tensor in layer.state_dict().values():
        if tensor.is_floating_point():
            copy.to(tensor.device, tensor.dtype)
    copy_centers_(copy, layer)
    return copy.train(layer.training)


def copy_centers_(layer: nn.Module, source: nn.Module) -> None:
    """Copy the state of an ordinary layer, and its ``requires_grad``."""
    state = source.state_dict()
    if isinstance(layer, IntervalBatchNorm):
        mode = layer.mode
        layer._switch("sound")  # temporarily, also without running statistics
        layer.load_state_dict(state)
        layer._switch(mode)
    else:
        layer.load_state_dict(state, strict=False)  # it has no radii
    for name, parameter in source.named_parameters():
        getattr(layer, name).requires_grad_(parameter.requires_grad)
    if isinstance(layer, IntervalParameters):
        for name, radius in layer.radii().items():
            radius.requires_grad_(layer.center_of(name).requires_grad)


def _known_layers() -> str:
    return f"Use one of {', '.join(sorted(LAYERS))}."


def _parameter_names(kind: type) -> list[str]:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = dict(inspect.signature(kind).parameters)
    if any(p.kind in variable for p in parameters.values()):
        parameters = {**inspect.signature(getattr(nn, kind.__name__)).parameters, **parameters}
    fixed = (name for name, p in parameters.items() if p.kind not in variable)
    return [name for name in fixed if name not in _IGNORED]


def plain(value: Any) -> Any:
    """Convert tuples and numpy scalars for JSON."""
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value
