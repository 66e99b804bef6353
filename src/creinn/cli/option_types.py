"""Conversion of the type of a dataclass field to a type of jsonargparse."""

from collections.abc import Callable
from dataclasses import MISSING
from typing import Any, get_args, get_origin

import yaml
from jsonargparse import ArgumentParser


def comma_separated(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that converts ``a,b``, ``[a, "b,c"]`` or a YAML list."""

    # The name is not "convert", because jsonargparse would import that name from the package.
    def to_tuple(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str) and not (value.startswith("[") and value.endswith("]")):
            return tuple(kind(item.strip()) for item in value.split(",") if item.strip())
        items = yaml.safe_load(value) if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or any(type(item) is not kind for item in items):
            raise ValueError(f"expected a list of {kind.__name__}, found {value!r}")
        return tuple(items)

    return to_tuple


def true_or_number(value: Any) -> bool | float:
    """Convert the value to a boolean or a number."""
    truth = {"true": True, "false": False}.get(str(value).lower())
    return float(value) if truth is None else truth


def option_type(hint: Any) -> Any:
    """Return the type for the annotation of a field without ``None``."""
    if get_origin(hint) is tuple:
        return comma_separated(get_args(hint)[0])
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    if type(None) not in get_args(hint):
        return hint
    return true_or_number if set(kinds) == {bool, float} else kinds[0]


def convert_options(types: dict[str, tuple[Any, Any]], values: dict[str, Any]) -> dict[str, Any]:
    """Check the values by name; ``types`` is the type and default of each name."""
    parser = ArgumentParser(exit_on_error=False)
    for name, (kind, default) in types.items():
        rest = {"required": True} if default is MISSING else {"default": default}
        parser.add_argument(f"--{name}", type=kind, **rest)
        if values.get(name, 0) is None and default is not None:
            raise ValueError(f"{name}: expected a value, found null")
    return parser.parse_object(values).as_dict()
