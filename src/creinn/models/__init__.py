"""Network architectures for any family of layers.

The network is an ordinary network with ``layers=torch.nn`` and an interval network with
``layers=creinn.nn``. Use :func:`register_family` to add a family. A network has a method
``features`` and a layer ``head``, and ``forward(x)`` is ``head(features(x))``. Its attribute
``config`` contains the name and the arguments of the builder, which are used to save the network.
"""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from creinn.models import mlp as _mlp
from creinn.models import resnet as _resnet
from creinn.nn.registry import family, family_name, plain, register_family

P = ParamSpec("P")
Network = TypeVar("Network", bound=torch.nn.Module)


def _recorded(architecture: Callable[P, Network]) -> Callable[P, Network]:
    """Wrap a builder so that it accepts the name of a family and sets ``config``."""

    @functools.wraps(architecture)
    def build(*args: P.args, **kwargs: P.kwargs) -> Network:
        bound = inspect.signature(architecture).bind(*args, **kwargs)
        bound.apply_defaults()
        layers = bound.arguments.pop("layers")
        namespace = family(layers) if isinstance(layers, str) else layers
        network = architecture(**bound.arguments, layers=namespace)  # type: ignore[call-arg]
        arguments = {**plain(bound.arguments), "layers": family_name(namespace)}
        config = {"builder": architecture.__name__, "arguments": arguments}
        network.config = None if arguments["layers"] is None else config  # type: ignore[assignment]
        return network

    return build


mlp = _recorded(_mlp.mlp)
resnet8, resnet14, resnet20 = map(_recorded, (_resnet.resnet8, _resnet.resnet14, _resnet.resnet20))
resnet18, resnet34 = map(_recorded, (_resnet.resnet18, _resnet.resnet34))
resnet50 = _recorded(_resnet.resnet50)

BUILDERS = {
    builder.__name__: builder
    for builder in (mlp, resnet8, resnet14, resnet20, resnet18, resnet34, resnet50)
}
"""All builders by name."""

__all__ = [
    "BUILDERS", "family", "family_name", "mlp", "register_family",
    "resnet8", "resnet14", "resnet18", "resnet20", "resnet34", "resnet50",
]  # fmt: skip
