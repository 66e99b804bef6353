"""Which part of a model a run trains: all of it, or the radii alone while the centres stay as they are.

In: a model and the setting ``train`` of :class:`TrainConfig`. Out: the same model, for a while with less to train.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn import Parameter
from torch.nn.modules.batchnorm import _NormBase

from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.nn.parameters import IntervalParameters


@contextmanager
def training_only(model: torch.nn.Module, part: str) -> Iterator[None]:
    """Let gradients reach only that part of ``model``; afterwards everything is as it was.

    ``"radii"`` are the radii of weights and biases, and the radius's scale and shift in interval batch norms. Centres,
    their batch norm parameters and statistics, and all else get no gradient. What had none before gets none now.

    Raises:
        ValueError: If ``part`` is ``"radii"`` and there is no radius that can be trained.
    """
    if part == "all":
        yield
        return
    norms = [layer for layer in model.modules() if isinstance(layer, IntervalBatchNorm)]
    radii = _radii(model)
    before = {parameter: parameter.requires_grad for parameter in model.parameters()}
    frozen = [norm.center_frozen for norm in norms]
    if not any(before[radius] for radius in radii):
        name = type(model).__name__
        found = f"every radius of {name} has requires_grad=False" if radii else f"{name} has none"
        raise ValueError(f"train='radii' needs radii that can be trained, but {found}.")
    kept = radii | {parameter for norm in norms if norm.mode != "sound" for parameter in norm.parameters()}
    try:
        for parameter in before:
            parameter.requires_grad_(before[parameter] and parameter in kept)
        for norm in norms:
            norm.center_frozen = True
        yield
    finally:
        for parameter, value in before.items():
            parameter.requires_grad_(value)
        for norm, was in zip(norms, frozen, strict=True):
            norm.center_frozen = was


def start_training(model: torch.nn.Module, part: str) -> None:
    """``model.train()``, but when only radii are trained, ordinary norms with running statistics stay in eval mode."""
    model.train()
    if part == "radii":
        for layer in model.modules():
            if isinstance(layer, _NormBase) and not isinstance(layer, IntervalBatchNorm):
                layer.eval()


def _radii(model: torch.nn.Module) -> set[Parameter]:
    layers = (layer for layer in model.modules() if isinstance(layer, IntervalParameters))
    return {radius for layer in layers for radius in layer.radii().values()}
