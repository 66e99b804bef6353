"""Widths, radii and gradients of the layers of a network, and causes of failed steps."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from creinn.classifier.base import Classifier, Inputs
from creinn.classifier.inputs import find_not_finite, floating, rows_not_finite
from creinn.classifier.network import Call, recording
from creinn.classifier.temperature import Temperature
from creinn.interval import Interval
from creinn.nn.affine import IntervalParameters
from creinn.numerics import first_index
from creinn.training.data import Batch


@dataclass(frozen=True)
class LayerDiagnosis:
    """Widths of the output of a layer, and fractions of its radii (``None`` without radii)."""

    path: str  # with the suffix ``#2`` for the second call of a layer
    kind: str  # name of the class
    mean_width: float
    max_width: float
    zero_radii: float | None  # fraction of radii that are exactly zero
    no_gradient: float | None  # fraction of radii with a gradient of exactly zero
    inverted: int  # number of outputs with ``lower > upper``, which must be 0
    nonfinite: int  # number of outputs with a NaN or infinite bound

    def _cells(self) -> tuple[str, ...]:
        shares = ("-" if x is None else f"{x:.1%}" for x in (self.zero_radii, self.no_gradient))
        widths = (f"{width:.3g}" for width in (self.mean_width, self.max_width))
        return (self.path, self.kind, *widths, *shares, str(self.inverted), str(self.nonfinite))


@dataclass(frozen=True)
class Diagnosis:
    """Layers in the order of their calls, loss, and mean width of the prediction."""

    layers: tuple[LayerDiagnosis, ...]
    loss: float
    prediction_width: float

    @property
    def verdict(self) -> str:
        """A summary of the problems in the layers."""
        nonfinite = [layer.path for layer in self.layers if layer.nonfinite]
        vacuous = "in eval mode such rows get the vacuous set"
        problems = {
            "Inverted bounds in {}.": [x.path for x in self.layers if x.inverted],
            f"NaN or infinite bounds, first in {{}}: {vacuous}.": nonfinite[:1],
            "Dead radii: no gradient in {}.": [x.path for x in self.layers if x.no_gradient == 1],
            "Every radius is zero in {}.": [x.path for x in self.layers if x.zero_radii == 1],
        }
        found = [text.format(", ".join(paths)) for text, paths in problems.items() if paths]
        if self.prediction_width < 1e-6:
            found.append("The predicted intervals are no wider than rounding.")
        return " ".join(found) or "All bounds are valid, and every layer with radii has live ones."

    def __str__(self) -> str:
        names = "layer,kind,mean width,max width,zero radii,no gradient,inverted,not finite"
        table = [names.split(","), *(layer._cells() for layer in self.layers)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        aligned = [f"{{:{'<' if i < 2 else '>'}{width}}}" for i, width in enumerate(widths)]
        lines = ["  ".join(aligned).format(*row).rstrip() for row in table]
        width = f"mean width of the predicted intervals {self.prediction_width:.3g}"
        return "\n".join([*lines, f"loss {self.loss:.4g}, {width}", self.verdict])


def diagnose(model: Classifier, x: Inputs, y: Tensor | None = None) -> Diagnosis:
    """Compute the widths and the gradients of each interval layer for a batch.

    The model and the random number generators do not change. Without
    targets ``y`` of shape ``(N,)``, the loss is computed for random
    classes.

    Raises:
        TypeError: If the model has no loss, or none of the layers returns
            intervals.

    Example:
        >>> from creinn import CreINN, nn as inn
        >>> _ = torch.manual_seed(0)
        >>> model = CreINN(torch.nn.Sequential(inn.Linear(2, 8), inn.ReLU(), inn.Linear(8, 3)))
        >>> [layer.path for layer in diagnose(model, torch.randn(20, 2)).layers]
        ['network.0', 'network.1', 'network.2', 'norm']
    """
    if not isinstance(model, Classifier) or type(model).loss is Classifier.loss:
        raise TypeError(f"diagnose needs a classifier with a loss, got {type(model).__name__}.")
    reference = next(model.parameters())
    x = x.to(reference.device, reference.dtype)
    if y is None:
        y = torch.randint(model.num_classes, (len(x),), generator=torch.Generator().manual_seed(0))
    random_state = torch.random.fork_rng([x.device] if x.device.type == "cuda" else [])
    copies = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with random_state, torch.enable_grad():
        with recording(layers_of(model)) as calls:
            prediction = torch.func.functional_call(model, copies, (x,))
        loss = model.loss(prediction, y.to(reference.device))
        parts = [part for part in model.modules() if isinstance(part, IntervalParameters)]
        live = [r for part in parts for r in part.radii().values() if r.requires_grad]
        gradients = {}
        if live:
            found = torch.autograd.grad(loss, live, allow_unused=True, materialize_grads=True)
            gradients = dict(zip(live, found, strict=True))
    layers = tuple(
        _diagnose(path, call, gradients)
        for path, call in calls_with_paths(model, calls)
        if isinstance(call.output, Interval)
    )
    if not layers:
        raise TypeError(f"diagnose needs interval layers, but {type(model).__name__} has none.")
    return Diagnosis(layers, loss.item(), (prediction.upper - prediction.lower).mean().item())


def layers_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the modules that have parameters of their own or no submodules."""
    parts = [part for part in model.modules() if not isinstance(part, Temperature)]
    return [p for p in parts if not list(p.children()) or list(p.parameters(recurse=False))]


def calls_with_paths(model: torch.nn.Module, calls: Iterable[Call]) -> Iterator[tuple[str, Call]]:
    """Yield the calls with the paths of the layers; ``#2`` marks the second call of a layer."""
    paths = {module: path for path, module in model.named_modules()}
    count = Counter[torch.nn.Module]()
    for call in calls:
        count[call.module] += 1
        number = count[call.module]
        yield paths[call.module] + (f"#{number}" if number > 1 else ""), call


def _diagnose(
    path: str, call: Call, gradients: Mapping[torch.nn.Parameter, Tensor]
) -> LayerDiagnosis:
    lower, upper = call.output.lower.detach(), call.output.upper.detach()
    width, module = upper - lower, call.module
    radii = list(module.radii().values()) if isinstance(module, IntervalParameters) else []
    return LayerDiagnosis(
        path=path,
        kind=type(module).__name__,
        mean_width=width.mean().item(),
        max_width=width.max().item(),
        zero_radii=_share(radius <= 0 for radius in radii),
        no_gradient=_share(gradients.get(r, torch.zeros_like(r)) == 0 for r in radii),
        inverted=int((lower > upper).sum()),
        nonfinite=int((~(lower.isfinite() & upper.isfinite())).sum()),
    )


def _share(masks: Iterable[Tensor]) -> float | None:
    values = [mask.flatten() for mask in masks]
    return torch.cat(values).double().mean().item() if values else None


def is_finite(value: Any) -> bool:
    """Whether all floating-point tensors in ``value`` are finite."""
    return all(bool(tensor.isfinite().all()) for tensor in floating(value))


def failure_message(epoch: int, step: int, steps: int | None, cause: str) -> str:
    """Return the message of the error that is raised in training."""
    where = f"epoch {epoch}, step {step}" + ("" if steps is None else f" of {steps}")
    return (
        f"The loss or its gradient is not finite at {where}. {cause} The weights are those before "
        "this step. Try a smaller learning rate or smaller radii."
    )


def explain_failure(
    model: torch.nn.Module, forward: Callable[[Batch], tuple[Any, Tensor]], batch: Batch
) -> str:
    """Repeat a failed step, and name the first value that is not finite."""
    if find_not_finite(batch.x):
        (first,) = first_index(rows_not_finite(batch.x).cpu())
        row = int(batch.rows[first])
        return f"Input row {row} is not finite, maybe after augmentation."
    for name, parameter in model.named_parameters():
        if not is_finite(parameter):
            return f"The parameter {name} was not finite before."
    with recording(layers_of(model)) as calls:
        _, loss = forward(batch)
    for path, call in calls_with_paths(model, calls):
        layer = f"{path} ({type(call.module).__name__})"
        if not is_finite(call.inputs):
            return f"It began before layer {layer}, whose input is not finite."
        if not is_finite(call.output):
            return f"It began in layer {layer}: only its output is not finite."
    if not is_finite(loss):
        return "It began in the loss: every layer has finite outputs."
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    bad = [name for name, g in zip(parameters, gradients, strict=True) if not is_finite(g)]
    if bad:
        return f"The loss is finite, but the gradient of {bad[-1]} is not."
    return "The sum of the losses or gradients overflows."
