"""What layers with interval parameters share: radii beside torch's own weight and bias, valid at every forward pass.

In a layer of this package ``weight`` and ``bias`` are the centres, so an ordinary state dict loads into them;
``weight_radius`` and ``bias_radius`` are the radii, constrained to be >= 0 (Section "Training procedure").
"""

import torch
from torch import Tensor
from torch.nn import Parameter

from creinn.interval import Interval
from creinn.numerics import valid_radius


class IntervalParameters(torch.nn.Module):
    """Mixin for a torch layer with ``weight`` and ``bias``: adds their radii and the paper's initialisation.

    Centre and radius are Glorot uniform, the radius in absolute value; biases start at ``[0, 0]``.
    """

    weight: Tensor
    bias: Tensor | None
    weight_radius: Parameter
    bias_radius: Parameter | None

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the parameters anew. Torch's constructor ends here: then the radii are made."""
        if not hasattr(self, "bias_radius"):
            self._add_weight_radius()
            self.bias_radius = None if self.bias is None else Parameter(torch.empty_like(self.bias))
        torch.nn.init.xavier_uniform_(self.weight)
        self._reset_weight_radius()
        if self.bias is not None and self.bias_radius is not None:
            self.bias.zero_()
            self.bias_radius.zero_()

    def _add_weight_radius(self) -> None:
        self.weight_radius = Parameter(torch.empty_like(self.weight))

    def _reset_weight_radius(self) -> None:
        torch.nn.init.xavier_uniform_(self.weight_radius).abs_()

    @property
    def weight_interval(self) -> Interval:
        """The weights as intervals."""
        radius = valid_radius(self.weight_radius)
        return Interval._of_parts(self.weight - radius, self.weight + radius)

    def _biases(self) -> tuple[Tensor | None, Tensor | None]:
        """Centres and valid radii of the bias."""
        return self.bias, None if self.bias_radius is None else valid_radius(self.bias_radius)

    def radii(self) -> dict[str, Parameter]:
        """The radius parameters by name."""
        return {name: radius for name, radius in self.named_parameters(recurse=False) if name.endswith("_radius")}

    def center_of(self, name: str) -> Tensor:
        """The centre that the radius parameter ``name`` belongs to."""
        return self.bias if name == "bias_radius" and self.bias is not None else self.weight

    @torch.no_grad()
    def project_radii_(self) -> None:
        """Clamp the radii to ``>= 0``, in place."""
        for radius in self.radii().values():
            radius.clamp_(min=0)


@torch.no_grad()
def project_(module: torch.nn.Module) -> torch.nn.Module:
    """Project every radius in ``module`` onto ``>= 0``, in place: the paper's constraint, after each optimiser step.

    Relative radii are kept below 1 too. A forgotten call gives no invalid intervals: forward passes clip radii.
    """
    for layer in module.modules():
        if isinstance(layer, IntervalParameters):
            layer.project_radii_()
    return module


@torch.no_grad()
def scale_radii_(module: torch.nn.Module, factor: float) -> torch.nn.Module:
    """Multiply every radius in ``module`` by ``factor > 0``, in place; sound and wide networks want small radii."""
    if not factor > 0:
        raise ValueError(f"factor must be > 0, got {factor}.")
    for layer in module.modules():
        if isinstance(layer, IntervalParameters):
            for radius in layer.radii().values():
                radius.mul_(factor)
    return module
