"""Evaluate all methods on stored features of a network.

The input is the features of each feature layer and a linear head. The output is the predictions of
all methods, plain scores and their numbers. The scripts for frozen and for fine-tuned networks use this module.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from creinn import CreINN, models
from creinn.baselines import LaplaceBNN
from creinn.baselines.predictive import Predictive
from creinn.classifier.calibration import fit_conformal
from creinn.classifier.network import find_feature_layers, outputs_and_logits
from creinn.credal.credal_set import CredalSet
from creinn.distance.feature_layers import HEAD, pooled
from creinn.distance.mahalanobis import Distance
from creinn.distance.radius import unit_directions
from creinn.evaluation import auarc, ood_detection, summary
from experiments.datasets import load
from experiments.store import write_json
from experiments.study.conformal import AT, COMPARED

BATCH = 100
NEIGHBOURS, MEMORY = 10, 5000
DRAWS = 20  # samples of Laplace for the credal wrapper
Sets = dict[str, Any]  # a value for each set of images


class Source(NamedTuple):
    """Name and split of a set of images, and the number of images that are drawn at random."""

    name: str
    split: str
    count: int | None = None

    def rows(self, total: int) -> Any:
        """Return the numbers of the drawn images in their order."""
        return np.arange(total) if self.count is None else np.sort(shuffled(total)[: self.count])


def shuffled(total: int) -> Any:
    """Return the numbers of images in a random order with a fixed seed."""
    return np.random.RandomState(0).permutation(total)


def network() -> torch.nn.Module:
    """Build EfficientNet-Lite0 with the weights of ImageNet."""
    net = models.efficientnet_lite0(1000, pretrained=True).eval()
    return net.to(memory_format=torch.channels_last)


def read_images(source: Source, data: Path, size: int) -> tuple[Any, Any]:
    """Read the images of a set as bytes, and their classes."""
    options = {"size": size, "channels": 1} if source.name == "chest-xray" else {}
    found = load(source.name, data, source.split, **options)
    chosen = source.rows(len(found))
    return found.inputs[chosen], found.labels[chosen]


def prepared(batch: Tensor, size: int) -> Tensor:
    """Convert images to the colours, the size and the range of the training of the network."""
    batch = batch.float().expand(-1, 3, -1, -1)
    if batch.shape[-1] != size:
        batch = F.interpolate(batch, size=(size, size), mode="bilinear", align_corners=False)
    return ((batch - 127) / 128).contiguous(memory_format=torch.channels_last)


@torch.inference_mode()
def extract(
    net: torch.nn.Module, name: str, source: Source, data: Path, work: Path, size: int
) -> None:
    """Write the features ``(N, D)`` of all feature layers, if the file does not exist."""
    if (work / f"{name}.npy").exists():
        return
    pictures, labels = read_images(source, data, size)
    places = find_feature_layers(net, prepared(pictures[:2], size))
    rows: list[Tensor] = []
    for start in range(0, len(pictures), BATCH):
        outputs, _ = outputs_and_logits(
            net, prepared(pictures[start : start + BATCH], size), places
        )
        parts = [pooled(output) for output in outputs]
        rows.append(torch.cat(parts, 1))
    np.save(work / f"{name}-labels.npy", np.asarray(labels))
    write_json(
        work / "places.json",
        {place: part.shape[1] for place, part in zip(places, parts, strict=True)},
    )
    np.save(work / f"{name}.tmp.npy", torch.cat(rows).numpy())
    (work / f"{name}.tmp.npy").replace(work / f"{name}.npy")


def read_features(work: Path, name: str) -> tuple[Tensor, Any]:
    """Read the features of a set and its classes."""
    return torch.from_numpy(np.load(work / f"{name}.npy")), np.load(
        work / f"{name}-labels.npy"
    ).astype(int)


def read_widths(work: Path) -> dict[str, int]:
    """Read the numbers of features of the feature layers, in their order."""
    return json.loads((work / "places.json").read_text())


class Kept(torch.nn.Module):
    """Network on rows of stored features.

    A module for each feature layer returns the features that were measured there.
    """

    def __init__(self, widths: Mapping[str, int], weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(torch.nn.Identity() for place in widths if place != HEAD)
        self.widths = tuple(widths.values())
        self.fc = torch.nn.Linear(weight.shape[1], len(weight))
        self.fc.weight.data, self.fc.bias.data = weight, bias

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        *shallow, features = x.split(self.widths, 1)
        for module, part in zip(self.parts, shallow, strict=True):
            module(part)
        return self.fc(features)


def linear_head(x: Tensor, y: Tensor, classes: int, decay: float) -> tuple[Tensor, Tensor]:
    """Fit weight and bias of a linear head with weight decay on scaled features."""
    center, spread = x.mean(0), x.std(0) + 1e-6
    z = (x - center) / spread
    weight = torch.zeros(classes, x.shape[1], requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weight, bias], max_iter=60, line_search_fn="strong_wolfe", tolerance_grad=1e-6
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.cross_entropy(F.linear(z, weight, bias), y) + decay * weight.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    weight = weight.detach() / spread
    return weight, bias.detach() - weight @ center


def with_distance(kept: Kept, x: Sets, y: Sets) -> CreINN:
    """Fit a CreINN-D with default options."""
    at = (*(f"parts.{index}" for index in range(len(kept.parts))), HEAD)
    model = CreINN(kept, logit_norm=False, distance=True, feature_layers=at)
    return model.fit_distance(x["train"], y["train"], (x["held-out"], y["held-out"]))


def predict(kept: Kept, x: Sets, y: Sets) -> tuple[dict[str, Sets], float]:
    """Compute the predictions of each method on all sets except the training rows, and the scale.

    The methods are the ordinary network, CreINN-D, last-layer Laplace for three or more classes,
    and the credal wrapper of its samples.
    """
    model = with_distance(kept, x, y)
    asked = {name: rows for name, rows in x.items() if name != "train"}
    found: dict[str, Sets] = {
        "CreINN-D": {name: model.predict(rows) for name, rows in asked.items()}
    }
    with torch.no_grad():
        logits = {name: kept(rows) for name, rows in asked.items()}
    found["network"] = {
        name: Predictive(of.softmax(1)[None], of.log_softmax(1)[None])
        for name, of in logits.items()
    }
    if len(kept.fc.weight) > 2:
        torch.manual_seed(0)
        laplace = LaplaceBNN(kept, samples=DRAWS)
        laplace.after_training(
            list(zip(x["train"].split(1000), y["train"].split(1000), strict=True))
        )
        found["Laplace"] = {name: laplace.predict(rows) for name, rows in asked.items()}
        wrapped = {
            name: CredalSet.from_samples(one.samples) for name, one in found["Laplace"].items()
        }
        found["credal wrapper of Laplace"] = wrapped
    return found, float(model.distance_radius.scale)  # type: ignore[union-attr]


def plain_scores(kept: Kept, x: Sets, labels: Tensor) -> dict[str, Sets]:
    """Compute scores of the features of the last layer; higher is less familiar."""
    weight, bias = kept.fc.weight.detach(), kept.fc.bias.detach()
    features = {name: rows[:, -kept.widths[-1] :] for name, rows in x.items()}
    train = features.pop("train")
    raw, unit = Distance(len(weight)), Distance(len(weight))
    raw.fit(train, labels)
    unit.fit(unit_directions(train), labels)
    memory = unit_directions(
        train[torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:MEMORY]]
    ).lower
    origin = -torch.linalg.pinv(weight) @ bias
    _, vectors = torch.linalg.eigh((train - origin).T @ (train - origin) / len(train))
    residual = vectors[:, : -min(512, train.shape[1] // 2)]
    norms = ((train - origin) @ residual).norm(dim=1)
    alpha = F.linear(train, weight, bias).amax(1).mean() / norms.mean()

    def vim(f: Tensor) -> Tensor:
        return alpha * ((f - origin) @ residual).norm(dim=1) - F.linear(f, weight, bias).logsumexp(
            1
        )

    scores = {
        "energy": lambda f: -F.linear(f, weight, bias).logsumexp(1),
        "Mahalanobis": lambda f: raw(f)[0],
        "Mahalanobis, norm 1": lambda f: unit(unit_directions(f))[0],
        "relative Mahalanobis": lambda f: unit(unit_directions(f))[1],
        "nearest neighbours": lambda f: (
            -(unit_directions(f).lower @ memory.T).topk(NEIGHBOURS, 1).values[:, -1]
        ),
        "ViM": vim,
    }
    return {
        baseline: {name: score(rows) for name, rows in features.items()}
        for baseline, score in scores.items()
    }


def uncertainty_scores(predictions: Mapping[str, Sets]) -> dict[str, Sets]:
    """Compute EU and TU of each method on each set, and the entropy of the ordinary network."""
    scores: dict[str, Sets] = {}
    for method, sets in predictions.items():
        if method == "network":
            scores["entropy"] = {name: one.total for name, one in sets.items()}
            continue
        for short, measure in (("EU", "epistemic"), ("TU", "total")):
            scores[f"{method}, {short}"] = {
                name: getattr(one, measure) for name, one in sets.items()
            }
    return scores


def numbers(
    predictions: Mapping[str, Sets], plain: Mapping[str, Sets], labels: Tensor
) -> dict[str, Any]:
    """Compute the quality of each method, and AUROC and AUARC of each score.

    Plain scores reject the errors of the ordinary network.
    """
    methods = list(predictions)
    scores = {**uncertainty_scores(predictions), **plain}
    correct = {
        method: (sets["test"].label == labels).numpy() for method, sets in predictions.items()
    }
    foreign = [name for name in predictions[methods[0]] if name not in ("held-out", "test")]

    def of(score: str) -> Any:
        return correct.get(score.rpartition(", ")[0], correct.get("network", correct[methods[0]]))

    return {
        "quality": {
            method: summary.quality(sets["test"], labels) for method, sets in predictions.items()
        },
        "auroc": {
            s: {n: float(ood_detection(v["test"], v[n]).auroc) for n in foreign}
            for s, v in scores.items()
        },
        "auarc": {
            score: float(auarc(values["test"], of(score))) for score, values in scores.items()
        },
    }


def conformal_sets(
    predictions: Mapping[str, Sets], labels: Tensor
) -> dict[str, dict[str, dict[str, float]]]:
    """Compute coverage and mean size of conformal sets at 95 %.

    Half of the test rows is used for the calibration and the other half for the test.
    """
    kinds = {"distance": predictions["CreINN-D"], "ordinary": {}}
    for name, one in predictions["network"].items():
        kinds["ordinary"][name] = CredalSet(one.probabilities, one.probabilities)
    half = (
        torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)) < len(labels) // 2
    )
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for kind, score in COMPARED:
        conformal = fit_conformal(kinds[kind]["test"][half], labels[half], AT, score=score)
        new = {
            name: one[~half] if name == "test" else one
            for name, one in kinds[kind].items()
            if name != "held-out"
        }
        sets = {
            name: one.with_conformal(conformal).classes("conformal") for name, one in new.items()
        }
        sizes = {name: round(float(of.sum(1).double().mean()), 4) for name, of in sets.items()}
        covered = round(float(sets["test"].gather(1, labels[~half, None]).double().mean()), 4)
        rows[f"{kind}, {score}"] = {"coverage": {"test": covered}, "size": sizes}
    return rows


def averaged(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Compute mean and deviation over runs of AUROC by foreign set and of AUARC."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for score in runs[0]["auroc"]:
        columns = {
            name: [run["auroc"][score][name] for run in runs] for name in runs[0]["auroc"][score]
        }
        table[score] = spreads({**columns, "AUARC": [run["auarc"][score] for run in runs]})
    return table


def averaged_quality(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Compute mean and deviation over runs of the quality of each method."""
    methods = runs[0]["quality"]
    return {
        m: spreads({k: [run["quality"][m][k] for run in runs] for k in methods[m]}) for m in methods
    }


def spreads(columns: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Compute mean and deviation of each column."""
    return {
        name: {"mean": round(mean(of), 4), "std": round(stdev(of), 4)}
        for name, of in columns.items()
    }
