"""Measure ensembles of different sizes: CreINN-D beside ordinary networks with logit norm.

The input is the directory of results of ``python -m experiments run`` with its predictions. The
output is members.json
with one row per experiment, method and number of members. The numbers are means over draws of the
members.

    python -m experiments.study.members --out results/experiments --to results/study
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from creinn.classifier.methods import METHODS, base_method, combination, is_ensemble
from creinn.report.provenance import provenance
from creinn.report.tables import MeanStd
from experiments.plan import draw_members
from experiments.predictions import POINTS, from_arrays, measure_ood, measure_test
from experiments.store import PACKED, read_arrays, read_packed, write_json

EXPERIMENTS = ("study-fashion-mnist", "study-cifar10-svhn", "study-chest-xray")
COMPARED = ("snn-norm", "creinn-d")
SIZES = (1, 2, 3, 5, 7, 10)
DRAWS = 10


class Run(NamedTuple):
    """A network or an ensemble with a prediction per set of images."""

    labels: npt.NDArray[np.int64]
    predictions: Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", default=EXPERIMENTS, metavar="NAME")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/experiments"),
        help="--out of experiments run",
    )
    parser.add_argument("--to", type=Path, default=Path("results/study"), help="folder of the file")
    options = parser.parse_args(arguments)
    rows = [row for name in options.experiments for row in compare(name, options.out)]
    if not rows:
        print("There are no predictions to combine, and nothing was written.", file=sys.stderr)
        return 1
    names = " ".join(options.experiments)
    command = f"python -m experiments.study.members {names} --out {options.out} --to {options.to}"
    write_json(options.to / "members.json", {**provenance(command), "rows": rows})
    return 0


def compare(experiment: str, out: Path) -> list[dict[str, Any]]:
    """Build a row for each method and number of members that was run."""
    path = out / f"{experiment}{PACKED}"
    if not path.is_file():
        return []
    reader = Reader(read_packed(path)[0], out / "work" / "predictions")
    rows = []
    for method in COMPARED:
        numbers = list(reader.runs(method))
        for size in SIZES:
            if size > len(numbers):
                continue
            drawn = [
                [numbers[i] for i in members] for members in draw_members(len(numbers), size, DRAWS)
            ]
            found = [measured(run) for members in drawn if (run := reader.made_of(method, members))]
            names = dict.fromkeys(name for values in found for name in values)
            spreads = {
                name: MeanStd.of([values[name] for values in found])._asdict() for name in names
            }
            rows.append(
                {"experiment": experiment, "method": method, "members": size, "draws": len(found)}
                | spreads
            )
    return rows


class Reader:
    """Reader of the predictions of an experiment.

    Args:
        manifest: Tasks of the experiment.
        folder: Directory of the predictions.
    """

    def __init__(self, manifest: Mapping[str, Any], folder: Path) -> None:
        self.settings: Mapping[str, Any] = manifest["experiment"]
        self._files: dict[str, dict[int, Path]] = {}
        for task in manifest["pieces"]:
            if task["kind"] == "evaluate" and task["arm"] == POINTS:
                path = folder / f"{task['name']}.npz"
                self._files.setdefault(task["method"], {})[task["number"]] = path
        self._read = cache(self._read_single)

    def runs(self, method: str) -> dict[int, Run]:
        """Return the runs of a method, or its ensembles, by number."""
        base = base_method(method)
        if not is_ensemble(method):
            return {
                number: run
                for number in self._files.get(base, {})
                if (run := self.made_of(method, (number,)))
            }
        if base not in self._files:
            return {}
        drawn = draw_members(len(self._files[base]), self._size(base), self.settings["draws"])
        return {
            number: run
            for number, members in enumerate(drawn)
            if (run := self.made_of(method, members))
        }

    def _size(self, base: str) -> int:
        size = self.settings["deep_members" if METHODS[base].kind == "snn" else "members"]
        return min(size, len(self._files[base]))

    def made_of(self, method: str, numbers: Sequence[int]) -> Run | None:
        """Combine the runs with these numbers; ``None`` if one of them does not exist."""
        found = [self._read(base_method(method), number) for number in numbers]
        members = [arrays for arrays in found if arrays is not None]
        if len(members) < len(found):
            return None
        running = [
            {key: array for key, array in arrays.items() if key.startswith("running/")}
            for arrays in members
        ]
        predictions = from_arrays(running, combination(method))["running"]
        if POINTS not in predictions["test"]:
            return None
        return Run(
            members[0]["labels"], {POINTS: predictions["test"][POINTS], **predictions["ood"]}
        )

    def _read_single(self, method: str, number: int) -> dict[str, npt.NDArray[Any]] | None:
        path = self._files[method][number]
        if path.is_file():
            return read_arrays(path)
        tell(f"{self.settings['name']}: run {number} of {method} left out, there is no {path}.")
        return None


def tell(message: str) -> None:
    """Print a note about missing predictions."""
    print(message, file=sys.stderr)


def measured(run: Run) -> dict[str, float]:
    """Compute accuracy, AUARC by TU, and AUROC by EU and TU for each foreign set."""
    inside = run.predictions[POINTS]
    test = measure_test(inside, run.labels)
    found = {"accuracy": test["accuracy"], "auarc": test["auarc"]["total"]}
    for name, outside in run.predictions.items():
        if name != POINTS:
            detection = measure_ood(inside, outside)
            found |= {f"{name} {kind}": detection[kind]["auroc"] for kind in ("epistemic", "total")}
    return found


if __name__ == "__main__":
    sys.exit(main())
