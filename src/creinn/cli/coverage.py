"""Conformal sets of classes in ``creinn train --coverage`` and in the evaluation."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from creinn.cli.sources import Rows
from creinn.credal.conformal import DISTRIBUTION, check_coverage, rows_needed
from creinn.credal.credal_set import CredalSet
from creinn.evaluation import summary
from creinn.evaluation.label_sets import LEVELS
from creinn.numerics import pluralize
from creinn.report.tables import html_table, text_table

Record = dict[str, Any]

SHARE = 1 / 6  # the fraction of the rows for calibration


def calibration_split(data: Rows, coverage: float, seed: int) -> tuple[Rows, Rows]:
    """Split off a random sixth of the rows for calibration, or raise an error.

    The encoding of the columns is fitted on all rows without the labels.
    """
    assert data.labels is not None
    order = torch.randperm(len(data.labels), generator=torch.Generator().manual_seed(seed))
    count = round(len(order) * SHARE)
    if count < (needed := rows_needed(check_coverage(coverage))):
        raise ValueError(
            f"--coverage {coverage:g} needs at least {needed} rows for the calibration, but a sixth of "
            f"{pluralize(len(order), 'row')} is {count}. Use more data or a lower coverage."
        )
    return data.take(order[count:].sort().values), data.take(order[:count].sort().values)


def calibrate(model: Any, rows: Rows, coverage: float) -> None:
    """Calibrate a model on the rows of the split, and print the size of the sets."""
    prediction = rows.predict(model).to("cpu")
    model.calibrate_predictions(prediction, rows.labels, coverage)
    sets = prediction.with_conformal(model.calibration.conformal).classes("conformal")
    size = float(sets.sum(1).double().mean())
    rows_said = pluralize(len(sets), "row")
    print(
        f"calibrated by {rows_said}, for a coverage of {coverage:g}: sets have {size:.2f} classes there"
    )
    print("note: the coverage is guaranteed for data like these, not for other data")


def gives_classes(prediction: CredalSet) -> bool:
    """Return whether there is no calibration, or one for classes without groups."""
    found = prediction.conformal
    return found is not None and found.score != DISTRIBUTION and found.by != "groups"


def coverage_record(prediction: CredalSet, labels: Any, classes: Sequence[str]) -> Record:
    """Return the coverage of the conformal sets.

    The record contains the coverage that was used in training, in parts, and other coverages.
    """
    conformal = prediction.conformal
    assert conformal is not None
    found = summary.coverage(prediction, labels)
    levels = sorted({*LEVELS, conformal.coverage})
    curve = [(asked, summary.coverage(prediction, labels, asked)) for asked in levels]
    return {
        "asked": conformal.coverage,
        "score": conformal.score,
        "by": conformal.by,
        "calibration_rows": len(conformal.scores),
        **found.all._asdict(),
        "mean_size": found.size,
        "empty": found.empty,
        "full": found.full,
        "by_size": {str(size): share._asdict() for size, share in found.by_size.items()},
        "by_class": {classes[number]: share._asdict() for number, share in found.by_class.items()},
        "curve": [
            {"asked": asked, **of.all._asdict(), "mean_size": of.size} for asked, of in curve
        ],
    }


def coverage_text(record: Record, text: Mapping[str, str]) -> str:
    """Return the record as lines of text."""
    return "\n".join(
        (text["conformal"], text_table(_rows(record), digits=4), text["conformal_shift"])
    )


def coverage_parts(record: Record, text: Mapping[str, str]) -> list[Any]:
    """Return the record as parts of a page.

    The parts are a plot and the tables of the coverages, the sizes of the sets and the classes.
    """
    from creinn.report.figures import coverage_chart

    parts = {name: _shares(record[f"by_{name}"], name) for name in ("size", "class")}
    tables = [html_table(rows, digits=4) for rows in (_rows(record), *parts.values())]
    return [text["conformal"], coverage_chart(record["curve"]), *tables, text["conformal_shift"]]


def _rows(record: Record) -> list[Record]:
    """Return one row for each coverage."""
    names = {
        "asked": "asked",
        "found": "coverage",
        "from": "low",
        "to": "high",
        "set size": "mean_size",
    }
    return [{name: row[key] for name, key in names.items()} for row in record["curve"]]


def _shares(shares: Mapping[str, Record], name: str) -> list[Record]:
    """Return one row for each size of the sets, or for each class."""
    return [
        {
            name: key,
            "rows": share["rows"],
            "coverage": share["coverage"],
            "from": share["low"],
            "to": share["high"],
        }
        for key, share in shares.items()
    ]
