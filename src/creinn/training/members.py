"""Members of an ensemble: the same classifier built and trained several times, each from a seed of its own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from creinn.classifier.base import Classifier
from creinn.training import History, TrainConfig, fit
from creinn.training.seeding import derived_seed

AnyClassifier = TypeVar("AnyClassifier", bound=Classifier)


def fit_members(
    build: Callable[[], AnyClassifier],
    count: int,
    train_data: Any,
    val_data: Any,
    config: TrainConfig,
    augment: Any = None,
) -> tuple[list[AnyClassifier], list[History]]:
    """Build and train ``count`` classifiers; each has initial weights, order of rows and augmentation of its own.

    Args:
        build: Makes an untrained classifier; called with torch seeded.
        count: How many.
        train_data: As in :func:`creinn.fit`.
        val_data: As in :func:`creinn.fit`.
        config: Settings; ``seed`` decides the seeds of the members, and each has a folder of its own in ``directory``.
        augment: As in :func:`creinn.fit`.

    Returns:
        Classifiers and histories; fewer than ``count`` if the last history is ``interrupted``.
    """
    members, histories = [], []
    for index in range(count):
        seed = derived_seed(config.seed, index)
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            model = build()
        folder = None if config.directory is None else Path(config.directory) / f"member-{index}"
        history = fit(model, train_data, val_data, replace(config, seed=seed, directory=folder), augment)
        members.append(model)
        histories.append(history)
        if history.interrupted:
            break
    return members, histories
