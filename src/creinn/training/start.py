"""How a run starts: its random numbers, and the parts that it trains.

Randomness is a function of the seed, the epoch and the rank alone, so that no state of a generator needs to be kept.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn import Parameter
from torch.nn.modules.batchnorm import _NormBase

from creinn import nn as inn
from creinn.baselines.laplace import LaplaceBNN
from creinn.baselines.snn import SNN
from creinn.classifier.base import Classifier
from creinn.classifier.creinn import CreINN
from creinn.classifier.recording import recording
from creinn.nn import relative
from creinn.nn.affine import IntervalParameters
from creinn.nn.batchnorm import IntervalBatchNorm


def derived_seed(seed: int, epoch: int, rank: int = 0) -> int:
    """A seed for one epoch of a run on one rank; different for all different arguments."""
    return (
        int(
            np.random.SeedSequence([seed, epoch, *[rank] * (rank > 0)]).generate_state(
                1, np.uint64
            )[0]
        )
        >> 1
    )


def seed_everything(seed: int) -> None:
    """Seed torch on all devices, NumPy and Python."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (transforms of others may use it)


@contextmanager
def own_randomness(device: torch.device, deterministic: bool) -> Iterator[None]:
    """Leave the caller's generators, and the choice of deterministic algorithms, as they were before."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    mode = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.use_deterministic_algorithms(
            mode or deterministic, warn_only=warn_only and not deterministic
        )
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(mode, warn_only=warn_only)
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def training_only(model: torch.nn.Module, part: str) -> Iterator[None]:
    """Let gradients reach only that part of ``model``, see :attr:`TrainConfig.train`; then all is as it was.

    What had no gradient before gets none now.
    """
    if part == "all":
        yield
        return
    norms = {
        layer: layer.center_frozen
        for layer in model.modules()
        if isinstance(layer, IntervalBatchNorm)
    }
    layers = [layer for layer in model.modules() if isinstance(layer, IntervalParameters)]
    radii = {radius for layer in layers for radius in layer.radii().values()}
    before = {parameter: parameter.requires_grad for parameter in model.parameters()}
    if not any(before[radius] for radius in radii):
        name = type(model).__name__
        found = f"every radius of {name} has requires_grad=False" if radii else f"{name} has none"
        raise ValueError(f"train='radii' needs radii that can be trained, but {found}.")
    kept = radii | {
        parameter for norm in norms if norm.mode != "sound" for parameter in norm.parameters()
    }
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


@contextmanager
def finding_idle(model: Classifier, idle: list[Parameter]) -> Iterator[None]:
    """Add to ``idle``, after a forward pass in training, the biases that the batch norm on the logits takes away again.

    These are of a linear head whose output is what the network gives. Their gradient is 0, but what is computed is
    rounding, which Adam would scale to full steps. In paper mode radii are centred too, and that of the bias is without
    effect as well. Models with other losses and forward passes have none.
    """
    norm: Any = getattr(model, "norm", None)
    if type(model) not in (CreINN, SNN, LaplaceBNN) or not (
        isinstance(norm, _NormBase) and norm.training
    ):
        yield
        return
    path = getattr(model, "head", None)
    giver = model.network.get_submodule(path) if path else model.network
    layers = [
        part
        for part in model.network.modules()
        if type(part) in (torch.nn.Linear, inn.Linear, relative.Linear)
    ]
    with recording(dict.fromkeys((*layers, giver))) as calls:
        yield
    logits = [call.output for call in calls if call.module is giver]
    heads = [
        call.module
        for call in calls
        if call.module in layers and any(call.output is given for given in logits)
    ]
    if len(logits) != 1 or len(heads) != 1 or sum(call.module is heads[0] for call in calls) != 1:
        return  # computed otherwise, or several times
    if getattr(logits[0], "_version", 0) > 0:
        return  # changed in place
    names = ("bias", "bias_radius") if getattr(norm, "mode", None) == "paper" else ("bias",)
    idle += [
        bias
        for name in names
        if (bias := getattr(heads[0], name, None)) is not None and bias.requires_grad
    ]
