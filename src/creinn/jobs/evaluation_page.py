"""The HTML page of ``creinn evaluate``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from creinn.evaluation import AccuracyRejection
from creinn.jobs.evaluate import measure_rows, summary_lines
from creinn.report import Section, html_table, rejection_curves, score_histograms, write_page

_NAMES = {"AU": "aleatoric uncertainty", "EU": "epistemic uncertainty", "TU": "total uncertainty"}


def write_evaluation_page(
    path: Path,
    record: dict[str, Any],
    curves: Mapping[str, AccuracyRejection],
    scores: Mapping[str, Any],
    foreign_scores: Mapping[str, Any] | None,
) -> Path:
    """Write numbers, accuracy-rejection curves and histograms of uncertainty as one self-contained page.

    Args:
        path: The file.
        record: Numbers, as in the JSON file of the command.
        curves: A curve per measure.
        scores: Uncertainties of the labelled rows, per measure.
        foreign_scores: The same of data of another kind, if any.
    """
    sections = [
        Section("Numbers", [html_table(measure_rows(record), digits=4)]),
        Section(
            "Accuracy when the least certain are rejected",
            [rejection_curves({record["model"]: {_NAMES[name]: curve for name, curve in curves.items()}})],
        ),
    ]
    groups = {record["data"]: scores} | ({} if foreign_scores is None else {record["ood"]["data"]: foreign_scores})
    by_measure = {_NAMES[name]: {group: values[name] for group, values in groups.items()} for name in scores}
    sections.append(Section("Uncertainty", [score_histograms(by_measure)]))
    return write_page(path, f"Evaluation of {record['model']}", sections, lead="; ".join(summary_lines(record)) + ".")
