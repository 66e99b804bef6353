"""Where to measure the distance from the training data, and how: AUROC of the distance alone, for each way tried.

Takes the trained ordinary networks (``snn-norm``) that study experiments left, and measures squared Mahalanobis
distances at each stage of them: by channel means, or by means and deviations; with one covariance for all classes, half
of it each class's own, or less the distance under one Gaussian for all data (relative).

    creinn experiment run study-fashion-mnist --data DIR --out results/experiments --methods snn-norm
    python benchmarks/places.py --data DIR [--out results/experiments] [--fresh] [NAME ...]
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor

from creinn.classifier.distance import Distance, ledoit_wolf
from creinn.classifier.network import observe, pooled
from creinn.evaluation import ood_detection
from creinn.experiments import experiment, tailor
from creinn.experiments.inputs import divide, network_inputs, prepare_all
from creinn.experiments.pieces import Workshop
from creinn.experiments.plan import make_plan
from creinn.experiments.store import Store, write_json
from creinn.report.provenance import provenance

FRESH = {
    "study-fashion-mnist": ("svhn",),
    "study-cifar10-svhn": ("mnist", "fashion-mnist"),
    "study-chest-xray": ("mnist", "fashion-mnist", "svhn"),
}
"""Foreign sets that are not among those of the studies."""
Distances = dict[str, Tensor]  # by set of images, "train", "held-out" and "test" among them


def shared(features: Mapping[str, Tensor], labels: Tensor, classes: int) -> Distances:
    """One covariance within all classes, as the library has it."""
    distance = Distance(classes).to(features["train"].dtype)
    distance.fit(features["train"], labels)
    return {name: distance.squared(rows) for name, rows in features.items()}


def relative(features: Mapping[str, Tensor], labels: Tensor, classes: int) -> Distances:
    """Less the distance under one Gaussian for all data."""
    background = shared(features, torch.zeros_like(labels), 1)
    return {name: rows - background[name] for name, rows in shared(features, labels, classes).items()}


def half_per_class(features: Mapping[str, Tensor], labels: Tensor, classes: int) -> Distances:
    """Half of each class's covariance is its own."""
    train = features["train"]
    means = torch.stack([train[labels == k].mean(0) for k in range(classes)])
    common, _ = ledoit_wolf([train - means[labels]])
    found = []
    for k in range(classes):
        own, _ = ledoit_wolf([train[labels == k] - means[k]])
        covariance = (own + common) / 2
        covariance += 1e-6 * covariance.diagonal().mean() * torch.eye(len(covariance), dtype=covariance.dtype)
        precision = torch.linalg.inv(covariance)
        found.append(
            {name: ((rows - means[k]) @ precision * (rows - means[k])).sum(1) for name, rows in features.items()}
        )
    return {name: torch.stack([one[name] for one in found]).amin(0) for name in features}


KINDS = {"one covariance": shared, "half per class": half_per_class, "relative": relative}


def over_places(parts: list[Distances]) -> Distances:
    """The mean over places of distances relative to their median on held-out data."""
    scaled = [{name: rows / part["held-out"].median() for name, rows in part.items()} for part in parts]
    return {name: torch.stack([part[name] for part in scaled]).mean(0) for name in parts[0]}


@torch.no_grad()
def measure(
    shop: Workshop, training: Any, data: Mapping[str, Any], labels: Tensor, classes: int
) -> dict[str, Distances]:
    """Distances of one trained network, by the way they are measured."""
    model, normalise = shop.trained(training)
    model.eval()
    places = ["head", *model.network.stages]
    features: dict[str, dict[str, Tensor]] = {place: {} for place in places}
    for name, images in data.items():
        rows: dict[str, list[Tensor]] = {place: [] for place in places}
        for x in network_inputs(images, None, normalise).split(500):
            outputs, _ = observe(model.network, x, model.network.stages)
            for place, output in zip(model.network.stages, outputs, strict=True):
                rows[place].append(pooled(output).double())
        for place in model.network.stages:
            features[place][name] = torch.cat(rows[place])
        last = features[model.network.stages[-1]][name]
        features["head"][name] = last[:, : last.shape[1] // 2]  # what the last layer sees are the means of its channels
    means = {place: {n: f[:, : f.shape[1] // 2] for n, f in features[place].items()} for place in places[1:]}
    found: dict[str, Distances] = {}
    for kind, distance in KINDS.items():
        found[f"last layer, {kind}"] = distance(features["head"], labels, classes)
        for what, by_place in (("means", means), ("means and deviations", {p: features[p] for p in places[1:]})):
            parts = [distance(by_place[place], labels, classes) for place in places[1:]]
            for place, part in zip(places[1:], parts, strict=True):
                if kind == "one covariance":
                    found[f"{place}, {what}, {kind}"] = part
            if kind != "relative":  # may be negative, so there is no median to divide by
                found[f"all stages, {what}, {kind}"] = over_places(parts)
    joint = {name: torch.cat([features[place][name] for place in places[1:]], 1) for name in data}
    found["all stages as one vector, means and deviations, one covariance"] = shared(joint, labels, classes)
    return found


def study(name: str, data: Path, out: Path, ood: Sequence[str] = ()) -> dict[str, Any]:
    """AUROC of each way on each OOD set: mean, deviation, least value and number of runs."""
    setting, store = tailor(experiment(name), ood=ood), Store(out)
    sources = prepare_all(setting, data, out / "work" / "data", True)
    plan = make_plan(setting, sources.identities)
    shop = Workshop(setting, sources, store, "")
    train, held_out = divide(sources.train.read(), setting.training)
    images = {"train": train, "held-out": held_out, "test": sources.test.read()}
    outside = {source.name: source.read() for source in sources.ood}
    scores: dict[str, dict[str, list[float]]] = {}
    for training in plan:
        if (training.kind, training.method) != ("train", "snn-norm"):
            continue
        if not store.has("weights", training):
            print(f"{name}: {training.name} has no weights and is left out.", file=sys.stderr)
            continue
        found = measure(shop, training, {**images, **outside}, train.labels, max(2, setting.logits))
        for way, distances in found.items():
            for foreign in outside:
                score = ood_detection(distances["test"].numpy(), distances[foreign].numpy()).auroc
                scores.setdefault(way, {}).setdefault(foreign, []).append(float(score))
    return {way: {name: _summary(values) for name, values in by_set.items()} for way, by_set in scores.items()}


def _summary(values: list[float]) -> dict[str, float]:
    deviation = stdev(values) if len(values) > 1 else 0.0
    numbers = {"mean": mean(values), "std": deviation, "least": min(values)}
    return {**{name: round(value, 4) for name, value in numbers.items()}, "runs": len(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=tuple(FRESH))
    parser.add_argument("--fresh", action="store_true", help="other foreign sets than those of the studies")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/experiments"))
    parser.add_argument("--to", type=Path, help="places.json, or places-fresh.json, in results/study")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ending = "-fresh" if options.fresh else ""
    to = options.to or Path(f"results/study/places{ending}.json")
    results = {
        name: study(name, options.data, options.out, FRESH[name] if options.fresh else ()) for name in options.names
    }
    origin = provenance(f"python benchmarks/places.py --data DIR {'--fresh ' * options.fresh}{' '.join(options.names)}")
    write_json(to, {**origin, "auroc": results})
    for name, ways in results.items():
        print(name)
        for way, by_ood in ways.items():
            print(f"  {way:70s}", *(f"{ood} {s['mean']:.3f} (least {s['least']:.3f})" for ood, s in by_ood.items()))


if __name__ == "__main__":
    main()
