"""Report of a directory of results as ``report.md`` and ``report.html``.

They contain the results that are recorded so far.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
import yaml
from markupsafe import Markup

from creinn.classifier.methods import TIMES, is_deep, is_ensemble
from creinn.credal.credal_set import CredalSet
from creinn.credal.probability import interval_softmax
from creinn.evaluation import AccuracyRejection
from creinn.evaluation.summary import MEASURES
from creinn.files import write_bytes
from creinn.numerics import pluralize
from creinn.report.figures import (
    coarsen,
    figure,
    heat_map,
    rejection_curves,
    simplex,
    training_curves,
)
from creinn.report.page import Part, Section, Side, image_grid, interval_bars, write_page
from creinn.report.tables import MeanStd, html_table, markdown_table
from creinn.report.theme import FAINT, color
from experiments import result_tables as tables
from experiments.agreement import agreement, comparison_table
from experiments.catalogue import EXPERIMENTS
from experiments.definition import Shift
from experiments.predictions import GRID, POINTS, decode_image
from experiments.preparation import shifted
from experiments.result_tables import Record, Study, lookup, read_studies, sets_of, spread

TITLE = "CreINN experiments"
_TEXTS: dict[str, str] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
)

Block: TypeAlias = (
    "tuple[str, Part | list[Any]]"  # heading or "", and a text or the rows of a table
)


def write_report(directory: str | Path) -> list[Path]:
    """Write the report beside the results.

    Raises:
        ValueError: If there are no results, or a record is damaged.
        OSError: If a file cannot be written.
    """
    directory = Path(directory)
    text, sections = [f"# {TITLE}\n", f"{_TEXTS['lead']}\n"], []
    for study in read_studies(directory):
        blocks = list(_blocks(study))
        text += [f"## {study.name}: {study.settings['title']}\n", *map(_markdown, blocks)]
        sections.append(Section(study.name, [part for block in blocks for part in _parts(block)]))
    given = interval_softmax(
        torch.tensor([0.0, -1.0, 1.0]).double(), torch.tensor([1.0, 0.0, 3.0]).double()
    )
    example = [_TEXTS["example"], simplex(CredalSet(*given), ["A", "B", "D"], given)]
    sections.append(Section("A credal set, by the paper's example", example))
    markdown = directory / "report.md"
    write_bytes(markdown, "\n".join(filter(None, text)).encode("utf-8"))
    return [markdown, write_page(directory / "report.html", TITLE, sections, _TEXTS["lead"])]


def _markdown(block: Block) -> str:
    """Return tables and text as Markdown, without figures."""
    heading, content = block
    title = f"### {heading}\n\n" if heading else ""
    if isinstance(content, list):
        return f"{title}{markdown_table(content, tables.digits(content))}\n"
    if isinstance(content, str) and not isinstance(content, Markup):
        return f"{title}{content}\n"
    return ""


def _parts(block: Block) -> list[Part]:
    heading, content = block
    title = [Markup("<h3>{}</h3>").format(heading)] if heading else []
    return [
        *title,
        html_table(content, tables.digits(content)) if isinstance(content, list) else content,
    ]


def _blocks(study: Study) -> Iterator[Block]:
    yield "", _setting(study)
    if record := next((entry.record for entry in study.entries if entry.kind == "time"), None):
        yield "Inference time", tables.time_table(record, study.methods)
        yield "", _TEXTS["time"].format(**record)
    for condition in study.conditions:
        sets = {
            name for method in study.methods for name in sets_of(study.records(method, condition))
        }
        if sets:
            yield from (
                _point_blocks(study, condition)
                if POINTS in sets
                else _interval_blocks(study, condition, sets)
            )
            yield from _network_blocks(study, condition)
    for measure in ("loss", "accuracy"):
        if curves := tables.curve_table(study, f"val_{measure}"):
            yield f"Learning curves: {measure} on validation images", curves
    if budget := tables.budget_table(study):
        yield "Budget", budget
        yield "", _TEXTS["budget"]


def _setting(study: Study) -> str:
    settings, training = study.settings, study.settings["training"]
    shapes = study.manifest["images"].items()
    images = "; ".join(
        f"{name}: {shape[0]} of {TIMES.join(map(str, shape[1:]))}" for name, shape in shapes
    )
    wanted = {m: settings["deep_members" if is_deep(m) else "members"] for m in study.methods}
    sizes = {
        m: len(record["members"])
        for m in filter(is_ensemble, study.methods)
        for record in study.records(m)[:1]
    }
    short = [
        f"{study.label(m)} of {size} instead of {wanted[m]}"
        for m, size in sizes.items()
        if size < wanted[m]
    ]
    parts = [
        f"{settings['title']}.",
        f"{settings['network']['builder']} of width {settings['network']['width']}.",
        f"Images: {images}.",
        f"{pluralize(training['epochs'], 'epoch')}, batch {training['batch_size']}."
        if settings["arms"]
        else "",
        f"Ensembles are limited by the number of runs: {', '.join(short)}." if short else "",
        f"{len(study.entries) - study.missing} of {len(study.entries)} tasks are recorded.",
    ]
    return " ".join(filter(None, parts))


def _compares(study: Study) -> bool:
    """Return whether the network is that of the paper, with foreign data."""
    paper = EXPERIMENTS.get(study.settings["paper"] or "")
    same = paper is not None and dataclasses.asdict(paper.network) == study.settings["network"]
    return same and bool(study.settings["ood"])


def _point_blocks(study: Study, condition: str) -> Iterator[Block]:
    outside = [images["name"] for images in study.settings["ood"]] or [None]
    if _compares(study):
        yield "The table of the paper", comparison_table(study, outside[0])
        yield "", _TEXTS["comparison"]
        yield "", agreement(study, outside[0])
    records = [record for method in study.methods for record in study.records(method)]
    for ood in outside:
        rows = tables.quality_table(study, ood, beside_paper=not _compares(study))
        yield f"Quality, OOD set {ood}" if ood else "Quality", rows
        if ood and (
            rate := spread(records, "metrics", "running", "ood", ood, "total", "base_rate")
        ):
            yield "", f"Share of OOD images, the AUPRC of chance: {rate.mean:.4f}."
    for ood in outside:
        if side := tables.statistics_table(study, ood):
            yield "Running and batch statistics" + (f", OOD set {ood}" if ood else ""), side
            yield "", _TEXTS["statistics"]
    curves = {
        m: _curves(study.records(m, condition), POINTS, only_one=m == "snn") for m in study.methods
    }
    if curves := {study.label(m): found for m, found in curves.items() if found}:
        yield "Accuracy-rejection curves", rejection_curves(curves)


def _curves(
    records: Sequence[Record], test_set: str, only_one: bool = False
) -> dict[str, AccuracyRejection]:
    """Compute mean curves; a single distribution has only the first measure."""
    curves = {}
    for key, short in MEASURES.items():
        found = [
            lookup(record, "metrics", "running", "sets", test_set, "curves", key)
            for record in records
        ]
        if found and None not in found and not (only_one and key != "aleatoric"):
            curves[short] = AccuracyRejection(np.array(GRID), np.mean(found, axis=0))
    return curves


def _interval_blocks(study: Study, condition: str, sets: set[str]) -> Iterator[Block]:
    yield (
        f"Trained on {'points' if condition == 'points' else f'intervals of {condition}'}",
        tables.shift_table(study, condition),
    )
    *_, method = sorted(
        (m for m in study.methods if study.records(m, condition)), key=is_ensemble
    )  # prefer an ensemble
    records = study.records(method, condition)
    for kind in ("noise", "brightness"):
        if not any(name.startswith(kind) for name in sets):
            continue
        yield f"A test image under {kind}", _sample_images(study, kind)
        if curves := {
            name: _curves(records, name) for name in sets_of(records) if name.startswith(kind)
        }:
            yield (
                f"Accuracy-rejection curves of {study.label(method)}, {kind}",
                rejection_curves(curves),
            )
        if increases := _increases(study.records("creinn", condition), kind):
            yield f"Relative increase of uncertainty of CreINN, {kind}", increase_chart(increases)


def increase_chart(values: Mapping[str, Mapping[str, MeanStd]]) -> Any:
    """Draw uncertainties under a shift as bars, with standard deviations.

    ``values`` contains the relative uncertainty of each model for each shift.
    """
    drawing = figure(yaxis={"title_text": "uncertainty relative to the base"})
    for number, (model, by_shift) in enumerate(values.items()):
        pairs = list(by_shift.values())
        drawing.add_bar(
            x=list(by_shift),
            y=[pair.mean for pair in pairs],
            name=model,
            hovertemplate="%{x}: %{y:.3f}",
            marker={"color": color(number)},
            error_y={
                "array": [pair.std or 0.0 for pair in pairs],
                "visible": any(pair.std is not None for pair in pairs),
                "thickness": 1,
                "color": FAINT,
            },
        )
    note = {"annotation_text": "no change", "annotation_position": "top left"}
    return drawing.add_hline(y=1.0, line={"color": FAINT, "dash": "dot"}, **note)


def _sample_images(study: Study, kind: Any) -> Markup:
    """Return a test image at both ends of each shift."""
    x = torch.tensor(decode_image(study.manifest["sample"]))[None] / 255
    shifts = [
        shift
        for condition in study.settings["arms"]
        for shift in condition["tests"]
        if shift and shift["kind"] == kind
    ]
    levels = sorted({shift[end] for shift in shifts for end in ("low", "high")})
    pictures = [shifted(x, Shift(kind, level, level)).lower[0] for level in levels]
    letter = {"noise": "μ", "brightness": "β"}[kind]
    return image_grid(pictures, [f"{letter} = {level:g}" for level in levels])


def _increases(records: Sequence[Record], kind: str) -> dict[str, Any]:
    """Compute the relative increase of each uncertainty."""
    values: dict[str, Any] = {}
    for name in (name for name in sets_of(records) if name.startswith(kind)):
        for key, short in MEASURES.items():
            if found := spread(
                records, "metrics", "running", "sets", name, "increase", key, "mean"
            ):
                values.setdefault(short, {})[name] = found
    return values


def _network_blocks(study: Study, condition: str) -> Iterator[Block]:
    """Return training curves, and radii and predictions of the first CreINN."""
    where = "" if condition == "points" else f", trained on intervals of {condition}"
    histories = {}
    for method in dict.fromkeys(
        entry.method for entry in study.entries if entry.kind == "evaluate"
    ):
        if runs := [
            record["history"] for record in study.trainings(method, condition) if record["history"]
        ]:
            histories[study.label(method)] = mean_history(runs)
    if histories:
        yield f"Training{where}", training_curves(histories)
    if radii := next(
        (r["radii"] for r in study.trainings("creinn", condition) if r.get("radii")), None
    ):
        yield (
            f"Learned radii{where}",
            _TEXTS["radii"].format(**{**radii, "shape": tuple(radii["shape"])}),
        )
        yield "", heat_map(radii["matrix"], x_title="column", y_title="row")
    if examples := next(
        (r["examples"] for r in study.records("creinn", condition) if "examples" in r), None
    ):
        yield from _examples(
            f"Predictions of one CreINN{where}", examples, study.manifest["classes"]
        )


def mean_history(
    runs: Sequence[Sequence[Mapping[str, float | None]]],
) -> list[dict[str, float | None]]:
    """Compute the mean over runs for each epoch of all runs."""
    rows = []
    for same in zip(*runs, strict=False):
        columns = {name: [row[name] for row in same] for name in same[0]}
        rows.append(
            {
                name: None if None in values else float(np.mean(values))
                for name, values in columns.items()
            }
        )
    return rows


def _examples(
    heading: str, examples: Sequence[Mapping[str, Any]], classes: Sequence[str]
) -> Iterator[Block]:
    bars, drawings = [], []
    for example in examples:
        lower, upper = (
            torch.tensor(example[bound], dtype=torch.float64) for bound in ("lower", "upper")
        )
        found = CredalSet(lower, upper)
        bars.append(interval_bars(found.lower, found.upper, found.intersection, classes))
        if len(classes) > 2:
            first, second = found.intersection.argsort(descending=True)[:2].tolist()
            drawings.append(
                simplex(
                    coarsen(found, first, second), [classes[first], classes[second], "all others"]
                )
            )
    captions = [f"{example['what']}; true class {example['label']}" for example in examples]
    yield (
        heading,
        image_grid([decode_image(example["image"]) for example in examples], captions, bars),
    )
    if drawings:
        yield "", Side(drawings)
