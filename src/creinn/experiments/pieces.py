"""The work of one piece: train a network, evaluate it, or make an ensemble of evaluated ones; each leaves one record.

A training that was killed goes on from its last checkpoint. Evaluation stores all predictions, so that ensembles need
no second inference. Batch norms use running statistics; the numbers under ``"batch"`` are those with the statistics of
the test batch, see :mod:`creinn.experiments.methods`.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from creinn.classifier.base import Classifier, Prediction
from creinn.credal.credal_set import CredalSet
from creinn.experiments import inputs, methods
from creinn.experiments.definition import Arm, Experiment
from creinn.experiments.inputs import Normalisation, Sources
from creinn.experiments.plan import Piece
from creinn.experiments.records import describe_examples, describe_radii, measure_all, record_of, rounded, set_name
from creinn.experiments.store import Store
from creinn.files import read_tensors, write_tensors
from creinn.training import TrainConfig, fit
from creinn.training.history import Row
from creinn.training.loop import choose_device
from creinn.training.seeding import derived_seed
from creinn.training.start import credal

Predictions = dict[str, dict[str, dict[str, Prediction]]]  # by statistics, then "test" or "ood", then name of the set


@dataclass(frozen=True)
class Workshop:
    """What every piece of a run is given.

    Args:
        experiment: The experiment.
        sources: Its prepared images.
        store: Where results go.
        origin: Versions, commit, system and the like, for the records.
        device: Where to compute.
        threads: Threads of torch.
    """

    experiment: Experiment
    sources: Sources
    store: Store
    origin: Mapping[str, Any]
    device: str = "cpu"
    threads: int = 1

    def record(self, piece: Piece, results: Mapping[str, Any]) -> None:
        """Write the record of a piece."""
        origin = {**self.origin, "device": self.device, "threads": self.threads}
        self.store.write_record(piece, record_of(piece, origin, results))

    def build(self, training: Piece) -> Classifier:
        """The untrained network of a piece: initial weights by its seed, or the trained network that it starts from."""
        experiment = self.experiment
        options = experiment.options_of(training.method)
        if training.needs:
            needs_radii = options.pop("layers", "interval") != "ordinary"
            return credal(self.trained(training.needs[0])[0], {"mode": "paper", **options}, needs_radii)
        with torch.random.fork_rng([]):
            torch.manual_seed(derived_seed(training.number, 0))
            channels = self.sources.train.shape[1]
            return methods.build(training.method, experiment.network, experiment.logits, channels, options)

    def trained(self, training: Piece) -> tuple[Any, Normalisation]:
        """The trained network of a piece, and how its inputs are normalised."""
        model = self.build(training)
        weights, header = read_tensors(self.store.weights_path(training))
        model.load_state_dict(weights)
        return model, Normalisation(tuple(header["mean"]), tuple(header["std"]))


def train(shop: Workshop, piece: Piece, arm: Arm) -> None:
    """Train one network; its weights and a record are kept.

    Raises:
        KeyboardInterrupt: If Ctrl-C came; the last checkpoint is kept.
    """
    part, validation = inputs.divide(shop.sources.train.read(), shop.experiment.training)
    normalise = inputs.normalisation(shop.experiment, part)
    model: Any = shop.build(piece)
    rows: Sequence[Row] = ()
    train_data, val_data = (
        (inputs.network_inputs(data, arm.train, normalise), data.labels) for data in (part, validation)
    )
    if piece.settings.get("radii_epochs") == 0:
        started = time.perf_counter()
        model.to(choose_device(shop.device)).fit_distance(*train_data, val_data)
        seconds = time.perf_counter() - started
    else:
        rows = _fit(shop, piece, model, train_data, val_data, inputs.augmentation(shop.experiment.training, normalise))
        seconds = sum(row["seconds"] or 0 for row in rows)
    header = {"piece": piece.key, "mean": list(normalise.mean), "std": list(normalise.std)}
    write_tensors(shop.store.weights_path(piece), model.state_dict(), header)
    starts = [shop.store.read_record(start) or {} for start in piece.needs]
    results = {
        "parameters": methods.count_parameters(model),
        "images": {"train": len(part), "validation": len(validation)},
        "seconds": round(seconds + sum(start.get("seconds", 0) for start in starts), 2),
        "radii": describe_radii(model),
        "history": [{name: rounded(value) for name, value in row.items()} for row in rows],
    }
    if getattr(model, "distance_radius", None) is not None:
        results["distance_scale"] = rounded(model.distance_radius.scale)
    shop.record(piece, results)
    shop.store.forget_training(piece)


def _fit(shop: Workshop, piece: Piece, model: Any, train_data: Any, val_data: Any, augment: Any) -> Sequence[Row]:
    """Train all of a network, or the radii of one that is trained already; gives the rows of its history."""
    training, radii_epochs = shop.experiment.training, piece.settings.get("radii_epochs")
    config = TrainConfig(
        epochs=radii_epochs or training.epochs,
        batch_size=training.batch_size,
        learning_rate=training.learning_rate,
        train="radii" if radii_epochs else "all",
        milestones=() if radii_epochs else training.milestones,
        seed=piece.number,
        device=shop.device,
        directory=shop.store.training_folder(piece),
        progress=False,
    )
    history = fit(model, train_data, val_data, config, augment)
    if history.interrupted:
        raise KeyboardInterrupt
    return history.rows


def evaluate(shop: Workshop, piece: Piece, arm: Arm) -> None:
    """Predict all test sets with a trained network; the predictions and a record of their quality are kept."""
    (training,) = piece.needs
    model, normalise = shop.trained(training)
    model.to(choose_device(shop.device))
    test = shop.sources.test.read()
    groups = [("test", set_name(shift), test, shift) for shift in arm.tests]
    groups += [("ood", source.name, source.read(), None) for source in shop.sources.ood]
    kinds = ("running", "batch") if methods.has_batch_norm(model) else ("running",)
    predictions: Predictions = {kind: {"test": {}, "ood": {}} for kind in kinds}
    seconds, images = 0.0, 0
    for group, name, data, shift in groups:
        x = inputs.network_inputs(data, shift, normalise)
        for kind in kinds:
            started = time.perf_counter()
            with torch.random.fork_rng():
                torch.manual_seed(derived_seed(piece.number, 0))
                by_batch = kind == "batch"
                size = piece.settings["statistics_batch"]
                prediction = methods.predict_by_batch(model, x, size) if by_batch else model.predict(x)
            predictions[kind][group][name] = prediction.to("cpu")
            seconds, images = seconds + time.perf_counter() - started, images + len(x)
    arrays = {
        f"{kind}/{group}/{name}/{part}": array
        for kind, by_group in predictions.items()
        for group, by_name in by_group.items()
        for name, prediction in by_name.items()
        for part, array in methods.to_arrays(prediction).items()
    }
    shop.store.write_predictions(piece, {"labels": test.labels.numpy(), **arrays})
    results = {
        "seconds": round(seconds, 2),
        "milliseconds_per_image": round(1000 * seconds / images, 4),
        "metrics": _measure(predictions, test.labels, arm),
    }
    first = next(iter(predictions["running"]["test"].values()))
    if piece.number == 0 and isinstance(first, CredalSet):
        results["examples"] = describe_examples(first, test)
    shop.record(piece, results)


def combine(shop: Workshop, piece: Piece, arm: Arm) -> None:
    """Make an ensemble from the predictions of its members, and record its quality."""
    started = time.perf_counter()
    members = [shop.store.read_predictions(member) for member in piece.needs]
    predictions: Predictions = {}
    for kind, group, name in dict.fromkeys(tuple(key.split("/")[:3]) for key in members[0] if key != "labels"):
        start = f"{kind}/{group}/{name}/"
        parts = [{key.removeprefix(start): m[key] for key in m if key.startswith(start)} for m in members]
        predictions.setdefault(kind, {"test": {}, "ood": {}})[group][name] = methods.combine(
            parts, piece.method.endswith("-envelope")
        )
    results = {
        "members": [member.number for member in piece.needs],
        "metrics": _measure(predictions, torch.from_numpy(members[0]["labels"]), arm),
    }
    shop.record(piece, {"seconds": round(time.perf_counter() - started, 2), **results})


def _measure(predictions: Predictions, labels: torch.Tensor, arm: Arm) -> dict[str, Any]:
    return {kind: measure_all(found["test"], labels, found["ood"], arm.tests) for kind, found in predictions.items()}
