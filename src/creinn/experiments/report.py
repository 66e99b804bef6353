"""The report of a folder of results: ``report.md`` with the tables, ``report.html`` with tables and figures.

Both can be written at any time; what is not recorded yet is left out and counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from markupsafe import Markup

from creinn.classifier.methods import TIMES, is_deep, is_ensemble
from creinn.experiments import figures, tables
from creinn.experiments.records import POINTS
from creinn.experiments.study import Record, Study, lookup, read_studies
from creinn.files import write_bytes
from creinn.report.page import Figure, Section, Side, write_page
from creinn.report.tables import Row, html_table, markdown_table

TITLE = "CreINN experiments"
LEAD = (
    "Mean ± standard deviation over runs; AU aleatoric, EU epistemic, TU total uncertainty, in bits; for credal sets "
    "over two classes they are the paper's binary measures, which are probabilities. AUARC is the mean accuracy over "
    "all numbers kept, ties by expectation. Columns marked (paper) hold the published numbers, "
    "which come from ResNet-50 (CIFAR-10) or ResNet-18 (chest X-ray) at full scale; those of small experiments are not "
    "comparable to them in size."
)
EXAMPLE = (
    "Interval logits from (0, -1, 1) to (1, 0, 3), as in the appendix. Dotted: the probability intervals of Interval "
    "SoftMax; dashed: the same made reachable; filled: the credal set; diamond: the intersection probability."
)
STATISTICS_NOTE = (
    "Batch norms use their running statistics everywhere else in this report. The authors' code normalises test data "
    "by the statistics of the test batch instead, so that an out-of-distribution batch normalises itself. Both, side "
    "by side; batches of 32 images in the order of the data."
)
BUDGET_NOTE = (
    "Time of one run; an ensemble's is that of its members together. Times are those of the run itself, with other "
    "work on the machine beside it; inference-time compares side by side."
)


@dataclass(frozen=True)
class Table:
    """Rows of a table."""

    rows: Sequence[Row]


Block: TypeAlias = tuple[str, str | Figure | Side | Table]  # heading, which may be empty, and content


def write_report(directory: str | Path) -> list[Path]:
    """Write the report beside the results.

    Raises:
        ValueError: If there are no results, or a record is damaged.
        OSError: If a file cannot be written.
    """
    directory = Path(directory)
    text, sections = [f"# {TITLE}\n", f"{LEAD}\n"], []
    for study in read_studies(directory):
        blocks = list(_blocks(study))
        text += [f"## {study.name}: {study.settings['title']}\n", *map(_markdown, blocks)]
        sections.append(Section(study.name, [part for block in blocks for part in _parts(block)]))
    sections.append(Section("A credal set, by the paper's example", [EXAMPLE, figures.worked_example()]))
    markdown = directory / "report.md"
    write_bytes(markdown, "\n".join(filter(None, text)).encode("utf-8"))
    return [markdown, write_page(directory / "report.html", TITLE, sections, LEAD)]


def _blocks(study: Study) -> Iterator[Block]:
    """What the report says about an experiment, in the order of the paper."""
    yield "", _setting(study)
    record = study.timing()
    if record is not None:
        yield "Inference time", Table(tables.time_table(record, study.methods))
        yield "", _machine(record)
    for arm in study.arms:
        sets = {name for method in study.methods for name in tables.sets_of(study.records(method, arm))}
        if not sets:
            continue
        where = "" if arm == "points" else f", trained on intervals of {arm}"
        yield from _point_blocks(study, arm) if POINTS in sets else _interval_blocks(study, arm, sets)
        if (curves := figures.training_curves(study, arm)) is not None:
            yield f"Training{where}", curves
        if (radii := figures.radii_map(study, arm)) is not None:
            yield f"Learned radii{where}", radii[0]
            yield "", radii[1]
        if (examples := figures.examples(study, arm)) is not None:
            yield f"Predictions of one CreINN{where}", examples[0]
            if examples[1]:
                yield "", Side(examples[1])
    if budget := tables.budget_table(study):
        yield "Budget", Table(budget)
        yield "", BUDGET_NOTE


def _point_blocks(study: Study, arm: str) -> Iterator[Block]:
    outside = [images["name"] for images in study.settings["ood"]] or [None]
    for ood in outside:
        yield f"Quality, OOD set {ood}" if ood else "Quality", Table(tables.quality_table(study, "running", ood))
        if ood and (rate := _base_rate(study, ood)) is not None:
            yield "", f"Share of OOD images, the AUPRC of chance: {rate:.4f}."
    for ood in outside:
        if side := tables.statistics_table(study, ood):
            yield "Running and batch statistics" + (f", OOD set {ood}" if ood else ""), Table(side)
            yield "", STATISTICS_NOTE
    if (curves := figures.method_curves(study, arm, POINTS)) is not None:
        yield "Accuracy-rejection curves", curves


def _interval_blocks(study: Study, arm: str, sets: set[str]) -> Iterator[Block]:
    yield f"Trained on {'points' if arm == 'points' else f'intervals of {arm}'}", Table(tables.shift_table(study, arm))
    for kind in ("noise", "brightness"):
        if not any(name.startswith(kind) for name in sets):
            continue
        yield f"A test image under {kind}", figures.sample_images(study, kind)
        if (curves := figures.shift_curves(study, arm, kind)) is not None:
            yield f"Accuracy-rejection curves of {curves[0]}, {kind}", curves[1]
        if (increase := figures.increases(study, arm, kind)) is not None:
            yield f"Relative increase of uncertainty of CreINN, {kind}", increase


def _setting(study: Study) -> str:
    settings, training = study.settings, study.settings["training"]
    shapes = study.manifest["images"].items()
    images = "; ".join(f"{name}: {shape[0]} of {TIMES.join(map(str, shape[1:]))}" for name, shape in shapes)
    parts = [
        f"{settings['title']}.",
        f"{settings['network']['builder']} of width {settings['network']['width']}.",
        f"Images: {images}.",
        f"{training['epochs']} epochs, batch {training['batch_size']}." if settings["arms"] else "",
        _small_ensembles(study),
        f"{len(study.entries) - study.missing} of {len(study.entries)} pieces are recorded.",
    ]
    return " ".join(filter(None, parts))


def _small_ensembles(study: Study) -> str:
    """Says so if there are fewer runs than an ensemble should have members."""
    wanted = {m: study.settings["deep_members" if is_deep(m) else "members"] for m in study.methods}
    sizes = {m: len(record["members"]) for m in filter(is_ensemble, study.methods) for record in study.records(m)[:1]}
    short = [f"{study.label(m)} of {size} instead of {wanted[m]}" for m, size in sizes.items() if size < wanted[m]]
    return f"Ensembles are limited by the number of runs: {', '.join(short)}." if short else ""


def _machine(record: Record) -> str:
    return (
        f"Median time of one call, methods taking turns; {record['system']}, {record['threads']} threads, device "
        f"{record['device']}. “label” is the time to the predicted class, “uncertainty” that to class, AU, EU and TU. "
        "Published: one image on a Tesla P100."
    )


def _base_rate(study: Study, ood: str) -> float | None:
    records = [record for method in study.methods for record in study.records(method)]
    found = (lookup(record, "metrics", "running", "ood", ood, "total", "base_rate") for record in records)
    return next((rate for rate in found if rate is not None), None)


def _markdown(block: Block) -> str:
    """Tables and text; figures are in the page only."""
    heading, content = block
    title = f"### {heading}\n\n" if heading else ""
    if isinstance(content, Table):
        return f"{title}{markdown_table(content.rows, tables.digits(content.rows))}\n"
    if isinstance(content, str) and not isinstance(content, Markup):
        return f"{title}{content}\n"
    return ""


def _parts(block: Block) -> list[str | Figure | Side]:
    heading, content = block
    parts: list[str | Figure | Side] = [Markup("<h3>{}</h3>").format(heading)] if heading else []
    return [*parts, html_table(content.rows, tables.digits(content.rows)) if isinstance(content, Table) else content]
