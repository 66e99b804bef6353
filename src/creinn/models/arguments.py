"""Arguments that the builders share: checks, and the record of how a network was built."""

from typing import Any

import torch

from creinn.nn.families import Family, family, family_name


def namespace(layers: Family | str) -> Family:
    """The namespace of layers itself, or the registered one of that name."""
    return family(layers) if isinstance(layers, str) else layers


def at_least_one(**numbers: Any) -> None:
    """Refuse counts that are not whole numbers from 1 on.

    Raises:
        ValueError: If a number is smaller than 1.
        TypeError: If it is not an integer.
    """
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an integer, got {value!r}.")
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")


def record(network: torch.nn.Module, builder: str, layers: Family, **arguments: Any) -> None:
    """Set ``network.config``; to ``None`` where the family of layers has no name by which to find it again."""
    name = family_name(layers)
    config = {"builder": builder, "arguments": {**arguments, "layers": name}} if name is not None else None
    network.config = config  # type: ignore[assignment]
