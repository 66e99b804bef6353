"""Measure the effect of missing values on the wine data of scikit-learn.

The script trains on one half of the rows with ``creinn train``. It evaluates the other half with
``creinn evaluate``,
with all columns and with two columns removed. The output is accuracy, mean EU, mean size of the
sets and coverage.

    python -m experiments.study.missing --out results/study/missing.json
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

from creinn.cli.main import main as creinn
from creinn.report.provenance import provenance
from experiments.store import write_json

BLANKED = ("flavanoids", "proline")
METHODS = ("creinn-d", "creinn")


def measure(folder: Path, method: str) -> dict[str, dict[str, Any]]:
    """Compute the numbers of a method with all columns and with two columns removed."""
    frame = load_wine(as_frame=True).frame
    train, test = train_test_split(frame, test_size=0.5, stratify=frame["target"], random_state=0)
    blanked = test.assign(**dict.fromkeys(BLANKED, np.nan))
    for name, table in {"train": train, "whole": test, "blanked": blanked}.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    run(
        "train",
        str(folder / "train.csv"),
        "--target",
        "target",
        "--method",
        method,
        "--out",
        str(folder / method),
    )
    found = {}
    for name in ("whole", "blanked"):
        model, data = str(folder / method), str(folder / f"{name}.csv")
        numbers, rows = folder / f"{method}-{name}.json", folder / f"{method}-{name}-rows.csv"
        run("evaluate", model, data, "--out", str(numbers))
        run("predict", model, data, "--out", str(rows))
        record, predictions = json.loads(numbers.read_text()), pd.read_csv(rows)
        sets = {"mean_size": record["sets"]["mean_size"], "coverage": record["sets"]["coverage"]}
        found[name] = {
            "accuracy": record["accuracy"],
            "EU": float(predictions["EU"].mean()),
            **sets,
        }
    return found


def run(*arguments: str) -> None:
    """Run a command of creinn.

    Raises:
        RuntimeError: If the command fails.
    """
    if creinn(list(arguments)):
        raise RuntimeError(f"creinn {' '.join(arguments)} failed.")


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/study/missing.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {method: measure(Path(folder), method) for method in METHODS}
    for method, by_table in found.items():
        print(
            method,
            {name: {k: round(v, 3) for k, v in row.items()} for name, row in by_table.items()},
        )
    write_json(
        options.out,
        {
            **provenance("python -m experiments.study.missing"),
            "blanked": list(BLANKED),
            "results": found,
        },
    )


if __name__ == "__main__":
    main()
