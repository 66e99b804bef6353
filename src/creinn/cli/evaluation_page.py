"""What ``creinn evaluate`` says: the numbers of its record with a sentence on each, on the terminal and as a page."""

from collections.abc import Mapping
from math import log
from pathlib import Path
from typing import Any

import numpy as np

from creinn.data.tables.columns import counted
from creinn.evaluation import AccuracyRejection, Reliability
from creinn.evaluation.summary import MEASURES
from creinn.report.provenance import provenance_rows
from creinn.report.tables import html_table, text_table
from creinn.report.theme import texts

MOST_CLASSES = 10
"""Classes in the terminal's table; the page and the JSON file have all."""

_MEASURES = {
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "brier": "Brier score",
    "expected_calibration_error": "calibration error",
    "coverage": "coverage",
    "mean_size": "set size",
}
_NAMES = {short: f"{name} uncertainty" for name, short in MEASURES.items()}


def terminal_text(record: dict[str, Any]) -> str:
    """All of it as lines of text."""
    text = texts("evaluation.txt", record=record, log=log)
    said = [f"{row['measure']} {row['value']:.4f}: {row['meaning']}" for row in _measure_rows(record, text)]
    said += _present(text, "probabilities")
    table = text_table(_uncertainty_rows(record), digits=4)
    uncertainty = "\n".join(_present(text, "uncertainty", "auarc", "ood"))
    return "\n\n".join([_heading(record), "\n".join(said), table, uncertainty, _classes_text(record, text["recall"])])


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
    from creinn import report

    text = texts("evaluation.txt", record=record, log=log)
    bins = Reliability(*(np.array(values, dtype=float) for values in record["reliability"].values()))
    groups = {record["data"]: scores} | ({} if foreign_scores is None else {record["ood"]["data"]: foreign_scores})
    by_measure = {_NAMES[name]: {group: values[name] for group, values in groups.items()} for name in scores}
    origin = {"model": record["model"], "data": record["data"], **record["provenance"]}
    matrix = report.confusion_map(record["confusion"], record["classes"])
    classes = report.Side([matrix, html_table(_class_rows(record), digits=4)])
    rejection = report.rejection_curves({record["model"]: {_NAMES[name]: curve for name, curve in curves.items()}})
    numbers = html_table(_measure_rows(record, text), digits=4)
    uncertainty = [
        html_table(_uncertainty_rows(record), digits=4),
        *_present(text, "uncertainty", "auarc", "ood"),
        report.score_histograms(by_measure, f"uncertainty ({record['unit']})"),
    ]
    sections = [
        report.Section("Numbers", [numbers, *_present(text, "probabilities")]),
        report.Section("Classes", [classes, text["confusion"], text["recall"]]),
        report.Section("Calibration", [report.reliability_chart(bins), text["calibration"]]),
        report.Section("Accuracy when the least certain are rejected", [rejection, text["rejection"]]),
        report.Section("Uncertainty", uncertainty),
        report.Section("How this was made", [html_table(provenance_rows(origin))]),
    ]
    return report.write_page(path, f"Evaluation of {record['model']}", sections, lead=_heading(record) + ".")


def _present(text: Mapping[str, str], *names: str) -> list[str]:
    """Those of the sentences that there is something to say about."""
    return [text[name] for name in names if name in text]


def _heading(record: dict[str, Any]) -> str:
    """What was evaluated."""
    text = f"{counted(record['rows'], 'row')} of {record['data']}, {len(record['classes'])} classes"
    return (
        f"{text}; OOD: {counted(record['ood']['rows'], 'row')} of {record['ood']['data']}" if "ood" in record else text
    )


def _measure_rows(record: dict[str, Any], text: Mapping[str, str]) -> list[dict[str, Any]]:
    """A row per number: what it is, the number, what it says."""
    values = record | record.get("sets", {})
    return [
        {"measure": label, "value": values[name], "meaning": text[name]}
        for name, label in _MEASURES.items()
        if name in values
    ]


def _uncertainty_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per measure of uncertainty: areas under the curves."""
    rows = []
    for name, area in record["auarc"].items():
        row: dict[str, Any] = {"uncertainty": name, "AUARC": area}
        if "ood" in record:
            row |= {"OOD AUROC": record["ood"]["auroc"][name], "OOD AUPRC": record["ood"]["auprc"][name]}
        rows.append(row)
    return rows


def _class_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per class: how many rows are of it, and its recall."""
    rows = zip(record["classes"], record["confusion"], strict=True)
    return [{"class": name, "rows": sum(counts), "recall": record["recall"][name]} for name, counts in rows]


def _classes_text(record: dict[str, Any], meaning: str) -> str:
    """Recall per class, and what the class is most often taken for; of many classes those of the lowest recall."""
    rows: list[dict[str, Any]] = []
    for index, (row, counts) in enumerate(zip(_class_rows(record), record["confusion"], strict=True)):
        wrong, other = max((count, -k) for k, count in enumerate(counts) if k != index)
        taken = f"{record['classes'][-other]} ({wrong})" if wrong else None
        rows.append({**row, "most often taken for": taken})
    if len(rows) <= MOST_CLASSES:
        return text_table(rows, digits=4) + f"\n{meaning}"
    rows.sort(key=lambda row: 2 if row["recall"] is None else row["recall"])
    left = f"Shown are {MOST_CLASSES} of {len(rows)} classes, those of the lowest recall."
    return text_table(rows[:MOST_CLASSES], digits=4) + f"\n{meaning} {left}"
