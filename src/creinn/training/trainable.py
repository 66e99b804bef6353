"""The parameters that a run trains: all of them, or the radii only; biases without effect."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import Parameter
from torch.nn.modules.batchnorm import _NormBase

from creinn import nn as inn
from creinn.classifier.recording import recording
from creinn.nn import relative
from creinn.nn.affine import IntervalParameters
from creinn.nn.batchnorm import IntervalBatchNorm


@contextmanager
def train_only(model: torch.nn.Module, part: str) -> Iterator[None]:
    """Freeze all parameters outside of ``part``, see :attr:`TrainConfig.train`; restore on exit.

    Parameters that are frozen already stay frozen.
    """
    if part == "all":
        yield
        return
    modules = list(model.modules())
    norms = {
        layer: layer.center_frozen for layer in modules if isinstance(layer, IntervalBatchNorm)
    }
    layers = [layer for layer in modules if isinstance(layer, IntervalParameters)]
    radii = {radius for layer in layers for radius in layer.radii().values()}
    before = {parameter: parameter.requires_grad for parameter in model.parameters()}
    if not any(before[radius] for radius in radii):
        name = type(model).__name__
        found = f"every radius of {name} has requires_grad=False" if radii else f"{name} has none"
        raise ValueError(f"train='radii' needs radii that can be trained, but {found}.")
    kept = radii | {p for norm in norms if norm.mode != "sound" for p in norm.parameters()}
    try:
        for parameter, value in before.items():
            parameter.requires_grad_(value and parameter in kept)
        for norm in norms:
            norm.center_frozen = True
        yield
    finally:
        for parameter, value in before.items():
            parameter.requires_grad_(value)
        for norm, was_frozen in norms.items():
            norm.center_frozen = was_frozen


def set_train_mode(model: torch.nn.Module, part: str) -> None:
    """Call ``model.train()``; if only radii are trained, ordinary norms stay in eval mode."""
    model.train()
    if part == "radii":
        for layer in model.modules():
            if isinstance(layer, _NormBase) and not isinstance(layer, IntervalBatchNorm):
                layer.eval()


@contextmanager
def zero_grad_biases(model: torch.nn.Module) -> Iterator[list[Parameter]]:
    """Find the biases that batch norm on the logits cancels, in a forward pass in training mode.

    The list is filled on exit. The bias of the last linear layer has gradient zero if batch norm
    follows. The computed gradient is rounding error, which Adam would scale to full steps. In
    paper mode the norm centers the radii too, so the radius of the bias has no effect either.
    """
    found: list[Parameter] = []
    norm: Any = getattr(model, "norm", None)
    if not (isinstance(norm, _NormBase) and norm.training):
        yield found
        return
    kinds = (torch.nn.Linear, inn.Linear, relative.Linear)
    layers = [layer for layer in model.modules() if type(layer) in kinds]
    with recording([*layers, norm]) as calls:
        yield found
    logits = [call.inputs[0] for call in calls if call.module is norm]
    heads = [call.module for call in calls if any(call.output is x for x in logits)]
    if len(logits) != 1 or len(heads) != 1 or sum(call.module is heads[0] for call in calls) != 1:
        return  # another layer comes between, or a layer is called several times
    if getattr(logits[0], "_version", 0) > 0:
        return  # changed in place
    names = ("bias", "bias_radius") if getattr(norm, "mode", None) == "paper" else ("bias",)
    biases = (getattr(heads[0], name, None) for name in names)
    found += [bias for bias in biases if bias is not None and bias.requires_grad]
