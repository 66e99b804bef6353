"""Tables of the study's second part: a pretrained network, frozen, fine-tuned and converted, and data that are near.

In: pretrained.json, finetuned.json, converted.json and terms.json of the benchmarks of these names, each only if it is
there, and recorded experiments. Out: tables; none for a file that is not there.
"""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from experiments.result_tables import Study, quality_table, statistics_table
from experiments.study.cells import Entry, Number, Rows, Table, counted

QUALITY = {
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "brier": "Brier score",
    "expected_calibration_error": "calibration error",
}
SETS = {
    "distance, lower": "CreINN-D, `lower`",
    "distance, dominance": "CreINN-D, `dominance`",
    "ordinary, lac": "network, LAC",
    "ordinary, aps": "network, APS",
    "ordinary, raps": "network, RAPS",
}
NEAR = {"near-fashion-mnist": "Fashion-MNIST", "near-cifar10": "CIFAR-10"}
SCRATCH = "cifar10-svhn-resnet20"
CURVES = (("loss", "val_loss"), ("accuracy", "val_accuracy"))

Files = Mapping[str, Mapping[str, Any]]


def pretrained(files: Files) -> list[Table]:
    """AUROC of every score on every foreign set, and AUARC, on features of a pretrained network; a row per score."""
    return scores(files.get("pretrained", {}), "mean", "splits")


def lungs(files: Files) -> list[Table]:
    """The same for X-rays."""
    return scores(files.get("pretrained", {}), "lungs_mean", "lungs_splits")


def finetuned(files: Files) -> list[Table]:
    """The same for fine-tuned networks, one by one; and for ensembles of them, of which there is one each."""
    found = files.get("finetuned", {})
    tables = scores(found, "mean", "runs", "One network; means over five.")
    together = found.get("ensembles", {})
    rows: Rows = []
    for score, columns in together.get("auroc", {}).items():
        rows.append({"score": score, **columns, "AUARC": together["auarc"][score]})
    return [*tables, Table(rows, f"{together['members']} networks together.")] if rows else tables


def quality(files: Files) -> list[Table]:
    """Accuracy, log loss, Brier score and calibration error of every method; a table per kind of network."""
    tables = []
    kinds = (
        ("pretrained", "quality", "splits", "CIFAR-10 on the frozen network, eight classes."),
        ("pretrained", "lungs_quality", "lungs_splits", "X-rays on the frozen network."),
        ("finetuned", "quality", "runs", "CIFAR-10, fine-tuned networks, one by one."),
    )
    for name, key, runs, caption in kinds:
        found = files.get(name, {})
        rows: Rows = [
            {"model": method, **numbers(columns, len(found[runs]), QUALITY)}
            for method, columns in found.get(key, {}).items()
        ]
        tables += [Table(rows, caption, places=4)] if rows else []
    together = files.get("finetuned", {}).get("ensembles", {}).get("quality", {})
    rows = [
        {"model": m, **{QUALITY[k]: value for k, value in of.items()}} for m, of in together.items()
    ]
    return (
        [*tables, Table(rows, "CIFAR-10, fine-tuned networks together.", places=4)]
        if rows
        else tables
    )


def conformal(files: Files) -> list[Table]:
    """Coverage and mean sizes of conformal sets at 95 %; a table per kind of network."""
    tables = []
    kinds = (
        ("pretrained", "splits", "Frozen, five splits."),
        ("finetuned", "runs", "Fine-tuned, five networks."),
    )
    for name, runs, caption in kinds:
        runs_found = [run.get("conformal", {}) for run in files.get(name, {}).get(runs, [])]
        found = [
            run for run in runs_found if SETS.keys() <= run.keys()
        ]  # others are by scores that are no more
        rows: Rows = []
        for key, label in SETS.items() if found else ():
            row: dict[str, Entry] = {
                "sets": label,
                "coverage": mean(run[key]["coverage"]["test"] for run in found),
            }
            for data in found[0][key]["size"]:
                row[f"size, {data}"] = mean(run[key]["size"][data] for run in found)
            rows.append(row)
        tables += [Table(rows, caption, places=3)] if rows else []
    return tables


def converted(files: Files) -> list[Table]:
    """A fine-tuned network as an interval network; a row per form and kind of statistics."""
    rows: Rows = []
    for form in files.get("converted", {}).get("rows", []):
        for kind in ("running", "batch"):
            found = form[kind]
            row: dict[str, Entry] = {
                "radii": form["radii"],
                "trained": form["trained"],
                "statistics": kind,
            }
            row |= {
                "accuracy": found["accuracy"],
                "AUARC TU": found["auarc"]["total"],
                "mean width": found["width"],
            }
            rows.append(
                row
                | {
                    f"AUROC {s}, SVHN": found["auroc"][k]
                    for k, s in (("epistemic", "EU"), ("total", "TU"))
                }
            )
    return [Table(rows, places=3)] if rows else []


def terms(files: Files) -> list[Table]:
    """Other ways to join the terms of the distance, and other scales; a row each, a table per kind of network."""
    tables = []
    for kind, network in (
        ("frozen", "Frozen network, five splits"),
        ("small", "Small networks, three"),
    ):
        found = files.get("terms", {}).get(kind, {})
        ways: Rows = [
            {"way": way, **means(columns)} for way, columns in found.get("ways", {}).items()
        ]
        scales: Rows = [
            {"scale": scale, **means(columns)} for scale, columns in found.get("scales", {}).items()
        ]
        tables += [
            Table(ways, f"{network}: ways.", places=3),
            Table(scales, f"{network}: scales.", places=3),
        ]
    return [table for table in tables if table.rows]


def near(studies: Mapping[str, Study]) -> list[Table]:
    """Small networks against classes that they have not learnt; a table per data set."""
    tables = []
    for name, data in NEAR.items():
        if name in studies:
            ood = studies[name].settings["ood"][0]["name"]
            rows = counted(quality_table(studies[name], ood=ood))
            tables.append(Table(rows, f"{data}, two classes left out."))
    return [table for table in tables if table.rows]


def scratch(studies: Mapping[str, Study]) -> list[Table]:
    """ResNet-20 on all of CIFAR-10: quality, and loss and accuracy by epoch."""
    study = studies.get(SCRATCH)
    if study is None:
        return []
    rows: Rows = []
    for method in study.methods:
        curves = [
            training["history"] for training in study.trainings(method) if training.get("history")
        ]
        of = {"model": study.label(method)}
        rows += [
            {**of, "validation": name, **by_epoch(curves, key)} for name, key in CURVES if curves
        ]
    learnt = Table(
        rows, "Learning curves, means over the runs; a distance is not learnt.", places=3
    )
    tables = [Table(counted(quality_table(study, ood="svhn"))), learnt]
    return [table for table in tables if table.rows]


def scratch_statistics(studies: Mapping[str, Study]) -> list[Table]:
    """The same with running statistics, and with those of the test batch."""
    rows = statistics_table(studies[SCRATCH], "svhn") if SCRATCH in studies else []
    return [Table(rows)] if rows else []


def by_epoch(curves: Sequence[Sequence[Mapping[str, Any]]], key: str) -> dict[str, Entry]:
    """A column per epoch, the mean over runs."""
    lines = zip(*curves, strict=True)
    return {f"epoch {of[0]['epoch']:.0f}": mean(line[key] for line in of) for of in lines}


def scores(found: Mapping[str, Any], key: str, runs: str, caption: str = "") -> list[Table]:
    """Means and deviations of AUROC by foreign set, and of AUARC; a row per score."""
    count = len(found.get(runs, []))
    rows: Rows = [
        {"score": score, **numbers(columns, count)} for score, columns in found.get(key, {}).items()
    ]
    return [Table(rows, caption)] if rows else []


def means(columns: Mapping[str, Any]) -> dict[str, Entry]:
    """Of each column; what a model chose by itself is no column of its own."""
    return {name: of["mean"] for name, of in columns.items() if name != "chosen"}


def numbers(
    columns: Mapping[str, Any], runs: int, names: Mapping[str, str] | None = None
) -> dict[str, Entry]:
    """Means and deviations as they are written in files, under other names if there are any."""
    return {
        (names or {}).get(key, key): Number(of["mean"], of["std"], runs)
        for key, of in columns.items()
    }
