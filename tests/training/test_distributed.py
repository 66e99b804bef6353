"""What becomes of real processes that train together, see ``replicas.py``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_distributed(tmp_path):
    command = [sys.executable, str(Path(__file__).with_name("replicas.py")), str(tmp_path)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)

    # A rank whose partner is killed says so; the run goes on, on as many ranks or fewer, and ends as one that was not.
    killed = results["killed"]
    assert killed["codes"] == [[3, -9], [0, 0], [0], [0]]
    assert "Rank 0 of 2 has lost another one" in killed["message"]
    assert "Start all ranks again: the run goes on from its last checkpoint." in killed["message"]
    done, *resumed = killed["epochs"]
    assert done >= 3
    assert resumed == [done + 3, done + 5]
    same, fewer = killed["warnings"]
    assert same == []
    assert (
        "last.safetensors was written on 2 ranks and goes on on 1 rank: equal up to rounding only."
        in fewer[0]
    )
    assert killed["apart"] < 1e-10

    # Two ranks have the weights, statistics, predictions and history of one, after twenty steps.
    compared = results["compared"]
    apart = compared["apart"]
    for case in (
        "paper",
        "scaled",
        "sound",
        "distance",
        "paper radii",
        "scaled radii",
        "sound radii",
    ):
        assert f"{case} torch.float64 norm.running_var" in apart
    assert "distance torch.float64 distance_radius.scale" in apart
    assert {
        name: far
        for name, far in apart.items()
        if max(far) > (1e-10 if "float64" in name else 1e-5)
    } == {}
    one, first, second = (compared[name] for name in ("one", "first", "second"))
    np.testing.assert_allclose(first["stream"], one["stream"], atol=1e-10)
    assert first["stream"] == second["stream"]

    # Errors are those of all ranks, and of one process.
    for name in ("failure", "disk"):
        assert first[name] == second[name] == one[name]
    assert (
        "The parameter network.3.weight held values that are not finite before this step."
        in first["failure"]
    )
    assert first["disk"].startswith("OSError: Cannot write")
    assert (
        first["too few"]
        == second["too few"]
        == ("ValueError: train_data has 1 rows for 2 ranks; each needs one at least.")
    )
    assert "Rank 1 was given another train_data than rank 0." in first["other data"]
    assert first["other data"] == second["other data"]

    # Ctrl-C on one stops all, with the same weights.
    assert first["stopped"] == second["stopped"] == [True, True]

    assert first["sums"][:2] == second["sums"][:2] == [[2.0, 1.0], [0, 1]]
    assert first["sums"][2] == second["sums"][2]
    assert first["sums"][2][0] == 1
    assert second["alone"] == [1, 0]
