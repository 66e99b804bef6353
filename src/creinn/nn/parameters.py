"""What layers with interval parameters share: radii beside torch's own weight and bias, valid at every forward pass.

In a layer of this package ``weight`` and ``bias`` are the centres, so an ordinary state dict loads into them;
``weight_radius`` and ``bias_radius`` are the radii, constrained to be >= 0 (Section "Training procedure").
"""

import torch
from torch import Tensor
from torch.nn import Parameter

from creinn.interval import Interval


class IntervalParameters(torch.nn.Module):
    """Mixin for a torch layer with ``weight`` and ``bias``: adds their radii and the paper's initialisation.

    Centre and radius are Glorot uniform, the radius in absolute value; biases start at ``[0, 0]``.
    """

    weight: Tensor
    bias: Tensor | None
    weight_radius: Parameter
    bias_radius: Parameter | None

    def _add_radii(self) -> None:
        self.weight_radius = Parameter(torch.empty_like(self.weight))
        if self.bias is None:
            self.register_parameter("bias_radius", None)
        else:
            self.bias_radius = Parameter(torch.empty_like(self.bias))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        if not hasattr(self, "weight_radius"):
            return  # called by torch's constructor, before the radii exist
        torch.nn.init.xavier_uniform_(self.weight)
        with torch.no_grad():
            torch.nn.init.xavier_uniform_(self.weight_radius).abs_()
        if self.bias is not None and self.bias_radius is not None:
            torch.nn.init.zeros_(self.bias)
            torch.nn.init.zeros_(self.bias_radius)

    @property
    def weight_interval(self) -> Interval:
        """The weights as intervals."""
        radius = valid_radius(self.weight_radius)
        return Interval._of_parts(self.weight - radius, self.weight + radius)

    def radii(self) -> dict[str, Parameter]:
        """The radius parameters by name."""
        named = {"weight_radius": self.weight_radius, "bias_radius": self.bias_radius}
        return {name: radius for name, radius in named.items() if radius is not None}


def valid_radius(radius: Tensor) -> Tensor:
    """``max(radius, 0)`` with gradient 1 everywhere: a radius pushed below zero is valid, and not dead."""
    return radius - radius.detach().clamp_max(0)


@torch.no_grad()
def project_(module: torch.nn.Module) -> torch.nn.Module:
    """Project every radius in ``module`` onto ``>= 0``, in place: the paper's constraint, after each optimiser step.

    A forgotten call never gives invalid intervals: layers use ``max(radius, 0)`` at every forward pass.
    """
    for layer in module.modules():
        if isinstance(layer, IntervalParameters):
            for radius in layer.radii().values():
                radius.clamp_(min=0)
    return module


@torch.no_grad()
def scale_radii_(module: torch.nn.Module, factor: float) -> torch.nn.Module:
    """Multiply every radius in ``module`` by ``factor``, in place; sound and wide networks want small initial radii.

    Raises:
        ValueError: If ``factor`` is not positive: a network without radii cannot be told apart from one that forgot
            them.
    """
    if not factor > 0:
        raise ValueError(f"factor must be > 0, got {factor}.")
    for layer in module.modules():
        if isinstance(layer, IntervalParameters):
            for radius in layer.radii().values():
                radius.mul_(factor)
    return module
