"""Tables of a study: records in, rows out, the published numbers beside ours."""

from collections.abc import Sequence

from creinn.classifier.methods import METHODS, TIMES, base_method, is_ensemble, label
from creinn.evaluation.summary import MEASURES
from creinn.experiments.published import COLUMNS, INFERENCE_TIME, PUBLISHED
from creinn.experiments.records import POINTS
from creinn.experiments.study import Record, Study, lookup, spread
from creinn.report.tables import Cell, Row, Spread, with_published

SCORES = {"log loss": "log_loss", "Brier score": "brier", "calibration error": "expected_calibration_error"}
STATISTICS = {"running": "running statistics", "batch": "statistics of the test batch"}


def quality_table(study: Study, statistics: str = "running", ood: str | None = None) -> list[dict[str, Cell]]:
    """Accuracy, AUARC, scores and, against one OOD set, AUROC and AUPRC of every method; mean ± deviation of runs.

    Args:
        study: The experiment.
        statistics: ``"running"`` or ``"batch"``: what batch norms used.
        ood: Name of the OOD set, if any.
    """
    rows: list[dict[str, Cell]] = []
    for method in study.methods:
        records = study.records(method)
        if not records:
            continue
        rows.append(
            {"model": study.label(method), "runs": len(records), **_qualities(records, method, statistics, ood)}
        )
    published = PUBLISHED.get(study.settings["paper"] or "", {})
    ours = {name for row in rows for name in row}
    theirs: dict[str, Row] = {
        study.label(method): {name: cell for name, cell in published[method].items() if name in ours}
        for method in study.methods
        if method in published
    }
    return with_published(rows, theirs, key="model") if theirs and rows else rows


def statistics_table(study: Study, ood: str | None) -> list[dict[str, Cell]]:
    """With running statistics and with those of the test batch side by side."""
    shown = ["accuracy %", "AUARC EU", "AUARC TU"] + (["AUROC EU", "AUROC TU", "AUPRC TU"] if ood else [])
    rows: list[dict[str, Cell]] = []
    for method in study.methods:
        records = study.records(method)
        if not any(lookup(record, "metrics", "batch") for record in records):
            continue
        found = {kind: _qualities(records, method, kind, ood) for kind in STATISTICS}
        row: dict[str, Cell] = {"model": study.label(method)}
        for name in shown:
            row[f"{name}, running"] = found["running"].get(name)
            row[f"{name}, test batch"] = found["batch"].get(name)
        rows.append(row)
    return rows


def shift_table(study: Study, arm: str, statistics: str = "running") -> list[dict[str, Cell]]:
    """Interval test sets: accuracy, AUARC, and the relative increase of each uncertainty over the base set."""
    rows: list[dict[str, Cell]] = []
    for method in study.methods:
        records = study.records(method, arm)
        for name in sets_of(records):
            at = ("metrics", statistics, "sets", name)
            row: dict[str, Cell] = {"model": study.label(method), "test set": name}
            row["accuracy %"] = _percent(spread(records, *at, "accuracy"))
            row |= {f"AUARC {short}": spread(records, *at, "auarc", key) for key, short in MEASURES.items()}
            row |= {f"mean {short}": spread(records, *at, "means", key) for key, short in MEASURES.items()}
            row |= {
                f"increase {short}": spread(records, *at, "increase", key, "mean") for key, short in MEASURES.items()
            }
            for key, short in MEASURES.items():
                left_out = [lookup(record, *at, "increase", key, "excluded") or 0 for record in records]
                row[f"{short} base 0"] = sum(left_out)
            rows.append(row)
    return rows


def budget_table(study: Study) -> list[dict[str, Cell]]:
    """What each method costs: parameters, time to train one run, time to predict."""
    rows: list[dict[str, Cell]] = []
    for method in study.methods:
        single = base_method(method)
        trainings, evaluations = study.trainings(single), study.records(single)
        if not trainings:
            continue
        ensembles = study.records(method) if is_ensemble(method) else []
        if is_ensemble(method) and not ensembles:
            continue
        members = len(ensembles[0]["members"]) if ensembles else 1
        parameters = int(trainings[0]["parameters"]) * members
        rows.append(
            {
                "model": study.label(method),
                "parameters": parameters,
                "training s": _of_members(spread(trainings, "seconds"), members),
                "prediction ms per image": _of_members(spread(evaluations, "milliseconds_per_image"), members),
            }
        )
    return rows


def time_table(record: Record, methods: Sequence[str]) -> list[dict[str, Cell]]:
    """Time of one call relative to the SNN, for every batch size, and the published factor."""
    times = record["seconds_per_call"]
    rows: list[dict[str, Cell]] = []
    for method in methods:
        row: dict[str, Cell] = {"model": label(method), "parameters": record["parameters"][method]}
        for size, found in times[method].items():
            images = "1 image" if size == "1" else f"{size} images"
            for what in ("label", "uncertainty"):
                row[f"{images}, {what}: ms"] = 1000 * found[what]["median"]
                if "snn" in times:
                    row[f"{images}, {what}: {TIMES} SNN"] = found[what]["median"] / times["snn"][size][what]["median"]
        row[f"{TIMES} SNN (paper)"] = INFERENCE_TIME.get(method)
        rows.append(row)
    return rows


def digits(rows: Sequence[Row]) -> dict[str, int]:
    """Decimals of each column that has others than three."""
    names = dict.fromkeys(name for row in rows for name in row)
    few = {"accuracy": 2, "increase": 2, "training": 1, "prediction": 2}
    return {name: places for name in names for start, places in few.items() if name.startswith(start)}


def sets_of(records: Sequence[Record], statistics: str = "running") -> list[str]:
    """Names of the test sets of records, in order."""
    return list(dict.fromkeys(name for record in records for name in record["metrics"][statistics]["sets"]))


def _qualities(records: Sequence[Record], method: str, statistics: str, ood: str | None) -> dict[str, Cell]:
    at = ("metrics", statistics)
    cells: dict[str, Cell] = {"accuracy %": _percent(spread(records, *at, "sets", POINTS, "accuracy"))}
    for key, short in MEASURES.items():
        cells[f"AUARC {short}"] = spread(records, *at, "sets", POINTS, "auarc", key)
    if ood is not None:
        for measure, column in (("auroc", "AUROC"), ("auprc", "AUPRC")):
            for key in ("epistemic", "total"):
                cells[f"{column} {MEASURES[key]}"] = spread(records, *at, "ood", ood, key, measure)
    if method in METHODS and METHODS[method].kind == "snn":  # one distribution: no epistemic uncertainty
        cells |= {name: None for name in cells if name.endswith("EU")}
    scores = {name: spread(records, *at, "sets", POINTS, key) for name, key in SCORES.items()}  # not in old records
    return {name: cells[name] for name in COLUMNS if name in cells} | {name: s for name, s in scores.items() if s}


def _percent(value: Spread | None) -> Spread | None:
    if value is None:
        return None
    return Spread(value.mean * 100, None if value.std is None else value.std * 100)


def _of_members(value: Spread | None, members: int) -> Spread | None:
    """Cost of so many runs; their common deviation is not that of their sum, and is left out."""
    return value if value is None or members == 1 else Spread(value.mean * members)
