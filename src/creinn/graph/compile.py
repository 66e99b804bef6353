"""The inference form of a trained model: the same credal sets, sooner.

In: a CreINN or an Ensemble. Out: a classifier that is called the same way, whose networks are folded. An ordinary
network that is no graph of known layers, and one whose head was named, stay.
"""

import copy
from timeit import timeit
from typing import Literal

import torch
from torch import Tensor, fx

from creinn import nn as inn
from creinn.classifier.base import Inputs
from creinn.classifier.creinn import CreINN, Ensemble, _Credal
from creinn.classifier.fitted_on import FittedOn
from creinn.classifier.inputs import first_rows
from creinn.classifier.network import HEAD, TOKENS, find_head
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
    """The inference form of a trained model; the model itself stays as it is, and trainable.

    Bounds agree with the model's in eval mode up to rounding. Gradients do not pass. The result can be moved and cast,
    and with ``native=False`` exported with ``torch.export``; not trained and not saved.

    Args:
        model: A trained CreINN, or an ensemble of them.
        example: Inputs as they will come: convolutions are prepared for images of their size, the memory format is
            chosen with them. Inputs of other sizes give the right bounds too, less quickly.
        memory_format: Layout of images and of the weights of two-dimensional convolutions: ``torch.contiguous_format``
            or ``torch.channels_last``; ``"auto"`` takes the faster one on ``example``, the first if there is none.
        torch_compile: Whether to pass the folded networks through ``torch.compile``, which needs a compiler.
        native: Whether the library of :mod:`creinn.native` computes convolutions with more than one output pixel, where
            it is available; never with ``torch_compile``.
        rigorous: Whether to round outwards, so that the credal sets hold in floating point; see
            :mod:`creinn.graph.rigorous`. It needs mode ``"sound"`` and a CPU, and is slower.

    Raises:
        TypeError: If the model is of another kind.
        ValueError: If the memory format is another one, an interval network cannot be traced (``GraphError``), or
            ``rigorous`` does not suit the model or ``torch_compile``.

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
    """Compile a model for inputs of the size of ``x``, without measurements.

    Returns ``None`` for a model that cannot be compiled: one of another class than CreINN and
    Ensemble, which may compute something else, or with a network that raises a ``GraphError``.
    """
    credal = [part for part in model.modules() if isinstance(part, _Credal)]
    if any(type(part) not in (CreINN, Ensemble) for part in credal):
        return None
    try:
        compiled = Compiled(model, must_fold=True)
    except GraphError:
        return None
    compiled.prepare(first_rows(x, 1))
    compiled.set_memory_format(torch.channels_last)
    return compiled


class Compiled(_Credal):
    """A model with folded networks, in eval mode for good; made by :func:`compile`."""

    keeps_compiled = False

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
            self.calibration.forget()
        for part in self.model.modules():
            if isinstance(part, FittedOn):
                part.parts = {}  # the weights of the copy do not change
        for member in self.model.modules():
            if isinstance(member, CreINN):
                member.gives_logits = True  # what is folded cannot be looked at as a network
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
        """Predict a credal set per row."""
        if isinstance(x, Tensor | Interval):
            x = x.each(self._laid_out) if isinstance(x, Interval) else self._laid_out(x)
        return self.model(x)

    def _laid_out(self, x: Tensor) -> Tensor:
        x = x.detach()
        return x.contiguous(memory_format=self.memory_format) if x.ndim == 4 else x

    def prepare(self, example: Inputs) -> None:
        """Let convolutions keep the weights that images of this size need; see :class:`Product`."""
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
        """Lay out the weights of two-dimensional convolutions, in place, and from now on images, in this format."""
        self.memory_format = memory_format
        for weight in self.parameters():
            if weight.ndim == 4:
                weight.data = weight.data.contiguous(memory_format=memory_format)

    def train(self, mode: bool = True) -> "Compiled":
        """Refuse training mode, with a ``ValueError``."""
        if mode:
            raise ValueError(
                "A compiled model cannot be trained. Train the model it came from, and compile that."
            )
        return super().train(False)

    def save(self, *args: object, **kwargs: object) -> None:
        """Refuse to be saved, with a ``TypeError``."""
        raise TypeError(
            "A compiled model cannot be saved. Save the model it came from, and compile it after loading."
        )


def _folded(member: CreINN, native: bool) -> torch.nn.Module | None:
    """The network of a CreINN, folded, an interval one with its norm; nothing for an ordinary one that cannot be."""
    if member.head is not None:
        return None  # the logits lie inside of the graph
    parts = [member.network, member.norm] if member.is_interval else [member.network]
    places = member.distance_at or () if member.distance_radius is not None else ()
    at = [
        find_head(member.network) if place == HEAD else f"0.{place.removesuffix(TOKENS)}"
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
    """The memory format in which the least of three measurements is smaller."""
    formats = (torch.contiguous_format, torch.channels_last)
    times = []
    for memory_format in formats * 3:
        compiled.set_memory_format(memory_format)
        times.append(_seconds(compiled, example))
    return formats[times.index(min(times)) % 2]


def _seconds(compiled: Compiled, example: Inputs) -> float:
    """How long three calls take, after two that may be slower."""

    def call() -> None:
        compiled(example).lower.sum().item()  # a number on the host: the device has done its work

    timeit(call, number=2)
    return timeit(call, number=3)
