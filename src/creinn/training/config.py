"""The settings of one training run: a frozen dataclass, which can be imported without loading torch.

Defaults are the paper's (Section "Experiment setup") and, where it is silent, those of its authors' code.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train.

    Args:
        epochs: Passes over the training data.
        batch_size: Rows per step, on each rank if several train together. A last batch of a single row joins the one
            before it, for batch norm needs two.
        learning_rate: Of Adam, at the start.
        train: ``"all"`` parameters, or the ``"radii"`` alone: those of weights and biases, and the scale and shift of
            the radius in batch norms. The network of centres then predicts as before, bit for bit.
        milestones: Numbers of finished epochs at which the learning rate is multiplied by ``gamma``.
        gamma: See ``milestones``.
        seed: Decides all randomness but the initial weights, which are the model's.
        class_weight: Weight of each class in the loss; ``"balanced"`` is inverse to the class counts.
        device: Where to train, as torch names it; ``"auto"`` takes a GPU if there is one.
        mixed_precision: Compute in half precision where that is safe: bfloat16 on a CPU, float16 on a GPU.
        deterministic: Ask torch for deterministic algorithms only. A CPU needs it not; with CUDA the environment
            variable ``CUBLAS_WORKSPACE_CONFIG=:4096:8`` must be set as well.
        directory: Where to keep checkpoints and ``history.jsonl``, and to resume from. ``None`` writes nothing.
        checkpoint_every: Epochs from one checkpoint to the next.
        patience: Stop after so many epochs without a better validation loss; ``None`` never does.
        keep: Weights at the end: the ``"last"`` (the paper), or those of the ``"best"`` validation loss.
        workers: Processes that load the rows of a torch ``Dataset``; data in memory need none.
        progress: Whether to show a progress bar, or without a terminal a line every ten seconds.

    Raises:
        ValueError: If a value is out of range.
        TypeError: If a value is of the wrong type, or a name is unknown.

    Example:
        >>> TrainConfig(epochs=150, milestones=(80, 120)).learning_rate_at(80)
        0.0001
    """

    epochs: int = 100
    batch_size: int = 128
    learning_rate: float = 1e-3
    train: Literal["all", "radii"] = "all"
    milestones: tuple[int, ...] = ()
    gamma: float = 0.1
    seed: int = 0
    class_weight: Literal["balanced"] | tuple[float, ...] | None = None
    device: str = "cpu"
    mixed_precision: bool = False
    deterministic: bool = False
    directory: str | Path | None = None
    checkpoint_every: int = 1
    patience: int | None = None
    keep: Literal["last", "best"] = "last"
    workers: int = 0
    progress: bool = True

    def __post_init__(self) -> None:
        for name, least in (
            ("epochs", 1),
            ("batch_size", 1),
            ("checkpoint_every", 1),
            ("seed", 0),
            ("workers", 0),
        ):
            _check_integer(name, getattr(self, name), least)
        if self.patience is not None:
            _check_integer("patience", self.patience, 1)
        _check_positive("learning_rate", self.learning_rate)
        _check_positive("gamma", self.gamma)
        for name in ("mixed_precision", "deterministic", "progress"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}.")
        for name, one, other in (("keep", "last", "best"), ("train", "all", "radii")):
            if getattr(self, name) not in (one, other):
                raise ValueError(
                    f"{name} must be {one!r} or {other!r}, got {getattr(self, name)!r}."
                )
        if not isinstance(self.device, str):
            raise TypeError(
                f"device must be a string such as 'cpu', 'cuda:0' or 'auto', got {self.device!r}."
            )
        if self.directory is not None and not isinstance(self.directory, str | PathLike):
            raise TypeError(f"directory must be a path or None, got {self.directory!r}.")
        milestones = _as_tuple("milestones", self.milestones)
        for milestone in milestones:
            _check_integer("each of milestones", milestone, 1)
        if any(a >= b for a, b in pairwise(milestones)):
            raise ValueError(f"milestones must increase, got {milestones}.")
        object.__setattr__(self, "milestones", milestones)
        if self.class_weight is not None and self.class_weight != "balanced":
            weights = _as_tuple("class_weight", self.class_weight)
            for weight in weights:
                _check_positive("each of class_weight", weight)
            object.__setattr__(self, "class_weight", weights)

    def learning_rate_at(self, epoch: int) -> float:
        """Learning rate of the epoch that ``epoch`` finished ones precede."""
        return self.learning_rate * self.gamma ** sum(
            milestone <= epoch for milestone in self.milestones
        )


def _as_tuple(name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a sequence of numbers, got {value!r}.")
    return tuple(value)


def _check_integer(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")


def _check_positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    if not (isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number, got {value!r}.")
