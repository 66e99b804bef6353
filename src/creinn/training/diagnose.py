"""A look inside an interval network: widths, radii and gradients, layer by layer.

In: a model and a batch. Out: a table that says which layers keep their intervals alive.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from creinn.classifier.base import Classifier, Inputs
from creinn.interval import Interval
from creinn.nn.parameters import IntervalParameters
from creinn.training.recording import Call, recording

_OVERFLOW = "NaN or infinite bounds, first in {}: in eval mode such rows get the vacuous set."


@dataclass(frozen=True)
class LayerDiagnosis:
    """One layer, called once.

    Args:
        path: Where the layer is in the model; a second call of the same layer has ``#2`` added, and so on.
        kind: Name of its class.
        mean_width: Mean width of its output.
        max_width: Greatest width of its output.
        zero_radii: Share of its radius parameters that are exactly zero; ``None`` if it has none.
        no_gradient: Share of its radius parameters for which the gradient of the loss is exactly zero.
        inverted: Number of outputs with ``lower > upper``; never other than 0.
        nonfinite: Number of outputs with a bound that is NaN or infinite.
    """

    path: str
    kind: str
    mean_width: float
    max_width: float
    zero_radii: float | None
    no_gradient: float | None
    inverted: int
    nonfinite: int


@dataclass(frozen=True)
class Diagnosis:
    """Layers in the order of their calls, the loss, the mean width of the predicted intervals; prints as a table."""

    layers: tuple[LayerDiagnosis, ...]
    loss: float
    prediction_width: float

    @property
    def verdict(self) -> str:
        """What the numbers mean, in words."""
        found = []
        for sentence, paths in (
            ("Inverted bounds in {}.", [x.path for x in self.layers if x.inverted]),
            (_OVERFLOW, [x.path for x in self.layers if x.nonfinite][:1]),
            ("Dead radii: no radius gets a gradient in {}.", [x.path for x in self.layers if x.no_gradient == 1]),
            ("Every radius is zero in {}.", [x.path for x in self.layers if x.zero_radii == 1]),
        ):
            if paths:
                found.append(sentence.format(", ".join(paths)))
        if self.prediction_width < 1e-6:
            found.append("The predicted intervals are no wider than rounding.")
        return " ".join(found) or "All bounds are valid, and every layer with radii has live ones."

    def __str__(self) -> str:
        head = ("layer", "kind", "mean width", "max width", "zero radii", "no gradient", "inverted", "not finite")
        rows = [
            (
                x.path,
                x.kind,
                f"{x.mean_width:.3g}",
                f"{x.max_width:.3g}",
                _share(x.zero_radii),
                _share(x.no_gradient),
                str(x.inverted),
                str(x.nonfinite),
            )
            for x in self.layers
        ]
        widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
        lines = [
            "  ".join(
                cell.ljust(n) if i < 2 else cell.rjust(n) for i, (cell, n) in enumerate(zip(row, widths, strict=True))
            )
            for row in (head, *rows)
        ]
        summary = f"loss {self.loss:.4g}, mean width of the predicted intervals {self.prediction_width:.3g}"
        return "\n".join([*(line.rstrip() for line in lines), summary, self.verdict])


def diagnose(model: Classifier, x: Inputs, y: Tensor | None = None) -> Diagnosis:
    """Run ``model`` on a batch, forwards and backwards, and report on every layer that gives intervals.

    The model runs in the mode it is in (``train()`` or ``eval()``) and is left as it was: no gradient is stored, batch
    norm statistics and the caller's random state are put back.

    Args:
        model: A classifier with a loss, such as :class:`creinn.CreINN`.
        x: Inputs ``(N, ...)``, a tensor or an interval.
        y: Targets ``(N,)`` for the loss; random classes by default.

    Raises:
        TypeError: If the model has no loss, or no layer that gives intervals.

    Example:
        >>> from creinn import CreINN, nn as inn
        >>> _ = torch.manual_seed(0)
        >>> model = CreINN(torch.nn.Sequential(inn.Linear(2, 8), inn.ReLU(), inn.Linear(8, 3)))
        >>> [layer.path for layer in diagnose(model, torch.randn(20, 2)).layers]
        ['network.0', 'network.1', 'network.2', 'norm']
    """
    if not isinstance(model, Classifier) or type(model).loss is Classifier.loss:
        raise TypeError(f"diagnose needs a classifier with a loss, got {type(model).__name__}. Pass a single CreINN.")
    reference = next(model.parameters())
    x = x.to(reference.device, reference.dtype)
    if y is None:
        y = torch.randint(model.num_classes, (len(x),), generator=torch.Generator().manual_seed(0))
    with (
        _buffers_kept(model),
        torch.random.fork_rng([x.device] if x.device.type == "cuda" else []),
        torch.enable_grad(),
    ):
        with recording(model) as calls:
            prediction = model(x)
        loss = model.loss(prediction, y.to(reference.device))
        radii = [
            r for layer in model.modules() if isinstance(layer, IntervalParameters) for r in layer.radii().values()
        ]
        live = [radius for radius in radii if radius.requires_grad]
        gradients = dict(zip(live, torch.autograd.grad(loss, live, allow_unused=True), strict=True)) if live else {}
    layers = tuple(_diagnose_layer(call, gradients) for call in calls if isinstance(call.output, Interval))
    if not layers:
        raise TypeError(
            f"diagnose looks at interval networks, but no layer of this {type(model).__name__} gives intervals."
        )
    return Diagnosis(layers, loss.item(), (prediction.upper - prediction.lower).mean().item())


def _diagnose_layer(call: Call, gradients: Mapping[torch.nn.Parameter, Tensor | None]) -> LayerDiagnosis:
    lower, upper = call.output.lower.detach(), call.output.upper.detach()
    width = upper - lower
    radii = list(call.module.radii().values()) if isinstance(call.module, IntervalParameters) else []
    count = sum(radius.numel() for radius in radii)
    zero = sum(int((radius <= 0).sum()) for radius in radii)
    dead = 0
    for radius in radii:
        gradient = gradients.get(radius)
        dead += radius.numel() if gradient is None else int((gradient == 0).sum())
    return LayerDiagnosis(
        path=call.path,
        kind=type(call.module).__name__,
        mean_width=width.mean().item(),
        max_width=width.max().item(),
        zero_radii=zero / count if count else None,
        no_gradient=dead / count if count else None,
        inverted=int((lower > upper).sum()),
        nonfinite=int((~(torch.isfinite(lower) & torch.isfinite(upper))).sum()),
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


@contextmanager
def _buffers_kept(model: torch.nn.Module) -> Iterator[None]:
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(before[name])
