"""What is measured: architectures, batch sizes, contenders, and how long it may take."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.speed.architectures import FULL, SMALL, Architecture
from benchmarks.speed.contenders import LABELS, REFERENCE

from creinn.evaluation.timing import LEAST_ROUNDS

PARTS = ("inference", "training", "memory", "scaling")
"""What can be measured."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All that decides what is measured.

    Attributes:
        architectures: Networks, by name.
        batches: Rows of an inference call.
        training_batch: Rows of a training step.
        memory_batch: Rows of the calls whose memory is measured; also twice as many.
        contenders: Names of :data:`benchmarks.speed.contenders.LABELS`.
        parts: Of :data:`PARTS`.
        rounds: Turns of each contender at most.
        seconds: Time after which a cell of the tables, one model and batch, ends; not before three rounds.
        limit: Seconds; a contender whose one call takes longer is left out of the cell, and the table says so.
        sizes: Of the networks by which cost is measured against depth, width and classes.
        device: Where to compute.
        quick: Whether these are the small networks.
    """

    architectures: tuple[str, ...]
    batches: tuple[int, ...]
    training_batch: int
    memory_batch: int
    contenders: tuple[str, ...] = tuple(LABELS)
    parts: tuple[str, ...] = PARTS
    rounds: int
    seconds: float
    limit: float
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    device: str = "cpu"
    quick: bool = False

    def __post_init__(self) -> None:
        for name, batch in [("A batch", b) for b in self.batches] + [("memory_batch", self.memory_batch)]:
            if batch < 1:
                raise ValueError(f"{name} must have at least 1 row, got {batch}.")
        if not self.batches:
            raise ValueError("There is no batch size; give one or more, such as 1,32.")
        if self.training_batch < 2:
            raise ValueError(
                f"A training step needs at least 2 rows for batch norm, but training_batch is {self.training_batch}."
            )
        if self.rounds < LEAST_ROUNDS:
            raise ValueError(f"rounds must be at least {LEAST_ROUNDS}, or a median means little; got {self.rounds}.")
        for name, seconds in (("seconds", self.seconds), ("limit", self.limit)):
            if not (math.isfinite(seconds) and seconds > 0):
                raise ValueError(f"{name} must be a positive number of seconds, got {seconds}.")
        _check_known("contender", self.contenders, LABELS)
        _check_known("part", self.parts, PARTS)
        if REFERENCE not in self.contenders:
            raise ValueError(f"The contenders lack {REFERENCE!r}, which all ratios refer to. Add it.")

    def architecture(self, name: str) -> Architecture:
        """The network of that name, small if ``quick``."""
        return (SMALL if self.quick else FULL)[name]

    def plain(self) -> dict[str, Any]:
        """The settings as JSON, with the networks written out."""
        networks = {name: self.architecture(name) for name in self.architectures}
        return {
            "architectures": {
                name: {"builder": a.builder, **a.arguments, "input": list(a.shape)} for name, a in networks.items()
            },
            "batches": list(self.batches),
            "training_batch": self.training_batch,
            "memory_batch": self.memory_batch,
            "contenders": list(self.contenders),
            "parts": list(self.parts),
            "rounds": self.rounds,
            "seconds": self.seconds,
            "limit": self.limit,
            "sizes": {name: list(sizes) for name, sizes in self.sizes.items()},
            "device": self.device,
            "quick": self.quick,
        }


def resolve_settings(
    *,
    quick: bool = False,
    models: Sequence[str] = (),
    batches: Sequence[int] = (),
    contenders: Sequence[str] = (),
    parts: Sequence[str] = (),
    rounds: int | None = None,
    seconds: float | None = None,
    limit: float | None = None,
    training_batch: int | None = None,
    device: str = "cpu",
) -> Settings:
    """Settings of a full run or of a quick one, with what is given instead of their own.

    Args:
        quick: Small networks, few rounds.
        models: Names such as ``"resnet50-imagenet"``, or ``"resnet50"`` for both stems; none: all.
        batches: Rows of an inference call; sorted here.
        contenders: Names of contenders, the SNN joins them; none: all.
        parts: Of :data:`PARTS`; none: all.
        rounds: Turns of each contender at most.
        seconds: Time after which a cell ends.
        limit: Longest call, in seconds.
        training_batch: Rows of a training step.
        device: Where to compute.

    Raises:
        ValueError: If a name is unknown or a number out of range.

    Example:
        >>> resolve_settings(quick=True, models=["resnet50"], batches=[8, 1]).batches
        (1, 8)
    """
    base: dict[str, Any] = _QUICK_RUN if quick else _FULL_RUN
    given = {"rounds": rounds, "seconds": seconds, "limit": limit, "training_batch": training_batch}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if batches:
        changes["batches"] = tuple(sorted(set(batches)))
    if contenders:
        _check_known("contender", contenders, LABELS)
        changes["contenders"] = tuple(name for name in LABELS if name in contenders or name == REFERENCE)
    if parts:
        _check_known("part", parts, PARTS)
        changes["parts"] = tuple(part for part in PARTS if part in parts)
    return Settings(**{**base, "architectures": _chosen(models), "device": device, "quick": quick, **changes})


def _chosen(models: Sequence[str]) -> tuple[str, ...]:
    chosen: list[str] = []
    for model in models or FULL:
        found = [name for name in FULL if name == model or name.startswith(f"{model}-")]
        if not found:
            both = ", ".join(dict.fromkeys(name.partition("-")[0] for name in FULL if "-" in name))
            raise ValueError(f"Unknown model {model!r}; choose of {', '.join(FULL)}, or for both stems {both}.")
        chosen += found
    return tuple(dict.fromkeys(chosen))


def _check_known(what: str, names: Sequence[str], known: Any) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"Unknown {what} {name!r}; choose of {', '.join(known)}.")


_FULL_RUN = {
    "batches": (1, 32, 128),
    "training_batch": 32,
    "memory_batch": 8,
    "rounds": 20,
    "seconds": 20.0,
    "limit": 8.0,
    "sizes": {"depth": (2, 4, 8, 16, 32), "width": (16, 32, 64, 128), "classes": (10, 100, 1000, 10000)},
}
_QUICK_RUN = {
    "batches": (1, 8),
    "training_batch": 8,
    "memory_batch": 4,
    "rounds": 3,
    "seconds": 2.0,
    "limit": 5.0,
    "sizes": {"depth": (1, 2, 4), "width": (4, 8), "classes": (10, 20, 40)},
}
