"""A small study on data that ship with scikit-learn: train, predict, evaluate; draws nothing.

In: :class:`DemoConfig`. Out: :class:`DemoResult`. Six classifiers of one architecture learn the digits 0 to 7 from
8×8 images: an ordinary network (SNN); a Deep Ensemble of such; a CreINN of the paper's form; an ensemble of such with
half as many members, so that both ensembles have about the same number of parameters (Section "Ensemble strategy"); and
the recommended form, CreINN-D, alone and as an ensemble of as many members as that of CreINNs. They are then asked
about digits they can know, digits they have never seen (near out-of-distribution) and patches of photographs (far
out-of-distribution). Nothing is chosen by looking at the out-of-distribution images: the CreINN-D keep some of the
training images apart, and choose the scale of their distance on these.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor
from tqdm import tqdm

from creinn import models
from creinn.classifier.base import Classifier
from creinn.classifier.creinn import CreINN, Ensemble
from creinn.classifier.methods import METHODS
from creinn.data import Dataset, split
from creinn.evaluation import AccuracyRejection, summary
from creinn.evaluation.summary import MEASURES
from creinn.report.tables import Cell, Spread
from creinn.rivals import DeepEnsemble
from creinn.training import History, TrainConfig, fit

SNN_NAME, DE_NAME, CREINN_NAME, CREINN_ENSEMBLE_NAME, D_NAME, D_ENSEMBLE_NAME = MODELS = (
    *("SNN", "Deep Ensemble", "CreINN", "CreINN ensemble", "CreINN-D", "CreINN-D ensemble"),
)
TEST, NEAR, FAR = GROUPS = ("test digits", "held-out digits", "photographs")
RULE = "maximality"
APART = 1 / 6  # of the training images, for the scale of CreINN-D

Kind = Literal["SNN", "CreINN", "CreINN-D"]
Prediction = Any  # a CredalSet or a Predictive; both have label, total, aleatoric, epistemic


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Settings of the study.

    Args:
        known: Digits below this number are learnt, the others held out.
        train_share: Share of the known digits to learn from; the rest is for testing.
        members: Members of the ensembles of either form of CreINN; the Deep Ensemble has twice as many.
        width: Channels of the first stage of the ResNet-8.
        epochs: Passes over the training images.
        batch_size: Images per step.
        learning_rate: Of Adam; a tenth of it in the last quarter of the epochs.
        seed: Decides everything random.
        jobs: Processes that train at the same time; the result does not depend on it.
    """

    known: int = 8
    train_share: float = 0.15
    members: int = 5
    width: int = 8
    epochs: int = 40
    batch_size: int = 32
    learning_rate: float = 3e-3
    seed: int = 0
    jobs: int = 2

    def __post_init__(self) -> None:
        if not 3 <= self.known <= 9:
            raise ValueError(f"known must be 3 .. 9, so that some digits are held out, got {self.known}.")
        for name in ("members", "epochs", "jobs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")


@dataclass(frozen=True)
class DemoData:
    """Images in [0, 1] of shape ``(n, 1, 8, 8)``: to learn from, to test on, and out of distribution."""

    train: Dataset
    test: Dataset
    near: Tensor
    far: Tensor

    @property
    def groups(self) -> dict[str, Tensor]:
        """Images to predict, by the name of their group."""
        assert isinstance(self.test.inputs, Tensor)
        return {TEST: self.test.inputs, NEAR: self.near, FAR: self.far}


@dataclass(frozen=True)
class DemoResult:
    """What came out.

    Args:
        config: The settings.
        data: The images.
        predictions: By model, then by group of images; of the single networks the first is given.
        runs: By model, the numbers of each that was trained: one run of an ensemble, several of a single network.
        parameters: By model, how many numbers it learns.
        histories: Training history of the first network of each kind.
        creinn: The first CreINN of the paper's form.
        seconds: Time of training, prediction and evaluation.
    """

    config: DemoConfig
    data: DemoData
    predictions: Mapping[str, Mapping[str, Prediction]]
    runs: Mapping[str, Sequence[Mapping[str, float | None]]]
    parameters: Mapping[str, int]
    histories: Mapping[str, History]
    creinn: CreINN
    seconds: float

    def table(self) -> list[dict[str, Cell]]:
        """One row per measure, one column per model; mean and standard deviation over the runs of single networks."""
        rows: list[dict[str, Cell]] = [{"measure": "parameters", **self.parameters}]
        for measure in self.runs[SNN_NAME][0]:
            row: dict[str, Cell] = {"measure": measure}
            for model, runs in self.runs.items():
                values = [value for run in runs if (value := run[measure]) is not None]
                row[model] = Spread.of(values) if values else None
            rows.append(row)
        return rows

    def curves(self) -> dict[str, dict[str, AccuracyRejection]]:
        """Accuracy-rejection curves on the test digits, by model and measure; a constant measure has none."""
        curves = {name: summary.rejection(of[TEST], self.data.test.labels) for name, of in self.predictions.items()}
        return {name: {measure: found[measure] for measure in measures_of(name)} for name, found in curves.items()}


def measures_of(model: str) -> list[str]:
    """Uncertainties that a model has: one network has no epistemic one, and its total equals its aleatoric."""
    return [measure for measure in MEASURES if not (model == SNN_NAME and measure == "epistemic")]


def run_demo(config: DemoConfig, progress: bool = True) -> DemoResult:
    """Run the study.

    Raises:
        KeyboardInterrupt: If Ctrl-C interrupted the training.
    """
    started = perf_counter()
    data = demo_data(config)
    kinds: list[tuple[Kind, int]] = [("CreINN", i) for i in range(config.members)]
    kinds += [("CreINN-D", i) for i in range(config.members)]
    kinds += [("SNN", i) for i in range(2 * config.members)]
    tasks = (delayed(train_member)(kind, member, config, data.train) for kind, member in kinds)
    with one_thread():
        trained = Parallel(n_jobs=config.jobs, return_as="generator")(tasks)
        bar = tqdm(trained, total=len(kinds), desc="training", unit="network", disable=not progress)
        found = {kind: list[Any]() for kind, _ in kinds}
        histories: dict[str, History] = {}
        for (kind, _), (model, history) in zip(kinds, bar, strict=True):
            found[kind].append(model.eval())
            histories.setdefault(kind, history)
        members = {
            SNN_NAME: found["SNN"],
            DE_NAME: [DeepEnsemble(found["SNN"])],
            CREINN_NAME: found["CreINN"],
            CREINN_ENSEMBLE_NAME: [Ensemble(found["CreINN"])],
            D_NAME: found["CreINN-D"],
            D_ENSEMBLE_NAME: [Ensemble(found["CreINN-D"])],
        }
        predicted = {name: [_predict(model, data) for model in kind] for name, kind in members.items()}
        labels = data.test.labels
        runs = {name: [evaluate(name, one, labels) for one in several] for name, several in predicted.items()}
    return DemoResult(
        config=config,
        data=data,
        predictions={name: several[0] for name, several in predicted.items()},
        runs=runs,
        parameters={name: sum(p.numel() for p in kind[0].parameters()) for name, kind in members.items()},
        histories={name: histories[name] for name in MODELS if name in histories},
        creinn=found["CreINN"][0],
        seconds=perf_counter() - started,
    )


def demo_data(config: DemoConfig) -> DemoData:
    """Digits, split by the seed, and as many patches of photographs as there are held-out digits."""
    digits = load_digits()
    images = torch.from_numpy(digits.images).float().unsqueeze(1) / 16
    labels = torch.from_numpy(digits.target).long()
    known = labels < config.known
    names = tuple(str(digit) for digit in range(config.known))
    train, test = split(Dataset("digits", images[known], labels[known], names), config.train_share, config.seed)
    near = images[~known]
    return DemoData(train, test, near, photograph_patches(len(near), config.seed))


def photograph_patches(count: int, seed: int) -> Tensor:
    """Draw 8×8 grey patches, no two overlapping, from scikit-learn's two sample photographs.

    Raises:
        ValueError: If the photographs have fewer patches.
    """
    found = []
    for photograph in load_sample_images().images:
        grey = photograph @ np.array([0.299, 0.587, 0.114]) / 255
        height, width = (side // 8 * 8 for side in grey.shape)
        blocks = grey[:height, :width].reshape(height // 8, 8, width // 8, 8).swapaxes(1, 2)
        found.append(blocks.reshape(-1, 1, 8, 8))
    patches = np.concatenate(found)
    if count > len(patches):
        raise ValueError(f"The sample photographs have {len(patches)} patches of 8x8, but {count} were asked for.")
    chosen = np.random.default_rng(seed).choice(len(patches), count, replace=False)
    return torch.from_numpy(patches[chosen]).float().clamp(0, 1)


def train_member(kind: Kind, member: int, config: DemoConfig, train: Dataset) -> tuple[Classifier, History]:
    """Train one network from a seed of its own."""
    seed = 1000 * config.seed + member
    with one_thread(), torch.random.fork_rng([]):
        torch.manual_seed(seed)
        network = partial(models.resnet8, config.known, in_channels=1, width=config.width)
        model: Classifier = METHODS[kind.lower()].build(network)
        settings = TrainConfig(
            epochs=config.epochs,
            batch_size=config.batch_size,
            learning_rate=config.learning_rate,
            milestones=(3 * config.epochs // 4,) if config.epochs > 1 else (),
            seed=seed,
            progress=False,
        )
        apart, kept = split(train, APART, seed) if kind == "CreINN-D" else (None, train)
        history = fit(model, kept, apart, settings)
    if history.interrupted:
        raise KeyboardInterrupt
    return model, history


def evaluate(model: str, predictions: Mapping[str, Prediction], labels: Tensor) -> dict[str, float | None]:
    """Every number of the table for one model; ``None`` where it does not apply."""
    test, applies = predictions[TEST], measures_of(model)
    numbers: dict[str, float | None] = {"accuracy": summary.quality(test, labels)["accuracy"]}
    for measure, curve in summary.rejection(test, labels).items():
        numbers[f"AUARC, {MEASURES[measure]}"] = curve.area if measure in applies else None
    for group in (NEAR, FAR):
        found = summary.detection(test, predictions[group])
        for quantity in ("auroc", "auprc"):
            for measure in ("epistemic", "total"):
                name = f"{quantity.upper()} {group}, {MEASURES[measure]}"
                numbers[name] = getattr(found[measure], quantity) if measure in applies else None
    for group in GROUPS:
        numbers[f"classes in the set, {group}"] = summary.set_size(predictions[group], RULE)
    sets = summary.sets(test, labels, RULE)
    numbers["coverage of the set"] = None if sets is None else sets.coverage
    return numbers


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread: quickest for small networks, and the number of cores changes no result."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _predict(model: Classifier, data: DemoData) -> dict[str, Prediction]:
    return {group: model.predict(images) for group, images in data.groups.items()}
