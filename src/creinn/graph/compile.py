"""Compilation of a CreINN or an Ensemble for faster or rigorous inference.

A network is not folded if its logits layer is given by name, or if it is
an ordinary network that is not a graph of known layers.
"""

import copy
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import Module, Sequential

from creinn.classifier.base import Inputs
from creinn.classifier.compile_cache import LOCK
from creinn.classifier.credal import CredalClassifier, Ensemble, fast_credal_set
from creinn.classifier.creinn import CreINN
from creinn.classifier.fitted_on import FittedOn
from creinn.classifier.inputs import as_logits
from creinn.classifier.network import find_logits_layer
from creinn.credal.credal_set import CredalSet
from creinn.distance.feature_layers import HEAD, TOKENS
from creinn.distance.radius import NativeRadius
from creinn.graph import rigorous as exact
from creinn.graph.checks import GraphError
from creinn.graph.fold import find_node, fold
from creinn.graph.trace import trace
from creinn.interval import Interval
from creinn.nn.batchnorm import IntervalBatchNorm

Model = CreINN | Ensemble


def compile(
    model: Model,
    example: Inputs | None = None,
    memory_format: torch.memory_format = torch.channels_last,
    torch_compile: bool = False,
    native: bool = True,
    rigorous: bool = False,
) -> "Compiled | RigorousModel":
    """Compile a trained model for inference.

    The bounds are those of the model in eval mode up to rounding. The
    result can be moved to a device or a dtype, unless it is rigorous, but
    not trained or saved. With ``native=False``, ``torch.export`` can
    export it.

    Args:
        model: A trained model, which is not changed.
        example: An example of the inputs, to prepare for the size of the
            images.
        memory_format: The memory format of images and 2d convolutions.
        torch_compile: Whether to use ``torch.compile``, which requires a
            compiler.
        native: Whether to use :mod:`creinn.native` if available, without
            ``torch_compile``.
        rigorous: Whether to round outwards, so that the credal sets are
            valid in floating point; see :mod:`creinn.graph.rigorous`. This
            is slow and requires mode ``"sound"`` on a CPU.

    Raises:
        TypeError: If the class of the model is not supported.
        ValueError: If the network cannot be traced (``GraphError``), or
            has no rigorous bounds.
        RuntimeError: If a distance is not fitted.

    Example:
        >>> from creinn import nn as inn
        >>> compile(CreINN(inn.Linear(2, 3))).predict(torch.zeros(5, 2)).lower.shape
        torch.Size([5, 3])
    """
    if not isinstance(model, Model):
        raise TypeError(f"compile expects a CreINN or an Ensemble, got {type(model).__name__}.")
    if rigorous and torch_compile:
        raise ValueError("Use rigorous or torch_compile, not both.")
    if rigorous:
        return RigorousModel(model)
    compiled = Compiled(model, native and not torch_compile, memory_format=memory_format)
    if example is not None:
        compiled(example)
    if torch_compile:
        for part in compiled.modules():
            if isinstance(part, fx.GraphModule):
                part.compile()
    return compiled


def compile_for_predict(model: Model, x: Inputs) -> "Compiled | None":
    """Compile a model for the compile cache, or return ``None``."""
    kinds = {type(part) for part in model.modules() if isinstance(part, CredalClassifier)}
    if not kinds <= {CreINN, Ensemble}:  # subclasses can differ
        return None
    try:
        return Compiled(model, must_fold=True)
    except GraphError:
        return None


class InferenceModel(CredalClassifier):
    """Base class of compiled models, with a copy of the calibration."""

    uses_compile_cache = False

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.calibration = copy.deepcopy(model.calibration)
        if not model.calibration_is_current:
            self.calibration.reset()
        self.calibration.fitted_on.parts = {}  # the weights do not change
        self.num_classes, self.class_names = model.num_classes, model.class_names

    def train(self, mode: bool = True) -> Any:
        """Raise a ``ValueError`` if ``mode`` is true."""
        if mode:
            raise ValueError("A compiled model cannot be trained. Train the original.")
        return super().train(False)


class Compiled(InferenceModel):
    """A model with folded networks; see :func:`compile`."""

    def __init__(
        self,
        model: Model,
        native: bool = True,
        must_fold: bool = False,
        memory_format: torch.memory_format = torch.channels_last,
    ) -> None:
        super().__init__(model)
        for member in _members(model):
            member.check_distance()
        with LOCK:
            self.model = _folded_copy(model, native, must_fold)
        for part in self.model.modules():
            if isinstance(part, FittedOn):
                part.parts = {}
            elif isinstance(part, CreINN):
                part.is_checked = True
        self.memory_format = memory_format
        for weight in self.parameters():
            weight.data = self._prepared(weight)
        self.requires_grad_(False).eval()

    def forward(self, x: Inputs) -> CredalSet:
        """Predict a credal set for each row."""
        if isinstance(x, Tensor):
            x = self._prepared(x)
        elif isinstance(x, Interval):
            x = x.map_monotone(self._prepared)
        return self.model(x)

    def _prepared(self, x: Tensor) -> Tensor:
        x = x.detach()
        return x.contiguous(memory_format=self.memory_format) if x.ndim == 4 else x


def _members(model: Module) -> list[CreINN]:
    return [part for part in model.modules() if isinstance(part, CreINN)]


def _folded_copy(model: Model, native: bool, must_fold: bool) -> Model:
    replacements: dict[int, Module] = {}
    for member in _members(model):
        radius = member.distance_radius
        if native and radius is not None:
            replacements[id(radius)] = NativeRadius(copy.deepcopy(radius))
        try:
            replacements[id(member.network)] = _folded(member, native)
        except GraphError:
            if must_fold or (member.is_interval and member.logits_layer is None):
                raise
            continue
        if member.is_interval:
            replacements[id(member.norm)] = torch.nn.Identity()
        if not member.temperature.is_on:
            replacements[id(member.temperature)] = torch.nn.Identity()
    duplicate = copy.deepcopy(model, replacements)
    for member in _members(duplicate) if native else ():
        member._credal_set = fast_credal_set
    return duplicate


def _folded(member: CreINN, native: bool) -> Module:
    if member.logits_layer is not None:
        raise GraphError("A network with logits_layer is not folded.")
    parts = [member.network, member.norm] if member.is_interval else [member.network]
    return fold(Sequential(*parts), _feature_layers(member), native)


def _feature_layers(member: CreINN) -> list[str | Module]:
    if member.distance_radius is None:
        return []
    return [
        find_logits_layer(member.network, member.logits_layer)
        if path == HEAD
        else f"0.{path.removesuffix(TOKENS)}"
        for path in member.feature_layers or ()
    ]


class RigorousModel(InferenceModel):
    """A model with rigorous credal sets; see :func:`compile`."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._members = [RigorousMember(member) for member in getattr(model, "members", [model])]
        self._combine = getattr(model, "combine", "envelope")
        like = next(model.parameters()).new_empty(0)
        self.like = torch.nn.Parameter(like, requires_grad=False)  # for the dtype
        self.eval()

    @torch.no_grad()
    def forward(self, x: Inputs) -> CredalSet:
        """Predict a credal set for each row."""
        x = exact.exact_box(x)
        with torch.autocast("cpu", enabled=False):
            bounds, labels = zip(*(member(x) for member in self._members), strict=True)
        lower, upper = (torch.stack(ends) for ends in zip(*bounds, strict=True))
        if self._combine == "envelope":
            lower, upper = lower.amin(0), upper.amax(0)
        else:
            average = lower.mean(0), upper.mean(0)
            lower, upper = exact.widen_by_error(*average, average[1], len(bounds))
        if self.like.dtype != torch.float64:  # the error is 2 ** -24 of the number or 2 ** -126
            lower = lower * (1 - 2.0**-23) - 2.0**-124
            upper = upper * (1 + 2.0**-23) + 2.0**-124
        lower, upper = (t.clamp(0, 1).to(self.like.dtype) for t in (lower, upper))
        return CredalSet._wrap(lower, upper, labels[0] if len(labels) == 1 else None)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("A rigorous model cannot be moved or cast. Compile again.")


class RigorousMember:
    """A CreINN in float64."""

    def __init__(self, model: CreINN) -> None:
        _check_sound(model)
        self.model = copy.deepcopy(model)._apply(exact.exact_double).requires_grad_(False).eval()
        network, path = Sequential(self.model.network), self.model.logits_layer
        traced = trace(network)
        output = traced.graph.output_node()
        logits = output.args[0] if path is None else find_node(f"0.{path}", network, traced)
        outputs = [find_node(layer, network, traced) for layer in _feature_layers(self.model)]
        output.args = ((*outputs, logits),)
        self.evaluation = exact.Evaluation(traced.module().eval())

    def logits(self, x: Interval) -> tuple[list[Any], Interval]:
        """Return the outputs of the feature layers, and the scaled logits."""
        *outputs, logits = self.evaluation.run(x)
        logits = exact.apply_layer(self.model.norm, as_logits(logits, self.model.num_logits))
        temperature = self.model.temperature
        return outputs, exact.outward(logits / temperature.value) if temperature.is_on else logits

    def __call__(self, x: Interval) -> tuple[exact.LowerUpper, Tensor | None]:
        """Return bounds of the probabilities, and the label with a distance."""
        (outputs, logits), radius = self.logits(x), self.model.distance_radius
        bounds = exact.probability_bounds(logits)
        if radius is None:
            return bounds, None
        tokens = [path.endswith(TOKENS) for path in self.model.feature_layers or ()]
        added = exact.radius_bound(radius, outputs, tokens).unsqueeze(1)
        wide = exact.outward(Interval._of_parts(logits.lower - added, logits.upper + added))
        return exact.probability_bounds(wide), CredalSet._wrap(*bounds).label


def _check_sound(model: CreINN) -> None:
    if not model.is_interval:
        advice = "Call convert(network, 1e-30, 'sound') first."
        raise ValueError(f"Rigorous bounds need an interval network. {advice}")
    for part in model.modules():
        if isinstance(part, CreINN | IntervalBatchNorm) and part.mode != "sound":
            raise ValueError(f"Rigorous bounds require mode 'sound', found {part.mode!r}.")
    model.check_fitted()
