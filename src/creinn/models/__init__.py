"""Architectures written once over a family of layers.

``layers=torch.nn`` gives the ordinary network, ``layers=creinn.nn`` the interval one. A network built here has
``features(x)``, ``head`` and ``config``: ``forward(x)`` is ``head(features(x))``, and ``config`` holds the builder's
name and arguments, from which :func:`creinn.graph.describe.build` makes the same architecture again. A further family
of layers joins with :func:`register_family`.
"""

from creinn.models.mlp import mlp
from creinn.models.resnet import resnet8, resnet14, resnet18, resnet20, resnet34, resnet50
from creinn.nn.families import family, family_name, register_family

BUILDERS = {builder.__name__: builder for builder in (mlp, resnet8, resnet14, resnet20, resnet18, resnet34, resnet50)}
"""Every builder by name."""

__all__ = [
    "BUILDERS",
    "family",
    "family_name",
    "mlp",
    "register_family",
    "resnet8",
    "resnet14",
    "resnet18",
    "resnet20",
    "resnet34",
    "resnet50",
]
