"""Training that starts from a trained network: a CreINN around it, and runs that learn its radii alone."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.batchnorm import _NormBase

from creinn.classifier.creinn import CreINN
from creinn.graph.convert import convert
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.nn.parameters import IntervalParameters
from creinn.rivals.snn import SNN


def credal(model: SNN | CreINN, form: Mapping[str, Any], needs_radii: bool) -> CreINN:
    """A CreINN, of options ``form``, around the network and norm of a trained model, whose weights it shares.

    If it ``needs_radii``, an ordinary network becomes its interval twin; a distance comes on top of it as it is.

    Raises:
        ValueError: If the network has no interval twin, or is an interval network of another mode.
    """
    is_interval = isinstance(model, CreINN) and model.is_interval
    if is_interval and form["mode"] != model.mode:
        raise ValueError(f"The model to start from was trained in mode {model.mode!r}: give --mode {model.mode}.")
    if needs_radii and not is_interval:
        ordinary = torch.nn.Sequential(model.network, model.norm) if model.logit_norm else model.network
        twin = convert(ordinary.eval(), mode=form["mode"])
        return CreINN(twin, logits=model.logits, logit_norm=False, **form).eval()
    made = CreINN(model.network, logits=model.logits, logit_norm=model.logit_norm, **form)
    made.norm.load_state_dict(model.norm.state_dict())
    return made.eval()


@contextmanager
def training_only(model: torch.nn.Module, part: str) -> Iterator[None]:
    """Let gradients reach only that part of ``model``; afterwards everything is as it was.

    ``"radii"``, which there must be, are those of weights and biases, and the radius's scale and shift in interval
    batch norms. Centres, their norms and all else get no gradient. What had none before gets none now.
    """
    if part == "all":
        yield
        return
    norms = {layer: layer.center_frozen for layer in model.modules() if isinstance(layer, IntervalBatchNorm)}
    layers = [layer for layer in model.modules() if isinstance(layer, IntervalParameters)]
    radii = {radius for layer in layers for radius in layer.radii().values()}
    before = {parameter: parameter.requires_grad for parameter in model.parameters()}
    if not any(before[radius] for radius in radii):
        name = type(model).__name__
        found = f"every radius of {name} has requires_grad=False" if radii else f"{name} has none"
        raise ValueError(f"train='radii' needs radii that can be trained, but {found}.")
    kept = radii | {parameter for norm in norms if norm.mode != "sound" for parameter in norm.parameters()}
    try:
        for parameter, value in before.items():
            parameter.requires_grad_(value and parameter in kept)
        for norm in norms:
            norm.center_frozen = True
        yield
    finally:
        for parameter, value in before.items():
            parameter.requires_grad_(value)
        for norm, was in norms.items():
            norm.center_frozen = was


def start_training(model: torch.nn.Module, part: str) -> None:
    """``model.train()``, but when only radii are trained, ordinary norms with running statistics stay in eval mode."""
    model.train()
    if part == "radii":
        for layer in model.modules():
            if isinstance(layer, _NormBase) and not isinstance(layer, IntervalBatchNorm):
                layer.eval()
