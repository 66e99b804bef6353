"""The demo: six classifiers of handwritten digits, compared on one page.

All have the same architecture and are trained on the digits 0 to 7. The
ensembles of CreINNs have half as many members as the Deep Ensemble, so the
number of parameters is about the same for the paper's form (Section
"Ensemble strategy"). The out-of-distribution images are not used to choose
any of the settings.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import joblib
import numpy as np
import torch
from markupsafe import Markup
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor
from tqdm import tqdm

from creinn import data, models, report
from creinn.baselines.factory import build_classifier
from creinn.baselines.predictive import Predictive
from creinn.classifier.methods import METHODS
from creinn.credal.credal_set import CredalSet
from creinn.data import Dataset
from creinn.evaluation import summary
from creinn.evaluation.summary import MEASURES
from creinn.files import write_bytes
from creinn.graph.convert import credal
from creinn.numerics import check_integers
from creinn.report.explorer import sample_limit
from creinn.report.provenance import provenance, provenance_rows
from creinn.report.tables import Cell, MeanStd
from creinn.report.theme import color, texts
from creinn.training import TrainConfig, fit
from creinn.training.loop import derived_seed

ENSEMBLES = {"SNN": "Deep Ensemble", "CreINN": "CreINN ensemble", "CreINN-D": "CreINN-D ensemble"}
NAMES = tuple(name for pair in ENSEMBLES.items() for name in pair)
TEST, NEAR, FAR = GROUPS = ("test digits", "held-out digits", "photographs")
SECONDARY = ("parameters", "AUARC", "AUPRC", "classes in the set, test digits")
"""Prefixes of measures that are only in the second table."""

RULE = "maximality"
KNOWN = 8  # number of known digits
TRAIN_SHARE = 0.18  # of the known digits
VALIDATION = 1 / 6  # of the training set
SHOWN = 4  # images in a row of the gallery

Metrics = Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Settings of the demo; ``members`` is the size of CreINN ensembles."""

    members: int = 5
    epochs: int = 40
    seed: int = 0
    jobs: int = 2
    progress: bool = True
    width: int = 8
    batch_size: int = 32
    learning_rate: float = 0.003

    def __post_init__(self) -> None:
        names = ("members", "epochs", "jobs", "width")
        check_integers(**{name: getattr(self, name) for name in names})


class Trained(NamedTuple):
    """Predictions of a network, and what the page shows."""

    predictions: Mapping[str, Any]
    history: Sequence[Metrics]
    parameters: int
    radii: Tensor | None  # of the last layer


@dataclass(frozen=True)
class DemoResult:
    """Results by :data:`NAMES`, then by :data:`GROUPS`."""

    config: DemoConfig
    sizes: Mapping[str, int]  # numbers of images
    data: Mapping[str, Dataset]
    predictions: Mapping[str, Mapping[str, Any]]  # of the first networks
    runs: Mapping[str, Sequence[Metrics]]  # one for an ensemble
    parameters: Mapping[str, int]
    histories: Mapping[str, Sequence[Metrics]]  # of the first networks
    radii: Tensor | None  # of the last layer of the first CreINN
    seconds: float

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that determine the numbers."""
        settings = {"known": KNOWN, "train_share": TRAIN_SHARE, **asdict(self.config)}
        return {name: value for name, value in settings.items() if name != "progress"}

    def table(self, complete: bool = True) -> list[dict[str, Cell]]:
        """Return one row for each measure."""
        rows: list[dict[str, Cell]] = [{"measure": "parameters", **self.parameters}]
        for measure in self.runs["SNN"][0]:
            row: dict[str, Cell] = {"measure": measure}
            for model, runs in self.runs.items():
                found = [value for run in runs if (value := run[measure]) is not None]
                row[model] = MeanStd.of(found) if found else None
            rows.append(row)
        return [row for row in rows if complete or not str(row["measure"]).startswith(SECONDARY)]

    def curves(self) -> dict[str, dict[str, Any]]:
        """Return accuracy-rejection curves by model and measure."""
        labels, curves = self.data[TEST].labels, {}
        for model, predictions in self.predictions.items():
            found = summary.rejection(predictions[TEST], labels)
            curves[model] = {f"{m} ({MEASURES[m]})": found[m] for m in measures_of(model)}
        return curves


def measures_of(model: str) -> list[str]:
    """Return the uncertainties of a model; an SNN has no epistemic one."""
    return [measure for measure in MEASURES if not (model == "SNN" and measure == "epistemic")]


def read_data(seed: int) -> tuple[Dataset, dict[str, Dataset]]:
    """Return the training images and the images of each group."""
    digits = load_digits()
    pixels = torch.from_numpy((digits.images * 255 / 16).round()).to(torch.uint8)[:, None]
    labels = torch.from_numpy(digits.target).long()
    images = Dataset("digits", pixels, labels, tuple("0123456789"))
    near, known = (images.take(mask.nonzero()[:, 0]) for mask in (labels >= KNOWN, labels < KNOWN))
    known = replace(known, classes=images.classes[:KNOWN])
    train, test = data.split(known, TRAIN_SHARE, seed)
    far = data.subset(photograph_patches(), len(near), seed)
    return train, {TEST: test, NEAR: near, FAR: far}


def photograph_patches() -> Dataset:
    """Return patches of the two photographs of scikit-learn."""
    from PIL import Image

    greys = (np.array(Image.fromarray(photo).convert("L")) for photo in load_sample_images().images)
    blocks = [torch.from_numpy(grey).unfold(0, 8, 8).unfold(1, 8, 8) for grey in greys]
    patches = torch.cat([block.reshape(-1, 1, 8, 8) for block in blocks])
    labels = torch.zeros(len(patches), dtype=torch.long)
    return Dataset(FAR, patches, labels, ("photograph",))


def run_demo(config: DemoConfig) -> DemoResult:
    """Train and evaluate all classifiers."""
    started = perf_counter()
    train, groups = read_data(config.seed)
    part, validation = data.split(train, 1 - VALIDATION, config.seed)
    parts = {"training": part, "validation": validation, **groups}
    # the slow CreINNs are first
    tasks = [("CreINN", i) for i in range(config.members)]
    tasks += [("SNN", i) for i in range(2 * config.members)]
    call = joblib.delayed(train_network)
    parallel = joblib.Parallel(config.jobs, return_as="generator", batch_size=1)
    outputs = parallel(call(name, i, config, part, validation, groups) for name, i in tasks)
    shown = tqdm(outputs, "demo", len(tasks), unit="network", disable=not config.progress)
    found = list(shown)
    trained = {name: [of[name] for of in found if name in of] for name in ENSEMBLES}
    predictions, runs, parameters = {}, {}, {}
    for name, members in trained.items():
        own = [member.predictions for member in members]
        average: Any = Predictive.pool if name == "SNN" else CredalSet.average
        joint = {group: average([found[group] for found in own]) for group in GROUPS}
        for model, all_of in ((name, own), (ENSEMBLES[name], [joint])):
            predictions[model] = all_of[0]
            runs[model] = [numbers_of(model, found, groups[TEST].labels) for found in all_of]
        parameters[name] = members[0].parameters
        parameters[ENSEMBLES[name]] = len(members) * members[0].parameters
    sizes = {name: len(of) for name, of in parts.items()}
    histories = {name: trained[name][0].history for name in ("SNN", "CreINN")}
    radii, seconds = trained["CreINN"][0].radii, perf_counter() - started
    return DemoResult(
        config, sizes, groups, predictions, runs, parameters, histories, radii, seconds
    )


def train_network(
    name: str,
    index: int,
    config: DemoConfig,
    train: Dataset,
    validation: Dataset,
    groups: Mapping[str, Dataset],
) -> dict[str, Trained]:
    """Train and predict; the first SNNs also become CreINN-Ds."""
    shape = {"num_classes": KNOWN, "in_channels": 1, "width": config.width}
    seed = 1000 * config.seed + index
    how = TrainConfig(
        epochs=config.epochs,
        batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        milestones=(max(1, round(0.75 * config.epochs)),),
        seed=seed,
        progress=False,
    )
    train_data, val_data = ((images.scaled(), images.labels) for images in (train, validation))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # fastest for small networks
    try:
        with torch.random.fork_rng([]):
            torch.manual_seed(derived_seed(seed, 0))
            model = build_classifier(METHODS[name.lower()], partial(models.resnet8, **shape))
            history = fit(model, train_data, val_data, how)
            if history.interrupted:
                raise KeyboardInterrupt
            found = {name: _trained(model, groups, history.rows)}
            if name == "SNN" and index < config.members:
                settings = {"mode": "paper", "distance": True, "temperature": True}
                model = credal(model, settings, needs_radii=False)
                model.fit_distance(*train_data, val_data)
                found["CreINN-D"] = _trained(model, groups, history.rows)
    finally:
        torch.set_num_threads(threads)
    return found


def _trained(model: Any, groups: Mapping[str, Dataset], history: Sequence[Any]) -> Trained:
    predictions = {group: model.predict(x.scaled()) for group, x in groups.items()}
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    radii = getattr(model.network.fc, "weight_radius", None)
    return Trained(predictions, history, parameters, None if radii is None else radii.detach())


def numbers_of(model: str, predictions: Mapping[str, Any], labels: Tensor) -> Metrics:
    """Return the measures of a model, ``None`` if undefined."""
    test = predictions[TEST]
    numbers: dict[str, float | None] = {"accuracy": summary.quality(test, labels)["accuracy"]}
    curves = summary.rejection(test, labels)
    numbers |= {f"AUARC, {short}": curves[measure].area for measure, short in MEASURES.items()}
    for group in (NEAR, FAR):
        detected = summary.detection(test, predictions[group])
        for quantity, measure in product(("auroc", "auprc"), ("epistemic", "total")):
            name = f"{quantity.upper()} {group}, {MEASURES[measure]}"
            numbers[name] = getattr(detected[measure], quantity)
    if "epistemic" not in measures_of(model):
        numbers |= {name: None for name in numbers if name.endswith("EU")}
    numbers = {name: value and round(value, 6) for name, value in numbers.items()}
    for group in GROUPS:
        numbers[f"classes in the set, {group}"] = summary.set_size(predictions[group], RULE)
    sets = summary.sets(test, labels, RULE)
    return numbers | {"coverage of the set": sets and sets.coverage}


def run_and_report(config: DemoConfig, out: Path, command: str) -> int:
    """Run the demo, print its table, and write the files."""
    for name in ("PIL", "plotly"):
        if find_spec(name) is None:
            raise ImportError(f"The demo requires {name}: pip install creinn[report]")
    result = run_demo(config)
    print(report.text_table(result.table()))
    origin = provenance(command)
    record = {**origin, "settings": result.settings, "images": result.sizes}
    record |= {"parameters": result.parameters, "runs": result.runs}
    record["seconds"] = round(result.seconds, 1)
    text = json.dumps(record, indent=2, allow_nan=False)
    write_bytes(out / "results.json", f"{text}\n".encode())
    page = write_demo_page(out / "report.html", result, origin)
    print(f"\n{result.seconds:.0f} s. The report: {page}")
    return 0


def write_demo_page(path: Path, result: DemoResult, origin: Mapping[str, Any]) -> Path:
    """Write the page; ``origin`` is a result of :func:`provenance`."""
    text = texts("demo.txt", sizes=result.sizes, rule=RULE, **result.settings)
    settings = ", ".join(f"{name} {value}" for name, value in result.settings.items())
    seconds = f"{result.seconds:.0f} s for training, prediction and evaluation"
    facts = provenance_rows({**origin, "settings": settings, "time": seconds})
    detection: list[Any] = []
    for measure in ("epistemic", "total"):
        scores = {
            model: {group: getattr(found[group], measure) for group in GROUPS}
            for model, found in result.predictions.items()
            if measure in measures_of(model)
        }
        title = Markup("<h3>{} uncertainty</h3>").format(measure.capitalize())
        detection += [title, report.score_histograms(scores), text[measure]]
    colors = {model: color(NAMES.index(model)) for model in result.histories}
    curves = report.training_curves(result.histories, colors=colors)
    radii = report.heat_map(result.radii, "feature", "class", "radius")
    main = report.html_table(result.table(complete=False))
    content: dict[str, list[Any]] = {
        "Results": [_triangles(result), text["simplex"], main, text["models"], text["main"]],
        "Images that differ from the training images": detection,
        "Accuracy": [report.rejection_curves(result.curves()), text["rejection"]],
        "Most and least certain images": [text["gallery"], *_gallery(result)],
        "Explore predictions": [text["explorer"], _explorer(result)],
        "All numbers": [report.html_table(result.table()), text["numbers"]],
        "Training and learned radii": [curves, text["training"], radii, text["radii"]],
        "How this was made": [report.html_table(facts), text["origin"]],
    }
    sections = [report.Section(heading, parts) for heading, parts in content.items()]
    return report.write_page(path, "CreINN on handwritten digits", sections, text["lead"])


def _triangles(result: DemoResult) -> report.Side:
    chosen = {
        "Test digit with median EU": (TEST, 0.5),
        "Test digit with the greatest EU": (TEST, 1),
        "Held-out digit with median EU": (NEAR, 0.5),
        "Photograph with median EU": (FAR, 0.5),
    }
    drawn = []
    for title, (group, share) in chosen.items():
        predictions = result.predictions["CreINN-D"][group]
        rank = min(int(share * len(predictions)), len(predictions) - 1)
        index = predictions.epistemic.argsort(stable=True)[rank]
        found = predictions[index].to(torch.float64)
        first, second = found.intersection.argsort(descending=True, stable=True)[:2].tolist()
        names = [f"digit {first}", f"digit {second}", "any other"]
        picture = _images(result, "CreINN-D", group, [index], title)
        triangle = report.simplex(report.coarsen(found, first, second), names, height=360)
        drawn.append(report.Side([picture, triangle], width=460))
    return report.Side(drawn, width=460)


def _gallery(result: DemoResult) -> list[Markup]:
    model, rows = "CreINN-D ensemble", []
    for group, found in result.predictions[model].items():
        order = found.total.argsort(stable=True)
        count = min(SHOWN, len(order) // 2)
        for what, chosen in (("most", order[:count]), ("least", order.flip(0)[:count])):
            title = f"{group.capitalize()}, {what} certain"
            rows.append(_images(result, model, group, chosen, title, has_bars=True))
    return rows


def _explorer(result: DemoResult) -> Markup:
    samples, most = [], sample_limit(KNOWN, len(GROUPS))
    for group, found in result.predictions["CreINN-D ensemble"].items():
        images = result.data[group]
        chosen = torch.from_numpy(report.choose_samples(found.total, most))
        names = [f"image {number + 1}" for number in chosen.tolist()]
        labels = images.labels[chosen] if group == TEST else None
        shown: dict[str, Any] = {"labels": labels, "images": images.inputs[chosen]}
        is_ood = group != TEST
        samples.append(
            report.Samples(group, found[chosen], names, len(images), outside=is_ood, **shown)
        )
    return report.explore(samples, result.data[TEST].classes, rule=RULE)


def _images(
    result: DemoResult, model: str, group: str, chosen: Any, title: str, has_bars: bool = False
) -> Markup:
    """Return a heading and images with predictions."""
    images, captions, bars = result.data[group], [], []
    for i in chosen:
        found, truth = result.predictions[model][group][i], images.labels[i]
        known = f"a {truth}, " if group == TEST else ""
        kept = " ".join(map(str, found.classes(RULE).nonzero().flatten().tolist()))
        values = [f"{short} {getattr(found, name):.2f}" for name, short in MEASURES.items()]
        lines = f"{known}predicted <b>{found.label}</b>", f"not ruled out: {kept}"
        captions.append(Markup("<br>".join([*lines, f"{', '.join(values)} bits"])))
        if has_bars:
            names = result.data[TEST].classes
            bars.append(report.interval_bars(found.lower, found.upper, found.intersection, names))
    grid = report.image_grid([images.inputs[i] for i in chosen], captions, bars)
    return Markup(f"<h3>{title}</h3>{grid}")
