"""Training and evaluation of the classifiers of the demo.

There are six classifiers with the same architecture, which are trained on the digits 0 to 7. A
CreINN-D is a trained SNN with a distance. The ensembles of CreINNs have half as many members as the
Deep Ensemble, so that the number of parameters is about the same for the paper's form (Section
"Ensemble strategy"). The out-of-distribution images are not used to choose any of the settings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import joblib
import torch
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor
from tqdm import tqdm

from creinn import data, models
from creinn.baselines.predictive import Predictive
from creinn.baselines.registry import build_classifier
from creinn.classifier.methods import METHODS
from creinn.credal.credal_set import CredalSet
from creinn.data import Dataset
from creinn.evaluation import AccuracyRejection, summary
from creinn.evaluation.summary import MEASURES
from creinn.graph.convert import credal
from creinn.report.tables import Cell, MeanStd
from creinn.training import TrainConfig, fit
from creinn.training.loop import derived_seed

ENSEMBLES = {
    "SNN": "Deep Ensemble",
    "CreINN": "CreINN ensemble",
    "CreINN-D": "CreINN-D ensemble",
}
"""Names of the single networks and of their ensembles."""

SECONDARY = ("AUARC", "AUPRC", "classes in the set, test digits")
"""Start of the measures that are not in the first table of the page."""

NAMES = tuple(name for pair in ENSEMBLES.items() for name in pair)
TEST, NEAR, FAR = GROUPS = ("test digits", "held-out digits", "photographs")
RULE = "maximality"
KNOWN = 8  # digits below this number are known classes
TRAIN_SHARE = 0.18  # of the images of known digits
VALIDATION = 1 / 6  # of the training images


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Settings of the demo; ``members`` is the size of the ensembles of CreINNs."""

    members: int = 5
    epochs: int = 40
    seed: int = 0
    jobs: int = 2
    progress: bool = True
    width: int = 8
    batch_size: int = 32
    learning_rate: float = 0.003

    def __post_init__(self) -> None:
        for name in ("members", "epochs", "jobs", "width"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")


class Trained(NamedTuple):
    """A trained network: its predictions by group, and what the page shows of it."""

    predictions: Mapping[str, Any]
    history: Sequence[Mapping[str, float | None]]
    parameters: int
    radii: Tensor | None  # of the last layer of an interval network


@dataclass(frozen=True)
class DemoResult:
    """Results; mappings are by the names of :data:`NAMES`, then of :data:`GROUPS`."""

    settings: Mapping[str, Any]
    sizes: Mapping[str, int]  # numbers of images
    data: Mapping[str, Dataset]
    predictions: Mapping[str, Mapping[str, Any]]  # of the first network of each kind
    runs: Mapping[str, Sequence[Mapping[str, float | None]]]  # one for an ensemble
    parameters: Mapping[str, int]
    histories: Mapping[str, Sequence[Mapping[str, float | None]]]  # of the first networks
    radii: Tensor  # of the last layer of the first CreINN
    seconds: float

    def table(self, complete: bool = True) -> list[dict[str, Cell]]:
        """Return one row for each measure; single networks have a mean and a deviation."""
        rows: list[dict[str, Cell]] = []
        if complete:
            rows.append({"measure": "parameters", **self.parameters})
        for measure in self.runs["SNN"][0]:
            if measure.startswith(SECONDARY) and not complete:
                continue
            row: dict[str, Cell] = {"measure": measure}
            for model, runs in self.runs.items():
                found = [value for run in runs if (value := run[measure]) is not None]
                row[model] = MeanStd.of(found) if found else None
            rows.append(row)
        return rows

    def curves(self) -> dict[str, dict[str, AccuracyRejection]]:
        """Return the accuracy-rejection curves on the test digits, by model and measure."""
        labels = self.data[TEST].labels
        found = {
            model: summary.rejection(of[TEST], labels) for model, of in self.predictions.items()
        }
        return {
            model: {f"{m} ({MEASURES[m]})": of[m] for m in measures_of(model)}
            for model, of in found.items()
        }


def measures_of(model: str) -> list[str]:
    """Return the uncertainties of a model; a single network has no epistemic one."""
    return [measure for measure in MEASURES if not (model == "SNN" and measure == "epistemic")]


def read_data(seed: int) -> tuple[Dataset, dict[str, Dataset]]:
    """Return the training images and the images of each group, of 8 by 8 pixels."""
    digits = load_digits()
    pixels = torch.from_numpy((digits.images * 255 / 16).round()).to(torch.uint8)[:, None]
    labels = torch.from_numpy(digits.target).long()
    images = Dataset("digits", pixels, labels, tuple("0123456789"))
    near = images.take((labels >= KNOWN).nonzero().flatten())
    chosen = labels < KNOWN
    known = Dataset("digits", pixels[chosen], labels[chosen], images.classes[:KNOWN])
    train, test = data.split(known, TRAIN_SHARE, seed)
    far = data.subset(photograph_patches(), len(near), seed)
    return train, {TEST: test, NEAR: near, FAR: far}


def photograph_patches() -> Dataset:
    """Return all patches of the two photographs of scikit-learn, which do not overlap."""
    blocks = [
        torch.tensor(photo).unfold(0, 8, 8).unfold(1, 8, 8) for photo in load_sample_images().images
    ]
    patches = torch.cat([block.flatten(0, 1) for block in blocks])
    labels = torch.zeros(len(patches), dtype=torch.long)
    red, green, blue = patches.int().unbind(1)
    grey = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16  # as in Pillow
    return Dataset(FAR, grey.to(torch.uint8).unsqueeze(1), labels, ("photograph",))


def run_demo(config: DemoConfig) -> DemoResult:
    """Train and evaluate all classifiers, with any number of processes.

    The number of processes does not change the results.

    Raises:
        FloatingPointError: If a training diverges.
        KeyboardInterrupt: If Ctrl-C interrupted a training.
    """
    started = perf_counter()
    train, groups = read_data(config.seed)
    part, validation = data.split(train, 1 - VALIDATION, config.seed)
    # The CreINNs take longest and come first, so that the processes finish together.
    tasks = [("CreINN", i) for i in range(config.members)]
    tasks += [("SNN", i) for i in range(2 * config.members)]
    calls = (
        joblib.delayed(train_network)(name, i, config, part, validation, groups)
        for name, i in tasks
    )
    outputs = joblib.Parallel(config.jobs, return_as="generator", batch_size=1)(calls)
    trained: dict[str, list[Trained]] = {name: [] for name in ENSEMBLES}
    for networks in tqdm(outputs, "demo", len(tasks), unit="network", disable=not config.progress):
        for name, network in networks.items():
            trained[name].append(network)
    shown = ("members", "width", "epochs", "batch_size", "learning_rate", "seed", "jobs")
    settings = {"known": KNOWN, "train_share": TRAIN_SHARE}
    settings |= {name: getattr(config, name) for name in shown}
    sizes = {"training": len(part), "validation": len(validation)}
    sizes |= {name: len(images) for name, images in groups.items()}
    found = _collect(trained, groups[TEST].labels)
    return DemoResult(settings, sizes, groups, **found, seconds=perf_counter() - started)


def train_network(
    name: str,
    index: int,
    config: DemoConfig,
    train: Dataset,
    validation: Dataset,
    groups: Mapping[str, Dataset],
) -> dict[str, Trained]:
    """Train one network and predict all groups, with one thread.

    The first SNNs are also the networks of the CreINN-D.
    """
    shape = {"num_classes": KNOWN, "in_channels": 1, "width": config.width}
    seed = 1000 * config.seed + index
    how = TrainConfig(
        epochs=config.epochs,
        batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        milestones=(max(1, round(0.75 * config.epochs)),),
        seed=seed,
        progress=False,
    )
    train_data, val_data = ((images.scaled(), images.labels) for images in (train, validation))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # fastest for small networks; the number of cores changes no result
    try:
        with torch.random.fork_rng([]):
            torch.manual_seed(derived_seed(seed, 0))
            architecture = partial(models.resnet8, **shape)
            model = build_classifier(METHODS[name.lower()], architecture)
            history = fit(model, train_data, val_data, how)
            if history.interrupted:
                raise KeyboardInterrupt
            found = {name: _trained(model, groups, history.rows)}
            if name == "SNN" and index < config.members:
                settings = {"mode": "paper", "distance": True, "temperature": True}
                model = credal(model, settings, needs_radii=False)
                model.fit_distance(*train_data, val_data)
                found["CreINN-D"] = _trained(model, groups, history.rows)
    finally:
        torch.set_num_threads(threads)
    return found


def _trained(model: Any, groups: Mapping[str, Dataset], history: Sequence[Any]) -> Trained:
    predictions = {group: model.predict(x.scaled()) for group, x in groups.items()}
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    radii = getattr(model.network.fc, "weight_radius", None)
    return Trained(predictions, history, parameters, None if radii is None else radii.detach())


def _collect(trained: Mapping[str, Sequence[Trained]], labels: Tensor) -> dict[str, Any]:
    """Return the fields of :class:`DemoResult` that follow from the trained networks."""
    found: dict[str, dict[str, Any]] = {
        field: {} for field in ("predictions", "runs", "parameters")
    }
    histories = {name: trained[name][0].history for name in ("SNN", "CreINN")}
    for name, networks in trained.items():
        of_all = [network.predictions for network in networks]
        average: Any = Predictive.pool if name == "SNN" else CredalSet.average
        joint = {group: average([of[group] for of in of_all]) for group in GROUPS}
        for model, runs in ((name, of_all), (ENSEMBLES[name], [joint])):
            found["predictions"][model] = runs[0]
            found["runs"][model] = [numbers_of(model, of, labels) for of in runs]
        found["parameters"][name] = networks[0].parameters
        found["parameters"][ENSEMBLES[name]] = sum(network.parameters for network in networks)
    return {**found, "histories": histories, "radii": trained["CreINN"][0].radii}


def numbers_of(
    model: str, predictions: Mapping[str, Any], labels: Tensor
) -> dict[str, float | None]:
    """Return the numbers of the table for one model, or ``None`` if not defined."""
    test = predictions[TEST]
    numbers: dict[str, float | None] = {"accuracy": summary.quality(test, labels)["accuracy"]}
    curves = summary.rejection(test, labels)
    numbers |= {f"AUARC, {short}": curves[measure].area for measure, short in MEASURES.items()}
    for group in (NEAR, FAR):
        detected = summary.detection(test, predictions[group])
        for quantity in ("auroc", "auprc"):
            for measure in ("epistemic", "total"):
                name = f"{quantity.upper()} {group}, {MEASURES[measure]}"
                numbers[name] = getattr(detected[measure], quantity)
    if "epistemic" not in measures_of(model):
        numbers |= {name: None for name in numbers if name.endswith("EU")}
    numbers = {name: value and round(value, 6) for name, value in numbers.items()}
    for group in GROUPS:
        numbers[f"classes in the set, {group}"] = summary.set_size(predictions[group], RULE)
    sets = summary.sets(test, labels, RULE)
    return numbers | {"coverage of the set": sets and sets.coverage}
