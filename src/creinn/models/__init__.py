"""Network architectures for any family of layers.

``layers=torch.nn`` gives an ordinary network, and ``layers=creinn.nn`` an
interval network; see :func:`register_family`. A network has a method
``features`` and a layer ``head``. It is saved by its ``config``: the name
and the arguments of the builder.
"""

from creinn.models.builders import BUILDERS
from creinn.models.efficientnet import efficientnet_lite0
from creinn.models.networks import mlp, resnet8, resnet14, resnet18, resnet20, resnet34, resnet50
from creinn.nn.registry import family, family_name, register_family

__all__ = [
    "BUILDERS", "efficientnet_lite0", "family", "family_name", "mlp", "register_family",
    "resnet8", "resnet14", "resnet18", "resnet20", "resnet34", "resnet50",
]  # fmt: skip
