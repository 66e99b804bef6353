"""Compare the estimator with MLPClassifier on the tables of scikit-learn.

The tables are iris, wine, breast cancer and digits, in stratified cross-validation with five folds
and several seeds. ``CreINNClassifier`` has default options. ``MLPClassifier`` with scaled inputs
runs with its default number of epochs (200) and with up to 2000 epochs. The output is log loss,
accuracy and calibration error with 15 bins, as means over the seeds, and the comparison with the
limits: a log loss of at most 1.15 times that of ``MLPClassifier``, an accuracy of at most one point
less, and a calibration error below 0.05.

The default options were chosen on generated tables, the diabetes data of scikit-learn and the
diamonds of ggplot2, not on these tables.

    OMP_NUM_THREADS=1 python -m experiments.study.tabular --out results/study/tabular.json
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from creinn.evaluation import expected_calibration_error, log_loss
from creinn.report.provenance import provenance
from creinn.sklearn import CreINNClassifier
from experiments.store import write_json

TABLES = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
FOLDS = 5
LARGEST_RATIO, LARGEST_LAG, LARGEST_ERROR = 1.15, 0.01, 0.05  # the bars
OURS, THEIRS = "CreINNClassifier", "MLPClassifier, enough epochs"


def perceptron(**options: Any) -> Any:
    """Build the network of scikit-learn with a scaler."""
    return make_pipeline(StandardScaler(), MLPClassifier(**options))


CONFIGURATIONS: dict[str, Callable[[int], Any]] = {
    OURS: lambda seed: CreINNClassifier(random_state=seed),
    THEIRS: lambda seed: perceptron(max_iter=2000, random_state=seed),
    "MLPClassifier": lambda seed: perceptron(random_state=seed),
}


def measure(make: Callable[[int], Any], x: Any, y: Any, seed: int) -> dict[str, float]:
    """Compute the numbers of the out-of-fold predictions of all rows."""
    started, found = perf_counter(), np.zeros((len(y), y.max() + 1))
    for rest, fold in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(x, y):
        found[fold] = make(seed).fit(x[rest], y[rest]).predict_proba(x[fold])
    numbers = {"log_loss": log_loss(found, y), "accuracy": float((found.argmax(1) == y).mean())}
    numbers["calibration_error"] = expected_calibration_error(found, y)
    return {**numbers, "seconds": perf_counter() - started}


def judge(rows: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Compare the numbers of a table with the limits."""
    ours, theirs = rows[OURS], rows[THEIRS]
    ratio, lag = ours["log_loss"] / theirs["log_loss"], theirs["accuracy"] - ours["accuracy"]
    error = ours["calibration_error"]
    met = {
        "log_loss": ratio <= LARGEST_RATIO,
        "accuracy": lag <= LARGEST_LAG,
        "calibration_error": error < LARGEST_ERROR,
    }
    return {"ratio_of_log_loss": round(ratio, 4), "accuracy_behind": round(lag, 4), "met": met}


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/study/tabular.json"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=list(TABLES))
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results: dict[str, Any] = {}
    for name in options.tables:
        x, y = TABLES[name](return_X_y=True)
        runs = {
            who: [measure(make, x, y, s) for s in range(options.seeds)]
            for who, make in CONFIGURATIONS.items()
        }
        rows = {
            who: {key: float(np.mean([run[key] for run in of])) for key in of[0]}
            for who, of in runs.items()
        }
        losses = {who: [round(run["log_loss"], 4) for run in of] for who, of in runs.items()}
        results[name] = {
            "rows": len(y),
            "means": rows,
            "log_loss_by_seed": losses,
            "bars": judge(rows),
        }
        for who, numbers in rows.items():
            print(
                f"{name:14} {who:30}",
                *(f"{key} {value:.4f}" for key, value in numbers.items()),
                flush=True,
            )
        print(name, results[name]["bars"], flush=True)
    command = f"python -m experiments.study.tabular --seeds {options.seeds}"
    setting = {"folds": FOLDS, "seeds": options.seeds, "estimator": CreINNClassifier().get_params()}
    write_json(options.out, {**provenance(command), **setting, "results": results})


if __name__ == "__main__":
    main()
