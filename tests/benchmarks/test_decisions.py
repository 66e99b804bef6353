"""Tables of decisions beside ordinary rejection: by hand, run against run, and what is left out is said."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from creinn.classifier.methods import TIMES
from creinn.experiments.store import write_arrays, write_packed

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "decisions.py"
spec = importlib.util.spec_from_file_location("decisions_script", SCRIPT)
decisions = importlib.util.module_from_spec(spec)
spec.loader.exec_module(decisions)

LABELS = np.array([0, 1])
SURE, OPEN = (
    ([0.8, 0.0, 0.0], [1.0, 0.1, 0.1]),
    ([0.0, 0.3, 0.3], [0.2, 0.5, 0.5]),
)  # keep {0} and {1, 2}
CREDAL = {
    "running/test/points/lower": np.array([SURE[0], OPEN[0]]),
    "running/test/points/upper": np.array([SURE[1], OPEN[1]]),
    "running/ood/far/lower": np.zeros((3, 3)),
    "running/ood/far/upper": np.ones((3, 3)),
    "batch/test/points/lower": np.zeros((2, 3)),  # not looked at
}
ORDINARY = {
    "running/test/points/samples": np.array([[[0.5, 0.4, 0.1], [0.2, 0.3, 0.5]]]),
    "running/ood/far/samples": np.array([[[0.35, 0.33, 0.32], [0.9, 0.05, 0.05]]]),
}


def study(folder, methods, runs, **settings):
    """A folder as an experiment leaves it; ``runs`` holds the arrays by method and number, ``None`` for absent ones."""
    pieces = []
    for method, found in runs.items():
        for number, arrays in enumerate(found):
            name = f"evaluate-{method}-{number}-0123"
            pieces.append({"kind": "evaluate", "method": method, "number": number, "arm": "points"})
            pieces[-1]["name"] = name
            if arrays is not None:
                write_arrays(
                    folder / "work" / "predictions" / f"{name}.npz", {"labels": LABELS, **arrays}
                )
    experiment = {
        "name": "tiny",
        "methods": methods,
        "members": 5,
        "deep_members": 10,
        "draws": 15,
        **settings,
    }
    write_packed(folder / "tiny.jsonl.gz", {"experiment": experiment, "pieces": pieces}, {})
    return folder


def means(row, part):
    return {name: None if value is None else value["mean"] for name, value in row[part].items()}


def test_credal_sets_beside_ordinary_ones_by_hand(tmp_path):
    rows = decisions.compare(
        "tiny", study(tmp_path, ["creinn", "snn"], {"creinn": [CREDAL], "snn": [ORDINARY]})
    )
    assert [(row["rule"], row["opponent"], row["way"], row["runs"]) for row in rows[:5]] == [
        ("maximality", None, None, 1),
        ("maximality", "snn", "threshold", 1),
        ("maximality", "snn", "cumulative", 1),
        ("maximality", "snn-norm", "threshold", 0),
        ("maximality", "snn-norm", "cumulative", 0),
    ]
    assert [row["rule"] for row in rows[::5]] == ["maximality", "dominance", "e-admissibility"]
    own = {
        "coverage": 1,
        "size": 1.5,
        "single": 0.5,
        "single_accuracy": 1,
        "discounted": 0.75,
        "size on far": 3,
    }
    assert means(rows[0], "own") == {"accuracy": 1, **own}
    # One class may stand beside the first ones: that of 0.4, so the threshold is just above 0.3 and the sets are {0, 1}
    # and {2}. Of the images far away one keeps all three classes, the other one class.
    theirs = {
        "coverage": 0.5,
        "size": 1.5,
        "single": 0.5,
        "single_accuracy": 0,
        "discounted": 0.25,
        "size on far": 2,
    }
    assert means(rows[1], "other") == {"accuracy": 0.5, **theirs}
    assert means(rows[1], "difference")["coverage"] == 0.5
    assert means(rows[1], "difference")["size on far"] == 1
    # The first classes leave 0.5 each: tied, so both stay alone.
    assert means(rows[2], "other")["size"] == 1
    assert "probabilities are tied" in rows[2]["note"]
    assert rows[3]["note"] == "not compared: no predictions of snn-norm"


def test_runs_are_compared_by_number_and_absent_ones_are_left_out_aloud(tmp_path, capsys):
    worse = {
        **ORDINARY,
        "running/test/points/samples": np.array([[[0.3, 0.6, 0.1], [0.6, 0.1, 0.3]]]),
    }
    runs = {"creinn-d": [CREDAL, CREDAL, None], "snn": [None, worse, ORDINARY]}
    rows = decisions.compare("tiny", study(tmp_path, ["creinn-d", "snn"], runs))
    assert [row["runs"] for row in rows[:3]] == [2, 1, 1]
    assert rows[0]["own"]["size"] == {"mean": 1.5, "std": 0.0, "runs": 2}
    assert means(rows[1], "other")["accuracy"] == 0
    told = capsys.readouterr().err
    assert "tiny: run 2 of creinn-d left out, there is no" in told
    assert told.count("tiny: run 0 of snn left out") == 1


def test_ensembles_are_averaged_or_enveloped_and_meet_deep_ensembles(tmp_path):
    other = {**CREDAL, "running/test/points/lower": np.array([OPEN[0], OPEN[0]])}
    other["running/test/points/upper"] = np.array([OPEN[1], OPEN[1]])
    samples = {
        **ORDINARY,
        "running/test/points/samples": np.array([[[0.3, 0.7, 0.0], [0.0, 0.9, 0.1]]]),
    }
    methods = ["creinn-ensemble", "creinn-envelope", "deep-ensemble"]
    rows = decisions.compare(
        "tiny", study(tmp_path, methods, {"creinn": [CREDAL, other], "snn": [ORDINARY, samples]})
    )
    average, envelope = rows[0], rows[15]
    assert (average["sets_of"], rows[1]["sets_of"]) == (f"CreINN {TIMES}2", "Deep Ensembles (2)")
    assert envelope["sets_of"] == f"CreINN {TIMES}2, envelope"
    # Row 0, averages: [0.4, 0.6], [0.15, 0.3], [0.15, 0.3]: class 0 alone. Envelope: [0, 1], [0, 0.5], [0, 0.5]: all.
    assert means(average, "own")["size"] == 1.5
    assert means(envelope, "own")["size"] == 2.5
    # Mean probabilities (0.4, 0.55, 0.05) and (0.1, 0.6, 0.3): {0, 1} and {1}.
    assert means(rows[1], "other") == pytest.approx(
        {
            "accuracy": 0.5,
            "coverage": 1,
            "size": 1.5,
            "single": 0.5,
            "single_accuracy": 1,
            "discounted": 0.75,
        }
        | {"size on far": 2}
    )


def test_files_and_what_is_left_out(tmp_path, capsys):
    folder = study(tmp_path / "out", ["creinn", "snn"], {"creinn": [CREDAL], "snn": [ORDINARY]})
    assert (
        decisions.main(["tiny", "absent", "--out", str(folder), "--to", str(tmp_path / "to")]) == 0
    )
    assert "absent: left out, there is no" in capsys.readouterr().err
    record = json.loads((tmp_path / "to" / "decisions.json").read_text())
    assert record["command"].startswith("python benchmarks/decisions.py tiny absent --out ")
    assert {"commit", "versions"} <= set(record)
    assert len(record["rows"]) == 15
    page = (tmp_path / "to" / "decisions.md").read_text()
    assert "## tiny" in page
    assert "| CreINN | e-admissibility | itself | 1 | 1.000 | 1.000 | 1.500 |" in page
    assert "|  |  | SNN, threshold | 1 | 0.500 | 0.500 | 1.500 |" in page
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == [
        "decisions.json",
        "decisions.md",
    ]


def test_nothing_to_compare_writes_nothing(tmp_path, capsys):
    interval = {
        "running/test/noise [0, 0.1]/lower": np.zeros((2, 3)),
        "running/test/noise [0, 0.1]/upper": np.ones((2, 3)),
    }
    folder = study(tmp_path / "out", ["creinn"], {"creinn": [interval]})
    assert decisions.main(["tiny", "--out", str(folder), "--to", str(tmp_path / "to")]) == 1
    told = capsys.readouterr().err
    assert "tiny: creinn left out, it has no predictions of a test set of points" in told
    assert "nothing was written" in told
    assert not (tmp_path / "to").exists()


def test_runs_on_different_images_are_refused(tmp_path):
    runs = {"creinn": [CREDAL], "snn": [{**ORDINARY, "labels": np.array([1, 1])}]}
    with pytest.raises(ValueError, match="tested on different images"):
        decisions.compare("tiny", study(tmp_path, ["creinn"], runs))
