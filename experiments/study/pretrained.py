"""Evaluate CreINN-D and other scores on features of a network with ImageNet weights.

EfficientNet-Lite0 computes the features of each image once, at 128 pixels. The features of all
feature layers are stored. Then a linear head is fitted to the training images of CIFAR-10, of which
one in ten is held out. All methods use the same features. In each of five splits, two classes are
left out of training and serve as near data. For X-rays of two classes, a sixth of the images is
held out in each of five draws.

With ``--credal``, the script compares credal methods only, with fewer images: 10,000 images for
training and 2,000 of each far set. Use another ``--work`` directory.

    pip install "creinn[pretrained]"
    python -m experiments.study.pretrained --data DIR [--work DIR] [--to FILE] [--credal]
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from creinn.distance.feature_layers import HEAD
from creinn.report.provenance import provenance
from experiments.store import write_json
from experiments.study import features
from experiments.study.credal_baselines import ALPHA, EPOCHS, MEMBERS, credal_baselines
from experiments.study.features import Kept, Sets, Source

SIZE = 128
SETS = {
    "train": Source("cifar10", "train"),
    "test": Source("cifar10", "test"),
    "SVHN": Source("svhn", "test", 8000),
    "MNIST": Source("mnist", "test"),
    "Fashion-MNIST": Source("fashion-mnist", "test"),
    "X-ray": Source("chest-xray", "test"),
    "X-ray train": Source("chest-xray", "train"),
}
FEWER = {
    **SETS,
    "train": Source("cifar10", "train", 10000),
    **{name: Source(name.lower(), "test", 2000) for name in ("SVHN", "MNIST", "Fashion-MNIST")},
}
FAR = ("SVHN", "MNIST", "Fashion-MNIST", "X-ray")
FAR_FROM_LUNGS = {"CIFAR-10": "test", **{name: name for name in FAR[:3]}}
SPLITS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
HELD_OUT = 10  # one in ten training images
DIVISIONS = 5  # for X-rays
DECAYS = (1e-3, 3e-3, 1e-2, 3e-2)  # values of the weight decay of the head


def best_head(
    x: Sets, y: Sets, classes: int, width: int, decay: float | None
) -> tuple[float, Tensor, Tensor]:
    """Return decay, weight and bias of the head with the smallest log loss on held-out images."""
    found = []
    for one in (decay,) if decay is not None else DECAYS:
        head = features.linear_head(x["train"][:, -width:], y["train"], classes, one)
        loss = float(F.cross_entropy(F.linear(x["held-out"][:, -width:], *head), y["held-out"]))
        found.append((loss, one, *head))
    return min(found, key=lambda entry: entry[0])[1:]


def measured(x: Sets, y: Sets, work: Path, decay: float | None) -> dict[str, Any]:
    """Fit a head and the distance, and measure all methods and scores."""
    widths = features.read_widths(work)
    decay, weight, bias = best_head(x, y, int(y["train"].max()) + 1, widths[HEAD], decay)
    kept = Kept(widths, weight, bias)
    predictions, scale = features.predict(kept, x, y)
    sizes = {
        name: float(one.classes("dominance").sum(-1).double().mean())
        for name, one in predictions["CreINN-D"].items()
    }
    return {
        "decay": decay,
        "scale": scale,
        "mean_set": sizes,
        **features.numbers(predictions, features.plain_scores(kept, x, y["train"]), y["test"]),
        "conformal": features.conformal_sets(predictions, y["test"]),
    }


def divided(left_out: Sequence[int], work: Path, far: Sequence[str] = FAR) -> tuple[Sets, Sets]:
    """Divide CIFAR-10 into known and near classes, and add the rows of far sets."""
    (train, labels), (test, truth) = (
        features.read_features(work, name) for name in ("train", "test")
    )
    keep = [k for k in range(10) if k not in left_out]
    place = np.full(10, -1)
    place[keep] = range(len(keep))
    apart = np.zeros(len(labels), bool)
    apart[features.shuffled(len(apart))[: len(labels) // HELD_OUT]] = True
    known, known_test = np.isin(labels, keep), np.isin(truth, keep)
    x = {"train": train[known & ~apart], "held-out": train[known & apart], "test": test[known_test]}
    x |= {name: features.read_features(work, name)[0] for name in far}
    x |= {"near": test[~known_test]} if left_out else {}
    y = {
        "train": labels[known & ~apart],
        "held-out": labels[known & apart],
        "test": truth[known_test],
    }
    return x, {name: torch.from_numpy(place[of]) for name, of in y.items()}


def one_split(left_out: Sequence[int], work: Path, decay: float | None) -> dict[str, Any]:
    """Measure CIFAR-10 without some classes."""
    return {"left_out": list(left_out), **measured(*divided(left_out, work), work, decay)}


def credal_split(left_out: Sequence[int], work: Path, decay: float | None) -> dict[str, Any]:
    """Measure credal methods on CIFAR-10 without some classes."""
    x, y = divided(left_out, work, FAR[:3])
    widths = features.read_widths(work)
    decay, weight, bias = best_head(x, y, 10 - len(left_out), widths[HEAD], decay)
    kept = Kept(widths, weight, bias)
    predictions = features.predict(kept, x, y)[0] | credal_baselines(kept, x, y)
    rows = {name: len(of) for name, of in x.items()}
    numbers = features.numbers(predictions, {}, y["test"])
    return {"left_out": list(left_out), "decay": decay, "rows": rows, **numbers}


def compare_credal(work: Path) -> dict[str, Any]:
    """Compare credal methods on all splits, with the decay that is best for the first one."""
    runs = [credal_split(SPLITS[0], work, None)]
    runs += [credal_split(split, work, runs[0]["decay"]) for split in SPLITS[1:]]
    configuration = {"alpha": ALPHA, "members": MEMBERS, "wrapper_epochs": EPOCHS}
    mean, quality = features.averaged(runs), features.averaged_quality(runs)
    return {"configuration": configuration, "splits": runs, "mean": mean, "quality": quality}


def compare_all(work: Path) -> dict[str, Any]:
    """Measure all methods and scores on CIFAR-10 and on X-rays."""
    whole = one_split((), work, None)
    splits = [one_split(split, work, whole["decay"]) for split in SPLITS]
    divisions = [lungs(number, work) for number in range(DIVISIONS)]
    record = {"ten_classes": whole}
    for name, runs in (("", splits), ("lungs_", divisions)):
        record |= {f"{name}splits": runs, f"{name}mean": features.averaged(runs)}
        record |= {f"{name}quality": features.averaged_quality(runs)}
    return record


def lungs(number: int, work: Path) -> dict[str, Any]:
    """Measure X-rays of healthy lungs and of pneumonia with the held-out rows of a number."""
    (train, labels), (test, truth) = (
        features.read_features(work, name) for name in ("X-ray train", "X-ray")
    )
    order = np.random.RandomState(number).permutation(len(labels))
    apart, rest = order[: len(order) // 6], order[len(order) // 6 :]
    x = {"train": train[rest], "held-out": train[apart], "test": test}
    x |= {name: features.read_features(work, kept)[0] for name, kept in FAR_FROM_LUNGS.items()}
    y = {
        name: torch.from_numpy(of)
        for name, of in (("train", labels[rest]), ("held-out", labels[apart]))
    }
    return measured(x, {**y, "test": torch.from_numpy(truth)}, work, None)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--work", type=Path, default=Path("results/study/work"), help="where features are kept"
    )
    parser.add_argument("--to", type=Path, help="file of the record")
    parser.add_argument("--credal", action="store_true", help="compare credal methods only")
    options = parser.parse_args()
    name, sets, compare = (
        ("credal", FEWER, compare_credal) if options.credal else ("pretrained", SETS, compare_all)
    )
    command = "python -m experiments.study.pretrained --data DIR" + " --credal" * options.credal
    options.work.mkdir(parents=True, exist_ok=True)
    net = features.network()
    for place, source in sets.items():
        features.extract(net, place, source, options.data, options.work, SIZE)
    record = {
        **provenance(command),
        "images": {place: source._asdict() for place, source in sets.items()},
        "places": features.read_widths(options.work),
        **compare(options.work),
    }
    write_json(options.to or Path(f"results/study/{name}.json"), record)
    for score, columns in record["mean"].items():
        shown = (f"{column} {found['mean']:.3f}" for column, found in columns.items())
        print(f"{score:24s}", *shown)


if __name__ == "__main__":
    main()
