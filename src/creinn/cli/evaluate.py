"""``creinn evaluate``: evaluate classes, probabilities, sets and uncertainties.

The results are a JSON record, which the terminal and the page explain.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
import yaml

from creinn import report
from creinn.cli.explore import Predicted, explorer_samples
from creinn.cli.options import EvaluateOptions, ModelOptions
from creinn.cli.parsing import check_outputs, options_yaml
from creinn.cli.sources import OPTIONS, check_paths, predict_parts, stream_data
from creinn.credal.credal_set import CredalSet
from creinn.device import choose_device
from creinn.evaluation import (
    AccuracyRejection,
    Reliability,
    binomial_share,
    confusion,
    reliability,
    summary,
)
from creinn.evaluation.arrays import as_numpy
from creinn.evaluation.label_sets import COVERAGES
from creinn.evaluation.summary import MEASURES
from creinn.files import write_bytes
from creinn.numerics import pluralize
from creinn.report.explorer import explore, sample_limit
from creinn.report.figures import thin
from creinn.report.provenance import provenance, provenance_rows
from creinn.report.tables import html_table, text_table
from creinn.report.theme import plotly, texts
from creinn.saving import load

Record = dict[str, Any]

JSON_POINTS = 1001  # of a curve in the JSON file
TABLE_CLASSES = 10  # in the terminal
NUMBERS = {
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "brier": "Brier score",
    "expected_calibration_error": "calibration error",
    "coverage": "coverage",
    "mean_size": "set size",
}


_html, _text = partial(html_table, digits=4), partial(text_table, digits=4)


def evaluate(options: EvaluateOptions, command: str) -> int:
    """Run ``creinn evaluate``."""
    if options.report is not None:
        plotly()  # check that it is installed
    check_outputs("evaluate", options, options.report)
    for _, ood in options.ood_sets:
        check_paths(ood, "ood-")
    model = load(options.model, choose_device(options.device))
    if _was_trained_on(options):
        print(f"note: the model was trained on {options.source}; results on new data are worse")
    inside = _predict_all(model, options, model.class_names)
    outside = [(group, _predict_all(model, ood)) for group, ood in options.ood_sets]
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    record = {
        "model": str(options.model),
        "data": options.source,
        **evaluation_record(inside, outside, model.class_names, options.rule),
        "provenance": {**provenance(command), "date": now},
    }
    print(terminal_text(record))
    write_bytes(options.out, (json.dumps(record, indent=2, allow_nan=False) + "\n").encode())
    write_bytes(options.out.with_suffix(".yaml"), options_yaml("evaluate", options).encode())
    print(f"\nwrote {options.out}")
    if options.report is not None:
        groups = [(inside, False if outside else None), *((data, True) for _, data in outside)]
        _write_page(options.report, model, record, groups, options.rule)
        print(f"wrote {options.report}")
    return 0


def evaluation_record(
    inside: Predicted, outside: Sequence[tuple[str, Predicted]], classes: Sequence[str], rule: str
) -> Record:
    """Return all measures; ``outside`` contains the OOD data by group."""
    prediction, labels = inside.prediction, as_numpy(inside.labels)
    predicted = as_numpy(prediction.label)
    counts = confusion(predicted, labels, len(classes))
    bins = reliability(prediction.probabilities, labels, predicted=predicted)
    recall = zip(classes, counts.diagonal().tolist(), counts.sum(1).tolist(), strict=True)
    curves = summary.rejection(prediction, labels).items()
    sets = summary.sets(prediction, labels, rule)
    record: Record = {
        "rows": len(labels),
        "classes": list(classes),
        **summary.quality(prediction, labels),
        "reliability": _lists(bins),
        "recall": {name: right / rows if rows else None for name, right, rows in recall},
        "confusion": counts.tolist(),
        "unit": "bits" if sets is None or prediction.num_classes > 2 else "probability",
        "auarc": {MEASURES[name]: curve.area for name, curve in curves},
        "curves": {MEASURES[name]: _lists(thin(curve, JSON_POINTS)) for name, curve in curves},
    }
    if sets is not None:
        record["sets"] = {"rule": rule, "coverage": sets.coverage, "mean_size": sets.size}
    if summary.has_conformal_sets(prediction):
        record["conformal"] = conformal_record(prediction, labels, classes)
    if (accepted := summary.accepted(prediction)) is not None:
        limit = prediction.abstention
        record["acceptance"] = {
            **{name: getattr(limit, name) for name in ("by", "max_error", "confidence")},
            "accepted": _share(accepted),
            "errors": _share((predicted != labels)[accepted]),
        }
    if outside:
        record["ood"] = ood_record(prediction, outside)
    return record


def ood_record(prediction: Any, outside: Sequence[tuple[str, Predicted]]) -> Record:
    """Return the measures of OOD detection, and their means by group."""
    sets: list[Record] = []
    for group, data in outside:
        found = summary.detection(prediction, data.prediction)
        one: Record = {"group": group, "data": data.name, "rows": len(data.prediction)}
        one |= {MEASURES[name]: result._asdict() for name, result in found.items()}
        if summary.has_conformal_sets(data.prediction):
            one["conformal_size"] = summary.set_size(data.prediction, "conformal")
        sets.append(one)
    means: Record = {group: {} for group, _ in outside if group}
    for group, name in product(means, MEASURES.values()):
        own = [one[name] for one in sets if one["group"] == group]
        means[group][name] = {key: fmean(one[key] for one in own) for key in own[0]}
    return {"sets": sets, "means": means}


def conformal_record(prediction: CredalSet, labels: Any, classes: Sequence[str]) -> Record:
    """Return the coverage of conformal sets."""
    conformal: Any = prediction.conformal
    found = summary.coverage(prediction, labels)
    curve = []
    for level in sorted({*COVERAGES, conformal.coverage}):
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
    """Return the record as text."""
    text = texts("evaluation.txt", record=record)
    rows = _number_rows(record, text)
    numbers = [f"{row['measure']} {row['value']:.4f}: {row['meaning']}" for row in rows]
    parts = [_heading(record), "\n".join(numbers + _remarks(text))]
    if "conformal" in record:
        table = _text(_coverage_rows(record["conformal"]))
        parts.append("\n".join((text["conformal"], table, text["conformal_shift"])))
    parts.append(_text(_uncertainty_rows(record)))
    parts.append("\n".join((text["uncertainty"], text["auarc"])))
    if "ood" in record:
        parts.append("\n".join((_text(_ood_rows(record)), text["ood"])))
    rows, meaning = _class_rows(record), text["recall"]
    if len(rows) > TABLE_CLASSES:
        meaning += f" The table has the {TABLE_CLASSES} of {len(rows)} classes of lowest recall."
        rows.sort(key=lambda row: 2 if row["recall"] is None else row["recall"])
    return "\n\n".join([*parts, f"{_text(rows[:TABLE_CLASSES])}\n{meaning}"])


def _was_trained_on(options: ModelOptions) -> bool:
    file = options.model / OPTIONS
    used = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else {}
    paths = [Path(used[name]) for name in ("data", "lower", "upper") if used.get(name)]
    return any(a.exists() and b.exists() and a.samefile(b) for a in paths for b in options.paths)


def _predict_all(
    model: Any, options: ModelOptions, classes: Sequence[str] | None = None
) -> Predicted:
    """Predict all rows; parts are not kept in memory."""
    found = [(one, data.labels) for data, one in predict_parts(model, options, classes)]
    if not found:
        raise ValueError(f"{options.source} has no rows.")
    predictions, labels = zip(*found, strict=True)
    prediction = type(predictions[0]).concatenate(predictions)
    parts = stream_data(options, model.preprocessing)
    y = None if classes is None else torch.cat(labels)
    return Predicted(options.source, parts, prediction, y)


def _share(values: Any) -> Record | None:
    if not len(values):
        return None
    share = binomial_share(values)
    return {"rows": share.rows, "share": share.coverage, "low": share.low, "high": share.high}


def _lists(arrays: Any) -> Record:
    """Convert arrays to lists."""
    lists: Record = {}
    for name, values in arrays._asdict().items():
        lists[name] = [None if np.isnan(value) else value for value in values.tolist()]
    return lists


def _write_page(
    path: Path,
    model: Any,
    record: Record,
    groups: Sequence[tuple[Predicted, bool | None]],
    rule: str,
) -> None:
    text = texts("evaluation.txt", record=record)
    bins = Reliability(*(np.array(v, dtype=float) for v in record["reliability"].values()))
    by_measure, rejection = {}, {}
    for name, short in MEASURES.items():
        title, curve = f"{name} uncertainty", record["curves"][short].values()
        by_measure[title] = {data.name: getattr(data.prediction, name) for data, _ in groups}
        rejection[title] = AccuracyRejection(*map(np.array, curve))
    curves = report.rejection_curves({record["model"]: rejection})
    matrix = report.confusion_map(record["confusion"], record["classes"])
    classes = report.Side([matrix, _html(_class_rows(record))])
    areas = _html(_uncertainty_rows(record))
    histograms = report.score_histograms(by_measure, f"uncertainty ({record['unit']})")
    numbers = _html(_number_rows(record, text))
    most = sample_limit(len(record["classes"]), len(groups))
    chosen = (explorer_samples(model, data, most, is_ood) for data, is_ood in groups)
    samples = [sample for of_data in chosen for sample in of_data]
    explorer = explore(samples, record["classes"], record["unit"], rule)
    ood = [_html(_ood_rows(record)), text["ood"]] if "ood" in record else []
    origin = {"model": record["model"], "data": record["data"], **record["provenance"]}
    content: dict[str, list[Any]] = {
        "Numbers": [numbers, *_remarks(text)],
        "Sets with a guarantee": _coverage_parts(record, text),
        "Classes": [classes, text["confusion"], text["recall"]],
        "Calibration": [report.reliability_chart(bins), text["calibration"]],
        "Accuracy when the least certain are rejected": [curves, text["rejection"]],
        "Uncertainty": [areas, f"{text['uncertainty']} {text['auarc']}", histograms],
        "Out-of-distribution data": ood,
        "Explore predictions": [explorer],
        "How this was made": [html_table(provenance_rows(origin))],
    }
    sections = [report.Section(heading, parts) for heading, parts in content.items() if parts]
    title = f"Evaluation of {record['model']}"
    report.write_page(path, title, sections, lead=f"{_heading(record)}.")


def _remarks(text: Mapping[str, str]) -> list[str]:
    return [text[name] for name in ("probabilities", "acceptance") if name in text]


def _heading(record: Record) -> str:
    own = f"{pluralize(record['rows'], 'row')} of {record['data']}"
    sets = record["ood"]["sets"] if "ood" in record else []
    ood = [f"OOD: {pluralize(one['rows'], 'row')} of {one['data']}" for one in sets]
    return "; ".join([f"{own}, {len(record['classes'])} classes", *ood])


def _number_rows(record: Record, text: Mapping[str, str]) -> list[Record]:
    values = record | record.get("sets", {})
    return [
        {"measure": label, "value": values[name], "meaning": text[name]}
        for name, label in NUMBERS.items()
        if name in values
    ]


def _uncertainty_rows(record: Record) -> list[Record]:
    return [{"uncertainty": name, "AUARC": area} for name, area in record["auarc"].items()]


def _ood_rows(record: Record) -> list[Record]:
    """Return a row for each data set and each mean of a group."""
    sets, means = record["ood"]["sets"], record["ood"]["means"]
    found = [("", one["data"], one) for one in sets if not one["group"]]
    for group, mean in means.items():
        found += [(group, one["data"], one) for one in sets if one["group"] == group]
        found.append((group, "mean", mean))
    columns = {"auroc": "AUROC", "auprc": "AUPRC", "fpr95": "FPR95", "base_rate": "base rate"}
    rows = []
    for (group, name, one), measure in product(found, ("EU", "TU")):
        row = {"OOD data": f"{group}: {name}" if group else name, "by": measure}
        rows.append(row | {column: one[measure][key] for key, column in columns.items()})
    return rows


def _coverage_rows(conformal: Record) -> list[Record]:
    curve = conformal["curve"]
    return [{"nominal": c["nominal"], **_bounds(c), "set size": c["mean_size"]} for c in curve]


def _coverage_parts(record: Record, text: Mapping[str, str]) -> list[Any]:
    if "conformal" not in record:
        return []
    conformal = record["conformal"]
    tables = [_html(_coverage_rows(conformal))]
    for name in ("size", "class"):
        shares = conformal[f"by_{name}"].items()
        rows = [{name: key, "rows": of["rows"], **_bounds(of)} for key, of in shares]
        tables.append(_html(rows))
    chart = report.coverage_chart(conformal["curve"])
    return [text["conformal"], chart, *tables, text["conformal_shift"]]


def _bounds(share: Record) -> Record:
    return {"coverage": share["coverage"], "from": share["low"], "to": share["high"]}


def _class_rows(record: Record) -> list[Record]:
    names, rows = record["classes"], []
    for index, (name, counts) in enumerate(zip(names, record["confusion"], strict=True)):
        wrong, other = max((count, -k) for k, count in enumerate(counts) if k != index)
        row = {"class": name, "rows": sum(counts), "recall": record["recall"][name]}
        row["most often taken for"] = f"{names[-other]} ({wrong})" if wrong else None
        rows.append(row)
    return rows
