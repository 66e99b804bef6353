"""Page with the results of the demo."""

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from markupsafe import Markup
from torch import Tensor

from creinn.demo.training import (
    FAR,
    GROUPS,
    KNOWN,
    NAMES,
    NEAR,
    RULE,
    TEST,
    DemoConfig,
    DemoResult,
    measures_of,
    run_demo,
)
from creinn.evaluation.summary import MEASURES
from creinn.files import write_bytes
from creinn.report.explorer import Samples, choose_samples, explore, sample_limit
from creinn.report.figures import heat_map, rejection_curves, score_histograms, training_curves
from creinn.report.page import Part, Section, Side, image_grid, interval_bars, write_page
from creinn.report.provenance import provenance, provenance_rows
from creinn.report.simplex import coarsen, simplex
from creinn.report.tables import html_table, text_table
from creinn.report.theme import color, texts

_SHOWN = 4  # images in a row of the gallery


def run_and_report(out: Path, command: str, **settings: Any) -> None:
    """Run the demo, print its table, and write ``report.html`` and ``results.json``.

    Args:
        out: Directory of the files.
        command: Command line that runs the demo.
        **settings: Arguments of :class:`creinn.demo.training.DemoConfig`.
    """
    for name in ("PIL", "plotly"):
        if find_spec(name) is None:
            raise ImportError(f"The demo requires {name}: pip install creinn[report]")
    config = DemoConfig(**settings)
    result = run_demo(config)
    print(text_table(result.table()))
    origin = provenance(command)
    record = {
        **origin,
        "settings": dict(result.settings),
        "images": dict(result.sizes),
        "parameters": dict(result.parameters),
        "runs": {model: list(map(dict, runs)) for model, runs in result.runs.items()},
        "seconds": round(result.seconds, 1),
    }
    text = json.dumps(record, indent=2, allow_nan=False) + "\n"
    write_bytes(out / "results.json", text.encode())
    page = write_demo_page(out / "report.html", result, origin)
    print(f"\n{result.seconds:.0f} s. The report: {page}")


def write_demo_page(path: str | Path, result: DemoResult, origin: Mapping[str, Any]) -> Path:
    """Write the page and return its path.

    ``origin`` is the result of :func:`creinn.report.provenance.provenance`.
    """
    text = texts("demo.txt", sizes=result.sizes, rule=RULE, **result.settings)
    origin = {
        **origin,
        "settings": ", ".join(f"{name} {value}" for name, value in result.settings.items()),
        "time": f"{result.seconds:.0f} s for training, prediction and evaluation",
    }
    detection: list[Part] = []
    for measure in ("epistemic", "total"):
        scores = {
            model: {group: getattr(groups[group], measure) for group in GROUPS}
            for model, groups in result.predictions.items()
            if measure in measures_of(model)
        }
        title = Markup("<h3>{} uncertainty</h3>").format(measure.capitalize())
        detection += [title, score_histograms(scores), text[measure]]
    colors = {model: color(NAMES.index(model)) for model in result.histories}
    training = [training_curves(result.histories, colors=colors), text["training"]]
    radii = [heat_map(result.radii, "feature", "class", "radius"), text["radii"]]
    main = [_triangles(result), text["simplex"], html_table(result.table(complete=False))]
    sections = [
        Section("Results", [*main, text["models"], text["main"]]),
        Section("Images that differ from the training images", detection),
        Section("Accuracy", [rejection_curves(result.curves()), text["rejection"]]),
        Section("Most and least certain images", [text["gallery"], *_gallery(result)]),
        Section("Explore predictions", [text["explorer"], _explorer(result)]),
        Section("All numbers", [html_table(result.table()), text["numbers"]]),
        Section("Training and learned radii", training + radii),
        Section("How this was made", [html_table(provenance_rows(origin)), text["origin"]]),
    ]
    return write_page(path, "CreINN on handwritten digits", sections, text["lead"])


def _triangles(result: DemoResult) -> Side:
    chosen = [
        ("Test digit with median EU", TEST, 0.5),
        ("Test digit with the greatest EU", TEST, 1),
        ("Held-out digit with median EU", NEAR, 0.5),
        ("Photograph with median EU", FAR, 0.5),
    ]
    drawn = []
    for title, group, share in chosen:
        predictions = result.predictions["CreINN-D"][group]
        index = predictions.epistemic.argsort(stable=True)[
            min(int(share * len(predictions)), len(predictions) - 1)
        ]
        found = predictions[index].to(torch.float64)
        first, second = found.intersection.argsort(descending=True, stable=True)[:2].tolist()
        names = [f"digit {first}", f"digit {second}", "any other"]
        picture = _images(result, "CreINN-D", group, [index], title)
        drawn.append(
            Side([picture, simplex(coarsen(found, first, second), names, height=360)], width=460)
        )
    return Side(drawn, width=460)


def _gallery(result: DemoResult) -> list[Markup]:
    model, rows = "CreINN-D ensemble", []
    names = result.data[TEST].classes
    for group, found in result.predictions[model].items():
        for what, chosen in zip(("most", "least"), extremes(found.total, _SHOWN), strict=True):
            bars = [
                interval_bars(found.lower[i], found.upper[i], found.intersection[i], names)
                for i in chosen
            ]
            rows.append(
                _images(result, model, group, chosen, f"{group.capitalize()}, {what} certain", bars)
            )
    return rows


def _explorer(result: DemoResult) -> Markup:
    samples = []
    for group, found in result.predictions["CreINN-D ensemble"].items():
        data, chosen = (
            result.data[group],
            torch.from_numpy(choose_samples(found.total, sample_limit(KNOWN, len(GROUPS)))),
        )
        labels = data.labels[chosen] if group == TEST else None
        names = [f"image {number + 1}" for number in chosen.tolist()]
        samples.append(
            Samples(
                group, found[chosen], names, len(data), labels, group != TEST, data.inputs[chosen]
            )
        )
    return explore(samples, result.data[TEST].classes, rule=RULE)


def extremes(score: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the indices of the ``count`` lowest and highest scores.

    The most extreme scores are first. If there are fewer scores, each part has half of them.

    Example:
        >>> [indices.tolist() for indices in extremes(torch.tensor([1.0, 1.0, 1.0, 0.0, 1.0]), 2)]
        [[3, 0], [4, 2]]
    """
    order = score.argsort(stable=True)
    count = min(count, len(order) // 2)
    return order[:count], order.flip(0)[:count]


def _images(
    result: DemoResult, model: str, group: str, chosen: Any, title: str, bars: Sequence[str] = ()
) -> Markup:
    """Return a heading, and images with the predictions of a model."""
    found, data, captions = result.predictions[model][group], result.data[group], []
    for i in chosen:
        truth = f"a {data.labels[i]}, " if group == TEST else ""
        kept = " ".join(str(k) for k in found.classes(RULE)[i].nonzero().flatten().tolist())
        values = [f"{short} {getattr(found, name)[i]:.2f}" for name, short in MEASURES.items()]
        bits = f"{', '.join(values)} bits"
        captions.append(
            Markup(f"{truth}predicted <b>{found.label[i]}</b><br>not ruled out: {kept}<br>{bits}")
        )
    return Markup(f"<h3>{title}</h3>{image_grid([data.inputs[i] for i in chosen], captions, bars)}")
