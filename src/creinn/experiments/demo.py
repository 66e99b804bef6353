"""The demo: the experiment ``demo`` of the catalogue, run in a folder that is thrown away, and its page.

Six classifiers of one architecture learn the digits 0 to 7. Ensembles of CreINNs have half as many members as the Deep
Ensemble, so that of the paper's form has about as many parameters (Section "Ensemble strategy"). Nothing is chosen by
looking at the out-of-distribution images.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from markupsafe import Markup
from torch import Tensor

from creinn.classifier.methods import is_ensemble
from creinn.data import Dataset
from creinn.evaluation import AccuracyRejection, summary
from creinn.evaluation.summary import MEASURES
from creinn.experiments.catalogue import EXPERIMENTS
from creinn.experiments.definition import Experiment, tailor
from creinn.experiments.inputs import KNOWN, TRAIN_SHARE, prepare_all
from creinn.experiments.plan import Piece, make_plan
from creinn.experiments.predictions import POINTS, from_arrays
from creinn.experiments.run import run_experiment
from creinn.experiments.store import Record, Store, read_arrays
from creinn.files import read_tensors
from creinn.report.explorer import Samples, choose_samples, explore, sample_limit
from creinn.report.figures import heat_map, rejection_curves, score_histograms, training_curves
from creinn.report.page import Part, Section, Side, image_grid, interval_bars, write_page
from creinn.report.provenance import provenance_rows
from creinn.report.simplex import coarsen, simplex
from creinn.report.tables import Cell, MeanStd, html_table
from creinn.report.theme import color, texts

NAMES = {
    "snn": "SNN",
    "deep-ensemble": "Deep Ensemble",
    "creinn": "CreINN",
    "creinn-ensemble": "CreINN ensemble",
    "creinn-d": "CreINN-D",
    "creinn-d-ensemble": "CreINN-D ensemble",
}
"""Methods as the table and the page name them."""

TEST, NEAR, FAR = GROUPS = ("test digits", "held-out digits", "photographs")
RULE = "maximality"
_SHOWN = 4  # images per row of the gallery


@dataclass(frozen=True)
class DemoResult:
    """What came out; mappings are by the names of :data:`NAMES`, then of :data:`GROUPS`."""

    settings: Mapping[str, Any]
    sizes: Mapping[str, int]  # numbers of images, of those learnt from and kept apart too
    data: Mapping[str, Dataset]
    predictions: Mapping[str, Mapping[str, Any]]  # of the single networks the first is given
    runs: Mapping[
        str, Sequence[Mapping[str, float | None]]
    ]  # one of an ensemble, several of a single network
    parameters: Mapping[str, int]  # how many numbers a model learns
    histories: Mapping[
        str, Sequence[Mapping[str, float | None]]
    ]  # of the first network of each kind
    radii: Tensor  # of the last layer of the first CreINN of the paper's form
    seconds: float  # of training, prediction and evaluation

    def table(self) -> list[dict[str, Cell]]:
        """One row per measure, one column per model; mean and standard deviation over the runs of single networks."""
        rows: list[dict[str, Cell]] = [{"measure": "parameters", **self.parameters}]
        for measure in self.runs["SNN"][0]:
            found = {
                m: [v for run in runs if (v := run[measure]) is not None]
                for m, runs in self.runs.items()
            }
            rows.append(
                {
                    "measure": measure,
                    **{m: MeanStd.of(of) if of else None for m, of in found.items()},
                }
            )
        return rows

    def curves(self) -> dict[str, dict[str, AccuracyRejection]]:
        """Accuracy-rejection curves on the test digits, by model and measure; a constant measure has none."""
        labels = self.data[TEST].labels
        found = {
            model: summary.rejection(of[TEST], labels) for model, of in self.predictions.items()
        }
        return {
            model: {f"{m} ({MEASURES[m]})": of[m] for m in measures_of(model)}
            for model, of in found.items()
        }


def measures_of(model: str) -> list[str]:
    """Uncertainties that a model has: one network has no epistemic one, and its total equals its aleatoric."""
    return [measure for measure in MEASURES if not (model == "SNN" and measure == "epistemic")]


def demo_experiment(members: int = 5, epochs: int = 40, seed: int = 0) -> Experiment:
    """The experiment with so many members in an ensemble of CreINNs and twice as many in the Deep Ensemble.

    Raises:
        ValueError: If a number is out of range.
    """
    base = tailor(EXPERIMENTS["demo"], epochs=epochs)
    images, test, *ood = (
        replace(images, seed=seed) for images in (base.images, base.test, *base.ood)
    )
    return replace(
        base,
        images=images,
        test=test,
        ood=tuple(ood),
        training=replace(base.training, split_seed=seed),
        seeds=members,
        snn_seeds=2 * members,
        distance_seeds=members,
        first_seed=1000 * seed,
        members=members,
        deep_members=2 * members,
    )


def run_demo(experiment: Experiment, jobs: int = 2, progress: bool = True) -> DemoResult:
    """Run the experiment and collect what the page shows; the number of processes changes no result.

    Raises:
        KeyboardInterrupt: If Ctrl-C interrupted the training.
        RuntimeError: If a network could not be trained or evaluated.
        ValueError: If ``jobs`` is less than 1.
    """
    started, threads = perf_counter(), torch.get_num_threads()
    torch.set_num_threads(
        1
    )  # quickest for small networks, and the number of cores changes no result
    try:
        with tempfile.TemporaryDirectory() as folder:
            outcome = run_experiment(
                experiment, folder, folder, jobs, progress=progress, resumable=False
            )
            for name, reason in outcome.failed.items():
                raise RuntimeError(f"{name} failed: {reason}")
            found = _collect(experiment, Path(folder))
    finally:
        torch.set_num_threads(threads)
    settings = {"known": KNOWN, "train_share": TRAIN_SHARE, "members": experiment.members}
    settings |= {"width": experiment.network.width, "epochs": experiment.training.epochs}
    settings |= {
        name: getattr(experiment.training, name) for name in ("batch_size", "learning_rate")
    }
    settings |= {"seed": experiment.images.seed, "jobs": jobs}
    return DemoResult(settings, **found, seconds=perf_counter() - started)


def _collect(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """What a finished run left in its folder, by the names of the fields of :class:`DemoResult`."""
    store, sources = Store(folder), prepare_all(experiment, folder, folder / "work" / "data")
    plan = make_plan(experiment, sources.identities)
    data = {
        group: source.read()
        for group, source in zip(GROUPS, (sources.test, *sources.ood), strict=True)
    }
    records: dict[str, Record] = {piece.name: store.read_record(piece) or {} for piece in plan}
    parts: dict[str, dict[str, Any]] = {
        name: {} for name in ("predictions", "runs", "parameters", "histories")
    }
    for method, model in NAMES.items():
        pieces = [piece for piece in plan if piece.method == method and piece.kind != "train"]
        predicted = [_predictions(store, piece) for piece in pieces]
        parts["predictions"][model] = predicted[0]
        parts["runs"][model] = [
            numbers_of(
                model, records[piece.name]["metrics"]["running"], predictions, data[TEST].labels
            )
            for piece, predictions in zip(pieces, predicted, strict=True)
        ]
        networks = pieces[0].needs if is_ensemble(method) else pieces[:1]
        trainings = [network.needs[0] for network in networks]
        parts["parameters"][model] = sum(
            records[training.name]["parameters"] for training in trainings
        )
        if not is_ensemble(method):
            first = (*trainings[0].needs, trainings[0])[
                0
            ]  # a CreINN-D is put on a network that was trained
            parts["histories"][model] = records[first.name]["history"]
    creinn = next(piece for piece in plan if piece.kind == "train" and piece.method == "creinn")
    images = records[creinn.name]["images"]
    sizes = {"training": images["train"], "validation": images["validation"]}
    weights, _ = read_tensors(store.path("weights", creinn))
    (radii,) = (tensor for name, tensor in weights.items() if name.endswith("fc.weight_radius"))
    return {
        **parts,
        "data": data,
        "sizes": sizes | {group: len(of) for group, of in data.items()},
        "radii": radii,
    }


def _predictions(store: Store, piece: Piece) -> dict[str, Any]:
    """Predictions of a network or an ensemble by group."""
    members = piece.needs if piece.kind == "ensemble" else (piece,)
    found = from_arrays([read_arrays(store.path("predictions", member)) for member in members])[
        "running"
    ]
    return {TEST: found["test"][POINTS], **found["ood"]}


def numbers_of(
    model: str, metrics: Record, predictions: Mapping[str, Any], labels: Tensor
) -> dict[str, float | None]:
    """Every number of the table for one model, ``None`` where it does not apply; ``metrics`` is what was recorded."""
    test = metrics["sets"][POINTS]
    numbers = {"accuracy": test["accuracy"]}
    numbers |= {f"AUARC, {short}": test["auarc"][measure] for measure, short in MEASURES.items()}
    for group in (NEAR, FAR):
        for quantity in ("auroc", "auprc"):
            for measure in ("epistemic", "total"):
                numbers[f"{quantity.upper()} {group}, {MEASURES[measure]}"] = metrics["ood"][group][
                    measure
                ][quantity]
    if "epistemic" not in measures_of(model):
        numbers |= {name: None for name in numbers if name.endswith("EU")}
    for group in GROUPS:
        numbers[f"classes in the set, {group}"] = summary.set_size(predictions[group], RULE)
    sets = summary.sets(predictions[TEST], labels, RULE)
    return numbers | {"coverage of the set": sets and sets.coverage}


def write_demo_page(path: str | Path, result: DemoResult, origin: Mapping[str, Any]) -> Path:
    """Write the report of the demo; ``origin`` is what :func:`creinn.report.provenance.provenance` gives."""
    text = texts("demo.txt", sizes=result.sizes, rule=RULE, **result.settings)
    origin = {
        **origin,
        "settings": ", ".join(f"{name} {value}" for name, value in result.settings.items()),
        "time": f"{result.seconds:.0f} s for training, prediction and evaluation",
    }
    detection: list[Part] = []
    for measure in ("epistemic", "total"):
        title = Markup("<h3>{} uncertainty</h3>").format(measure.capitalize())
        scores = {
            model: {group: getattr(groups[group], measure) for group in GROUPS}
            for model, groups in result.predictions.items()
            if measure in measures_of(model)
        }
        detection += [
            title,
            score_histograms(scores, f"{measure} uncertainty (bits)"),
            text[measure],
        ]
    colors = {
        model: color(list(NAMES.values()).index(model)) for model in result.histories
    }  # as in other figures
    training = [training_curves(result.histories, colors=colors), text["training"]]
    radii = [heat_map(result.radii, "feature", "class", "radius"), text["radii"]]
    sections = [
        Section("Results", [html_table(result.table()), text["models"], text["numbers"]]),
        Section(
            "Accuracy when uncertain images are rejected",
            [rejection_curves(result.curves()), text["rejection"]],
        ),
        Section("Images unlike those of the training", detection),
        Section("Credal sets in the simplex", [text["simplex"], _triangles(result)]),
        Section("Most and least certain images", [text["gallery"], *_gallery(result)]),
        Section("Explore predictions", [text["explorer"], _explorer(result)]),
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
    """Indices of the ``count`` lowest and highest scores, the outermost first; half of all each, if there are fewer.

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
    """A heading, and images with what a model says about them."""
    found, data, captions = result.predictions[model][group], result.data[group], []
    for i in chosen:
        truth = f"a {data.labels[i]}, " if group == TEST else ""
        kept = " ".join(str(k) for k in found.classes(RULE)[i].nonzero().flatten().tolist())
        bits = f"TU {found.total[i]:.2f}, AU {found.aleatoric[i]:.2f}, EU {found.epistemic[i]:.2f} bits"
        captions.append(
            Markup(f"{truth}predicted <b>{found.label[i]}</b><br>not ruled out: {kept}<br>{bits}")
        )
    return Markup(f"<h3>{title}</h3>{image_grid([data.inputs[i] for i in chosen], captions, bars)}")
