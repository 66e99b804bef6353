"""Tables of the study that rest on other files than records: sets of classes, members, speed; and reading all of these.

In: decisions.json of benchmarks/decisions.py, members.json of benchmarks/members.py, and distance.json of
benchmarks/speed, each only if it is there. Out: tables and rows; none for a file that is not there.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from study_cells import DATA, PAIRS, STUDIES, Entry, Number, Rows, Table, bar, foreign, title

from creinn.classifier.methods import METHODS
from creinn.experiments.store import read_json

FILES = {
    "pretrained": Path("results/study/pretrained.json"),
    "finetuned": Path("results/study/finetuned.json"),
    "converted": Path("results/study/converted.json"),
    "terms": Path("results/study/terms.json"),
    "decisions": Path("results/study/decisions.json"),
    "members": Path("results/study/members.json"),
    "speed": Path("results/benchmarks/distance.json"),
}
KEYS = {
    "pretrained": "mean",
    "finetuned": "mean",
    "converted": "rows",
    "terms": "frozen",
    "decisions": "rows",
    "members": "rows",
    "speed": "inference",
}
MOST_TIME = 1.3

Files = Mapping[str, Mapping[str, Any]]


def read_files(paths: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """What the files hold, by name; nothing for those that are not there.

    Raises:
        ValueError: If a file is of another kind.
    """
    files = {name: read_json(path) if path.is_file() else {} for name, path in paths.items()}
    for name, found in files.items():
        if found and KEYS[name] not in found:
            there = ", ".join(map(repr, found))
            raise ValueError(
                f"{paths[name]} has no {KEYS[name]!r}, but {there}. Give another file as --{name}."
            )
    return files


def decisions(files: Files) -> list[Table]:
    """Sets of classes beside those of an ordinary network cut by a threshold at equal mean size; a table per study."""
    tables = []
    for data, experiment in STUDIES.items():
        rows: Rows = []
        for entry in files.get("decisions", {}).get("rows", []):
            chosen = entry["experiment"] == experiment and entry["method"] in ("creinn", "creinn-d")
            if (
                not chosen
                or (entry["opponent"], entry["way"]) != ("snn-norm", "threshold")
                or "other" not in entry
            ):
                continue
            own, other = entry["own"], entry["other"]
            row: dict[str, Entry] = {"model": METHODS[entry["method"]].label, "rule": entry["rule"]}
            row["runs"] = entry["runs"]
            for name, column in (("size", "mean size"), ("coverage", "coverage")):
                row |= {column: given(own, name), f"{column}, thresholds": given(other, name)}
            for ood in [of for on, of in PAIRS if on == data]:
                row[f"size on {foreign(data, ood)}"] = given(own, f"size on {ood}")
                row[f"size on {foreign(data, ood)}, thresholds"] = given(other, f"size on {ood}")
            rows.append(row)
        if rows:
            tables.append(
                Table(
                    rows,
                    f"{DATA[data]}; thresholds on {METHODS['snn-norm'].label}, at equal mean size.",
                )
            )
    return tables


def given(values: Mapping[str, Any], name: str) -> Number | None:
    """A number as decisions.json holds it."""
    return None if values.get(name) is None else Number(**values[name])


def by_members(files: Files) -> list[Table]:
    """AUARC by TU and AUROC by EU of ensembles by their number of members, a row per quantity and method."""
    found = files.get("members", {}).get("rows", [])
    rows: Rows = []
    for data, experiment in STUDIES.items():
        quantities = {"auarc": f"AUARC (TU), {DATA[data]}"}
        quantities |= {
            f"{ood} epistemic": f"AUROC (EU), {title(data, ood)}" for on, ood in PAIRS if on == data
        }
        for quantity, name in quantities.items():
            for method in ("snn-norm", "creinn-d"):
                row: dict[str, Entry] = {"measure": name, "members": METHODS[method].label}
                for entry in found:
                    if (entry["experiment"], entry["method"]) == (
                        experiment,
                        method,
                    ) and quantity in entry:
                        value = entry[quantity]
                        row[str(entry["members"])] = Number(
                            value["mean"], value["std"], entry["draws"]
                        )
                if len(row) > 2:
                    rows.append(row)
    return [Table(rows, spreads=False, places=4)] if rows else []


def speed_bars(files: Files) -> Rows:
    """Inference time of the recommended form over the SNN's, a row per batch size; its runs are networks."""
    ratios: dict[int, dict[str, float]] = {}
    for cell in files.get("speed", {}).get("inference", []):
        measured = cell["contenders"].get("creinn-d", {})
        if "to_snn" in measured:  # neither of the two was skipped
            ratios.setdefault(cell["batch"], {})[cell["model"]] = measured["to_snn"]["median"]
    rows: Rows = []
    for batch, by_model in sorted(ratios.items()):
        slowest = max(by_model, key=lambda model: by_model[model])
        what = f"CreINN-D over SNN, side by side: inference time, batch {batch}, the slowest of the networks {slowest}"
        rows += bar(what, Number(by_model[slowest], None, len(by_model)), "≤", MOST_TIME)
    return rows
