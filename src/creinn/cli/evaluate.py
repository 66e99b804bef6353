"""``creinn evaluate``: how good classes, probabilities, sets of classes and uncertainties are; the numbers."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from creinn.cli.evaluation_page import terminal_text, write_evaluation_page
from creinn.cli.options.evaluate import EvaluateOptions
from creinn.cli.outputs import check_outputs
from creinn.cli.parsing import command_line, options_yaml
from creinn.cli.saved import read_saved
from creinn.cli.sources import Source, reading_of
from creinn.evaluation import AccuracyRejection, confusion, reliability, summary
from creinn.evaluation.checks import as_numpy
from creinn.evaluation.summary import MEASURES
from creinn.files import write_bytes
from creinn.report.provenance import provenance

MOST_POINTS = 1001  # of a curve in the JSON file; the area under it is that of the whole curve


def evaluate(options: EvaluateOptions) -> int:
    """Evaluate by ``options``, print and write; returns the exit code.

    Raises:
        ValueError: If the model or the data are not as they must be, or a report is asked for and plotly is missing.
        OSError: If a file cannot be read or written.
    """
    if options.report is not None:
        _check_report(options.report)
    outputs = [path for path in (options.out, options.report) if path is not None]
    inputs = (options.data, options.lower, options.upper, options.ood, options.ood_lower, options.ood_upper)
    check_outputs("evaluate", outputs, inputs, options.model, options.force)
    saved = read_saved(options.model, options.device)
    how: dict[str, Any] = {"reading": reading_of(options), "size": options.size, "strict": options.strict}
    source = Source(*inputs[:3], **how)
    foreign = Source(*inputs[3:], option="ood-", **how)
    has_foreign = any(path is not None for path in (options.ood, options.ood_lower, options.ood_upper))
    if has_foreign:
        foreign.check()
    rows, prediction = saved.ask(source, labelled=True, batch_size=options.batch_size)
    assert rows.labels is not None
    curves = _short(summary.rejection(prediction, rows.labels))
    sets = summary.sets(prediction, rows.labels, options.rule)
    scores = _short(summary.uncertainties(prediction))
    foreign_scores = None
    record: dict[str, Any] = {
        "model": str(options.model),
        "data": source.name,
        "rows": len(rows.labels),
        **_quality(prediction, as_numpy(rows.labels), saved.classes),
        "unit": "bits" if sets is None or prediction.num_classes > 2 else "probability",
        "auarc": {name: curve.area for name, curve in curves.items()},
    }
    if sets is not None:
        record["sets"] = {"rule": options.rule, "coverage": sets.coverage, "mean_size": sets.size}
    if has_foreign:
        outside = saved.ask(foreign, labelled=False, batch_size=options.batch_size)[1]
        foreign_scores = _short(summary.uncertainties(outside))
        found = _short(summary.detection(prediction, outside))
        record["ood"] = {
            "data": foreign.name,
            "rows": len(foreign_scores["TU"]),
            "base_rate": found["TU"].base_rate,
            "auroc": {name: result.auroc for name, result in found.items()},
            "auprc": {name: result.auprc for name, result in found.items()},
        }
    record["provenance"] = {
        **provenance(command_line("evaluate", options)),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    print(terminal_text(record))
    record["curves"] = {name: _points(curve) for name, curve in curves.items()}
    write_bytes(options.out, (json.dumps(record, indent=2, allow_nan=False) + "\n").encode())
    write_bytes(options.out.with_suffix(".yaml"), options_yaml("evaluate", options).encode())
    print(f"\nwrote {options.out}")
    if options.report is not None:
        write_evaluation_page(options.report, record, curves, scores, foreign_scores)
        print(f"wrote {options.report}")
    return 0


def _quality(prediction: Any, labels: Any, classes: Sequence[str]) -> dict[str, Any]:
    """Classes and probabilities against the truth, all together and class by class."""
    predicted = as_numpy(prediction.label)
    counts = confusion(predicted, labels, len(classes))
    bins = reliability(prediction.probabilities, labels, predicted=predicted)._asdict()
    right, rows = counts.diagonal().tolist(), counts.sum(1).tolist()
    return {
        "classes": list(classes),
        **summary.quality(prediction, labels),
        "reliability": {name: [None if np.isnan(v) else v for v in values.tolist()] for name, values in bins.items()},
        "recall": {name: r / n if n else None for name, r, n in zip(classes, right, rows, strict=True)},
        "confusion": counts.tolist(),
    }


def _short(by_measure: Mapping[str, Any]) -> dict[str, Any]:
    return {MEASURES[name]: value for name, value in by_measure.items()}


def _points(curve: AccuracyRejection) -> dict[str, list[float]]:
    count = len(curve.accuracy)
    at = np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(int))
    return {"rejection": curve.rejection[at].tolist(), "accuracy": curve.accuracy[at].tolist()}


def _check_report(path: Path) -> None:
    """Ask for what is missing before any work is done."""
    try:
        import plotly
    except ImportError as error:
        raise ValueError(
            f"The report {path} needs plotly, which is not installed: pip install 'creinn[report]'. "
            f"Without --report the numbers are written all the same."
        ) from error
    del plotly
