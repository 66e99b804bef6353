"""Measure coverage and size of conformal sets over random splits of four tables.

A third of the rows is used to train a ``CreINNClassifier`` with default options. The other rows are
divided into
calibration and test rows, 40 times for each of five trainings. For each table, the output contains:

- nominal and observed coverage at 80, 90, 95 and 99 % for each score: the mean over 200 splits, the
  theoretical value
  ceil((n + 1) c) / (n + 1), the deviation of the mean, and the share of splits inside the 95 %
  interval of the
  beta-binomial distribution;
- coverage of each class at 90 %, with one quantile for all classes and with one for each class;
- sizes at 95 %, also for LAC, APS and RAPS on the same network without a distance, on test rows and
  on foreign rows,
  whose columns are shifted by three standard deviations in random directions.

    OMP_NUM_THREADS=1 python -m experiments.study.conformal --out results/study/conformal.json
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import betabinom
from sklearn import datasets
from sklearn.model_selection import train_test_split
from torch import Tensor

from creinn.credal.conformal import SCORES, Conformal, class_scores, conformal_rank, usual_mass
from creinn.credal.credal_set import CredalSet
from creinn.report.provenance import provenance
from creinn.sklearn import CreINNClassifier
from experiments.store import write_json

LEVELS = (0.8, 0.9, 0.95, 0.99)
TRAININGS, SPLITS = 5, 40  # of each
AT, BY_CLASS_AT = 0.95, 0.9  # coverage of the comparison of sizes and classes
ALLOWED_SIZE = 1.03  # times the size of the better of LAC and APS
COMPARED = (
    ("distance", "lower"),
    ("distance", "dominance"),
    *(("ordinary", name) for name in ("lac", "aps", "raps")),
)
DEVIATIONS = 3.0  # tolerance of a mean over splits


def tables() -> dict[str, tuple[Any, Any]]:
    """Return inputs and classes by name."""
    generated = {
        "n_samples": 3000,
        "n_features": 20,
        "n_informative": 8,
        "n_classes": 5,
        "flip_y": 0.05,
    }
    return {
        "digits": datasets.load_digits(return_X_y=True),
        "breast cancer": datasets.load_breast_cancer(return_X_y=True),
        "generated, 5 classes": datasets.make_classification(**generated, random_state=0),
        "Gaussian quantiles": datasets.make_gaussian_quantiles(
            n_samples=2000, n_features=5, n_classes=3, random_state=0
        ),
    }


def predict(x: Any, y: Any, seed: int) -> tuple[dict[str, CredalSet], dict[str, CredalSet], Tensor]:
    """Predict held-out and foreign rows with and without the distance."""
    x_train, x_rest, y_train, y_rest = train_test_split(
        x, y, train_size=1 / 3, stratify=y, random_state=seed
    )
    model = CreINNClassifier(random_state=seed).fit(x_train, y_train)
    foreign = x_rest + 3 * x_train.std(0) * np.random.default_rng(seed).choice(
        [-1, 1], x_rest.shape
    )
    found, strange = ({"distance": model.credal_set(rows)} for rows in (x_rest, foreign))
    model.model_.distance_radius.scale.zero_()
    for sets, rows in ((found, x_rest), (strange, foreign)):
        sets["ordinary"] = model.credal_set(rows)
    return found, strange, torch.from_numpy(y_rest)


def scores_of(s: CredalSet, score: str, usual: float) -> Tensor:
    """Compute the scores of all classes in double precision."""
    return class_scores(score, s.lower, s.upper, s.intersection, usual=usual).double()


def divisions(rows: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Divide the rows into random halves."""
    generator = torch.Generator().manual_seed(seed)
    halves = (torch.randperm(rows, generator=generator).tensor_split(2) for _ in range(SPLITS))
    return [(one, other) for one, other in halves]


class Split(NamedTuple):
    """Predictions of calibration, test and foreign rows by kind of model."""

    found: dict[str, CredalSet]
    strange: dict[str, CredalSet]
    labels: Tensor
    calibration: Tensor  # numbers of rows
    test: Tensor

    def scores(self, kind: str, score: str) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the scores of test, foreign and calibration rows."""
        calibration = self.found[kind][self.calibration]
        own, usual = usual_mass(calibration.lower)
        right = scores_of(calibration, score, own).gather(1, self.labels[self.calibration, None])[
            :, 0
        ]
        return (
            scores_of(self.found[kind][self.test], score, usual),
            scores_of(self.strange[kind], score, usual),
            right,
        )


def quantile(scores: Tensor, level: float) -> float:
    """Compute the quantile of a single group."""
    return float(Conformal(scores, torch.zeros(len(scores), dtype=torch.long)).quantiles(level))


def coverage_rows(splits: Sequence[Split], score: str) -> list[dict[str, Any]]:
    """Build a row for each nominal coverage."""
    rows = []
    of_splits = [
        (*split.scores("distance", score), split.labels[split.test, None]) for split in splits
    ]
    n, m = len(splits[0].calibration), len(splits[0].test)
    for level in LEVELS:
        sets = [
            (scores <= quantile(right, level), labels) for scores, _, right, labels in of_splits
        ]
        found = [float(inside.gather(1, labels).double().mean()) for inside, labels in sets]
        sizes = [float(inside.sum(1).double().mean()) for inside, _ in sets]
        k = conformal_rank(n, level)
        count = betabinom(m, k, n + 1 - k)
        low, high = count.ppf(0.025) / m, count.ppf(0.975) / m
        mean, must, deviation = (
            float(np.mean(found)),
            k / (n + 1),
            float(count.std() / m / np.sqrt(len(splits))),
        )
        row = {
            "asked": level,
            "found": mean,
            "theory": must,
            "deviation": deviation,
            "size": float(np.mean(sizes)),
        }
        row["splits_inside"] = float(np.mean([low <= value <= high for value in found]))
        row = {key: round(value, 5) for key, value in row.items()}
        rows.append({**row, "inside": abs(mean - must) <= DEVIATIONS * deviation})
    return rows


def class_rows(splits: Sequence[Split], score: str) -> dict[str, list[float]]:
    """Compute the mean coverage of each class, with one quantile and with one per class."""
    found: dict[str, list[Any]] = {"one quantile": [], "by class": []}
    for split in splits:
        scores, _, right = split.scores("distance", score)
        classes, of_a, of_b = (
            range(scores.shape[1]),
            split.labels[split.calibration],
            split.labels[split.test],
        )
        own = torch.tensor([quantile(right[of_a == k], BY_CLASS_AT) for k in classes])
        for name, limit in (
            ("one quantile", quantile(right, BY_CLASS_AT)),
            ("by class", own[of_b]),
        ):
            covered = scores.gather(1, of_b[:, None])[:, 0] <= limit
            found[name].append([float(covered[of_b == k].double().mean()) for k in classes])
    return {name: np.mean(of, 0).round(4).tolist() for name, of in found.items()}


def size_rows(splits: Sequence[Split]) -> dict[str, Any]:
    """Compute mean sizes of sets on test and on foreign rows by model and score."""
    rows: dict[str, Any] = {}
    for kind, score in COMPARED:
        sizes = []
        for split in splits:
            scores, foreign, right = split.scores(kind, score)
            limit = quantile(right, AT)
            sizes.append([float((of <= limit).sum(1).double().mean()) for of in (scores, foreign)])
        test, far = np.mean(sizes, 0).round(4).tolist()
        rows[f"{kind}, {score}"] = {"test": test, "foreign": far}
    ours = rows[", ".join(COMPARED[0])]
    better = min(("lac", "aps"), key=lambda name: rows[f"ordinary, {name}"]["test"])
    theirs = rows[f"ordinary, {better}"]
    ratio = ours["test"] / theirs["test"]
    met = {"small": ratio <= ALLOWED_SIZE, "larger_on_foreign": ours["foreign"] > theirs["foreign"]}
    return {**rows, "better": better, "ratio": round(ratio, 4), "met": met}


def measure(x: Any, y: Any) -> dict[str, Any]:
    """Compute all numbers of a table."""
    splits = []
    for seed in range(TRAININGS):
        predicted = predict(x, y, seed)
        splits += [Split(*predicted, *halves) for halves in divisions(len(predicted[2]), seed)]
    accuracy = np.mean(
        [float((split.found["distance"].label == split.labels).double().mean()) for split in splits]
    )
    return {
        "rows": {"calibration": len(splits[0].calibration), "test": len(splits[0].test)},
        "accuracy": round(float(accuracy), 4),
        "coverage": {score: coverage_rows(splits, score) for score in SCORES},
        "coverage_by_class": class_rows(splits, COMPARED[0][1]),
        "sizes": size_rows(splits),
    }


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/study/conformal.json"))
    options = parser.parse_args()
    results = {}
    for name, (x, y) in tables().items():
        results[name] = found = measure(x, y)
        print(name, found["rows"], f"accuracy {found['accuracy']:.4f}")
        for score, rows in found["coverage"].items():
            print(
                f"  {score:10}",
                *(
                    f"{r['asked']} {r['found']:.4f} {r['inside']} {r['splits_inside']:.2f};"
                    for r in rows
                ),
            )
        print("  by class", found["coverage_by_class"])
        print("  sizes", found["sizes"], flush=True)
    write_json(
        options.out,
        {
            **provenance("python -m experiments.study.conformal"),
            "trainings": TRAININGS,
            "splits": SPLITS,
            "results": results,
        },
    )


if __name__ == "__main__":
    main()
