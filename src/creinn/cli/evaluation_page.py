"""The HTML page of ``creinn evaluate``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from creinn.cli import evaluation_text as text
from creinn.evaluation import AccuracyRejection, Reliability
from creinn.evaluation.summary import MEASURES
from creinn.report import (
    Section,
    Side,
    confusion_map,
    html_table,
    rejection_curves,
    reliability_chart,
    score_histograms,
    write_page,
)
from creinn.report.provenance import provenance_rows

_NAMES = {short: f"{name} uncertainty" for name, short in MEASURES.items()}
_CALIBRATION = """
Of rows whose predicted class gets a probability of 80 %, four in five should be right: bars below the dashed line
are too confident, bars above it too careful. Bins with few rows, which the second picture shows, say little.
"""
_CONFUSION = """
Each row of the picture is a true class, each column a predicted one; numbers are counts, and the colour is the share of
the true class. What is off the diagonal was taken for another class.
"""
_REJECTION = """
Accuracy on the rows that are kept when the least certain ones are put aside first. A measure that knows where the model
errs makes the curve rise; to the right few rows are left, so that single ones move the curve.
"""


def write_evaluation_page(
    path: Path,
    record: dict[str, Any],
    curves: Mapping[str, AccuracyRejection],
    scores: Mapping[str, Any],
    foreign_scores: Mapping[str, Any] | None,
) -> Path:
    """Write numbers with what they mean, pictures of them, and how they were made as one self-contained page.

    Args:
        path: The file.
        record: Numbers, as in the JSON file of the command.
        curves: A curve per measure.
        scores: Uncertainties of the labelled rows, per measure.
        foreign_scores: The same of data of another kind, if any.
    """
    bins = Reliability(*(np.array(values, dtype=float) for values in record["reliability"].values()))
    groups = {record["data"]: scores} | ({} if foreign_scores is None else {record["ood"]["data"]: foreign_scores})
    by_measure = {_NAMES[name]: {group: values[name] for group, values in groups.items()} for name in scores}
    origin = {"model": record["model"], "data": record["data"], **record["provenance"]}
    matrix = confusion_map(record["confusion"], record["classes"])
    sections = [
        Section("Numbers", [html_table(text.measure_rows(record), digits=4), *text.probabilities_meaning(record)]),
        Section("Classes", [Side([matrix, html_table(text.class_rows(record), digits=4)]), _CONFUSION, text.RECALL]),
        Section("Calibration", [reliability_chart(bins), _CALIBRATION]),
        Section(
            "Accuracy when the least certain are rejected",
            [rejection_curves({record["model"]: {_NAMES[name]: curve for name, curve in curves.items()}}), _REJECTION],
        ),
        Section(
            "Uncertainty",
            [
                html_table(text.uncertainty_rows(record), digits=4),
                *text.uncertainty_meaning(record),
                score_histograms(by_measure, f"uncertainty ({record['unit']})"),
            ],
        ),
        Section("How this was made", [html_table(provenance_rows(origin))]),
    ]
    return write_page(path, f"Evaluation of {record['model']}", sections, lead=text.heading(record) + ".")
