"""Sets of classes of credal networks beside sets of ordinary networks with the same mean size, on recorded experiments.

In: the predictions that `creinn experiment run` left in its folder of results. Out: decisions.json, one row per
experiment, method, rule and opponent, and decisions.md, one table per experiment. No network is run.

    python benchmarks/decisions.py study-fashion-mnist study-cifar10-svhn --out results/experiments --to results/study
"""

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from creinn.classifier.methods import (
    METHODS,
    base_method,
    combination,
    find_method,
    is_ensemble,
    label,
)
from creinn.credal.credal_set import CredalSet
from creinn.credal.decision import RULES
from creinn.evaluation import set_decisions
from creinn.evaluation.checks import Numbers, as_distributions
from creinn.experiments.plan import draw_members
from creinn.experiments.predictions import POINTS, from_arrays
from creinn.experiments.store import PACKED, read_arrays, read_packed, write_json
from creinn.files import write_bytes
from creinn.report.provenance import provenance
from creinn.report.tables import Cell, MeanStd, markdown_table

EXPERIMENTS = ("study-fashion-mnist", "study-cifar10-svhn", "study-chest-xray")
ORDINARY, DEEP = ("snn", "snn-norm"), ("deep-ensemble", "deep-ensemble-norm")
QUALITIES = ("accuracy", "coverage", "size", "single", "single_accuracy", "discounted")
MISSED = 0.01
"""An opponent whose mean size misses that of the credal sets by a larger share is said to do so."""

NOTES = """\
Sets of classes that credal networks keep by three rules, and below them the sets of ordinary networks of the same run,
cut by one number for all images so that their mean size on the test images is the same: a threshold on probabilities,
or on their cumulative sum. The number is then kept for out-of-distribution images. Means and standard deviations over
the runs; an opponent's numbers are over the runs that have one. Discounted: a set of m classes that contains the true
one counts 1/m. For reachable intervals, which credal sets have, maximality and dominance are one rule.
"""

Values = dict[str, Any]  # numbers by name; None where one is not defined


def threshold_for_size(probabilities: Any, size: float) -> float:
    """The least threshold with which the sets of :func:`threshold_sets` have at most ``size`` classes on average.

    It lies next above the largest probability that has to stay out. Classes of equal probability are all in or all
    out, so the mean size may be less than ``size``. Raises a ValueError if it is not in [1, K], or the rows are not
    distributions.

    Example:
        >>> p = [[0.7, 0.2, 0.1], [0.5, 0.4, 0.1]]
        >>> threshold_sets(p, threshold_for_size(p, 1.5)).tolist()
        [[True, False, False], [True, True, False]]
    """
    largest_out = _largest_out(np.sort(as_distributions(probabilities), 1)[:, :-1], size)
    return 0.0 if largest_out is None else float(np.nextafter(largest_out, math.inf))


def threshold_sets(probabilities: Any, threshold: float) -> npt.NDArray[np.bool_]:
    """Classes whose probability is at least ``threshold``, and always the first most probable one; bool ``(N, K)``.

    Raises a ValueError if ``threshold`` is not in [0, 1], or the rows are not distributions.
    """
    p = as_distributions(probabilities)
    sets: npt.NDArray[np.bool_] = p >= _as_share(threshold, "threshold")
    sets[np.arange(len(p)), p.argmax(1)] = True
    return sets


def tail_for_size(probabilities: Any, size: float) -> float:
    """The least tail with which the sets of :func:`cumulative_sets` have at most ``size`` classes on average.

    Sets that grow at the same tail grow together, so the mean size may be less than ``size``. Raises what
    :func:`threshold_for_size` does.

    Example:
        >>> tail_for_size([[0.75, 0.125, 0.125], [0.5, 0.25, 0.25]], 1.5)  # a quarter is left to the third of row 1
        0.25
    """
    left = np.cumsum(np.sort(as_distributions(probabilities), 1)[:, :-1], 1)
    return float(_largest_out(left, size) or 0.0)


def cumulative_sets(probabilities: Any, tail: float) -> npt.NDArray[np.bool_]:
    """The fewest, most probable classes that leave at most ``tail`` to the others: their sum reaches 1 - ``tail``.

    Of classes of equal probability the first is taken first. These are the sets of adaptive conformal prediction
    without randomisation, Romano, Sesia and Candès (2020). Raises what :func:`threshold_sets` does.

    Example:
        >>> cumulative_sets([[0.5, 0.375, 0.125], [0.25, 0.0, 0.75]], 0.25).tolist()
        [[True, True, False], [False, False, True]]
    """
    p = as_distributions(probabilities)
    others = np.argsort(-p, axis=1, kind="stable")[
        :, :0:-1
    ]  # all but the most probable, that first which goes first
    left = np.cumsum(
        np.take_along_axis(p, others, 1), 1
    )  # from the smallest on: a sum near 1 has lost digits
    sets = np.ones(p.shape, bool)
    np.put_along_axis(sets, others, left > _as_share(tail, "tail"), 1)
    return sets


def _largest_out(levels: Numbers, size: float) -> float | None:
    """Largest level that is out when as many classes beside the first of each row are in as the mean size allows."""
    rows, classes = len(levels), levels.shape[1] + 1
    if not 1 <= size <= classes:
        allowed = f"from 1 to {classes} for {classes} classes"
        raise ValueError(f"size is the mean number of classes in a set, {allowed}, found {size!r}.")
    total = math.floor(size * rows)  # one too few, or too many, where the product is rounded
    total += (total + 1) / rows <= size
    total -= total / rows > size
    return None if total == rows * classes else np.sort(levels, None)[::-1][total - rows]


def _as_share(value: float, name: str) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is a probability, in [0, 1], found {value!r}.")
    return value


WAYS: dict[str, tuple[Callable[..., float], Callable[..., npt.NDArray[np.bool_]]]] = {
    "threshold": (threshold_for_size, threshold_sets),
    "cumulative": (tail_for_size, cumulative_sets),
}


class Run(NamedTuple):
    """One network, or one ensemble: a prediction per set of images, the test images under ``points``."""

    labels: npt.NDArray[np.int64]
    predictions: Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, compare and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "experiments",
        nargs="*",
        default=EXPERIMENTS,
        metavar="NAME",
        help="default: the three studies",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/experiments"),
        help="--out of creinn experiment run",
    )
    parser.add_argument(
        "--to", type=Path, default=Path("results/study"), help="folder of the two files"
    )
    options = parser.parse_args(arguments)
    rows = [row for name in options.experiments for row in compare(name, options.out)]
    if not rows:
        tell("There is nothing to compare, and nothing was written.")
        return 1
    names = " ".join(options.experiments)
    command = f"python benchmarks/decisions.py {names} --out {options.out} --to {options.to}"
    write_json(options.to / "decisions.json", {**provenance(command), "rows": rows})
    write_bytes(options.to / "decisions.md", page(rows).encode())
    return 0


def compare(experiment: str, out: Path) -> list[dict[str, Any]]:
    """All rows of an experiment; none, and a word about it, if it was not run."""
    path = out / f"{experiment}{PACKED}"
    if not path.is_file():
        tell(f"{experiment}: left out, there is no {path}.")
        return []
    manifest = read_packed(path)[0]
    reader = Reader(manifest, out / "work" / "predictions")
    rows: list[dict[str, Any]] = []
    for method in manifest["experiment"]["methods"]:
        if not find_method(method).is_credal and combination(method) != "wrapper":
            continue
        runs = reader.runs(method)
        if not runs:
            tell(f"{experiment}: {method} left out, it has no predictions of a test set of points.")
            continue
        baselines = {
            name: reader.runs(name) for name in (DEEP if is_ensemble(method) else ORDINARY)
        }
        labels = {name: reader.label(name) for name in (method, *baselines)}
        for rule in RULES:
            head = {"experiment": experiment, "method": method, "rule": rule}
            for row in rows_of(runs, baselines, rule):
                rows.append({**head, **row, "sets_of": labels[row["opponent"] or method]})
    return rows


class Reader:
    """Runs of an experiment by method and number, as far as their predictions are there.

    Args:
        manifest: What the experiment consists of.
        folder: Where predictions are.
    """

    def __init__(self, manifest: Mapping[str, Any], folder: Path) -> None:
        self.settings: Mapping[str, Any] = manifest["experiment"]
        self._files: dict[str, dict[int, Path]] = {}
        for piece in manifest["pieces"]:
            if piece["kind"] == "evaluate" and piece["arm"] == POINTS:
                path = folder / f"{piece['name']}.npz"
                self._files.setdefault(piece["method"], {})[piece["number"]] = path
        self._read = cache(self._read_single)

    def runs(self, method: str) -> dict[int, Run]:
        """Runs of a single method, or ensembles as the experiment draws them, by number."""
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

    def label(self, method: str) -> str:
        """The method as tables name it, an ensemble with its size."""
        base = base_method(method)
        return label(
            method, self._size(base) if is_ensemble(method) and base in self._files else None
        )

    def _size(self, base: str) -> int:
        size = self.settings["deep_members" if METHODS[base].kind == "snn" else "members"]
        return min(size, len(self._files[base]))

    def made_of(self, method: str, numbers: Sequence[int]) -> Run | None:
        """The runs of these numbers as one prediction; ``None`` if one of them is not there."""
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


def rows_of(
    runs: Mapping[int, Run], baselines: Mapping[str, Mapping[int, Run]], rule: str
) -> list[dict[str, Any]]:
    """One row for the credal sets alone, then one for each opponent and way to cut its sets."""
    own = {number: credal_values(run, rule) for number, run in runs.items()}
    rows: list[dict[str, Any]] = [
        {"opponent": None, "way": None, "runs": len(own), "own": spreads(own.values())}
    ]
    for baseline, others in baselines.items():
        shared = [number for number in runs if number in others]
        for way in WAYS:
            row: dict[str, Any] = {"opponent": baseline, "way": way, "runs": len(shared)}
            if not shared:
                rows.append({**row, "note": f"not compared: no predictions of {baseline}"})
                continue
            theirs = {
                number: ordinary_values(
                    others[number], way, own[number]["size"], runs[number].labels
                )
                for number in shared
            }
            mine = [own[number] for number in shared]
            row |= {"own": spreads(mine), "other": spreads(theirs.values())}
            row["difference"] = spreads(
                [difference(own[number], theirs[number]) for number in shared]
            )
            gap = row["own"]["size"]["mean"] - row["other"]["size"]["mean"]
            if gap > MISSED * row["own"]["size"]["mean"]:
                row["note"] = (
                    "sets are smaller: probabilities are tied, so no number gives the same mean size"
                )
            rows.append(row)
    return rows


def credal_values(run: Run, rule: str) -> Values:
    """Quality of the sets that a rule keeps."""
    test: CredalSet = run.predictions[POINTS]
    sets = {name: credal.classes(rule).numpy() for name, credal in run.predictions.items()}
    return _values(test.label.numpy(), sets, run.labels)


def ordinary_values(run: Run, way: str, size: float, labels: npt.NDArray[np.int64]) -> Values:
    """Quality of sets that have the given mean size on the test images; other images are cut by the same number.

    Raises:
        ValueError: If the test images are others than those with ``labels``.
    """
    if not np.array_equal(run.labels, labels):
        raise ValueError(
            "The runs to compare were tested on different images. Run the experiment again."
        )
    find, cut = WAYS[way]
    number = find(run.predictions[POINTS].probabilities, size)
    sets = {
        name: cut(prediction.probabilities, number) for name, prediction in run.predictions.items()
    }
    return _values(run.predictions[POINTS].label.numpy(), sets, labels)


def difference(own: Values, other: Values) -> Values:
    """Own minus the opponent's, where both are defined."""
    return {
        name: None if value is None or (theirs := other.get(name)) is None else value - theirs
        for name, value in own.items()
    }


def spreads(runs: Any) -> dict[str, Any]:
    """Mean, standard deviation and number of runs of each value; ``None`` where no run has it."""
    runs = list(runs)
    found: dict[str, Any] = {}
    for name in runs[0]:
        values = [run[name] for run in runs if run[name] is not None]
        found[name] = None
        if values:
            mean, std = MeanStd.of(values)
            found[name] = {
                "mean": round(mean, 6),
                "std": None if std is None else round(std, 6),
                "runs": len(values),
            }
    return found


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """All rows as Markdown, a table per experiment."""
    parts = ["# Sets of classes\n", NOTES]
    for experiment in dict.fromkeys(row["experiment"] for row in rows):
        shown = [_cells(row) for row in rows if row["experiment"] == experiment]
        parts += [f"## {experiment}\n", markdown_table(shown) + "\n"]
    return "\n".join(parts)


def tell(message: str) -> None:
    """Say on standard error what is left out."""
    print(message, file=sys.stderr)


def _values(
    predicted: npt.NDArray[np.int64],
    sets: Mapping[str, npt.NDArray[np.bool_]],
    labels: npt.NDArray[np.int64],
) -> Values:
    values: Values = {"accuracy": float((predicted == labels).mean())}
    values |= set_decisions(sets[POINTS], labels)._asdict()
    return values | {
        f"size on {name}": float(kept.sum(1).mean())
        for name, kept in sets.items()
        if name != POINTS
    }


def _cells(row: Mapping[str, Any]) -> dict[str, Cell]:
    alone = row["opponent"] is None
    values = row.get("own" if alone else "other", {})
    names = [*QUALITIES, *(name for name in values if name not in QUALITIES)]
    cells: dict[str, Cell] = {
        "method": row["sets_of"] if alone else "",
        "rule": row["rule"] if alone else "",
        "sets of": "itself" if alone else f"{row['sets_of']}, {row['way']}",
        "runs": row["runs"],
    }
    for name in names:
        value = values.get(name)
        cells[name.replace("_", " ")] = (
            None if value is None else MeanStd(value["mean"], value["std"])
        )
    return cells | ({"note": row["note"]} if "note" in row else {})


if __name__ == "__main__":
    sys.exit(main())
