"""Registry of the builders of networks, and the base class of their networks."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from creinn.nn.registry import family, family_name, plain

P = ParamSpec("P")
AnyNetwork = TypeVar("AnyNetwork", bound=torch.nn.Module)

BUILDERS: dict[str, Callable[..., torch.nn.Module]] = {}
"""All builders by name."""


class Network(torch.nn.Module):
    """A network with a method ``features`` and a layer ``head``."""

    config: dict[str, Any] | None
    head: torch.nn.Module
    features: Callable[[Any], Any]

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        return self.head(self.features(x))


def builder(architecture: Callable[P, AnyNetwork]) -> Callable[P, AnyNetwork]:
    """Register a builder that accepts the name of a family and sets ``config``.

    The argument ``pretrained`` is not a part of ``config``, because saved weights replace it.
    """

    @functools.wraps(architecture)
    def build(*args: P.args, **kwargs: P.kwargs) -> AnyNetwork:
        bound = inspect.signature(architecture).bind(*args, **kwargs)
        bound.apply_defaults()
        layers = bound.arguments.pop("layers")
        namespace = family(layers) if isinstance(layers, str) else layers
        network = architecture(**bound.arguments, layers=namespace)  # type: ignore[call-arg]
        bound.arguments.pop("pretrained", None)
        arguments = {**plain(bound.arguments), "layers": family_name(namespace)}
        config = {"builder": architecture.__name__, "arguments": arguments}
        network.config = None if arguments["layers"] is None else config  # type: ignore[assignment]
        return network

    BUILDERS[architecture.__name__] = build
    return build
