"""Tables and figures of docs/study.md and of results/study/report.md, from recorded experiments.

The inputs are the directory of ``experiments run`` and the files of ``other.py`` that exist. The
outputs are:

- the page, with new text between ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->``;
- two figures;
- ``report.md`` with all other tables;
- ``summary.json`` with the numbers of both, and the commits of the records.

No network is run.

    python -m experiments.study --results results/experiments --page docs/study.md
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from creinn.classifier.methods import find_method, is_ensemble
from creinn.files import write_bytes
from creinn.report.provenance import provenance
from experiments.predictions import GRID, POINTS
from experiments.result_tables import Study, lookup, read_studies
from experiments.store import write_json
from experiments.study import larger_networks as larger
from experiments.study import small_networks as small
from experiments.study.cells import DATA, PAIRS, STUDIES, Table, as_json, render, title
from experiments.study.figures import Curve, Dot, curve_plot, dot_plot, shade
from experiments.study.other import FILES, Files, by_members, read_files
from experiments.study.pages import replace_blocks, report
from experiments.study.small_networks import Studies, name_of, records

FIGURE = ("snn-norm", "bnn-r-norm", "bnn-f-norm", "fsvi-norm", "bnn-l-norm", "creinn", "creinn-d")
FIGURE += ("deep-ensemble-norm", "deep-ensemble-norm-wrapper", "creinn-ensemble")
FIGURE += ("creinn-d-ensemble",)
"""Methods of the figure of AUROC, at most twelve."""

CURVES = ("snn-norm", "deep-ensemble-norm", "creinn", "creinn-d", "creinn-d-ensemble")
USED = {*STUDIES.values(), *small.INTERVALS, *small.NEAR, larger.SCRATCH, larger.PAPER}
LAST_REJECTION = 0.95

Blocks = dict[str, list[Table]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the records, compute all tables, then write all files."""
    options = _parser().parse_args(arguments)
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
    sections = {name: render(tables) for name, tables in others.items()}
    write_bytes(options.to / "report.md", report(sections).encode())
    write_json(options.to / "summary.json", summary)
    write_bytes(options.page, page.encode())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    paths = {
        "results": ("results/experiments", "directory of experiments run"),
        "page": ("docs/study.md", "page with markers, which is rewritten"),
        "figures": ("docs/figures", "directory of ood.svg and rejection.svg"),
        "to": ("results/study", "directory of report.md and summary.json"),
    }
    paths |= {name: (str(path), "used if it exists") for name, path in FILES.items()}
    for name, (default, text) in paths.items():
        parser.add_argument(
            f"--{name}", type=Path, default=Path(default), help=f"{text} (default: {default})"
        )
    return parser


def page_blocks(studies: Studies, files: Files) -> Blocks:
    """Tables of the page by the name of their block."""
    return {
        "opening": [small.opening(studies)],
        "rejection": [small.rejection(studies)],
        "near": [small.near_summary(studies)],
        "credal": larger.credal_methods(files),
        "finetuned": larger.finetuned_summary(files),
        "conformal": larger.conformal(files),
        "paper": larger.paper_network(studies),
    }


def report_blocks(studies: Studies, files: Files) -> Blocks:
    """Tables of the report by the name of their section."""
    blocks: Blocks = {"differences": [small.differences(studies)]}
    blocks |= {data: small.qualities(studies, data) for data in DATA}
    blocks |= {
        "statistics": [small.batch_statistics(studies)],
        "ensembles": [small.ensembles(studies)],
        "members": by_members(files),
        "intervals": small.intervals(studies),
        "frozen": larger.pretrained(files),
        "lungs": larger.lungs(files),
        "fine-tuned": larger.finetuned(files),
        "quality": larger.quality(files),
        "terms": larger.terms(files),
        "unknown": small.near(studies),
        "resnet20": larger.scratch(studies),
        "scratch-statistics": larger.scratch_statistics(studies),
        "converted": larger.converted(files),
    }
    return blocks | {f"{data}-cost": [small.cost(studies, data)] for data in DATA}


def rejection_curves(studies: Studies) -> dict[str, dict[str, Any]]:
    """Accuracy after rejection by TU, mean over runs, by data set and method."""
    curves: dict[str, dict[str, Any]] = {}
    at = ("metrics", "running", "sets", POINTS, "curves", "total")
    for data in DATA:
        for method in CURVES:
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
    """Draw accuracy-rejection curves; those of ensembles are dashed."""
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
    return curve_plot(panels, "rejected, by decreasing TU", "accuracy of the other images")


def draw_dots(studies: Studies) -> str:
    """Draw the AUROC by EU and by TU, one panel per pair of data sets."""
    panels: dict[str, dict[str, Dot]] = {}
    colors: dict[str, str] = {}
    for method in sorted(FIGURE, key=lambda name: find_method(name).is_credal):
        for data, ood in PAIRS:
            found = records(studies, data, method)
            eu, tu = (small.number(found, *small.auroc(ood, key)) for key in ("epistemic", "total"))
            if tu is not None:
                name = name_of(studies, data, method)
                colors.setdefault(name, shade(method))
                dot = Dot(None if eu is None or small.is_snn(method) else eu.mean, tu.mean)
                panels.setdefault(title(data, ood), {})[name] = dot
    panels = {title(*pair): panels[title(*pair)] for pair in PAIRS if title(*pair) in panels}
    return dot_plot(panels, colors, "by epistemic uncertainty", "by total uncertainty", "AUROC")


def rests_on(study: Study) -> dict[str, Any]:
    """Count the records of an experiment by commit, and the missing records."""
    found = {
        id(r): r["commit"]
        for entry in study.entries
        for r in (entry.record, entry.training)
        if r is not None
    }
    commits = Counter(str(commit) for commit in found.values())
    return {"commits": dict(commits), "missing": study.missing}


if __name__ == "__main__":
    sys.exit(main())
