"""Division of an experiment into tasks with keys.

A key is a digest of all settings that affect the result. A task is done if a
record with its key exists. A change of a setting, of the data or of the version
of the code changes the keys of the tasks that depend on it.
"""

import hashlib
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from creinn.classifier.methods import METHODS, base_method, is_ensemble
from experiments.definition import Condition, Experiment

VERSIONS = {"train": 1, "evaluate": 1, "ensemble": 1, "time": 1}
"""Raise the version of a task if a change of the code changes results."""

DISTANCE_VERSION = 2  # version of the distance
STATISTICS_BATCH = 32  # batch size of predictions with batch statistics
RADII_EPOCHS = 3  # training of the radii of a trained network
Identity = tuple[str, str]  # name and digest of a set of images


@dataclass(frozen=True)
class Task:
    """A task of an experiment."""

    kind: Literal["train", "evaluate", "ensemble", "time"]
    method: str
    number: int  # seed of the run, or number of the drawn ensemble
    settings: Mapping[str, Any]  # settings that affect the result, as plain JSON
    needs: tuple["Task", ...] = ()  # required tasks
    condition: Condition = field(
        default_factory=Condition
    )  # training and test sets, which are also in the settings

    @cached_property
    def key(self) -> str:
        """Digest of kind, version, settings and required tasks."""
        parts = [
            self.kind,
            VERSIONS[self.kind],
            self.method,
            self.settings,
            [task.key for task in self.needs],
        ]
        return hashlib.sha256(
            json.dumps(parts, sort_keys=True, allow_nan=False).encode()
        ).hexdigest()[:16]

    @property
    def name(self) -> str:
        """Name of the files of the task without suffix."""
        return f"{self.kind}-{self.method}-{self.number}-{self.key}"


def make_plan(experiment: Experiment, data: Sequence[Identity]) -> list[Task]:
    """Divide an experiment into tasks, in the order of their dependencies.

    ``data`` contains the digests of the training images, the test images and
    each foreign set. Methods that are only part of an ensemble are trained too.
    """
    if experiment.timing is not None:
        return [_timing(experiment)]
    trainings: dict[str, Task] = {}
    evaluations, ensembles = [], []
    for condition in experiment.conditions:
        runs: dict[str, list[Task]] = {}
        for method in dict.fromkeys(map(base_method, experiment.methods)):
            seeds = range(experiment.first_seed, experiment.first_seed + experiment.runs(method))
            runs[method] = [
                _evaluation(experiment, data, condition, method, seed) for seed in seeds
            ]
            evaluations += runs[method]
            for (training,) in (evaluation.needs for evaluation in runs[method]):
                trainings |= {task.key: task for task in (*training.needs, training)}
        for method in filter(is_ensemble, experiment.methods):
            members = runs[base_method(method)]
            drawn = draw_members(len(members), experiment.ensemble_size(method), experiment.draws)
            for number, chosen in enumerate(drawn):
                ensembles.append(
                    Task(
                        "ensemble", method, number, {}, tuple(members[i] for i in chosen), condition
                    )
                )
    return [*trainings.values(), *evaluations, *ensembles]


def draw_members(runs: int, size: int, draws: int) -> list[tuple[int, ...]]:
    """Draw members of at most ``draws`` different ensembles, with a fixed seed.

    Example:
        >>> draw_members(5, 5, 15), len(draw_members(6, 5, 15))
        ([(0, 1, 2, 3, 4)], 6)
    """
    rng, drawn = random.Random(0), dict[tuple[int, ...], None]()
    while len(drawn) < min(draws, math.comb(runs, size)):
        drawn[tuple(sorted(rng.sample(range(runs), size)))] = None
    return list(drawn)


def _training(
    experiment: Experiment, data: Sequence[Identity], condition: Condition, method: str, seed: int
) -> Task:
    settings = {
        "data": data[0],
        "shift": condition.train and asdict(condition.train),
        "network": asdict(experiment.network),
        "logits": experiment.logits,
        "training": _training_settings(experiment),
        "normalisation": [experiment.mean, experiment.std],
        "options": experiment.options_of(method),
        "seed": seed,
    }
    if experiment.options_of(method).get("distance"):
        settings["distance_version"] = DISTANCE_VERSION
    needs: tuple[Task, ...] = ()
    if start := METHODS[method].start:
        settings["radii_epochs"] = RADII_EPOCHS if METHODS[method].trains else 0
        needs = (_training(experiment, data, condition, start, seed),)
    return Task("train", method, seed, _plain(settings), needs, condition)


def _training_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of the training that affect its key."""
    settings = asdict(experiment.training)
    if not experiment.training.mixed_precision:
        del settings["mixed_precision"]
    return settings


def _evaluation(
    experiment: Experiment, data: Sequence[Identity], condition: Condition, method: str, seed: int
) -> Task:
    settings = {
        "test": data[1],
        "shifts": [shift and asdict(shift) for shift in condition.tests],
        "ood": data[2:],
        "statistics_batch": STATISTICS_BATCH if experiment.batch_statistics else None,
    }
    training = _training(experiment, data, condition, method, seed)
    return Task("evaluate", method, seed, _plain(settings), (training,), condition)


def _timing(experiment: Experiment) -> Task:
    settings = {
        "methods": experiment.methods,
        "network": asdict(experiment.network),
        "logits": experiment.logits,
        "options": {method: dict(options) for method, options in experiment.options.items()},
        "timing": asdict(experiment)["timing"],
        "images": [experiment.test.name, experiment.test.size, experiment.test.channels],
    }
    return Task("time", "all", 0, _plain(settings))


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(settings))
