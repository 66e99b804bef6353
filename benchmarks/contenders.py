"""Classifiers of one architecture, for the comparison of times on one batch.

A call computes the bounds of a credal set, or samples of distributions. The
networks are not trained, but the batch norms have seen one batch, so that
activations do not vanish or overflow.
"""

import copy
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from benchmarks.architectures import Architecture
from benchmarks.timing import Call
from creinn import baselines
from creinn.baselines.factory import build_classifier
from creinn.classifier.base import Classifier
from creinn.classifier.creinn import CreINN
from creinn.classifier.methods import METHODS
from creinn.graph import compile as inference

REFERENCE, FOLDED = "snn", "snn-folded"
NAMES = (REFERENCE, FOLDED, f"{FOLDED}-channels-last", "creinn", "creinn-compiled", "creinn-d")
_SETTLED_ON = 16
_FITTED_ON = 64


def new_classifier(name: str, architecture: Architecture) -> Classifier:
    """Return a new classifier."""
    return build_classifier(METHODS[name], architecture.build)


class Contenders:
    """Classifiers in eval mode, which are built on first use."""

    def __init__(self, architecture: Architecture, device: torch.device | str = "cpu") -> None:
        self.architecture = architecture
        self.device = torch.device(device)
        self._models: dict[str, Classifier] = {}
        self._compiled: dict[str, inference.Compiled] = {}

    def call(self, name: str, x: Tensor) -> Call:
        """Return a function that predicts the batch ``x``."""
        model = self.model(name)
        if name == "snn-folded-channels-last" and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return lambda: model(x)

    def model(self, name: str) -> Classifier:
        """Return the classifier, compiled if the name ends with "-compiled"."""
        if name.endswith("-compiled"):
            if name not in self._compiled:
                plain: Any = self.model(name.removesuffix("-compiled"))
                self._compiled[name] = inference.compile(plain, example=self._inputs(1))
            return self._compiled[name]
        if name not in self._models:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                self._models[name] = self._build(name).to(self.device).eval()
        return self._models[name]

    def _build(self, name: str) -> Classifier:
        if name in (REFERENCE, "creinn"):
            return self._settled(new_classifier(name, self.architecture))
        snn: Any = self.model(REFERENCE)
        if name == "creinn-d":
            distant = self._settled(CreINN(copy.deepcopy(snn.network), distance=1.0))
            return distant.fit_distance(
                self._inputs(_FITTED_ON), self.architecture.targets(_FITTED_ON, self.device)
            )
        if name in (FOLDED, "snn-folded-channels-last"):
            folded = fold_batch_norm(snn.network)
            if name == "snn-folded-channels-last":
                folded.to(memory_format=torch.channels_last)
            return baselines.SNN(folded, num_logits=snn.num_logits)
        raise ValueError(f"Unknown contender {name!r}; choose of {', '.join(NAMES)}.")

    def _inputs(self, rows: int) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rows)
            return self.architecture.inputs(rows, self.device)

    def _settled(self, model: Any) -> Any:
        """Return the model after one training batch."""
        model.to(self.device).train()
        norms = [part for part in model.modules() if isinstance(part, _BatchNorm)]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.momentum = (
                None  # plain averages: the statistics of the batch, and nothing of the initial ones
            )
        with torch.no_grad():
            model(self._inputs(_SETTLED_ON))
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        return model.eval()


def training_step(model: Classifier, x: Tensor, target: Tensor) -> Call:
    """Return a function that runs one training step."""
    model.train()
    model.before_training([(x, target)], 1000)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)  # as fit does

    def step() -> None:
        optimizer.zero_grad()
        model.loss(model(x), target).backward()
        optimizer.step()
        model.after_step()

    return step


def fold_batch_norm(network: torch.nn.Module) -> fx.GraphModule:
    """Return a copy whose linear layers and convolutions include batch norm.

    Example:
        >>> network = torch.nn.Sequential(
        ...     torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4)
        ... )
        >>> len(list(fold_batch_norm(network).children()))
        1
    """
    folded = fx.symbolic_trace(copy.deepcopy(network).eval())
    layers = {
        node: folded.get_submodule(node.target)
        for node in folded.graph.nodes
        if node.op == "call_module"
    }
    for norm in [node for node, layer in layers.items() if isinstance(layer, _BatchNorm)]:
        before = norm.args[0]
        layer = layers.get(before)
        if len(before.users) > 1 or not isinstance(layer, _AFFINE):
            continue
        fuse = fuse_linear_bn_eval if isinstance(layer, torch.nn.Linear) else fuse_conv_bn_eval
        folded.set_submodule(before.target, fuse(layer, layers[norm]))
        norm.replace_all_uses_with(before)
        folded.graph.erase_node(norm)
    folded.delete_all_unused_submodules()
    folded.recompile()
    return folded.requires_grad_(False)


_AFFINE = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.Linear)
