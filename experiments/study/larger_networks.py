"""Tables of the study on larger networks: pretrained, fine-tuned, converted, and a ResNet-20.

The inputs are the JSON files of the scripts with these names, as far as they exist, and recorded
experiments. A file that does not exist gives no table.
"""

from collections.abc import Collection, Mapping, Sequence
from statistics import mean
from typing import Any

from creinn.classifier.methods import TIMES
from experiments.result_tables import (
    PUBLISHED,
    Study,
    quality_table,
    statistics_table,
    with_published,
)
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
CREDAL = {
    "network": "entropy",
    "Laplace": "Laplace bridge",
    f"credal wrapper {TIMES}5": f"credal wrapper {TIMES}5",
    f"CreRL {TIMES}8": f"CreRL {TIMES}8",
    "EffCre": "EffCre",
    "CreINN-D": "CreINN-D",
}
FAR = ("SVHN", "MNIST", "Fashion-MNIST")
PAGE_SCORES = ("CreINN-D, EU", "CreINN-D, TU", "entropy")
PAGE_TOGETHER = ("Deep Ensembles, TU", "credal wrapper of Deep Ensembles, TU")
PAGE_TOGETHER += ("CreINN-D, averaged, EU",)
"""Scores of the tables of the page; the report has all scores."""

SCRATCH = "cifar10-svhn-resnet20"
PAPER = "cifar10-svhn-resnet50"
PAPER_COLUMNS = ("model", "accuracy %", "accuracy % (paper)", "AUARC TU", "AUROC EU", "AUROC TU")
PAPER_COLUMNS += ("AUROC TU (paper)",)
"""Columns of the table with the network of the paper."""

CURVES = (("loss", "val_loss"), ("accuracy", "val_accuracy"))

Files = Mapping[str, Mapping[str, Any]]


def pretrained(files: Files) -> list[Table]:
    """Build the table of all scores on features of a pretrained network."""
    return scores(files.get("pretrained", {}), "mean", "splits")


def credal_methods(files: Files) -> list[Table]:
    """Build the table of credal methods: AUROC by EU and TU, log loss and AUARC by TU.

    The AUROC of far data is the mean over three data sets. For a single distribution, the columns
    of TU contain the entropy, and there is no EU.
    """
    found = files.get("credal", {})
    rows: Rows = []
    for method, name in CREDAL.items() if found else ():
        total = "entropy" if method == "network" else f"{method}, TU"
        row: dict[str, Entry] = {"method": name}
        for place, sets in (("near", ("near",)), ("far", FAR)):
            for short, score in (("EU", f"{method}, EU"), ("TU", total)):
                of = found["mean"].get(score)
                row[f"{place}, {short}"] = of and mean(of[name]["mean"] for name in sets)
        row["log loss"] = found["quality"][method]["log_loss"]["mean"]
        row["AUARC"] = found["mean"][total]["AUARC"]["mean"]
        rows.append(row)
    return [Table(rows, spreads=False, places=3)] if rows else []


def lungs(files: Files) -> list[Table]:
    """Build the same table for X-rays."""
    return scores(files.get("pretrained", {}), "lungs_mean", "lungs_splits")


def finetuned(files: Files) -> list[Table]:
    """Build the tables of single fine-tuned networks and of their ensembles."""
    found = files.get("finetuned", {})
    tables = scores(found, "mean", "runs", "One network; means over five.")
    rows = together(found)
    return [*tables, Table(rows, f"{rows_size(found)} networks together.")] if rows else tables


def finetuned_summary(files: Files) -> list[Table]:
    """Build one table with the main scores of fine-tuned networks and of their ensembles."""
    found = files.get("finetuned", {})
    singles = scores(found, "mean", "runs", only=PAGE_SCORES)
    rows: Rows = [row for table in singles for row in table.rows]
    rows += [row for row in together(found) if row["score"] in PAGE_TOGETHER]
    for row in rows:
        row["networks"] = 1 if row["score"] in PAGE_SCORES else rows_size(found)
    names = ("score", "networks")
    ordered = [{n: row[n] for n in (*names, *(k for k in row if k not in names))} for row in rows]
    return [Table(ordered, spreads=False, places=3)] if ordered else []


def together(found: Mapping[str, Any]) -> Rows:
    """Build the rows of ensembles of fine-tuned networks."""
    ensembles = found.get("ensembles", {})
    return [
        {"score": score, **columns, "AUARC": ensembles["auarc"][score]}
        for score, columns in ensembles.get("auroc", {}).items()
    ]


def rows_size(found: Mapping[str, Any]) -> int:
    """Return the number of networks of an ensemble."""
    return found["ensembles"]["members"] if "ensembles" in found else 0


def quality(files: Files) -> list[Table]:
    """Build the tables of accuracy, log loss, Brier score and calibration error."""
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
    ensembles = files.get("finetuned", {}).get("ensembles", {}).get("quality", {})
    rows = [
        {"model": m, **{QUALITY[k]: value for k, value in of.items()}}
        for m, of in ensembles.items()
    ]
    caption = "CIFAR-10, fine-tuned networks together."
    return [*tables, Table(rows, caption, places=4)] if rows else tables


def conformal(files: Files) -> list[Table]:
    """Build the tables of coverage and mean size of conformal sets at 95 %."""
    tables = []
    kinds = (
        ("pretrained", "splits", "Frozen, five splits."),
        ("finetuned", "runs", "Fine-tuned, five networks."),
    )
    for name, runs, caption in kinds:
        runs_found = [run.get("conformal", {}) for run in files.get(name, {}).get(runs, [])]
        # Older files have other scores.
        found = [run for run in runs_found if SETS.keys() <= run.keys()]
        rows: Rows = []
        for key, label in SETS.items() if found else ():
            coverage = mean(run[key]["coverage"]["test"] for run in found)
            row: dict[str, Entry] = {"sets": label, "coverage": coverage}
            for data in found[0][key]["size"]:
                row[f"size, {data}"] = mean(run[key]["size"][data] for run in found)
            rows.append(row)
        tables += [Table(rows, caption, places=3)] if rows else []
    return tables


def converted(files: Files) -> list[Table]:
    """Build the table of a fine-tuned network that was converted to an interval network."""
    rows: Rows = []
    for form in files.get("converted", {}).get("rows", []):
        for kind in ("running", "batch"):
            found = form[kind]
            row: dict[str, Entry] = {"radii": form["radii"], "trained": form["trained"]}
            row |= {
                "statistics": kind,
                "accuracy": found["accuracy"],
                "AUARC TU": found["auarc"]["total"],
                "mean width": found["width"],
                "AUROC EU, SVHN": found["auroc"]["epistemic"],
                "AUROC TU, SVHN": found["auroc"]["total"],
            }
            rows.append(row)
    return [Table(rows, places=3)] if rows else []


def terms(files: Files) -> list[Table]:
    """Build the tables of other terms and of other scales of the distance."""
    tables = []
    networks = {"frozen": "Frozen network, five splits", "small": "Small networks, three"}
    for kind, network in networks.items():
        found = files.get("terms", {}).get(kind, {})
        for name, plural in (("way", "ways"), ("scale", "scales")):
            rows: Rows = [
                {name: value, **means(columns)} for value, columns in found.get(plural, {}).items()
            ]
            tables.append(Table(rows, f"{network}: {plural}.", places=3))
    return [table for table in tables if table.rows]


def paper_network(studies: Mapping[str, Study]) -> list[Table]:
    """Build the table of the network of the paper, with published values beside ours."""
    study = studies.get(PAPER)
    if study is None:
        return []
    published = {
        study.label(method): {
            name: cell.mean
            for name, cell in PUBLISHED["cifar10-svhn"][method.removesuffix("-post-hoc")].items()
        }
        for method in study.methods
        if method.removesuffix("-post-hoc") in PUBLISHED["cifar10-svhn"]
    }
    ours = quality_table(study, ood="svhn", beside_paper=False)
    rows = counted(with_published(ours, published))
    return [Table([{n: row.get(n) for n in PAPER_COLUMNS} for row in rows], spreads=False)]


def scratch(studies: Mapping[str, Study]) -> list[Table]:
    """Build the tables of a ResNet-20: all numbers, and loss and accuracy by epoch."""
    study = studies.get(SCRATCH)
    if study is None:
        return []
    rows: Rows = []
    for method in study.methods:
        trainings = study.trainings(method)
        curves = [training["history"] for training in trainings if training.get("history")]
        of = {"model": study.label(method)}
        rows += [
            {**of, "validation": name, **by_epoch(curves, key)} for name, key in CURVES if curves
        ]
    caption = "Learning curves, means over the runs. The distance is not trained."
    tables = [Table(counted(quality_table(study, ood="svhn"))), Table(rows, caption, places=3)]
    return [table for table in tables if table.rows]


def scratch_statistics(studies: Mapping[str, Study]) -> list[Table]:
    """Build the table of a ResNet-20 with running and with batch statistics."""
    rows = statistics_table(studies[SCRATCH], "svhn") if SCRATCH in studies else []
    return [Table(rows)] if rows else []


def by_epoch(curves: Sequence[Sequence[Mapping[str, Any]]], key: str) -> dict[str, Entry]:
    """Compute the mean over runs for each epoch."""
    lines = zip(*curves, strict=True)
    return {f"epoch {of[0]['epoch']:.0f}": mean(line[key] for line in of) for of in lines}


def scores(
    found: Mapping[str, Any], key: str, runs: str, caption: str = "", only: Collection[str] = ()
) -> list[Table]:
    """Build the table of AUROC by foreign data set and of AUARC, one row per score.

    With ``only``, the table has these scores, and no standard deviations.
    """
    count = len(found.get(runs, []))
    rows: Rows = [
        {"score": score, **numbers(columns, count)}
        for score, columns in found.get(key, {}).items()
        if not only or score in only
    ]
    return [Table(rows, caption, spreads=not only)] if rows else []


def means(columns: Mapping[str, Any]) -> dict[str, Entry]:
    """Return the means of all columns except the value that the model chose."""
    return {name: of["mean"] for name, of in columns.items() if name != "chosen"}


def numbers(
    columns: Mapping[str, Any], runs: int, names: Mapping[str, str] | None = None
) -> dict[str, Entry]:
    """Convert means and deviations of a file to numbers, with other names if given."""
    return {
        (names or {}).get(key, key): Number(of["mean"], of["std"], runs)
        for key, of in columns.items()
    }
