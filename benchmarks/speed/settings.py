"""What is measured: networks, batch sizes, contenders, and how long it may take."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.architectures import FULL, SMALL, Architecture
from benchmarks.speed.contenders import LABELS, REFERENCE

from creinn.evaluation.timing import LEAST_ROUNDS

PARTS = ("inference", "training", "memory", "scaling")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Measure speed and memory beside the ordinary network; on two quiet cores about twenty minutes.

    Args:
        quick: Small networks and few rounds: a first look, in about a minute.
        models: Networks, for example resnet50,mlp or resnet50-imagenet; all if none are given.
        batches: Rows of an inference call; 1,32,128 if none are given.
        contenders: For example snn,snn-folded,creinn-compiled; all if none are given.
        parts: Of inference, training, memory, scaling; all if none are given.
        rounds: Turns of each contender at most.
        seconds: Time after which a cell, one model and batch, ends; not before three rounds.
        limit: Seconds; a contender whose one call takes longer is left out of the cell, and the table says so.
        training_batch: Rows of a training step.
        threads: Threads of torch; its own choice if none is given.
        device: Where to compute: cpu, cuda, cuda:1, or auto for a GPU if there is one.
        out: File of the record; the tables stand beside it, in a file that ends with .md.
    """

    quick: bool = False
    models: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    contenders: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    rounds: int | None = None
    seconds: float | None = None
    limit: float | None = None
    training_batch: int | None = None
    threads: int | None = None
    device: str = "cpu"
    out: Path = Path("results/benchmarks/speed.json")

    @property
    def memory_batch(self) -> int:
        """Rows of the calls whose memory is measured; also twice as many."""
        return 4 if self.quick else 8

    @property
    def sizes(self) -> Mapping[str, tuple[int, ...]]:
        """Of the networks by which cost is measured against depth, width and classes."""
        return _QUICK_SIZES if self.quick else _FULL_SIZES

    @property
    def architectures(self) -> list[Architecture]:
        """The networks, small if ``quick``."""
        return [(SMALL if self.quick else FULL)[name] for name in self.models]

    def complete(self) -> "Settings":
        """These settings with what they leave open: that of a full run, or of a quick one.

        Names come in the order of the tables, batches in that of their size, and the SNN is among the contenders.

        Raises:
            ValueError: If a name is unknown or a number out of range.

        Example:
            >>> Settings(quick=True, batches=(8, 1), contenders=("creinn",)).complete().contenders
            ('snn', 'creinn')
        """
        base = _QUICK_RUN if self.quick else _FULL_RUN
        whole = dataclasses.replace(
            self,
            **{name: value for name, value in base.items() if getattr(self, name) is None},
            models=_chosen_models(self.models),
            batches=tuple(sorted(set(self.batches))) or ((1, 8) if self.quick else (1, 32, 128)),
            contenders=_chosen(
                "contender", [*self.contenders, REFERENCE] if self.contenders else LABELS, LABELS
            ),
            parts=_chosen("part", self.parts or PARTS, PARTS),
        )
        whole._check()
        return whole

    def _check(self) -> None:
        if min(self.batches) < 1:
            raise ValueError(f"A batch must have at least 1 row, got {min(self.batches)}.")
        if self.training_batch < 2:
            raise ValueError(
                f"A training step needs at least 2 rows for batch norm, but training_batch is {self.training_batch}."
            )
        if self.rounds < LEAST_ROUNDS:
            raise ValueError(
                f"rounds must be at least {LEAST_ROUNDS}, or a median means little; got {self.rounds}."
            )
        for name in ("seconds", "limit"):
            seconds = getattr(self, name)
            if not (math.isfinite(seconds) and seconds > 0):
                raise ValueError(f"{name} must be a positive number of seconds, got {seconds}.")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}.")
        if self.out.suffix == ".md":
            raise ValueError(
                f"--out names the record, a JSON file, but is {self.out}. The tables go beside it."
            )

    def plain(self) -> dict[str, Any]:
        """Complete settings as JSON, with the networks written out."""
        networks = {
            one.name: {"builder": one.builder, **one.arguments, "input": one.shape}
            for one in self.architectures
        }
        left_out = (
            "models",
            "threads",
            "out",
        )  # the networks say more, the machine does, and it does not matter
        given = {name: value for name, value in vars(self).items() if name not in left_out}
        return {
            "architectures": networks,
            **given,
            "memory_batch": self.memory_batch,
            "sizes": self.sizes,
        }


def _chosen_models(models: Sequence[str]) -> tuple[str, ...]:
    """Names of networks; one without a stem stands for both."""
    chosen: list[str] = []
    for model in models or FULL:
        found = [name for name in FULL if name == model or name.startswith(f"{model}-")]
        if not found:
            both = ", ".join(dict.fromkeys(name.partition("-")[0] for name in FULL if "-" in name))
            raise ValueError(
                f"Unknown model {model!r}; choose of {', '.join(FULL)}, or for both stems {both}."
            )
        chosen += found
    return tuple(dict.fromkeys(chosen))


def _chosen(what: str, names: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Those of the known names, in their order."""
    for name in names:
        if name not in known:
            raise ValueError(f"Unknown {what} {name!r}; choose of {', '.join(known)}.")
    return tuple(name for name in known if name in names)


_FULL_RUN = {"training_batch": 32, "rounds": 20, "seconds": 20.0, "limit": 8.0}
_QUICK_RUN = {"training_batch": 8, "rounds": 3, "seconds": 2.0, "limit": 5.0}
_FULL_SIZES = {
    "depth": (2, 4, 8, 16, 32),
    "width": (16, 32, 64, 128),
    "classes": (10, 100, 1000, 10000),
}
_QUICK_SIZES = {"depth": (1, 2, 4), "width": (4, 8), "classes": (10, 20, 40)}
