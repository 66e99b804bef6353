"""The record of a benchmark as Markdown: ratios to the ordinary network first, then every cell."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.speed.contenders import FOLDED, LABELS, REFERENCE

from creinn.report.tables import Cell, markdown_table

Record = Mapping[str, Any]

_MEGABYTE = 1e6


def benchmark_markdown(record: Record) -> str:
    """All tables of a record that :func:`benchmarks.speed.run_benchmark` gave; parts that are missing are left out."""
    parts = ["# Speed beside the ordinary network", _setting(record)]
    if record.get("inference"):
        parts += [
            "## Inference: median time as a multiple of the SNN's",
            _summary(record["inference"]),
            _SKIPPED,
        ]
    if record.get("training"):
        parts += ["## Training step: forward, loss, backward, Adam"]
        for cell in record["training"]:
            parts += [_title(cell), _cell_table(cell, trained=True)]
    if record.get("memory"):
        parts += ["## Memory", _MEMORY]
        for cell in record["memory"]:
            parts += [_title(cell), _memory_table(cell)]
    if record.get("scaling"):
        parts += ["## Cost against size", _SCALING]
        for cell in record["scaling"]:
            parts += [
                f"### {cell['quantity'].capitalize()}: {cell['network']}, batch {cell['batch']}",
                _growth(cell),
            ]
    if record.get("inference"):
        parts += ["## Inference, every cell"]
        for cell in record["inference"]:
            parts += [_title(cell), _cell_table(cell)]
    return "\n\n".join(parts) + "\n"


_SKIPPED = "“skipped”: the cell below says why. A dash: does not apply."
_MEMORY = (
    "Megabytes. Held: parameters and buffers. Inference and step: the most that tensors made by one call take at once; "
    "a step includes gradients and Adam's moments, and no parameters. Kept: what autograd keeps for the backward pass, "
    "per row of the batch (activations) and whatever the batch (made from weights)."
)
_SCALING = (
    "Milliseconds per call (median). Slope: exponent of the growth by least squares in log-log scale over all sizes; "
    "last: between the two largest."
)


def _setting(record: Record) -> str:
    machine, settings = record["machine"], record["configuration"]
    load = machine["load_before"]
    busy = "" if load is None else f" Load of the machine before: {load:.2f}."
    small = (
        " Small networks (quick): the ratios say little about real ones."
        if settings["quick"]
        else ""
    )
    return (
        f"Threads: {machine['threads']}; processors: {machine['processors']}; {machine['device']}, {machine['dtype']}; "
        f"torch {machine['torch']}.{busy} Contenders take turns in one process, in a new order each round: at most "
        f"{settings['rounds']} rounds, no new one after {settings['seconds']:g} s and three rounds; a call of more "
        f"than {settings['limit']:g} s is left out. Times are those to the bounds or the samples; the last row is what "
        f"label and uncertainties take after that. Processor: ratio of median processor times, of all threads.{small}"
    )


def _title(cell: Record) -> str:
    return f"### {cell['model']}, batch {cell['batch']}"


def _summary(cells: Any) -> str:
    rows: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        for name, found in cell["contenders"].items():
            row = rows.setdefault(name, {"contender": LABELS[name]})
            column = f"{cell['model']}, {cell['batch']}"
            row[column] = (
                "skipped" if "skipped" in found else f"{found[f'to_{REFERENCE}']['median']:.2f}"
            )
    return markdown_table([rows[name] for name in LABELS if name in rows])


def _cell_table(cell: Record, trained: bool = False) -> str:
    rows: list[dict[str, Cell]] = []
    for name, found in cell["contenders"].items():
        row: dict[str, Cell] = {
            "contender": LABELS[name].removesuffix(", 10 samples") if trained else LABELS[name]
        }
        for statistic, what in (("median", "median"), ("least", "minimum")):
            row[f"ms, {what}"] = _scaled(found.get(f"{statistic}_s"), 1e3)
        for base, label in ((REFERENCE, "SNN"), (FOLDED, "folded SNN")):
            for statistic, what in (
                ("median", "medians"),
                ("least", "minima"),
                ("processor", "processor"),
            ):
                row[f"× {label}, {what}"] = found.get(f"to_{base}", {}).get(statistic)  # noqa: RUF001
        row["rounds"] = found.get("rounds")
        row["note"] = _skipped(found) or found.get("memory_format", "")
        rows.append(row)
    return _table(rows, digits=2)


def _memory_table(cell: Record) -> str:
    columns = {
        "held_bytes": "held",
        "inference_peak_bytes": "inference",
        "training_peak_bytes": "step",
        "saved_bytes_per_row": "kept, per row",
        "saved_bytes_fixed": "kept, whatever the batch",
    }
    rows = []
    for name, found in cell["contenders"].items():
        row: dict[str, Cell] = {"contender": LABELS[name]}
        for key, label in columns.items():
            row[label] = _scaled(found.get(key), 1 / _MEGABYTE)
            if key not in ("held_bytes", "saved_bytes_fixed"):
                base = cell["contenders"][REFERENCE].get(key)
                row[f"{label}, × SNN"] = found[key] / base if base and key in found else None  # noqa: RUF001
        rows.append(row | {"note": _skipped(found)})
    return _table(rows, digits=3)


def _growth(cell: Record) -> str:
    rows = []
    for name, found in cell["contenders"].items():
        times = zip(cell["sizes"], found["median_s"], strict=True)
        row: dict[str, Cell] = {
            "contender": LABELS[name],
            **{str(size): _scaled(s, 1e3) for size, s in times},
        }
        rows.append(
            row | {"slope": found["slope"], "last": found["last_slope"], "note": _skipped(found)}
        )
    return _table(rows, digits=2)


def _table(rows: Sequence[dict[str, Cell]], digits: int) -> str:
    """Without the columns that hold nothing."""
    used = [name for name in rows[0] if any(row[name] not in (None, "") for row in rows)]
    return markdown_table([{name: row[name] for name in used} for row in rows], digits)


def _skipped(found: Record) -> str:
    return f"skipped: {found['skipped']}" if "skipped" in found else ""


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
