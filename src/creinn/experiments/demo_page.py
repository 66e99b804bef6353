"""The page of the demo: a :class:`DemoResult` in, sections of figures with their explanation out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from markupsafe import Markup
from torch import Tensor

from creinn.evaluation.summary import MEASURES
from creinn.experiments.demo import (
    D_ENSEMBLE_NAME,
    D_NAME,
    FAR,
    GROUPS,
    MODELS,
    NEAR,
    RULE,
    TEST,
    DemoResult,
    measures_of,
)
from creinn.report.figures import heat_map, rejection_curves, score_histograms, training_curves
from creinn.report.page import Part, Section, Side, image_grid, interval_bars, write_page
from creinn.report.provenance import provenance_rows
from creinn.report.tables import html_table
from creinn.report.ternary import coarsen, simplex
from creinn.report.theme import color, texts

SHOWN = 4  # images per row of the gallery


def write_demo_page(path: str | Path, result: DemoResult, origin: Mapping[str, Any]) -> Path:
    """Write the report of the demo; ``origin`` is what :func:`creinn.report.provenance.provenance` gives."""
    data, members = result.data, result.config.members
    sizes = {"train": len(data.train), "test": len(data.test), "near": len(data.near), "far": len(data.far)}
    models = {"snns": 2 * members, "creinns": members, "last": result.config.known - 1, "rule": RULE}
    text = texts("demo.txt", chance=sizes["near"] / (sizes["near"] + sizes["test"]), **sizes, **models)
    radii = result.creinn.network.get_parameter("fc.weight_radius")
    added = {
        "settings": ", ".join(f"{name} {value}" for name, value in vars(result.config).items()),
        "time": f"{result.seconds:.0f} s for training, prediction and evaluation",
    }
    detection: list[Part | Side] = []
    for measure in ("epistemic", "total"):
        title = Markup("<h3>{} uncertainty</h3>").format(measure.capitalize())
        detection += [title, _scores(result, measure), text[measure]]
    sections = [
        Section("Results", [html_table(result.table()), text["models"], text["numbers"]]),
        Section("Accuracy when uncertain images are rejected", [_rejection(result), text["rejection"]]),
        Section("Images unlike those of the training", detection),
        Section("Credal sets in the simplex", [text["simplex"], _triangles(result)]),
        Section("Most and least certain images", [text["gallery"], *_gallery(result)]),
        Section(
            "Training and learned radii",
            [_training(result), text["training"], heat_map(radii, "feature", "class", "radius"), text["radii"]],
        ),
        Section("How this was made", [html_table(provenance_rows({**origin, **added})), text["origin"]]),
    ]
    return write_page(path, "CreINN on handwritten digits", sections, text["lead"])


def _rejection(result: DemoResult) -> Side:
    return rejection_curves(
        {
            model: {f"{measure} ({MEASURES[measure]})": curve for measure, curve in found.items()}
            for model, found in result.curves().items()
        }
    )


def _scores(result: DemoResult, measure: str) -> Side:
    scores = {
        model: {group: getattr(groups[group], measure) for group in GROUPS}
        for model, groups in result.predictions.items()
        if measure in measures_of(model)
    }
    return score_histograms(scores, f"{measure} uncertainty (bits)")


def _triangles(result: DemoResult) -> Side:
    predictions = result.predictions[D_NAME]
    order = {group: predictions[group].epistemic.argsort(stable=True) for group in GROUPS}
    chosen = [
        ("Test digit with median EU", TEST, order[TEST][len(order[TEST]) // 2]),
        ("Test digit with the greatest EU", TEST, order[TEST][-1]),
        ("Held-out digit with median EU", NEAR, order[NEAR][len(order[NEAR]) // 2]),
        ("Photograph with median EU", FAR, order[FAR][len(order[FAR]) // 2]),
    ]
    drawn = []
    for title, group, index in chosen:
        found = predictions[group][index].to(torch.float64)
        first, second = found.intersection.argsort(descending=True, stable=True)[:2].tolist()
        picture = image_grid([result.data.groups[group][index]], [_caption(result, D_NAME, group, index)])
        triangle = simplex(
            coarsen(found, first, second), [f"digit {first}", f"digit {second}", "any other"], height=360
        )
        drawn.append(Side([Markup(f"<h3>{title}</h3>{picture}"), triangle], width=460))
    return Side(drawn, width=460)


def _gallery(result: DemoResult) -> list[Markup]:
    predictions = result.predictions[D_ENSEMBLE_NAME]
    names = [str(digit) for digit in range(result.config.known)]

    def row(title: str, group: str, chosen: Tensor) -> Markup:
        found = predictions[group]
        bars = [interval_bars(found.lower[i], found.upper[i], found.intersection[i], names) for i in chosen]
        captions = [_caption(result, D_ENSEMBLE_NAME, group, i) for i in chosen]
        return Markup(f"<h3>{title}</h3>{image_grid([result.data.groups[group][i] for i in chosen], captions, bars)}")

    rows = []
    for group in GROUPS:
        most, least = extremes(predictions[group].total, SHOWN)
        name = group.capitalize()
        rows += [row(f"{name}, most certain", group, most), row(f"{name}, least certain", group, least)]
    return rows


def extremes(score: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Indices of the ``count`` lowest and the ``count`` highest scores, the outermost first; no index is in both.

    Of equal scores the first counts as the lower one. Where there are fewer than ``2 * count``, each gets half.

    Example:
        >>> [indices.tolist() for indices in extremes(torch.tensor([1.0, 1.0, 1.0, 0.0, 1.0]), 2)]
        [[3, 0], [4, 2]]
    """
    order = score.argsort(stable=True)
    count = min(count, len(order) // 2)
    return order[:count], order.flip(0)[:count]


def _caption(result: DemoResult, model: str, group: str, index: Any) -> Markup:
    found = result.predictions[model][group]
    truth = f"a {int(result.data.test.labels[index])}, " if group == TEST else ""
    kept = " ".join(str(k) for k in found.classes(RULE)[index].nonzero().flatten().tolist())
    return Markup(
        f"{truth}predicted <b>{int(found.label[index])}</b><br>not ruled out: {kept}<br>"
        f"TU {float(found.total[index]):.2f}, AU {float(found.aleatoric[index]):.2f}, "
        f"EU {float(found.epistemic[index]):.2f} bits"
    )


def _training(result: DemoResult) -> Side:
    colors = {model: color(MODELS.index(model)) for model in result.histories}  # as in the other figures
    return training_curves({model: history.rows for model, history in result.histories.items()}, colors=colors)
