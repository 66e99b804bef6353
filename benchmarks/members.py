"""Ensembles of few and many networks: CreINN-D beside ordinary networks with logit norm, at equal numbers of members.

In: the predictions that `creinn experiment run` left in its folder of results. Out: members.json, one row per
experiment, method and number of members, with means over draws of the members. No network is run.

    python benchmarks/members.py study-fashion-mnist study-cifar10-svhn --out results/experiments --to results/study
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from decisions import EXPERIMENTS, Reader, Run

from creinn.experiments.plan import draw_members
from creinn.experiments.predictions import POINTS, measure_ood, measure_test
from creinn.experiments.store import PACKED, read_packed, write_json
from creinn.report.provenance import provenance
from creinn.report.tables import MeanStd

METHODS = ("snn-norm", "creinn-d")
SIZES = (1, 2, 3, 5, 7, 10)
DRAWS = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, combine, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", default=EXPERIMENTS, metavar="NAME")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/experiments"),
        help="--out of creinn experiment run",
    )
    parser.add_argument("--to", type=Path, default=Path("results/study"), help="folder of the file")
    options = parser.parse_args(arguments)
    rows = [row for name in options.experiments for row in compare(name, options.out)]
    if not rows:
        print("There are no predictions to combine, and nothing was written.", file=sys.stderr)
        return 1
    command = f"python benchmarks/members.py {' '.join(options.experiments)} --out {options.out} --to {options.to}"
    write_json(options.to / "members.json", {**provenance(command), "rows": rows})
    return 0


def compare(experiment: str, out: Path) -> list[dict[str, Any]]:
    """A row for each method and number of members; none of what was not run."""
    path = out / f"{experiment}{PACKED}"
    if not path.is_file():
        return []
    reader = Reader(read_packed(path)[0], out / "work" / "predictions")
    rows = []
    for method in METHODS:
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


def measured(run: Run) -> dict[str, float]:
    """Accuracy, AUARC by TU, and AUROC by EU and TU on every foreign set."""
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
