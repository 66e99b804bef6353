"""Measure predictions of a long CSV file: peak memory and rows per second.

The script generates rows of ten numbers and two categories, and trains a
CreINN-D and an MLPClassifier of the same widths. Each predicts a tenth of the
rows and all rows, in its own process: the CreINN-D with ``creinn predict``, and
the baseline with ``read_csv``, ``predict_proba`` and ``to_csv``.

    python benchmarks/stream.py --rows 1000000 --out FILE
"""

import argparse
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from creinn.report.provenance import provenance
from experiments.store import write_json

NUMBERS = [f"x{i}" for i in range(10)]
CATEGORIES = ["colour", "shop"]
TRAINING_ROWS, EPOCHS, HIDDEN, CHUNK = 5000, 10, (64, 64), 100_000


def generate(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, len(NUMBERS))).round(4)
    frame = pd.DataFrame(x, columns=NUMBERS)
    frame["colour"] = np.array(["red", "green", "blue", "grey"], dtype=object)[
        rng.integers(0, 4, rows)
    ]
    frame["shop"] = np.array([f"shop {i}" for i in range(30)], dtype=object)[
        rng.integers(0, 30, rows)
    ]
    signal = x[:, 0] + x[:, 1] + 0.5 * rng.normal(size=rows)
    return frame.assign(y=np.array(["a", "b", "c"], dtype=object)[np.digitize(signal, [-0.7, 0.7])])


def write_rows(path: Path, rows: int) -> None:
    """Write rows in parts."""
    for seed, start in enumerate(range(0, rows, CHUNK), start=1):
        part = generate(min(CHUNK, rows - start), seed).drop(columns="y")
        part.to_csv(path, index=False, mode="a" if start else "w", header=start == 0)


def train_baseline(frame: pd.DataFrame, path: Path) -> None:
    encode = ColumnTransformer(
        [("n", StandardScaler(), NUMBERS), ("c", OneHotEncoder(), CATEGORIES)]
    )
    network = MLPClassifier(HIDDEN, max_iter=EPOCHS, early_stopping=True, random_state=0)
    joblib.dump(make_pipeline(encode, network).fit(frame[NUMBERS + CATEGORIES], frame["y"]), path)


def predict_baseline(model: str, data: str, out: str) -> None:
    pipeline = joblib.load(model)
    probabilities = pipeline.predict_proba(pd.read_csv(data))
    pd.DataFrame(probabilities, columns=pipeline.classes_).to_csv(out, index=False)


def measured(command: list[str]) -> dict[str, float]:
    """Return seconds and peak memory of a process.

    Raises:
        RuntimeError: If it fails.
    """
    start = time.perf_counter()
    process = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"{shlex.join(command)} failed.")
    unit = 1 if sys.platform == "darwin" else 1024
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss * unit / 1e6,
    }


def measure(folder: Path, rows: int) -> dict[str, Any]:
    training = generate(TRAINING_ROWS, 0)
    training.to_csv(folder / "train.csv", index=False)
    creinn = [sys.executable, "-m", "creinn"]
    widths = ",".join(map(str, HIDDEN))
    how = [
        "--target",
        "y",
        "--hidden",
        widths,
        "--epochs",
        str(EPOCHS),
        "--out",
        str(folder / "creinn"),
    ]
    measured([*creinn, "train", str(folder / "train.csv"), *how])
    train_baseline(training, folder / "mlp.joblib")
    found: dict[str, Any] = {"creinn predict": {}, "MLPClassifier": {}}
    for count in (rows // 10, rows):
        data, out = str(folder / f"{count}.csv"), str(folder / f"{count}-out.csv")
        write_rows(Path(data), count)
        commands = {
            "creinn predict": [*creinn, "predict", str(folder / "creinn"), data, "--out", out],
            "MLPClassifier": [
                sys.executable,
                __file__,
                "--baseline",
                str(folder / "mlp.joblib"),
                data,
                f"{out}.mlp",
            ],
        }
        for name, command in commands.items():
            numbers = measured(command)
            found[name][str(count)] = {**numbers, "rows_per_second": count / numbers["seconds"]}
    for by_rows in found.values():
        few, many = by_rows[str(rows // 10)], by_rows[str(rows)]
        for clock in (
            "seconds",
            "cpu_seconds",
        ):  # that of the processor says something on a busy machine too
            by_rows[f"rows_per_{clock.rstrip('s')}_without_start"] = (rows - rows // 10) / (
                many[clock] - few[clock]
            )
        by_rows["peak_ratio"] = many["peak_mb"] / few["peak_mb"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/stream.json"))
    parser.add_argument("--baseline", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.baseline:
        predict_baseline(*options.baseline)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.rows)
    for name, by_rows in found.items():
        print(name, by_rows)
    configuration = {
        "rows": options.rows,
        "training_rows": TRAINING_ROWS,
        "epochs": EPOCHS,
        "hidden": list(HIDDEN),
    }
    configuration |= {"threads": os.environ.get("OMP_NUM_THREADS"), "cores": os.cpu_count()}
    origin = provenance(f"python benchmarks/stream.py --rows {options.rows}")
    write_json(options.out, {**origin, "configuration": configuration, "results": found})


if __name__ == "__main__":
    main()
