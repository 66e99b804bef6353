"""Compilation of trained models for faster inference.

The input is a CreINN or an Ensemble. The output is a classifier with the same interface and with
folded networks. An ordinary network is not folded if it is not a graph of known layers, or if its
head was given by name.
"""

import copy
from timeit import timeit
from typing import Literal

import torch
from torch import Tensor, fx

from creinn import nn as inn
from creinn.classifier.base import Inputs
from creinn.classifier.creinn import CredalClassifier, CreINN, Ensemble
from creinn.classifier.fitted_on import FittedOn
from creinn.classifier.inputs import first_rows
from creinn.classifier.network import HEAD, TOKENS, find_logits_layer
from creinn.classifier.recording import LOCK, recording
from creinn.credal.credal_set import CredalSet
from creinn.graph.checks import GraphError
from creinn.graph.fold import FoldedFull, FoldedNetwork, Product, fold
from creinn.graph.native import NativeFull, join_sums
from creinn.graph.rigorous import RigorousModel
from creinn.interval import Interval


def compile(
    model: CreINN | Ensemble,
    example: Inputs | None = None,
    memory_format: torch.memory_format | Literal["auto"] = "auto",
    torch_compile: bool = False,
    native: bool = True,
    rigorous: bool = False,
) -> "Compiled | RigorousModel":
    """Compile a trained model for inference.

    The model is not changed. The bounds are equal to the bounds of the model in eval mode up to
    rounding. The result has no gradients. It can be moved to a device or a dtype, but it cannot be
    trained or saved. With ``native=False`` it can be exported with ``torch.export``.

    Args:
        model: A trained CreINN, or an ensemble of them.
        example: An example of the inputs, to prepare the convolutions for the size of the images
            and to choose the memory format. Other sizes are slower.
        memory_format: The memory format of the images and of the weights of 2d convolutions. It is
            ``torch.contiguous_format``, ``torch.channels_last`` or ``"auto"``. If ``"auto"``, the
            faster format on ``example`` is used, or the first one if there is no example.
        torch_compile: Whether to use ``torch.compile``, which requires a compiler.
        native: Whether to use :mod:`creinn.native`, if it is available, for convolutions with more
            than one output pixel. It is not used with ``torch_compile``.
        rigorous: Whether to round outwards, so that the credal sets are valid in floating point;
            see :mod:`creinn.graph.rigorous`. It is slow and requires mode ``"sound"`` on a CPU.

    Raises:
        TypeError: If the class of the model is not supported.
        ValueError: If the memory format is unknown, if an interval network cannot be traced
            (``GraphError``), or if ``rigorous`` is not supported by the model or ``torch_compile``.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(inn.Linear(2, 8), inn.BatchNorm1d(8), inn.ReLU(), inn.Linear(8, 3))
        >>> model = CreINN(network).eval()
        >>> fast, x = compile(model), torch.rand(5, 2)
        >>> torch.allclose(fast(x).lower, model(x).lower, atol=1e-6)
        True
    """
    if not isinstance(model, CreINN | Ensemble):
        raise TypeError(f"compile takes a CreINN or an Ensemble, got {type(model).__name__}.")
    if memory_format not in ("auto", torch.contiguous_format, torch.channels_last):
        raise ValueError(
            f"Unknown memory format {memory_format!r}; choose torch.contiguous_format, torch.channels_last or 'auto'."
        )
    if rigorous and torch_compile:
        raise ValueError("Rigorous bounds are not proved for torch.compile; leave one of both out.")
    if rigorous:
        return RigorousModel(model)
    compiled = Compiled(model, native and not torch_compile)
    if example is not None:
        compiled.prepare(example)
    if memory_format != "auto":
        compiled.set_memory_format(memory_format)
    elif example is not None:
        compiled.set_memory_format(_faster(compiled, example))
    if torch_compile:
        for part in compiled.modules():
            if isinstance(part, fx.GraphModule):
                part.compile()
    return compiled


def compile_for_predict(model: CreINN | Ensemble, x: Inputs) -> "Compiled | None":
    """Compile a model for inputs of the size of ``x`` without measurements.

    Return ``None`` if the class of the model is not CreINN or Ensemble, because a subclass may
    compute something else, or if a network raises a ``GraphError``.
    """
    credal = [part for part in model.modules() if isinstance(part, CredalClassifier)]
    if any(type(part) not in (CreINN, Ensemble) for part in credal):
        return None
    try:
        compiled = Compiled(model, must_fold=True)
    except GraphError:
        return None
    compiled.prepare(first_rows(x, 1))
    compiled.set_memory_format(torch.channels_last)
    return compiled


class Compiled(CredalClassifier):
    """A model with folded networks, always in eval mode; see :func:`compile`."""

    uses_compile_cache = False

    def __init__(
        self, model: CreINN | Ensemble, native: bool = True, must_fold: bool = False
    ) -> None:
        super().__init__()
        for member in model.modules():
            if isinstance(member, CreINN):
                member.check_distance()
        with LOCK:
            self.model = self._folded_copy(model, native, must_fold)
        self.calibration = self.model.calibration
        if not model.calibration_is_current:
            self.calibration.reset()
        for part in self.model.modules():
            if isinstance(part, FittedOn):
                part.parts = {}  # the weights of the copy do not change
        for member in self.model.modules():
            if isinstance(member, CreINN):
                member.is_checked = True  # a folded network cannot be inspected
        self.num_classes = model.num_classes
        self.memory_format = torch.contiguous_format
        self.requires_grad_(False).eval()

    @staticmethod
    def _folded_copy(model: CreINN | Ensemble, native: bool, must_fold: bool) -> CreINN | Ensemble:
        instead: dict[int, torch.nn.Module] = {}  # replacements of parts in the copy
        for member in model.modules():
            if not isinstance(member, CreINN):
                continue
            if (folded := _folded(member, native)) is not None:
                instead[id(member.network)] = folded
                instead |= {id(member.norm): inn.Identity()} if member.is_interval else {}
            elif must_fold:
                raise GraphError(f"{type(member.network).__name__} is not folded.")
        return copy.deepcopy(model, instead)

    def forward(self, x: Inputs) -> CredalSet:
        """Predict a credal set for each row."""
        if isinstance(x, Tensor | Interval):
            x = x.each(self._laid_out) if isinstance(x, Interval) else self._laid_out(x)
        return self.model(x)

    def _laid_out(self, x: Tensor) -> Tensor:
        x = x.detach()
        return x.contiguous(memory_format=self.memory_format) if x.ndim == 4 else x

    def prepare(self, example: Inputs) -> None:
        """Prepare the convolutions for images of this size; see :class:`Product`."""
        products = [
            part for part in self.modules() if isinstance(part, Product) and part.is_prepared
        ]
        if not products:
            return
        with recording(products) as calls:
            self(example)
        for call in calls:
            call.module.prepare(tuple(call.inputs[0].shape[2:]))  # type: ignore[operator]

    def set_memory_format(self, memory_format: torch.memory_format) -> None:
        """Set the memory format of the images and of the weights of 2d convolutions."""
        self.memory_format = memory_format
        for weight in self.parameters():
            if weight.ndim == 4:
                weight.data = weight.data.contiguous(memory_format=memory_format)

    def train(self, mode: bool = True) -> "Compiled":
        """Raise a ``ValueError`` if ``mode`` is true, because the model cannot be trained."""
        if mode:
            raise ValueError(
                "A compiled model cannot be trained. Train the model it came from, and compile that."
            )
        return super().train(False)

    def save(self, *args: object, **kwargs: object) -> None:
        """Raise a ``TypeError``, because the model cannot be saved."""
        raise TypeError(
            "A compiled model cannot be saved. Save the model it came from, and compile it after loading."
        )


def _folded(member: CreINN, native: bool) -> torch.nn.Module | None:
    """Return the folded network of a CreINN, or ``None`` if it cannot be folded.

    An interval network is folded with its norm.
    """
    if member.logits_layer is not None:
        return None  # the logits are computed inside the graph
    parts = [member.network, member.norm] if member.is_interval else [member.network]
    places = member.feature_layers or () if member.distance_radius is not None else ()
    at = [
        find_logits_layer(member.network) if place == HEAD else f"0.{place.removesuffix(TOKENS)}"
        for place in places
    ]
    try:
        folded = fold(torch.nn.Sequential(*parts), at, NativeFull if native else FoldedFull)
    except GraphError:
        if member.is_interval:
            raise
        return None
    join_sums(folded.graph if isinstance(folded, FoldedNetwork) else folded)
    return folded


def _faster(compiled: Compiled, example: Inputs) -> torch.memory_format:
    """Return the memory format with the smallest of three measurements."""
    formats = (torch.contiguous_format, torch.channels_last)
    times = []
    for memory_format in formats * 3:
        compiled.set_memory_format(memory_format)
        times.append(_seconds(compiled, example))
    return formats[times.index(min(times)) % 2]


def _seconds(compiled: Compiled, example: Inputs) -> float:
    """Return the time of three calls, after two calls for warm-up."""

    def call() -> None:
        compiled(example).lower.sum().item()  # wait for the device

    timeit(call, number=2)
    return timeit(call, number=3)
