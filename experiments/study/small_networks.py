"""Tables of the study on small networks, from recorded experiments.

Methods without records have no row.
"""

import statistics
from collections.abc import Mapping, Sequence

from creinn.classifier.methods import METHODS, base_method
from experiments.predictions import POINTS
from experiments.result_tables import Record, Study, lookup, quality_table, sets_of
from experiments.study.cells import DATA, PAIRS, STUDIES, Entry, Number, Rows, Table, counted, title

PAGE = {
    "snn-norm": "plain network, entropy",
    "deep-ensemble-norm": "Deep Ensembles",
    "deep-ensemble-norm-wrapper": "Deep Ensembles, credal wrapper",
    "creinn": "CreINN, the paper's form",
    "creinn-ensemble": "CreINN, ensemble",
    "creinn-d": "CreINN-D",
    "creinn-d-ensemble": "CreINN-D, ensemble",
}
"""Methods of the tables of the page, with the names they have there."""

SHORT = {
    "fashion-mnist": "Fashion",
    "cifar10": "CIFAR",
    "chest-xray": "X-ray",
    "mnist": "MNIST",
    "svhn": "SVHN",
}
NEAR = {"near-fashion-mnist": "Fashion-MNIST", "near-cifar10": "CIFAR-10"}
STATISTICS: tuple[str, ...] = ("snn", "snn-norm", "deep-ensemble", "deep-ensemble-norm")
STATISTICS += ("creinn", "creinn-ensemble", "creinn-d", "creinn-d-ensemble")
COMBINED = ("creinn", "creinn-scaled-bounds", "creinn-d")
INTERVALS = {
    "points-to-intervals-cifar10-small": "Trained on points. The intervals of the test images "
    "become wider from row to row.",
    "interval-cifar10-small": "Trained on the first interval of each kind. The shift of the test "
    "images becomes stronger from row to row.",
}

ACCURACY = ("metrics", "running", "sets", POINTS, "accuracy")
AUARC = ("metrics", "running", "sets", POINTS, "auarc", "total")

Studies = Mapping[str, Study]


def opening(studies: Studies) -> Table:
    """Build the table of the AUROC of detecting foreign images."""
    rows: Rows = []
    for method, name in PAGE.items():
        found = {data: records(studies, data, method) for data in DATA}
        recorded = [record for of in found.values() for record in of]
        if not recorded:
            continue
        key = "total" if is_snn(method) else "epistemic"
        row: dict[str, Entry] = {"model": name, "networks": members(recorded[0])}
        for data, ood in PAIRS:
            row[f"{SHORT[data]} → {SHORT[ood]}"] = number(found[data], *auroc(ood, key))
        rows.append({**row, "accuracy %": number(found["cifar10"], *ACCURACY, factor=100)})
    return Table(rows, spreads=False)


def rejection(studies: Studies) -> Table:
    """Build the table of accuracy and of AUARC by TU."""
    rows: Rows = []
    for method, name in PAGE.items():
        found = {data: records(studies, data, method) for data in DATA}
        if any(found.values()):
            row: dict[str, Entry] = {"model": name}
            for data in DATA:
                row[f"accuracy %, {SHORT[data]}"] = number(found[data], *ACCURACY, factor=100)
            for data in DATA:
                row[f"AUARC, {SHORT[data]}"] = number(found[data], *AUARC)
            rows.append(row)
    return Table(rows, spreads=False)


def near_summary(studies: Studies) -> Table:
    """Build the table of the AUROC of detecting unknown classes."""
    rows: Rows = []
    for method, name in PAGE.items():
        row: dict[str, Entry] = {}
        for experiment, data in NEAR.items():
            if experiment in studies and (found := studies[experiment].records(method)):
                ood = studies[experiment].settings["ood"][0]["name"]
                key = "total" if is_snn(method) else "epistemic"
                row |= {"model": name, "networks": members(found[0])}
                row[data] = number(found, *auroc(ood, key))
        rows += [row] if row else []
    return Table(rows, spreads=False)


def differences(studies: Studies) -> Table:
    """Build the table of differences to the ordinary network and to Deep Ensembles."""
    rows: Rows = []

    def add(what: str, found: Number | None) -> None:
        if found is not None:
            rows.append({"comparison": what, "difference": found, "runs": found.runs})

    for what, path in (("accuracy", ACCURACY), ("AUARC (TU)", AUARC)):
        for data in DATA:
            pairs = paired(studies, data, "creinn-d", "snn-norm", path)
            found = Number.of([own - other for own, other in pairs])
            add(f"CreINN-D less SNN, logit norm, run by run: {what}, {DATA[data]}", found)
    ensembles = ("creinn-d-ensemble", "deep-ensemble-norm")
    versus = {
        data: " less ".join(name_of(studies, data, method) for method in ensembles) for data in DATA
    }
    for key, short in (("epistemic", "EU"), ("total", "TU")):
        for data, ood in PAIRS:
            found = difference(studies, data, *ensembles, auroc(ood, key))
            add(f"{versus[data]}: AUROC by {short}, {title(data, ood)}", found)
    for data in DATA:
        found = difference(studies, data, *ensembles, AUARC)
        add(f"{versus[data]}: AUARC (TU), {DATA[data]}", found)
    return Table(rows, places=4)


def qualities(studies: Studies, data: str) -> list[Table]:
    """Build the tables of all methods of a study, and one per foreign data set."""
    if STUDIES[data] not in studies:
        return []
    study = studies[STUDIES[data]]
    tables = [Table(counted(quality_table(study)), "Accuracy, and AUARC by each uncertainty.")]
    for ood in [of for on, of in PAIRS if on == data]:
        rows = [
            {
                name: cell
                for name, cell in row.items()
                if name in ("model", "runs") or name.startswith(("AUROC", "AUPRC"))
            }
            for row in counted(quality_table(study, ood=ood))
        ]
        tables.append(Table(rows, f"{title(data, ood)}."))
    return [table for table in tables if table.rows]


def cost(studies: Studies, data: str) -> Table:
    """Build the table of parameters and times relative to the SNN.

    The time of an ensemble is the sum of the times of its members.
    """
    study = studies.get(STUDIES[data])
    base = next(
        (
            name
            for name in ("snn", "snn-norm")
            if study and study.trainings(name) and study.records(name)
        ),
        None,
    )
    if study is None or base is None:
        return Table([])
    of_base = _costs(study, base, 1)
    rows: Rows = []
    for method in study.methods:
        single, recorded = base_method(method), study.records(method)
        if not recorded or not study.trainings(single):
            continue
        found = _costs(study, single, members(recorded[0]))
        ratios = {name: found[name] / of_base[name] for name in found}
        rows.append({"model": study.label(method), "runs": len(study.trainings(single)), **ratios})
    caption = (
        f"{study.label(base)} = 1. Medians over the runs of one network, times the number of "
        f"networks. Other work ran at the same time, so times show the order of magnitude only."
    )
    return Table(rows, caption, places=2)


def batch_statistics(studies: Studies) -> Table:
    """Build the table of AUROC by TU with running and with batch statistics."""
    rows: Rows = []
    for data, ood in PAIRS:
        for method in STATISTICS:
            found = records(studies, data, method)
            running, batch = (
                number(found, *auroc(ood, "total", kind)) for kind in ("running", "batch")
            )
            if running is None or batch is None:
                continue
            row: dict[str, Entry] = {
                "pair": title(data, ood),
                "model": name_of(studies, data, method),
            }
            row |= {
                "runs": len(found),
                "running statistics": running,
                "test-batch statistics": batch,
            }
            rows.append(row | {"difference": batch.mean - running.mean})
    return Table(rows)


def ensembles(studies: Studies) -> Table:
    """Build the table of averaged credal sets and of their envelopes."""
    rows: Rows = []
    for data, ood in PAIRS:
        for base in COMBINED:
            found = {
                kind: records(studies, data, f"{base}-{kind}") for kind in ("ensemble", "envelope")
            }
            if not any(found.values()):
                continue
            first = next(kind for kind in found if found[kind])
            name = name_of(studies, data, f"{base}-{first}").removesuffix(", envelope")
            row: dict[str, Entry] = {"pair": title(data, ood), "model": name}
            row["runs"] = " / ".join(str(len(recorded)) for recorded in found.values())
            for what, path in (("AUROC EU", auroc(ood, "epistemic")), ("AUARC TU", AUARC)):
                row[f"{what}, average"] = number(found["ensemble"], *path)
                row[f"{what}, envelope"] = number(found["envelope"], *path)
            rows.append(row)
    return Table(rows)


def intervals(studies: Studies) -> list[Table]:
    """Build the tables of the uncertainty of the paper's form on interval images."""
    tables = []
    for experiment, caption in INTERVALS.items():
        rows: Rows = []
        study = studies.get(experiment)
        for condition in study.conditions if study else []:
            found = study.records("creinn", condition) if study else []
            for name in sets_of(found):
                row: dict[str, Entry] = {
                    "trained on": condition,
                    "test images": name,
                    "runs": len(found),
                }
                for key, short in (("epistemic", "EU"), ("total", "TU")):
                    row[f"mean {short}"] = number(
                        found, "metrics", "running", "sets", name, "means", key
                    )
                rows.append(row)
        if rows:
            tables.append(Table(rows, caption))
    return tables


def near(studies: Studies) -> list[Table]:
    """Build the tables of the experiments with classes left out of training."""
    tables = []
    for name, data in NEAR.items():
        if name in studies:
            ood = studies[name].settings["ood"][0]["name"]
            rows = counted(quality_table(studies[name], ood=ood))
            tables.append(Table(rows, f"{data}, two classes left out."))
    return [table for table in tables if table.rows]


def records(studies: Studies, data: str, method: str) -> list[Record]:
    """Return the records of a method in the study of a data set."""
    return studies[STUDIES[data]].records(method) if STUDIES[data] in studies else []


def number(found: Sequence[Record], *path: str, factor: float = 1) -> Number | None:
    """Compute the number at ``path`` over the records that have it."""
    return Number.of(
        [value for record in found if (value := lookup(record, *path)) is not None], factor
    )


def paired(
    studies: Studies, data: str, own: str, other: str, path: Sequence[str]
) -> list[tuple[float, float]]:
    """Return the values of two methods from runs with the same number."""
    by_number = [
        {record["number"]: lookup(record, *path) for record in records(studies, data, m)}
        for m in (own, other)
    ]
    mine, theirs = by_number
    pairs = [(mine[run], theirs.get(run)) for run in sorted(mine)]
    return [(first, second) for first, second in pairs if first is not None and second is not None]


def difference(
    studies: Studies, data: str, own: str, other: str, path: Sequence[str]
) -> Number | None:
    """Compute the difference of two means, with the smaller number of runs."""
    mine, theirs = (number(records(studies, data, method), *path) for method in (own, other))
    return (
        Number(mine.mean - theirs.mean, None, min(mine.runs, theirs.runs))
        if mine and theirs
        else None
    )


def name_of(studies: Studies, data: str, method: str) -> str:
    """Return the name of a method in tables."""
    return studies[STUDIES[data]].label(method) if STUDIES[data] in studies else method


def members(record: Record) -> int:
    """Return the number of networks of a record."""
    return len(record["members"]) if "members" in record else 1


def is_snn(method: str) -> bool:
    """Whether a method predicts one distribution, which has no epistemic uncertainty."""
    return method in METHODS and METHODS[method].kind == "snn"


def auroc(ood: str, key: str, kind: str = "running") -> tuple[str, ...]:
    """Return the path to the AUROC of a foreign data set in a record."""
    return ("metrics", kind, "ood", ood, key, "auroc")


def _costs(study: Study, single: str, networks: int) -> dict[str, float]:
    trainings = study.trainings(single)
    return {
        "parameters": networks * float(trainings[0]["parameters"]),
        "training time": networks
        * statistics.median(training["seconds"] for training in trainings),
        "prediction time": networks
        * statistics.median(r["milliseconds_per_image"] for r in study.records(single)),
    }
