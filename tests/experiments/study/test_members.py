"""Tests of ensembles by their number of members."""

import json

import numpy as np

from experiments.store import write_arrays, write_packed
from experiments.study import members

LABELS = np.array([0, 1])


def leave(folder, runs):
    """Write the samples of each run of SNNs as an experiment does."""
    tasks = []
    for number, (test, far) in enumerate(runs):
        name = f"evaluate-snn-norm-{number}-0123"
        tasks.append({"kind": "evaluate", "method": "snn-norm", "number": number, "arm": "points"})
        tasks[-1]["name"] = name
        arrays = {"labels": LABELS, "running/test/points/samples": np.array([test])}
        arrays["running/ood/far/samples"] = np.array([far])
        write_arrays(folder / "work" / "predictions" / f"{name}.npz", arrays)
    experiment = {
        "name": "tiny",
        "methods": ["snn-norm"],
        "members": 5,
        "deep_members": 10,
        "draws": 15,
    }
    write_packed(folder / "tiny.jsonl.gz", {"experiment": experiment, "pieces": tasks}, {})
    return folder


AGREED = [[0.9, 0.1], [0.2, 0.8]]
RUNS = [
    (AGREED, [[0.99, 0.01]]),
    (AGREED, [[0.01, 0.99]]),
]  # sure of what is far, and of different classes


def test_detection_by_members(tmp_path):
    one, two = members.compare("tiny", leave(tmp_path, RUNS))
    assert [(row["members"], row["draws"]) for row in (one, two)] == [(1, 2), (2, 1)]
    assert one["accuracy"]["mean"] == two["accuracy"]["mean"] == 1
    assert one["far total"]["mean"] == 0  # less entropy than any test image
    assert two["far epistemic"]["mean"] == two["far total"]["mean"] == 1


def test_provenance(tmp_path, capsys):
    leave(tmp_path, RUNS)
    assert members.main(["tiny", "--out", str(tmp_path), "--to", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "members.json").read_text())
    assert found["command"].startswith("python -m experiments.study.members tiny")
    assert len(found["rows"]) == 2
    assert members.main(["absent", "--out", str(tmp_path), "--to", str(tmp_path / "none")]) == 1
    assert "nothing was written" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
