"""Figures of a study: records in, plotly figures and pictures out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from markupsafe import Markup

from creinn.classifier.methods import is_ensemble
from creinn.credal.credal_set import CredalSet
from creinn.credal.probability import interval_softmax
from creinn.evaluation import AccuracyRejection
from creinn.evaluation.summary import MEASURES
from creinn.experiments.definition import Shift
from creinn.experiments.inputs import shifted
from creinn.experiments.records import GRID, decode_image
from creinn.experiments.study import Record, Study, lookup, spread
from creinn.experiments.tables import sets_of
from creinn.report import Side, Spread, heat_map, image_grid, increase_chart, interval_bars
from creinn.report import rejection_curves as draw_rejection
from creinn.report import training_curves as draw_training
from creinn.report.page import Figure
from creinn.report.ternary import coarsen, simplex

LEVELS = {"noise": (0, 0.08, 0.12, 0.16, 0.18, 0.2), "brightness": (0, 0.05, 0.1, 0.15, 0.2, 0.3)}


def training_curves(study: Study, arm: str) -> Side | None:
    """Training and validation curves of each single method, averaged over its runs."""
    histories = {}
    for method in dict.fromkeys(entry.method for entry in study.entries if entry.kind == "evaluate"):
        runs = [record["history"] for record in study.trainings(method, arm) if record["history"]]
        if runs:
            histories[study.label(method)] = mean_history(runs)
    return draw_training(histories) if histories else None


def mean_history(runs: Sequence[Sequence[Mapping[str, float | None]]]) -> list[dict[str, float | None]]:
    """Epoch by epoch the mean over runs, as far as all have come."""
    rows = []
    for same in zip(*runs, strict=False):
        columns = {name: [row[name] for row in same] for name in same[0]}
        rows.append({name: None if None in values else float(np.mean(values)) for name, values in columns.items()})
    return rows


def method_curves(study: Study, arm: str, test_set: str, statistics: str = "running") -> Side | None:
    """Accuracy-rejection curves of every method, a panel per measure; averaged over runs."""
    curves = {
        study.label(method): _curves(study.records(method, arm), test_set, statistics, only_one=method == "snn")
        for method in study.methods
    }
    curves = {name: found for name, found in curves.items() if found}
    return draw_rejection(curves) if curves else None


def shift_curves(study: Study, arm: str, kind: str) -> tuple[str, Side] | None:
    """Accuracy-rejection curves of one method, the ensemble if there is one, on each test set of a kind of shift."""
    methods = sorted((m for m in study.methods if study.records(m, arm)), key=is_ensemble)
    if not methods:
        return None
    records = study.records(methods[-1], arm)
    curves = {
        name: _curves(records, name, "running", only_one=False) for name in sets_of(records) if name.startswith(kind)
    }
    return (study.label(methods[-1]), draw_rejection(curves)) if curves else None


def increases(study: Study, arm: str, kind: str, method: str = "creinn") -> Figure | None:
    """Relative increase of each uncertainty on the test sets of a kind of shift (Relative increase)."""
    records = study.records(method, arm)
    values: dict[str, dict[str, float | Spread]] = {}
    for key, short in MEASURES.items():
        found = {
            name: spread(records, "metrics", "running", "sets", name, "increase", key, "mean")
            for name in sets_of(records)
            if name.startswith(kind)
        }
        present = {name: value for name, value in found.items() if value is not None}
        if present:
            values[short] = dict(present)
    return increase_chart(values) if values else None


def radii_map(study: Study, arm: str) -> tuple[str, Figure] | None:
    """Heat map of learned radii of the first layer, and a line about it."""
    radii = next((r["radii"] for r in study.trainings("creinn", arm) if r.get("radii")), None)
    if radii is None:
        return None
    text = (
        f"Radii of {radii['layer']} (shape {tuple(radii['shape'])}) of the first CreINN run: kernels of the first "
        f"outputs for the first input channel, side by side. Of all weight radii of the network "
        f"{radii['zero_share']:.1%} are zero; their mean is {radii['mean']:.4f}."
    )
    return text, heat_map(radii["matrix"], x_title="column", y_title="row")


def examples(study: Study, arm: str) -> tuple[Markup, list[Figure]] | None:
    """Predictions of the first CreINN run: images with probability intervals, and credal sets."""
    found = next((r["examples"] for r in study.records("creinn", arm) if "examples" in r), None)
    if found is None:
        return None
    classes = study.manifest["classes"]
    bars, drawings = [], []
    for example in found:
        lower, upper = (torch.tensor(example[bound], dtype=torch.float64) for bound in ("lower", "upper"))
        credal_set = CredalSet(lower, upper)
        bars.append(interval_bars(credal_set.lower, credal_set.upper, credal_set.intersection, classes))
        if len(classes) > 2:
            first, second = credal_set.intersection.argsort(descending=True)[:2].tolist()
            names = [classes[first], classes[second], "all others"]
            drawings.append(simplex(coarsen(credal_set, first, second), names))
    captions = [f"{example['what']}; true class {example['label']}" for example in found]
    grid = image_grid([decode_image(example["image"]) for example in found], captions, bars)
    return grid, drawings


def worked_example() -> Figure:
    """The numerical example of the paper's appendix: interval logits (0, -1, 1) to (1, 0, 3), bounds and credal set."""
    given = interval_softmax(torch.tensor([0.0, -1.0, 1.0]).double(), torch.tensor([1.0, 0.0, 3.0]).double())
    return simplex(CredalSet(*given), ["A", "B", "D"], given)


def sample_images(study: Study, kind: Any) -> Markup:
    """One test image at each level of noise or brightness."""
    pixels = decode_image(study.manifest["sample"])
    x = torch.from_numpy(pixels.copy())[None].float() / 255
    levels = LEVELS[kind]
    pictures = [shifted(x, Shift(kind, level, level)).lower[0] for level in levels]
    letter = {"noise": "μ", "brightness": "β"}[kind]
    return image_grid(pictures, [f"{letter} = {level:g}" for level in levels])


def _curves(records: Sequence[Record], test_set: str, statistics: str, only_one: bool) -> dict[str, AccuracyRejection]:
    """Mean curves by measure; of one distribution per image only the first measure says anything."""
    curves = {}
    for key, short in MEASURES.items():
        found = [lookup(r, "metrics", statistics, "sets", test_set, "curves", key) for r in records]
        if found and None not in found and not (only_one and key != "aleatoric"):
            curves[short] = AccuracyRejection(np.array(GRID), np.mean(found, axis=0))
    return curves
