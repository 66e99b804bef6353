"""What the library promises about its speed, beside what was measured; for ResNet-50 with the ImageNet stem."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from creinn.benchmark.contenders import FOLDED, LABELS, REFERENCE
from creinn.report.tables import Cell

MODEL = "resnet50-imagenet"


@dataclass(frozen=True)
class Target:
    """A ratio of times that should not be exceeded."""

    part: str
    batch: int
    contender: str
    base: str
    most: float


TARGETS = (
    Target("inference", 1, "creinn-compiled", REFERENCE, 3.0),
    Target("inference", 1, "creinn-compiled", FOLDED, 3.6),
    Target("inference", 32, "creinn-compiled", FOLDED, 4.2),
    Target("inference", 32, "relative-compiled", FOLDED, 2.2),
    Target("training", 32, "creinn", REFERENCE, 4.5),
)

MOST_ACTIVATIONS = 2.0
"""Activations kept for the backward pass, as a multiple of the SNN's."""


def target_rows(record: Mapping[str, Any]) -> list[dict[str, Cell]]:
    """One row for each target that the record says something about; none for small networks."""
    if record["configuration"]["quick"]:
        return []
    rows = []
    for target in TARGETS:
        found = _cell(record, target.part, target.batch).get(target.contender, {}).get(f"to_{target.base}")
        if found is not None:
            what = f"{LABELS[target.contender]}, {target.part}, batch {target.batch}, to {LABELS[target.base]}"
            rows.append(_row(what, target.most, found))
    memory = _cell(record, "memory")
    kept = [memory.get(name, {}).get("saved_bytes_per_row") for name in ("creinn", REFERENCE)]
    if kept[0] and kept[1]:
        rows.append(_row("CreINN, activations kept, to SNN", MOST_ACTIVATIONS, {"median": kept[0] / kept[1]}))
    return rows


def _cell(record: Mapping[str, Any], part: str, batch: int | None = None) -> dict[str, Any]:
    for cell in record.get(part, ()):
        if cell["model"] == MODEL and batch in (None, cell["batch"]):
            return cell["contenders"]
    return {}


def _row(what: str, most: float, found: Mapping[str, float]) -> dict[str, Cell]:
    measured = found["median"]
    return {
        MODEL: what,
        "at most": most,
        "measured": measured,
        "by minima": found.get("least"),
        "by processor time": found.get("processor"),
        "met": "yes" if measured <= most else f"no, {100 * (measured / most - 1):.0f} % above",
    }
