"""Tasks: train a network, evaluate it, combine an ensemble, or measure time.

Each task writes a record. An interrupted training resumes from its last
checkpoint. Evaluations store all predictions for the ensembles. The numbers
under ``"batch"`` use batch norm with the statistics of the test batch.
"""

import functools
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from operator import attrgetter
from typing import Any

import torch

from benchmarks.timing import interleaved
from creinn import models
from creinn.baselines.factory import CLASSES, build_classifier
from creinn.classifier.base import Classifier
from creinn.classifier.methods import METHODS, combination
from creinn.credal.credal_set import CredalSet
from creinn.device import choose_device
from creinn.files import read_tensors, write_tensors
from creinn.graph.convert import credal
from creinn.nn.affine import IntervalParameters
from creinn.report.provenance import provenance
from creinn.training import TrainConfig, fit
from creinn.training.history import Row
from creinn.training.loop import derived_seed
from experiments import predictions, preparation
from experiments.definition import Experiment
from experiments.plan import VERSIONS, Task
from experiments.preparation import Normalisation, Sources
from experiments.store import Store, read_arrays, write_arrays, write_json

_TILES = 16  # maximum number of recorded kernels
_FITTED_ON = 256  # batch size of timed predictions
_FINISHED = {
    "label": attrgetter("label"),
    "uncertainty": attrgetter("label", "total", "aleatoric", "epistemic"),
}


@dataclass(frozen=True)
class RunContext:
    """Arguments that all tasks of a run share."""

    experiment: Experiment
    sources: Sources
    store: Store
    command: str  # for the records
    device: str = "cpu"
    threads: int = 1  # torch device

    def record(self, task: Task, results: Mapping[str, Any]) -> None:
        """Write a record of a task with its settings."""
        head = {
            **{name: getattr(task, name) for name in ("kind", "method", "number", "key")},
            "version": VERSIONS[task.kind],
            "settings": task.settings,
            "needs": [needed.key for needed in task.needs],
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        origin = {**_origin(self.command), "device": self.device, "threads": self.threads}
        write_json(self.store.path("records", task), {**head, **origin, **results})

    def build(self, training: Task) -> Classifier:
        """Build the network of a task from its seed or starting network."""
        experiment, network = self.experiment, self.experiment.network
        options = experiment.options_of(training.method)
        if training.needs:
            if not METHODS[training.method].is_credal:  # post hoc, such as BNN-L
                return CLASSES[METHODS[training.method].classifier].from_options(
                    self.trained(training.needs[0])[0].network, **options
                )
            needs_radii = options.pop("layers", "interval") != "ordinary"
            return credal(
                self.trained(training.needs[0])[0], {"mode": "paper", **options}, needs_radii
            )
        shape: dict[str, Any] = {
            "num_classes": experiment.logits,
            "in_channels": self.sources.train.shape[1],
        }
        shape |= (
            {"width": network.width}
            if network.stem is None
            else {"width": network.width, "stem": network.stem}
        )
        with torch.random.fork_rng([]):
            torch.manual_seed(derived_seed(training.number, 0))
            architecture = functools.partial(models.BUILDERS[network.builder], **shape)
            return build_classifier(METHODS[training.method], architecture, **options)

    def trained(self, training: Task) -> tuple[Any, Normalisation]:
        """Return the trained network of a task and its normalisation."""
        model = self.build(training)
        weights, header = read_tensors(self.store.path("weights", training))
        model.load_state_dict(weights)
        return model, Normalisation(tuple(header["mean"]), tuple(header["std"]))


_origin = functools.cache(provenance)  # provenance of the worker


def train(context: RunContext, task: Task) -> None:
    """Train a network and store its weights and a record.

    Raises:
        KeyboardInterrupt: If Ctrl-C was pressed; the last checkpoint is kept.
    """
    part, validation = preparation.divide(context.sources.train.read(), context.experiment.training)
    normalise = preparation.normalisation(context.experiment, part)
    model: Any = context.build(task)
    rows: Sequence[Row] = ()
    train_data, val_data = (
        (preparation.network_inputs(data, task.condition.train, normalise), data.labels)
        for data in (part, validation)
    )
    if task.settings.get("radii_epochs") == 0:
        started = time.perf_counter()
        model.to(choose_device(context.device))
        if METHODS[task.method].is_credal:
            model.fit_distance(*train_data, val_data)
        else:
            x, y = train_data
            model.eval().after_training(
                [(x[i : i + 256], y[i : i + 256]) for i in range(0, len(x), 256)]
            )
        seconds = time.perf_counter() - started
    else:
        augment = context.experiment.training.augment
        changes = (
            None
            if augment == "none"
            else preparation.CropFlip(normalise, flip=augment == "crop-flip")
        )
        history = fit(model, train_data, val_data, _config(context, task), changes)
        if history.interrupted:
            raise KeyboardInterrupt
        rows = history.rows
        seconds = sum(row["seconds"] or 0 for row in rows)
    header = {"piece": task.key, "mean": list(normalise.mean), "std": list(normalise.std)}
    write_tensors(context.store.path("weights", task), model.state_dict(), header)
    starts = [context.store.read_record(start) or {} for start in task.needs]
    results = {
        "parameters": _count_parameters(model),
        "images": {"train": len(part), "validation": len(validation)},
        "seconds": round(seconds + sum(start.get("seconds", 0) for start in starts), 2),
        "radii": describe_radii(model),
        "history": [{name: _rounded(value) for name, value in row.items()} for row in rows],
    }
    if getattr(model, "distance_radius", None) is not None:
        results["distance_scale"] = _rounded(model.distance_radius.scale)
    context.record(task, results)
    shutil.rmtree(context.store.path("training", task), ignore_errors=True)


def _config(context: RunContext, task: Task) -> TrainConfig:
    """Return the settings for training all parameters or the radii."""
    training, radii_epochs = context.experiment.training, task.settings.get("radii_epochs")
    return TrainConfig(
        epochs=radii_epochs or training.epochs,
        batch_size=training.batch_size,
        learning_rate=training.learning_rate,
        train="radii" if radii_epochs else "all",
        milestones=() if radii_epochs else training.milestones,
        seed=task.number,
        device=context.device,
        mixed_precision=training.mixed_precision,
        directory=context.store.path("training", task),
        progress=False,
    )


def describe_radii(model: torch.nn.Module) -> dict[str, Any] | None:
    """Return the first kernels of radii and the share of zeros, if any."""
    layers = {
        name: part for name, part in model.named_modules() if isinstance(part, IntervalParameters)
    }
    name = next((name for name, part in layers.items() if part.weight_radius.ndim == 4), None)
    if name is None:
        return None
    first = layers[name]
    kernels = first.weight_radius.detach().cpu()[:_TILES, 0]
    count, height, width = kernels.shape
    rows = next(r for r in range(int(count**0.5), 0, -1) if count % r == 0)
    tiles = (
        kernels.reshape(rows, count // rows, height, width)
        .permute(0, 2, 1, 3)
        .reshape(rows * height, -1)
    )
    radii = torch.cat(
        [part.weight_radius.detach().cpu().flatten() for part in layers.values()]
    ).double()
    return {
        "layer": name,
        "shape": list(first.weight_radius.shape),
        "matrix": [[_rounded(value) for value in row] for row in tiles.tolist()],
        "zero_share": _rounded((radii == 0).double().mean()),
        "mean": _rounded(radii.mean()),
    }


def evaluate(context: RunContext, task: Task) -> None:
    """Predict all test sets and record the quality."""
    model, normalise = context.trained(task.needs[0])
    model.to(choose_device(context.device))
    test = context.sources.test.read()
    groups = [
        ("test", str(shift or predictions.POINTS), test, shift) for shift in task.condition.tests
    ]
    groups += [("ood", source.name, source.read(), None) for source in context.sources.ood]
    ways: dict[str, Callable[[Any], Any]] = {"running": model.predict}
    if (size := task.settings["statistics_batch"]) and predictions.batch_norms(model):
        ways["batch"] = functools.partial(predictions.predict_by_batch, model, batch_size=size)
    found: predictions.Predictions = {kind: {"test": {}, "ood": {}} for kind in ways}
    seconds, images = 0.0, 0
    for group, name, data, shift in groups:
        x = preparation.network_inputs(data, shift, normalise)
        for kind, predict in ways.items():
            started = time.perf_counter()
            with torch.random.fork_rng():
                torch.manual_seed(derived_seed(task.number, 0))
                found[kind][group][name] = predict(x).to("cpu")
            seconds, images = seconds + time.perf_counter() - started, images + len(x)
    arrays = {"labels": test.labels.numpy(), **predictions.to_arrays(found)}
    write_arrays(context.store.path("predictions", task), arrays)
    results = {
        "seconds": round(seconds, 2),
        "milliseconds_per_image": round(1000 * seconds / images, 4),
        "metrics": _measure(found, test.labels, task),
    }
    first = next(iter(found["running"]["test"].values()))
    if task.number == context.experiment.first_seed and isinstance(first, CredalSet):
        results["examples"] = predictions.describe_examples(first, test)
    context.record(task, results)


def combine(context: RunContext, task: Task) -> None:
    """Record the quality of an ensemble of stored predictions."""
    started = time.perf_counter()
    members = [read_arrays(context.store.path("predictions", member)) for member in task.needs]
    found = predictions.from_arrays(members, combination(task.method))
    results = {
        "members": [member.number for member in task.needs],
        "metrics": _measure(found, torch.from_numpy(members[0]["labels"]), task),
    }
    context.record(task, {"seconds": round(time.perf_counter() - started, 2), **results})


def _measure(found: predictions.Predictions, labels: torch.Tensor, task: Task) -> dict[str, Any]:
    tests = task.condition.tests
    return {
        kind: predictions.measure_all(of["test"], labels, of["ood"], tests)
        for kind, of in found.items()
    }


def measure_time(context: RunContext, task: Task) -> None:
    """Record the time per call for the table of inference times.

    The methods run alternately, so that other work on the machine affects all
    of them. The networks are not trained.
    """
    experiment, device = context.experiment, choose_device(context.device)
    assert experiment.timing is not None
    images = context.sources.test.read()
    x = preparation.network_inputs(images, None, preparation.normalisation(experiment, images))
    fitted_on = x[:_FITTED_ON].to(device), images.labels[:_FITTED_ON].to(device)
    networks: dict[str, Any] = {
        m: context.build(Task("train", m, 0, {})).to(device).eval() for m in experiment.methods
    }
    for model in networks.values():
        model.before_training([fitted_on], 1)
        model.after_training([fitted_on])  # required by post-hoc methods
    results: dict[str, Any] = {method: {} for method in networks}
    for size in experiment.timing.batches:
        batch = x[:size].to(device)
        for what, finish in _FINISHED.items():
            calls = {
                method: functools.partial(_call, model, batch, finish)
                for method, model in networks.items()
            }
            with torch.no_grad():
                timings = interleaved(calls, experiment.timing.rounds, device=device)
            for method, found in timings.items():
                seconds = {
                    name: float(f"{getattr(found, name):.4g}") for name in ("least", "median")
                }
                results[method].setdefault(str(size), {})[what] = seconds
    parameters = {method: _count_parameters(model) for method, model in networks.items()}
    context.record(task, {"parameters": parameters, "seconds_per_call": results})


def _call(model: torch.nn.Module, x: Any, finish: Callable[[Any], Any]) -> None:
    finish(model(x))


def _count_parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _rounded(value: Any) -> float | None:
    """Round a number to seven digits."""
    return None if value is None else float(f"{float(value):.7g}")
