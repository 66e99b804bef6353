"""Registry of the builders, and the base class of their networks."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from torch.nn import Module

from creinn.nn.registry import family, family_name, plain

P = ParamSpec("P")
N = TypeVar("N", bound=Module)

BUILDERS: dict[str, Callable[..., Module]] = {}
"""All builders by name."""


class Network(Module):
    """A network with a method ``features`` and a layer ``head``."""

    config: dict[str, Any] | None
    head: Module
    features: Callable[[Any], Any]

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        return self.head(self.features(x))


def builder(architecture: Callable[P, N]) -> Callable[P, N]:
    """Register a builder that accepts a family name and sets ``config``."""

    @functools.wraps(architecture)
    def build(*args: P.args, **kwargs: P.kwargs) -> N:
        bound = inspect.signature(architecture).bind(*args, **kwargs)
        bound.apply_defaults()
        layers = bound.arguments.pop("layers")
        layers = family(layers) if isinstance(layers, str) else layers
        network: Any = architecture(**bound.arguments, layers=layers)  # type: ignore[call-arg]
        bound.arguments.pop("pretrained", None)  # not saved
        arguments = {**plain(bound.arguments), "layers": family_name(layers)}
        config = {"builder": architecture.__name__, "arguments": arguments}
        network.config = config if arguments["layers"] else None
        return network

    BUILDERS[architecture.__name__] = build
    return build
