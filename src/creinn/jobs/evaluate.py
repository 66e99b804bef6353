"""``creinn evaluate``: accuracy, accuracy-rejection curves, sets of classes, detection of foreign data."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from creinn.commands.evaluate import EvaluateOptions
from creinn.commands.parsing import options_yaml
from creinn.credal import CredalSet
from creinn.evaluation import AccuracyRejection, accuracy_rejection, auarc, ood_detection
from creinn.evaluation.checks import as_numpy
from creinn.jobs.outputs import check_outputs
from creinn.jobs.saved import read_saved
from creinn.jobs.sources import Source, reading_of
from creinn.report.tables import text_table
from creinn.tables.columns import counted
from creinn.tensorfile import write_bytes

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
    correct = as_numpy(prediction.label == rows.labels)
    scores = _scores(prediction)
    foreign_scores = None
    if has_foreign:
        foreign_scores = _scores(saved.ask(foreign, labelled=False, batch_size=options.batch_size)[1])
    curves = {name: accuracy_rejection(score, correct) for name, score in scores.items()}
    record: dict[str, Any] = {
        "model": str(options.model),
        "data": source.name,
        "rows": len(correct),
        "accuracy": float(correct.mean()),
        "auarc": {name: auarc(score, correct) for name, score in scores.items()},
    }
    if isinstance(prediction, CredalSet):
        record["sets"] = _sets(prediction, as_numpy(rows.labels), options.rule)
    if foreign_scores is not None:
        found = {name: ood_detection(scores[name], foreign_scores[name]) for name in scores}
        record["ood"] = {
            "data": foreign.name,
            "rows": len(foreign_scores["TU"]),
            "base_rate": found["TU"].base_rate,
            "auroc": {name: result.auroc for name, result in found.items()},
            "auprc": {name: result.auprc for name, result in found.items()},
        }
    print(_text(record))
    record["curves"] = {name: _points(curve) for name, curve in curves.items()}
    write_bytes(options.out, (json.dumps(record, indent=2, allow_nan=False) + "\n").encode())
    write_bytes(options.out.with_suffix(".yaml"), options_yaml("evaluate", options).encode())
    print(f"\nwrote {options.out}")
    if options.report is not None:
        from creinn.jobs.evaluation_page import write_evaluation_page

        write_evaluation_page(options.report, record, curves, scores, foreign_scores)
        print(f"wrote {options.report}")
    return 0


def measure_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per measure of uncertainty: areas under the curves."""
    rows = []
    for name, area in record["auarc"].items():
        row: dict[str, Any] = {"uncertainty": name, "AUARC": area}
        if "ood" in record:
            row |= {"OOD AUROC": record["ood"]["auroc"][name], "OOD AUPRC": record["ood"]["auprc"][name]}
        rows.append(row)
    return rows


def summary_lines(record: dict[str, Any]) -> list[str]:
    """Sentences on what was measured."""
    lines = [f"{counted(record['rows'], 'row')} of {record['data']}", f"accuracy {record['accuracy']:.4f}"]
    if "sets" in record:
        sets = record["sets"]
        lines.append(
            f"sets of classes ({sets['rule']}): the true class is in {sets['coverage']:.4f} of them, "
            f"mean size {sets['mean_size']:.2f}"
        )
    if "ood" in record:
        ood = record["ood"]
        lines.append(
            f"OOD: {counted(ood['rows'], 'row')} of {ood['data']}; a score that says nothing has AUROC 0.5 and AUPRC "
            f"{ood['base_rate']:.3f}"
        )
    return lines


def _text(record: dict[str, Any]) -> str:
    return "\n".join(summary_lines(record)) + "\n\n" + text_table(measure_rows(record), digits=4)


def _scores(prediction: Any) -> dict[str, Any]:
    measures = {"AU": prediction.aleatoric, "EU": prediction.epistemic, "TU": prediction.total}
    return {name: as_numpy(values) for name, values in measures.items()}


def _sets(prediction: CredalSet, labels: Any, rule: Any) -> dict[str, Any]:
    sets = as_numpy(prediction.classes(rule))
    return {
        "rule": rule,
        "coverage": float(sets[np.arange(len(labels)), labels].mean()),
        "mean_size": float(sets.sum(1).mean()),
    }


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
