"""Training time and quality on tables, beside two classifiers of scikit-learn.

All classifiers are fitted in alternation in one process with one thread. The
time is the processor time of ``fit``, and of an epoch of 50,000 rows with
batches of 64. 150 rows are the iris data, and larger tables are generated.
Foreign rows are uniform noise in a cube that is three times as wide as the
data.

    python -m benchmarks.tables [--rows 150 1000 10000 100000] [--rounds 3]
                                [--out results/benchmarks/tables.json]
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_iris, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.cells import command_line, plain
from benchmarks.timing import seconds_of
from creinn.files import write_bytes
from creinn.report.provenance import provenance
from creinn.report.tables import text_table
from creinn.sklearn import CreINNClassifier

TEST_ROWS = 5_000
IRIS_ROWS = 150
EPOCH_ROWS, EPOCH_BATCH = 50_000, 64
FEWEST_TO_STOP = 1_000  # with fewer rows, early stopping of MLPClassifier ends after a few epochs

Table = tuple[Any, Any, Any, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", nargs="+", type=int, default=(150, 1_000, 10_000, 100_000))
    parser.add_argument("--rounds", type=int, default=3, help="fits of each classifier")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/tables.json"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    result = {
        **provenance(command_line("benchmarks.tables", arguments)),
        "configuration": {**plain(options), "threads": os.environ.get("OMP_NUM_THREADS")},
    }
    warm_up = read_table(IRIS_ROWS, seed=0)
    for build in classifiers(IRIS_ROWS, seed=0).values():
        build().fit(*warm_up[:2])
    cells: list[dict[str, Any]] = []
    for rows in options.rows:
        cells += measure(rows, options.rounds)
        print(text_table(cells[-3:]), flush=True)
        _write(options.out, {**result, "cells": cells})
    epochs = measure_epoch(options.rounds)
    print(text_table(epochs))
    _write(options.out, {**result, "cells": cells, "epochs": epochs})
    return 0


def _write(path: Path, result: dict[str, Any]) -> None:
    write_bytes(path, (json.dumps(result, indent=2) + "\n").encode())


def measure(rows: int, rounds: int) -> list[dict[str, Any]]:
    """Return the medians over the rounds for each classifier."""
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(rounds):
        table = read_table(rows, seed)
        for name, build in classifiers(rows, seed).items():
            found.setdefault(name, []).append(fit_and_score(build(), table, seed))
    medians = {
        name: {key: statistics.median(row[key] for row in of_rounds) for key in of_rounds[0]}
        for name, of_rounds in found.items()
    }
    reference = medians["MLPClassifier"]["cpu seconds"]
    return [
        {"rows": rows, "classifier": name, "rounds": rounds}
        | values
        | {"to MLPClassifier": values["cpu seconds"] / reference}
        for name, values in medians.items()
    ]


def measure_epoch(rounds: int) -> list[dict[str, Any]]:
    """Return the median processor time of an epoch, from fits of 1 and 3 epochs."""
    x, y, *_ = read_table(EPOCH_ROWS, seed=0)
    options: dict[str, Any] = {"batch_size": EPOCH_BATCH, "random_state": 0}
    builds = {
        "CreINNClassifier": lambda epochs: CreINNClassifier(
            max_iter=epochs, early_stopping=False, distance=0.01, **options
        ),
        "MLPClassifier": lambda epochs: MLPClassifier((64, 64), max_iter=epochs, **options),
    }
    found: dict[str, list[float]] = {name: [] for name in builds}
    for _ in range(rounds):
        for name, build in builds.items():
            one, three = (seconds_of(partial(build(epochs).fit, x, y))[1] for epochs in (1, 3))
            found[name].append((three - one) / 2)
    medians = {name: statistics.median(seconds) for name, seconds in found.items()}
    return [
        {
            "rows": EPOCH_ROWS,
            "batch size": EPOCH_BATCH,
            "classifier": name,
            "epoch cpu seconds": seconds,
            "to MLPClassifier": seconds / medians["MLPClassifier"],
        }
        for name, seconds in medians.items()
    ]


def classifiers(rows: int, seed: int) -> dict[str, Callable[[], Any]]:
    """Return the constructors by name."""
    stops = rows >= FEWEST_TO_STOP
    network = MLPClassifier((64, 64), early_stopping=stops, random_state=seed)
    return {
        "CreINNClassifier": lambda: CreINNClassifier(random_state=seed),
        "MLPClassifier": lambda: make_pipeline(StandardScaler(), network),
        "HistGradientBoosting": lambda: HistGradientBoostingClassifier(random_state=seed),
    }


def read_table(rows: int, seed: int) -> Table:
    """Return the training and test data."""
    if rows == IRIS_ROWS:
        x, y = load_iris(return_X_y=True)
        parts = train_test_split(x, y, test_size=1 / 3, stratify=y, random_state=seed)
        return parts[0], parts[2], parts[1], parts[3]
    x, y = make_classification(
        rows + TEST_ROWS,
        20,
        n_informative=10,
        n_classes=3,
        n_clusters_per_class=3,
        flip_y=0.05,
        random_state=seed,
    )
    return x[:rows], y[:rows], x[rows:], y[rows:]


def fit_and_score(classifier: Any, table: Table, seed: int) -> dict[str, float]:
    """Return the processor time, log loss, accuracy and AUROC of foreign rows.

    Their score is the epistemic uncertainty or one minus the largest
    probability.
    """
    x, y, x_test, y_test = table
    seconds = seconds_of(lambda: classifier.fit(x, y))[1]
    low, high = x.min(0), x.max(0)
    noise = np.random.default_rng(seed).uniform(size=x_test.shape)
    foreign = (low + high) / 2 + 3 * (high - low) * (noise - 0.5)
    probabilities = classifier.predict_proba(x_test)
    scores = [uncertainty(classifier, rows) for rows in (x_test, foreign)]
    is_foreign = np.repeat((0, 1), [len(x_test), len(foreign)])
    return {
        "cpu seconds": seconds,
        "log loss": log_loss(y_test, probabilities),
        "accuracy": accuracy_score(y_test, probabilities.argmax(1)),
        "foreign auroc": roc_auc_score(is_foreign, np.concatenate(scores)),
    }


def uncertainty(classifier: Any, x: Any) -> Any:
    if isinstance(classifier, CreINNClassifier):
        return classifier.uncertainty(x)["epistemic"]
    return 1 - classifier.predict_proba(x).max(1)


if __name__ == "__main__":
    sys.exit(main())
