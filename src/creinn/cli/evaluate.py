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
import torch
import yaml
from markupsafe import Markup

from creinn import report
from creinn.cli.explore import Predicted, explorer_samples
from creinn.cli.options import EvaluateOptions, ModelOptions
from creinn.cli.parsing import check_outputs, options_yaml
from creinn.cli.sources import OPTIONS, check_paths, predict_parts, stream_data
from creinn.credal.credal_set import CredalSet
from creinn.device import choose_device
from creinn.evaluation import AccuracyRejection, Reliability, confusion, reliability, summary
from creinn.evaluation.checks import as_numpy
from creinn.evaluation.label_sets import LEVELS
from creinn.evaluation.summary import MEASURES
from creinn.files import write_bytes
from creinn.numerics import pluralize
from creinn.report.explorer import explore, sample_limit
from creinn.report.figures import thin
from creinn.report.provenance import provenance, provenance_rows
from creinn.report.tables import html_table, text_table
from creinn.report.theme import texts
from creinn.saving import load

Record = dict[str, Any]

MOST_POINTS = 1001  # of a curve in the JSON file; the area is computed from all points
MOST_CLASSES = 10  # in the table of the terminal; the page and the JSON file contain all classes
NUMBERS = {
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "brier": "Brier score",
    "expected_calibration_error": "calibration error",
    "coverage": "coverage",
    "mean_size": "set size",
}


def evaluate(options: EvaluateOptions, command: str) -> int:
    """Evaluate a model, print and write the results, and return the exit code."""
    if options.report is not None and find_spec("plotly") is None:
        raise ValueError(f"{options.report} requires plotly: pip install 'creinn[report]'.")
    check_outputs("evaluate", options)
    model = load(options.model, choose_device(options.device))
    if _was_trained_on(options):
        print(f"note: the model was trained on {options.source}; results on new data are worse")
    ood = replace(options, data=options.ood, lower=options.ood_lower, upper=options.ood_upper)
    if ood.paths:
        check_paths(ood, "ood-")
    inside = _predict_all(model, options, is_labelled=True)
    outside = _predict_all(model, ood, is_labelled=False) if ood.paths else None
    record = evaluation_record(inside, outside, model.class_names, options.rule)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    record = {"model": str(options.model), "data": options.source, **record}
    record["provenance"] = {**provenance(command), "date": now}
    print(terminal_text(record))
    curves = summary.rejection(inside.prediction, inside.labels)
    record["curves"] = {}
    for name, curve in curves.items():
        x, y = thin(curve, MOST_POINTS)
        record["curves"][MEASURES[name]] = {"rejection": x.tolist(), "accuracy": y.tolist()}
    write_bytes(options.out, (json.dumps(record, indent=2, allow_nan=False) + "\n").encode())
    write_bytes(options.out.with_suffix(".yaml"), options_yaml("evaluate", options).encode())
    print(f"\nwrote {options.out}")
    if options.report is not None:
        groups = [(inside, None)] if outside is None else [(inside, False), (outside, True)]
        most = sample_limit(len(model.class_names), len(groups))
        samples = [
            sample
            for data, is_outside in groups
            for sample in explorer_samples(model, data, most, is_outside)
        ]
        explorer = explore(samples, record["classes"], record["unit"], options.rule)
        scores = {data.name: summary.uncertainties(data.prediction) for data, _ in groups}
        _write_page(options.report, record, curves, scores, explorer)
        print(f"wrote {options.report}")
    return 0


def evaluation_record(
    inside: Predicted, outside: Predicted | None, classes: Sequence[str], rule: str
) -> Record:
    """Return all measures of the predictions."""
    prediction, labels = inside.prediction, as_numpy(inside.labels)
    predicted = as_numpy(prediction.label)
    counts = confusion(predicted, labels, len(classes))
    bins = reliability(prediction.probabilities, labels, predicted=predicted)._asdict()
    recall = zip(classes, counts.diagonal().tolist(), counts.sum(1).tolist(), strict=True)
    curves = summary.rejection(prediction, labels)
    sets = summary.sets(prediction, labels, rule)
    record: Record = {
        "rows": len(labels),
        "classes": list(classes),
        **summary.quality(prediction, labels),
        "reliability": {
            name: [None if np.isnan(v) else v for v in values.tolist()]
            for name, values in bins.items()
        },
        "recall": {name: right / rows if rows else None for name, right, rows in recall},
        "confusion": counts.tolist(),
        "unit": "bits" if sets is None or prediction.num_classes > 2 else "probability",
        "auarc": {MEASURES[name]: curve.area for name, curve in curves.items()},
    }
    if sets is not None:
        record["sets"] = {"rule": rule, "coverage": sets.coverage, "mean_size": sets.size}
    if summary.has_conformal_sets(prediction):
        record["conformal"] = conformal_record(prediction, labels, classes)
    if outside is not None:
        found = summary.detection(prediction, outside.prediction)
        record["ood"] = {
            "data": outside.name,
            "rows": len(outside.prediction),
            "base_rate": found["total"].base_rate,
            "auroc": {MEASURES[name]: result.auroc for name, result in found.items()},
            "auprc": {MEASURES[name]: result.auprc for name, result in found.items()},
        }
        if "conformal" in record:
            size = summary.set_size(outside.prediction, "conformal")
            record["conformal"]["mean_size_ood"] = size
    return record


def conformal_record(prediction: CredalSet, labels: Any, classes: Sequence[str]) -> Record:
    """Return the coverage of the conformal sets: total, by size, by class, and at other levels."""
    conformal = prediction.conformal
    assert conformal is not None
    found = summary.coverage(prediction, labels)
    curve = []
    for level in sorted({*LEVELS, conformal.coverage}):
        one = summary.coverage(prediction, labels, level)
        curve.append({"nominal": level, **one.all._asdict(), "mean_size": one.size})
    return {
        "nominal": conformal.coverage,
        "score": conformal.score,
        "by": conformal.by,
        "calibration_rows": len(conformal.scores),
        **found.all._asdict(),
        "mean_size": found.size,
        "empty": found.empty,
        "full": found.full,
        "by_size": {str(size): share._asdict() for size, share in found.by_size.items()},
        "by_class": {classes[k]: share._asdict() for k, share in found.by_class.items()},
        "curve": curve,
    }


def terminal_text(record: Record) -> str:
    """Return the record as lines of text."""
    text = texts("evaluation.txt", record=record, log=log)
    numbers = [
        f"{row['measure']} {row['value']:.4f}: {row['meaning']}"
        for row in _number_rows(record, text)
    ]
    parts = [_heading(record), "\n".join(numbers + _present(text, "probabilities"))]
    if "conformal" in record:
        table = text_table(_coverage_rows(record["conformal"]), digits=4)
        parts.append("\n".join((text["conformal"], table, text["conformal_shift"])))
    parts.append(text_table(_uncertainty_rows(record), digits=4))
    parts.append("\n".join(_present(text, "uncertainty", "auarc", "ood")))
    rows, meaning = _class_rows(record), text["recall"]
    if len(rows) > MOST_CLASSES:
        meaning += f" The table has the {MOST_CLASSES} of {len(rows)} classes of lowest recall."
        rows.sort(key=lambda row: 2 if row["recall"] is None else row["recall"])
    return "\n\n".join([*parts, f"{text_table(rows[:MOST_CLASSES], digits=4)}\n{meaning}"])


def _was_trained_on(options: ModelOptions) -> bool:
    """Return whether the paths of the data are those of the training data."""
    file = options.model / OPTIONS
    used = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else {}
    paths = [Path(used[name]) for name in ("data", "lower", "upper") if used.get(name)]
    return any(a.exists() and b.exists() and a.samefile(b) for a in paths for b in options.paths)


def _predict_all(model: Any, options: ModelOptions, is_labelled: bool) -> Predicted:
    """Predict all rows in parts; the rows are not kept in memory."""
    classes = model.class_names if is_labelled else None
    found = [(one, data.labels) for data, one in predict_parts(model, options, classes)]
    if not found:
        raise ValueError(f"{options.source} has no rows.")
    predictions, labels = zip(*found, strict=True)
    return Predicted(
        options.source,
        stream_data(options, model.preprocessing),
        type(predictions[0]).concatenate(predictions),
        torch.cat(labels) if is_labelled else None,
    )


def _write_page(
    path: Path,
    record: Record,
    curves: Mapping[str, AccuracyRejection],
    scores: Mapping[str, Mapping[str, Any]],
    explorer: Markup,
) -> None:
    """Write a page with the numbers, their meaning and the plots."""
    text = texts("evaluation.txt", record=record, log=log)
    bins = Reliability(*(np.array(v, dtype=float) for v in record["reliability"].values()))
    named = {name: f"{name} uncertainty" for name in MEASURES}
    by_measure = {
        label: {data: of[name] for data, of in scores.items()} for name, label in named.items()
    }
    rejection = {label: curves[name] for name, label in named.items()}
    origin = {"model": record["model"], "data": record["data"], **record["provenance"]}
    matrix = report.confusion_map(record["confusion"], record["classes"])
    classes = report.Side([matrix, html_table(_class_rows(record), digits=4)])
    unit = f"uncertainty ({record['unit']})"
    content: dict[str, list[Any]] = {
        "Numbers": [html_table(_number_rows(record, text), digits=4)],
        "Sets with a guarantee": _coverage_parts(record, text),
        "Classes": [classes, text["confusion"], text["recall"]],
        "Calibration": [report.reliability_chart(bins), text["calibration"]],
        "Accuracy when the least certain are rejected": [
            report.rejection_curves({record["model"]: rejection}),
            text["rejection"],
        ],
        "Uncertainty": [
            html_table(_uncertainty_rows(record), digits=4),
            *_present(text, "uncertainty", "auarc", "ood"),
            report.score_histograms(by_measure, unit),
        ],
        "Explore predictions": [explorer],
        "How this was made": [html_table(provenance_rows(origin))],
    }
    content["Numbers"] += _present(text, "probabilities")
    sections = [report.Section(heading, parts) for heading, parts in content.items() if parts]
    title = f"Evaluation of {record['model']}"
    report.write_page(path, title, sections, lead=f"{_heading(record)}.")


def _present(text: Mapping[str, str], *names: str) -> list[str]:
    return [text[name] for name in names if name in text]


def _heading(record: Record) -> str:
    rows = pluralize(record["rows"], "row")
    text = f"{rows} of {record['data']}, {len(record['classes'])} classes"
    ood = record.get("ood")
    return f"{text}; OOD: {pluralize(ood['rows'], 'row')} of {ood['data']}" if ood else text


def _number_rows(record: Record, text: Mapping[str, str]) -> list[Record]:
    values = record | record.get("sets", {})
    return [
        {"measure": label, "value": values[name], "meaning": text[name]}
        for name, label in NUMBERS.items()
        if name in values
    ]


def _uncertainty_rows(record: Record) -> list[Record]:
    """Return one row for each measure of uncertainty, with the areas under the curves."""
    ood = record.get("ood", {})
    return [
        {"uncertainty": name, "AUARC": area}
        | {f"OOD {key.upper()}": ood[key][name] for key in ("auroc", "auprc") if key in ood}
        for name, area in record["auarc"].items()
    ]


def _coverage_rows(conformal: Record) -> list[Record]:
    """Return one row for each nominal coverage."""
    return [
        {"nominal": row["nominal"], **_share(row), "set size": row["mean_size"]}
        for row in conformal["curve"]
    ]


def _coverage_parts(record: Record, text: Mapping[str, str]) -> list[Any]:
    """Return a plot and the tables of the coverage, in total, by size and by class."""
    if "conformal" not in record:
        return []
    conformal = record["conformal"]
    tables = [html_table(_coverage_rows(conformal), digits=4)]
    for name in ("size", "class"):
        shares = conformal[f"by_{name}"].items()
        rows = [{name: key, "rows": of["rows"], **_share(of)} for key, of in shares]
        tables.append(html_table(rows, digits=4))
    chart = report.coverage_chart(conformal["curve"])
    return [text["conformal"], chart, *tables, text["conformal_shift"]]


def _share(share: Record) -> Record:
    return {"coverage": share["coverage"], "from": share["low"], "to": share["high"]}


def _class_rows(record: Record) -> list[Record]:
    """Return one row for each class, with its recall and the most frequent wrong class."""
    names, rows = record["classes"], []
    for index, (name, counts) in enumerate(zip(names, record["confusion"], strict=True)):
        wrong, other = max((count, -k) for k, count in enumerate(counts) if k != index)
        row = {"class": name, "rows": sum(counts), "recall": record["recall"][name]}
        row["most often taken for"] = f"{names[-other]} ({wrong})" if wrong else None
        rows.append(row)
    return rows
