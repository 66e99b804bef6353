"""What a layer is made of: its family, its class, its constructor arguments, and its counterpart in another family.

In: a layer of a registered family. Out: plain descriptions that can be written as JSON, and layers built from them.
Only the classes named in :data:`LAYERS` are known: everything else is refused by name, never guessed at.
"""

import inspect
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from creinn import nn as inn
from creinn.nn import relative
from creinn.nn.affine import IntervalParameters
from creinn.nn.batchnorm import IntervalBatchNorm

Family = Any  # a module or other namespace with layers named as in torch.nn

LAYERS: frozenset[str] = frozenset(
    name
    for name, value in vars(inn).items()
    if inspect.isclass(value)
    and value.__module__.startswith(inn.__name__)
    and hasattr(torch.nn, name)
)
"""Names of the layers that have an interval version."""

INTERVAL_FAMILIES: tuple[str, ...] = ("interval", "relative")
"""Families whose layers take and give intervals: full and relative radii."""

_FAMILIES: dict[str, Family] = {"ordinary": torch.nn, "interval": inn, "relative": relative}
_LEFT_OUT = {
    "device",
    "dtype",
    "min_value",
    "max_value",
}  # where a layer lives, and deprecated names of torch


def register_family(name: str, namespace: Family) -> None:
    """Make a namespace of layers known by a name that is not taken, so that networks built of it can be saved."""
    if _FAMILIES.setdefault(name, namespace) is not namespace:
        raise ValueError(f"The layer family {name!r} exists already. Choose another name.")


def family(name: str) -> Family:
    """The namespace registered under ``name``; a ``ValueError`` if there is none."""
    if name not in _FAMILIES:
        raise ValueError(
            f"Unknown layer family {name!r}; known are {', '.join(sorted(_FAMILIES))}."
        )
    return _FAMILIES[name]


def known_families() -> tuple[str, ...]:
    """Names of all registered families."""
    return tuple(_FAMILIES)


def family_name(namespace: Family) -> str | None:
    """The name under which ``namespace`` is registered, or ``None``."""
    return next((name for name, known in _FAMILIES.items() if known is namespace), None)


def family_of(layer: torch.nn.Module) -> str | None:
    """Name of the family of ``layer``, or ``None`` if that is not a known layer; one of a subclass may do anything.

    Example:
        >>> family_of(inn.ReLU()), family_of(torch.nn.ReLU()), family_of(torch.nn.LayerNorm(3))
        ('interval', 'ordinary', None)
    """
    kind = type(layer)
    if kind.__name__ not in LAYERS:
        return None
    return next(
        (name for name, space in _FAMILIES.items() if getattr(space, kind.__name__, None) is kind),
        None,
    )


def arguments(layer: torch.nn.Module) -> dict[str, Any]:
    """Constructor arguments of a known layer, by its attributes, without ``device`` and ``dtype``; or a ``ValueError``.

    Example:
        >>> arguments(inn.MaxPool2d(3, stride=2))
        {'kernel_size': 3, 'stride': 2, 'padding': 0, 'dilation': 1, 'return_indices': False, 'ceil_mode': False}
    """
    if family_of(layer) is None:
        raise ValueError(
            f"{type(layer).__name__} is not a known layer; known are {', '.join(sorted(LAYERS))}."
        )
    found = {name: getattr(layer, name) for name in _parameter_names(type(layer))}
    if "bias" in found:
        found["bias"] = isinstance(found["bias"], Tensor)
        if "affine" in found and (found["bias"] or not found["affine"]):
            del found["bias"]  # only some versions of torch can leave the shift out of a batch norm
    return plain(found)


def build_layer(family_name: str, class_name: str, arguments: Mapping[str, Any]) -> torch.nn.Module:
    """The layer with these constructor arguments; lists stand for tuples. What is unknown is a ``ValueError``.

    Example:
        >>> build_layer("interval", "Linear", {"in_features": 3, "out_features": 2, "bias": False})
        Linear(in_features=3, out_features=2, bias=False)
    """
    namespace = family(family_name)
    if class_name not in LAYERS or not hasattr(namespace, class_name):
        known = ", ".join(sorted(LAYERS))
        raise ValueError(
            f"Unknown layer {class_name!r} of family {family_name!r}; known are {known}."
        )
    kind = getattr(namespace, class_name)
    unknown = sorted(set(arguments) - set(_parameter_names(kind)))
    if unknown:
        raise ValueError(f"{class_name} of family {family_name!r} has no argument {unknown[0]!r}.")
    try:
        return kind(
            **{
                name: tuple(value) if isinstance(value, list) else value
                for name, value in arguments.items()
            }
        )
    except (TypeError, ValueError, RuntimeError) as error:
        what = f"{class_name} of family {family_name!r}"
        raise ValueError(f"{what} cannot be built from {dict(arguments)}: {error}") from error


def twin(layer: torch.nn.Module, family_name: str = "interval") -> torch.nn.Module:
    """The interval layer of the same class and arguments, of one of :data:`INTERVAL_FAMILIES`.

    Centres, statistics, device, dtype and training flag are those of ``layer``; radii are as in a new layer. A batch
    norm is in paper mode and starts as the sound map: in eval mode its output is the exact image of the interval. What
    is not a known layer of ``torch.nn``, or not a family of intervals, is a ``ValueError``.
    """
    if family_name not in INTERVAL_FAMILIES:
        raise ValueError(
            f"{family_name!r} is not a family of interval layers; choose 'interval' or 'relative'."
        )
    if family_of(layer) != "ordinary":
        found = f"{type(layer).__module__}.{type(layer).__name__}"
        raise ValueError(f"Only a known layer of torch.nn has an interval twin, got {found}.")
    options = arguments(layer)
    if "inplace" in options:
        options["inplace"] = False  # both bounds may still be needed
    copy = build_layer(family_name, type(layer).__name__, options)
    tensors = itertools.chain(layer.parameters(), layer.buffers())
    reference = next((tensor for tensor in tensors if tensor.is_floating_point()), None)
    if reference is not None:
        copy.to(reference.device, reference.dtype)
    copy_centers_(copy, layer)
    return copy.train(layer.training)


def copy_centers_(layer: torch.nn.Module, source: torch.nn.Module) -> None:
    """Copy what an ordinary layer has, ``requires_grad`` too, into its interval layer; norms start as the sound map."""
    state = source.state_dict()
    if isinstance(layer, IntervalBatchNorm):
        mode = layer.mode
        layer._switch("sound")  # only for a moment, so without running statistics too
        layer.load_state_dict(state)
        layer._switch(mode)
    else:
        layer.load_state_dict(state, strict=False)  # the radii are not in it
    for name, parameter in source.named_parameters():
        getattr(layer, name).requires_grad_(parameter.requires_grad)
    if isinstance(layer, IntervalParameters):
        for name, radius in layer.radii().items():
            radius.requires_grad_(layer.center_of(name).requires_grad)


def _parameter_names(kind: type) -> list[str]:
    """Named constructor parameters of a layer class; ``*args`` stand for those of the torch layer of that name."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = list(inspect.signature(kind).parameters.values())
    if any(p.kind in variable for p in parameters):
        parameters = [
            *inspect.signature(getattr(torch.nn, kind.__name__)).parameters.values(),
            *parameters,
        ]
    named = dict.fromkeys(p.name for p in parameters if p.kind not in variable)
    return [name for name in named if name not in _LEFT_OUT]


def plain(value: Any) -> Any:
    """Tuples as lists and numpy's numbers as Python's own, so that the result can be written as JSON."""
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value
