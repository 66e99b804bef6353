"""The tables and figures of docs/study.md from recorded experiments, so that no number there is typed by hand.

In: the folder of `experiments run`, and the files of other.py that are there. Out: the page with all that
stands between `<!-- begin: NAME -->` and `<!-- end: NAME -->` rewritten, two figures, report.md with all other tables,
and summary.json: the numbers of both, and the commits of the records they rest on. Rows without records are left out.
No network is run.

    python -m experiments.study --results results/experiments --page docs/study.md
"""

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from creinn.classifier.methods import METHODS, TIMES, base_method, find_method, is_ensemble
from creinn.files import write_bytes
from creinn.report.provenance import provenance
from experiments.predictions import GRID, POINTS
from experiments.result_tables import Record, Study, lookup, quality_table, read_studies, sets_of
from experiments.store import write_json
from experiments.study.cells import (
    DATA,
    PAIRS,
    STUDIES,
    Entry,
    Number,
    Rows,
    Table,
    as_json,
    counted,
    foreign,
    render,
    title,
)
from experiments.study.figures import Curve, Dot, curve_plot, dot_plot, shade
from experiments.study.other import FILES, Files, by_members, read_files
from experiments.study.pages import replace_blocks, report
from experiments.study.second import (
    NEAR,
    SCRATCH,
    conformal,
    converted,
    finetuned,
    lungs,
    near,
    pretrained,
    quality,
    scratch,
    scratch_statistics,
    terms,
)

OPENING = {
    "snn-norm": "SNN, logit norm (by entropy, TU)",
    "deep-ensemble-norm": "Deep Ensembles ({}), logit norm",
    "creinn": "CreINN (paper's form)",
    "creinn-ensemble": f"CreINN {TIMES}{{}}",
    "creinn-d": "CreINN-D, one network",
    "creinn-d-ensemble": f"CreINN-D {TIMES}{{}}",
    "creinn-d-deep": f"CreINN-D {TIMES}{{}}",
}
MAIN = ("snn-norm", "bnn-f-norm", "fsvi-norm", "bnn-l-norm", "creinn", "creinn-d")
MAIN += ("deep-ensemble-norm", "deep-ensemble-norm-wrapper", "creinn-d-ensemble")
STATISTICS: tuple[str, ...] = ("snn", "snn-norm", "deep-ensemble", "deep-ensemble-norm")
STATISTICS += ("creinn", "creinn-ensemble", "creinn-d", "creinn-d-ensemble")
COMBINED = ("creinn", "creinn-scaled-bounds", "creinn-d")
CURVES = ("snn-norm", "deep-ensemble-norm", "creinn", "creinn-d", "creinn-d-ensemble")
INTERVALS = {
    "points-to-intervals-cifar10-small": "Trained on points; intervals of test images become wider from row to row.",
    "interval-cifar10-small": "Trained on the first interval of each kind; the shift of test images becomes stronger "
    "from row to row, their intervals not always wider.",
}
USED = {*STUDIES.values(), *INTERVALS, *NEAR, SCRATCH}
LAST_REJECTION = 0.95

ACCURACY = ("metrics", "running", "sets", POINTS, "accuracy")
AUARC = ("metrics", "running", "sets", POINTS, "auarc", "total")

Studies = Mapping[str, Study]
Blocks = dict[str, list[Table]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, compute, then write: figures and summary, at last the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--results", type=Path, default=Path("results/experiments"), help="of experiments run"
    )
    parser.add_argument(
        "--page", type=Path, default=Path("docs/study.md"), help="page with markers, rewritten"
    )
    parser.add_argument(
        "--figures",
        type=Path,
        default=Path("docs/figures"),
        help="folder of ood.svg and rejection.svg",
    )
    parser.add_argument(
        "--to",
        type=Path,
        default=Path("results/study"),
        help="folder of report.md and summary.json",
    )
    for name, path in FILES.items():
        parser.add_argument(
            f"--{name}",
            type=Path,
            default=path,
            help=f"used if it is there; {path} unless told otherwise",
        )
    options = parser.parse_args(arguments)
    try:
        studies = {study.name: study for study in read_studies(options.results)}
        files = read_files({name: getattr(options, name) for name in FILES})
        shown, others = page_blocks(studies, files), report_blocks(studies, files)
        page = replace_blocks(
            options.page.read_text(encoding="utf-8"), {k: render(v) for k, v in shown.items()}
        )
        curves = rejection_curves(studies)
        figures = {"ood": draw_dots(studies), "rejection": draw_curves(curves)}
    except (ValueError, OSError) as error:
        print(f"Nothing was written. {error}", file=sys.stderr)
        return 1
    command = f"python -m experiments.study --results {options.results} --page {options.page}"
    summary = {
        **provenance(command),
        "records": {name: rests_on(study) for name, study in studies.items() if name in USED},
        **{
            name: {key: found.get(key) for key in ("commit", "command")}
            for name, found in files.items()
        },
        "tables": {
            name: [as_json(table) for table in tables] for name, tables in (shown | others).items()
        },
        "curves": curves,
    }
    for name, picture in figures.items():
        write_bytes(options.figures / f"{name}.svg", picture.encode())
    write_bytes(
        options.to / "report.md",
        report({name: render(tables) for name, tables in others.items()}).encode(),
    )
    write_json(options.to / "summary.json", summary)
    write_bytes(options.page, page.encode())
    return 0


def page_blocks(studies: Studies, files: Files) -> Blocks:
    """Every block of the page by name."""
    blocks = {
        "opening": [opening(studies)],
        "differences": [differences(studies)],
        "main": main_rows(studies),
    }
    blocks |= {
        "pretrained": pretrained(files),
        "finetuned": finetuned(files),
        "conformal": conformal(files),
    }
    return blocks | {"scratch": scratch(studies), "converted": converted(files)}


def report_blocks(studies: Studies, files: Files) -> Blocks:
    """Every table of the report by the name of its section."""
    blocks: Blocks = {data: qualities(studies, data) for data in DATA}
    blocks |= {"statistics": [batch_statistics(studies)], "ensembles": [ensembles(studies)]}
    blocks |= {
        "members": by_members(files),
        "intervals": intervals(studies),
    }
    blocks |= {
        "lungs": lungs(files),
        "quality": quality(files),
        "terms": terms(files),
        "near": near(studies),
    }
    blocks |= {"scratch-statistics": scratch_statistics(studies)}
    return blocks | {f"{data}-cost": [cost(studies, data)] for data in DATA}


def opening(studies: Studies) -> Table:
    """One row per method: networks, AUROC by EU (by TU for one distribution) on every pair, accuracy."""
    rows: Rows = []
    for method, name in OPENING.items():
        found = {data: records(studies, data, method) for data in DATA}
        if not any(found.values()):
            continue
        sizes = sorted({members(record) for recorded in found.values() for record in recorded})
        networks = "/".join(map(str, sizes))
        row: dict[str, Entry] = {
            "model": name.format(networks),
            "networks": sizes[0] if len(sizes) == 1 else networks,
        }
        key = "total" if is_snn(method) else "epistemic"
        row |= {
            f"AUROC {title(*pair)}": number(found[pair[0]], *auroc(pair[1], key)) for pair in PAIRS
        }
        row |= {
            f"accuracy %, {DATA[data]}": number(found[data], *ACCURACY, factor=100) for data in DATA
        }
        row["runs"] = " / ".join(str(len(recorded)) for recorded in found.values())
        rows.append(row)
    return Table(rows, spreads=False)


def differences(studies: Studies) -> Table:
    """CreINN-D less its ordinary network, run by run, and its ensembles less Deep Ensembles."""
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


def main_rows(studies: Studies) -> list[Table]:
    """A table per data set: accuracy, AUARC by TU, and AUROC of every OOD set, of the methods one would choose from."""
    tables = []
    for data in DATA:
        rows: Rows = []
        for method in MAIN:
            found = records(studies, data, method)
            row: dict[str, Entry] = {"model": name_of(studies, data, method), "runs": len(found)}
            row |= {
                "accuracy %": number(found, *ACCURACY, factor=100),
                "AUARC TU": number(found, *AUARC),
            }
            for ood in [of for on, of in PAIRS if on == data]:
                for key, short in (("epistemic", "EU"), ("total", "TU")):
                    has = key == "total" or not is_snn(method)
                    row[f"AUROC {short}, {foreign(data, ood)}"] = (
                        number(found, *auroc(ood, key)) if has else None
                    )
            rows += [row] if found else []
        tables.append(Table(rows, f"{DATA[data]}:"))
    return tables


def qualities(studies: Studies, data: str) -> list[Table]:
    """Accuracy and AUARC of all methods of a study, and a table per OOD set."""
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
    """Parameters and times relative to the SNN; times of an ensemble are those of its members one after the other."""
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
        f"{study.label(base)} = 1; medians over the runs of one network, times the number of networks. Times were "
        f"taken with other work beside, and tell no more than the order of magnitude."
    )
    return Table(rows, caption, places=2)


def batch_statistics(studies: Studies) -> Table:
    """AUROC by TU with running statistics and with those of the test batch."""
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
    """AUROC by EU and AUARC by TU of averaged and of enveloped credal sets."""
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
    """Mean uncertainty of the paper's form on interval images."""
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


def rejection_curves(studies: Studies) -> dict[str, dict[str, Any]]:
    """Accuracy of the kept by TU, mean over runs, by data set and method."""
    curves: dict[str, dict[str, Any]] = {}
    for data in DATA:
        for method in CURVES:
            at = ("metrics", "running", "sets", POINTS, "curves", "total")
            found = [
                curve
                for record in records(studies, data, method)
                if (curve := lookup(record, *at)) is not None
            ]
            if found:
                mean = np.mean(found, axis=0)[: sum(rate <= LAST_REJECTION for rate in GRID)]
                entry = {
                    "label": name_of(studies, data, method),
                    "runs": len(found),
                    "accuracy": mean.round(6).tolist(),
                }
                curves.setdefault(data, {})[method] = entry
    return curves


def draw_curves(curves: Mapping[str, Mapping[str, Any]]) -> str:
    """Accuracy-rejection curves; ensembles are dashed."""
    panels = {
        DATA[data]: [
            Curve(
                entry["label"],
                shade(method),
                is_ensemble(method),
                GRID[: len(entry["accuracy"])],
                entry["accuracy"],
            )
            for method, entry in found.items()
        ]
        for data, found in curves.items()
    }
    return curve_plot(panels, "rejected, the most uncertain by TU first", "accuracy of the kept")


def draw_dots(studies: Studies) -> str:
    """AUROC by EU and by TU of every method that is recorded, a panel per pair."""
    panels: dict[str, dict[str, Dot]] = {}
    colors: dict[str, str] = {}
    order = list(
        dict.fromkeys(
            m for name in STUDIES.values() if name in studies for m in studies[name].methods
        )
    )
    for method in sorted(order, key=lambda name: find_method(name).is_credal):
        for data, ood in PAIRS:
            found = records(studies, data, method)
            eu, tu = (number(found, *auroc(ood, key)) for key in ("epistemic", "total"))
            if tu is not None:
                name = name_of(studies, data, method)
                colors.setdefault(name, shade(method))
                dot = Dot(None if eu is None or is_snn(method) else eu.mean, tu.mean)
                panels.setdefault(title(data, ood), {})[name] = dot
    panels = {title(*pair): panels[title(*pair)] for pair in PAIRS if title(*pair) in panels}
    return dot_plot(panels, colors, "by epistemic uncertainty", "by total uncertainty", "AUROC")


def rests_on(study: Study) -> dict[str, Any]:
    """Commits of the records of an experiment with the number of records of each, and how many are missing."""
    found = {
        id(r): r["commit"]
        for entry in study.entries
        for r in (entry.record, entry.training)
        if r is not None
    }
    return {
        "commits": dict(Counter(str(commit) for commit in found.values())),
        "missing": study.missing,
    }


def records(studies: Studies, data: str, method: str) -> list[Record]:
    """Records of a method in the study of a data set."""
    return studies[STUDIES[data]].records(method) if STUDIES[data] in studies else []


def number(found: Sequence[Record], *path: str, factor: float = 1) -> Number | None:
    """The number at ``path`` over records that have it."""
    return Number.of(
        [value for record in found if (value := lookup(record, *path)) is not None], factor
    )


def paired(
    studies: Studies, data: str, own: str, other: str, path: Sequence[str]
) -> list[tuple[float, float]]:
    """Values of two single methods from runs of the same number."""
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
    """Difference of two means, without a deviation; the runs are those of the method that has fewer."""
    mine, theirs = (number(records(studies, data, method), *path) for method in (own, other))
    return (
        Number(mine.mean - theirs.mean, None, min(mine.runs, theirs.runs))
        if mine and theirs
        else None
    )


def name_of(studies: Studies, data: str, method: str) -> str:
    """A method as tables name it."""
    return studies[STUDIES[data]].label(method) if STUDIES[data] in studies else method


def members(record: Record) -> int:
    """Networks of a record."""
    return len(record["members"]) if "members" in record else 1


def is_snn(method: str) -> bool:
    """Whether a method predicts one distribution, which has no epistemic uncertainty."""
    return method in METHODS and METHODS[method].kind == "snn"


def auroc(ood: str, key: str, kind: str = "running") -> tuple[str, ...]:
    """Where the AUROC of an OOD set stands in a record."""
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


if __name__ == "__main__":
    sys.exit(main())
