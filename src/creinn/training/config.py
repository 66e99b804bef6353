"""Settings of a training run; can be imported without torch.

The defaults are those of the paper (Section "Experiment setup") and of its
authors' code.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isfinite, sqrt
from os import PathLike
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of :func:`creinn.fit`.

    Args:
        epochs: Number of passes over the training data.
        batch_size: Rows per step and process; by default 64 to 256 (see
            :meth:`for_rows`). A last batch of one row joins the previous
            one, because batch norm needs two rows.
        learning_rate: Initial learning rate of Adam. ``None``, for small
            networks on tables, is 0.002 for a batch size of 64 and grows
            with its square root.
        train: ``"all"`` parameters, or ``"radii"`` of weights and biases,
            with the scale and shift of the radius in batch norms.
        milestones: Numbers of finished epochs after which the learning
            rate changes.
        gamma: Factor of the learning rate at each milestone.
        seed: Seed of all random numbers, except for the initial weights.
        class_weight: Weight of each class in the loss. ``"balanced"`` is
            inversely proportional to the class frequencies.
        device: Torch device. ``"auto"`` is a GPU if one is available.
        mixed_precision: Use autocast, with bfloat16 on a CPU or float16 on
            a GPU.
        deterministic: Use deterministic algorithms only. CUDA also needs
            the environment variable ``CUBLAS_WORKSPACE_CONFIG=:4096:8``.
        directory: Directory of checkpoints and ``history.jsonl``. ``None``
            writes nothing.
        checkpoint_every: Number of epochs between two checkpoints.
        patience: Number of epochs to wait for a smaller validation loss.
        keep: Final weights, of the ``"last"`` epoch as in the paper, or
            with the ``"best"`` validation loss.
        workers: Processes that load the rows of a torch ``Dataset``.
        progress: Show a progress bar, or a line every ten seconds without
            a terminal.

    Raises:
        ValueError: If a value is out of range.
        TypeError: If a type is wrong or a name is unknown.

    Example:
        >>> TrainConfig(epochs=150, milestones=(80, 120)).learning_rate_at(80)
        0.0001
    """

    epochs: int = 100
    batch_size: int | None = None
    learning_rate: float | None = 1e-3
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
        optional = [name for name in ("patience", "batch_size") if getattr(self, name) is not None]
        for name in ("epochs", "checkpoint_every", *optional):
            _check_integer(name, getattr(self, name), 1)
        for name in ("seed", "workers"):
            _check_integer(name, getattr(self, name), 0)
        if self.learning_rate is not None:
            _check_positive("learning_rate", self.learning_rate)
        _check_positive("gamma", self.gamma)
        types: dict[str, Any] = {"device": str, "directory": str | PathLike | None}
        types |= dict.fromkeys(("mixed_precision", "deterministic", "progress"), bool)
        for name, expected in types.items():
            if not isinstance(value := getattr(self, name), expected):
                expected = getattr(expected, "__name__", expected)
                raise TypeError(f"{name} must have the type {expected}, got {value!r}.")
        for name, choices in (("keep", ("last", "best")), ("train", ("all", "radii"))):
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"{name} must be one of {choices}, got {value!r}.")
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

    def for_rows(self, rows: int | None) -> "TrainConfig":
        """Return the settings with a batch size and a learning rate for ``rows`` rows.

        The default batch size is the largest power of two up to 1/32 of
        the number of rows, within 64 and 256, or 128 if this number is not
        known.

        Example:
            >>> [TrainConfig().for_rows(rows).batch_size for rows in (150, 5_000, 50_000)]
            [64, 128, 256]
            >>> TrainConfig(learning_rate=None).for_rows(50_000).learning_rate
            0.004
        """
        size, rate = self.batch_size, self.learning_rate
        if size is None:
            size = 128 if rows is None else min(256, max(64, 2 ** (rows // 32).bit_length() // 2))
        if rate is None:
            rate = 2e-3 * sqrt(size / 64)
        return replace(self, batch_size=size, learning_rate=rate)

    def learning_rate_at(self, epoch: int) -> float:
        """Return the learning rate after ``epoch`` finished epochs."""
        passed = sum(milestone <= epoch for milestone in self.milestones)
        return (self.learning_rate or 1e-3) * self.gamma**passed


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
