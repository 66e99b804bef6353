"""Files of the study that are not records of experiments."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from creinn.classifier.methods import METHODS
from experiments.store import read_json
from experiments.study.cells import (
    DATA,
    PAIRS,
    STUDIES,
    Entry,
    Number,
    Rows,
    Table,
    title,
)

FILES = {
    "pretrained": Path("results/study/pretrained.json"),
    "credal": Path("results/study/credal.json"),
    "finetuned": Path("results/study/finetuned.json"),
    "converted": Path("results/study/converted.json"),
    "terms": Path("results/study/terms.json"),
    "members": Path("results/study/members.json"),
}
KEYS = {
    "pretrained": "mean",
    "credal": "mean",
    "finetuned": "mean",
    "converted": "rows",
    "terms": "frozen",
    "members": "rows",
}

Files = Mapping[str, Mapping[str, Any]]


def read_files(paths: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """Read the files that exist, by name.

    Raises:
        ValueError: If a file has other content.
    """
    files = {name: read_json(path) if path.is_file() else {} for name, path in paths.items()}
    for name, found in files.items():
        if found and KEYS[name] not in found:
            there = ", ".join(map(repr, found))
            raise ValueError(
                f"{paths[name]} has no key {KEYS[name]!r}; it has {there}. "
                f"Pass another file as --{name}."
            )
    return files


def by_members(files: Files) -> list[Table]:
    """Build the table of AUARC and AUROC by the number of members."""
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
