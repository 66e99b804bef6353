"""``creinn evaluate``: evaluate classes, probabilities, sets and uncertainties.

The results are a record in JSON. The terminal and the page show the same record, with a sentence
about each of the numbers.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from importlib.util import find_spec
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from creinn.cli.coverage import coverage_parts, coverage_record, coverage_text, gives_classes
from creinn.cli.options import EvaluateOptions
from creinn.cli.parsing import command_line, options_yaml
from creinn.cli.predict import check_outputs, predict_all
from creinn.cli.sources import check_paths, read_model, trained_on
from creinn.evaluation import AccuracyRejection, Reliability, confusion, reliability, summary
from creinn.evaluation.checks import as_numpy
from creinn.evaluation.summary import MEASURES
from creinn.files import write_bytes
from creinn.numerics import pluralize
from creinn.report.provenance import provenance, provenance_rows
from creinn.report.tables import html_table, text_table
from creinn.report.theme import texts

Record = dict[str, Any]

MOST_POINTS = 1001  # points of a curve in the JSON file; the area is computed from all points
MOST_CLASSES = 10  # in the table of the terminal; the page and the JSON file contain all classes
NUMBERS = {
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "brier": "Brier score",
    "expected_calibration_error": "calibration error",
    "coverage": "coverage",
    "mean_size": "set size",
}


def evaluate(options: EvaluateOptions) -> int:
    """Evaluate a model, print and write the results, and return the exit code."""
    if options.report is not None and find_spec("plotly") is None:
        raise ValueError(
            f"The report {options.report} requires plotly: pip install 'creinn[report]'. "
            "Without --report only the numbers are written."
        )
    check_outputs("evaluate", options)
    model = read_model(options.model, options.device)
    if trained_on(options):
        print(f"note: the model was trained on {options.source}; results on new data are worse")
    foreign = replace(options, data=options.ood, lower=options.ood_lower, upper=options.ood_upper)
    if foreign.paths:
        check_paths(foreign, "ood-")
    prediction, labels = predict_all(model, options, labelled=True)
    asked = [(options, prediction, labels)]
    curves = summary.rejection(prediction, labels)
    sets = summary.sets(prediction, labels, options.rule)
    scores = {options.source: summary.uncertainties(prediction)}
    record: Record = {
        "model": str(options.model),
        "data": options.source,
        "rows": len(labels),
        **_quality(prediction, as_numpy(labels), model.class_names),
        "unit": "bits" if sets is None or prediction.num_classes > 2 else "probability",
        "auarc": {MEASURES[name]: curve.area for name, curve in curves.items()},
    }
    if sets is not None:
        record["sets"] = {"rule": options.rule, "coverage": sets.coverage, "mean_size": sets.size}
    if sets is not None and gives_classes(prediction):
        record["conformal"] = coverage_record(prediction, labels, model.class_names)
    if foreign.paths:
        outside, _ = predict_all(model, foreign, labelled=False)
        asked.append((foreign, outside, None))
        scores[foreign.source] = summary.uncertainties(outside)
        found = summary.detection(prediction, outside)
        record["ood"] = {
            "data": foreign.source,
            "rows": len(outside.label),
            "base_rate": found["total"].base_rate,
            "auroc": {MEASURES[name]: result.auroc for name, result in found.items()},
            "auprc": {MEASURES[name]: result.auprc for name, result in found.items()},
        }
        if "conformal" in record:
            record["conformal"]["mean_size_ood"] = summary.set_size(outside, "conformal")
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    record["provenance"] = {**provenance(command_line("evaluate", options)), "date": now}
    print(terminal_text(record))
    record["curves"] = {MEASURES[name]: _points(curve) for name, curve in curves.items()}
    write_bytes(options.out, (json.dumps(record, indent=2, allow_nan=False) + "\n").encode())
    write_bytes(options.out.with_suffix(".yaml"), options_yaml("evaluate", options).encode())
    print(f"\nwrote {options.out}")
    if options.report is not None:
        _write_page(
            options.report, record, curves, scores, _explorer(model, asked, record, options.rule)
        )
        print(f"wrote {options.report}")
    return 0


def terminal_text(record: Record) -> str:
    """Return the record as lines of text."""
    text = texts("evaluation.txt", record=record, log=log)
    said = [
        f"{row['measure']} {row['value']:.4f}: {row['meaning']}"
        for row in _number_rows(record, text)
    ]
    said += _present(text, "probabilities")
    table = text_table(_uncertainty_rows(record), digits=4)
    areas = "\n".join(_present(text, "uncertainty", "auarc", "ood"))
    guarantee = [coverage_text(record["conformal"], text)] if "conformal" in record else []
    classes = _classes_text(record, text["recall"])
    return "\n\n".join([_heading(record), "\n".join(said), *guarantee, table, areas, classes])


def _quality(prediction: Any, labels: Any, classes: Sequence[str]) -> Record:
    """Return the measures of classes and probabilities, in total and by class."""
    predicted = as_numpy(prediction.label)
    counts = confusion(predicted, labels, len(classes))
    bins = reliability(prediction.probabilities, labels, predicted=predicted)._asdict()
    right, rows = counts.diagonal().tolist(), counts.sum(1).tolist()
    return {
        "classes": list(classes),
        **summary.quality(prediction, labels),
        "reliability": {
            name: [None if np.isnan(v) else v for v in values.tolist()]
            for name, values in bins.items()
        },
        "recall": {
            name: r / n if n else None for name, r, n in zip(classes, right, rows, strict=True)
        },
        "confusion": counts.tolist(),
    }


def _points(curve: AccuracyRejection) -> dict[str, list[float]]:
    count = len(curve.accuracy)
    at = np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(int))
    return {"rejection": curve.rejection[at].tolist(), "accuracy": curve.accuracy[at].tolist()}


def _explorer(
    model: Any, asked: Sequence[tuple[Any, Any, Any]], record: Record, rule: str
) -> Markup:
    """Return a part of the rows for the explorer.

    ``asked`` contains the options, the prediction and the labels of the data and of the OOD data.
    """
    from creinn.cli.explore import explored
    from creinn.report.explorer import explore, sample_limit

    most = sample_limit(len(model.class_names), len(asked))
    known = (
        [None] if len(asked) == 1 else [False, True]
    )  # without OOD data there is no information about the distribution
    samples = [
        one
        for of, outside in zip(asked, known, strict=True)
        for one in explored(model, *of, most, outside)
    ]
    return explore(samples, record["classes"], record["unit"], rule)


def _write_page(
    path: Path,
    record: Record,
    curves: Mapping[str, Any],
    scores: Mapping[str, Any],
    explorer: Markup,
) -> None:
    """Write a page with the numbers, their meaning and the plots.

    The curves are by uncertainty. The scores of all rows are by data and uncertainty.
    """
    from creinn import report

    text = texts("evaluation.txt", record=record, log=log)
    bins = Reliability(
        *(np.array(values, dtype=float) for values in record["reliability"].values())
    )
    by_measure = {
        f"{name} uncertainty": {data: of[name] for data, of in scores.items()} for name in MEASURES
    }
    by_name = {f"{name} uncertainty": curve for name, curve in curves.items()}
    origin = {"model": record["model"], "data": record["data"], **record["provenance"]}
    matrix = report.confusion_map(record["confusion"], record["classes"])
    classes = report.Side([matrix, html_table(_class_rows(record), digits=4)])
    numbers = html_table(_number_rows(record, text), digits=4)
    histograms = report.score_histograms(by_measure, f"uncertainty ({record['unit']})")
    areas = [
        html_table(_uncertainty_rows(record), digits=4),
        *_present(text, "uncertainty", "auarc", "ood"),
    ]
    rejection = report.rejection_curves({record["model"]: by_name})
    guarantee = coverage_parts(record["conformal"], text) if "conformal" in record else []
    sections = [
        report.Section("Numbers", [numbers, *_present(text, "probabilities")]),
        *([report.Section("Sets with a guarantee", guarantee)] if guarantee else []),
        report.Section("Classes", [classes, text["confusion"], text["recall"]]),
        report.Section("Calibration", [report.reliability_chart(bins), text["calibration"]]),
        report.Section(
            "Accuracy when the least certain are rejected", [rejection, text["rejection"]]
        ),
        report.Section("Uncertainty", [*areas, histograms]),
        report.Section("Explore predictions", [explorer]),
        report.Section("How this was made", [html_table(provenance_rows(origin))]),
    ]
    report.write_page(
        path, f"Evaluation of {record['model']}", sections, lead=_heading(record) + "."
    )


def _present(text: Mapping[str, str], *names: str) -> list[str]:
    """Return the sentences that are in the text."""
    return [text[name] for name in names if name in text]


def _heading(record: Record) -> str:
    text = (
        f"{pluralize(record['rows'], 'row')} of {record['data']}, {len(record['classes'])} classes"
    )
    ood = record.get("ood")
    return f"{text}; OOD: {pluralize(ood['rows'], 'row')} of {ood['data']}" if ood else text


def _number_rows(record: Record, text: Mapping[str, str]) -> list[Record]:
    """Return one row for each number, with its name, value and meaning."""
    values = record | record.get("sets", {})
    named = [(name, label) for name, label in NUMBERS.items() if name in values]
    return [
        {"measure": label, "value": values[name], "meaning": text[name]} for name, label in named
    ]


def _uncertainty_rows(record: Record) -> list[Record]:
    """Return one row for each measure of uncertainty, with the areas under the curves."""
    rows = [{"uncertainty": name, "AUARC": area} for name, area in record["auarc"].items()]
    for row in rows if "ood" in record else ():
        row |= {
            f"OOD {area.upper()}": record["ood"][area][row["uncertainty"]]
            for area in ("auroc", "auprc")
        }
    return rows


def _class_rows(record: Record) -> list[Record]:
    """Return one row for each class, with the number of rows and the recall."""
    rows = zip(record["classes"], record["confusion"], strict=True)
    return [
        {"class": name, "rows": sum(counts), "recall": record["recall"][name]}
        for name, counts in rows
    ]


def _classes_text(record: Record, meaning: str) -> str:
    """Return the recall of each class and the most frequent wrong class.

    If there are many classes, only the classes with the lowest recall are used.
    """
    rows = _class_rows(record)
    for index, (row, counts) in enumerate(zip(rows, record["confusion"], strict=True)):
        wrong, other = max((count, -k) for k, count in enumerate(counts) if k != index)
        row["most often taken for"] = f"{record['classes'][-other]} ({wrong})" if wrong else None
    if len(rows) > MOST_CLASSES:
        meaning += f" Shown are {MOST_CLASSES} of {len(rows)} classes, those of the lowest recall."
        rows = sorted(rows, key=lambda row: 2 if row["recall"] is None else row["recall"])[
            :MOST_CLASSES
        ]
    return text_table(rows, digits=4) + f"\n{meaning}"
