"""Training in real processes, see ``processes.py`` and ``distributed_processes.py``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FILES = ["best.safetensors", "history.jsonl", "last.safetensors"]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    # Some virtual machines report AMX but do not have it; bfloat16 needs AVX-512 only.
    environment = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", **os.environ, "OMP_NUM_THREADS": "1"}
    script = Path(__file__).with_name("processes.py")
    command = [sys.executable, str(script), str(tmp_path_factory.mktemp("processes"))]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=400
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_killed_run_resumes_to_the_same_weights(results):
    killed = results["killed"]
    assert killed["kills"] >= 9
    assert killed["during_write"] >= 1
    assert 0 < killed["done"] < killed["total"]
    assert killed["same"]
    assert killed["same_best"]
    assert killed["epochs"] == killed["lines"] == killed["total"]
    assert killed["left"] == FILES


def test_interrupted_run_saves_all_finished_epochs(results):
    interrupted = results["interrupted"]
    assert interrupted["code"] == 0
    assert interrupted["interrupted"]
    assert 4 <= interrupted["saved"] == interrupted["epochs"] < results["killed"]["total"]
    assert interrupted["same"]


def test_full_disk_keeps_the_last_checkpoint(results):
    full = results["full"]
    assert full["code"] == 3
    assert "File too large" in full["error"]
    assert full["saved"] == 2
    assert full["left"] == FILES
    assert full["after"] == 4


def test_mixed_precision_keeps_float32_weights(results):
    mixed = results["mixed"]
    half, whole = mixed["losses"]
    assert half == pytest.approx(whole, rel=0.05)
    assert not mixed["same"]
    assert mixed["dtypes"] == ["torch.float32", "torch.int64", "torch.uint8"]


def test_two_processes_train_to_the_result_of_one(results):
    differences = results["compared"]["differences"]
    assert "distance_radius.scale" in differences["distance"]
    for case, found in differences.items():
        limit = 1e-5 if case == "float32" else 1e-10
        assert {name: far for name, far in found.items() if far > limit} == {}, case


def test_stream_is_divided_among_processes(results):
    one, first, second = results["compared"]["others"]
    np.testing.assert_allclose(first["stream"], one["stream"], atol=1e-10)
    assert first["stream"] == second["stream"]


def test_networks_with_batch_norm_are_the_same_on_all_processes(results):
    assert results["compared"]["same norms"] == [True, True]


def test_all_processes_raise_the_same_error(results):
    one, first, second = results["compared"]["errors"]
    assert first == second
    assert first["failure"] == one["failure"]
    assert "network.2.weight" in first["failure"]
    assert first["disk"] == one["disk"]
    assert first["disk"].startswith("OSError")
    assert "1 rows for 2 processes" in first["too few"]
    assert "Process 1 was given another train_data" in first["other data"]


def test_interrupt_of_one_process_stops_all(results):
    _, first, second = results["compared"]["others"]
    assert first["stopped"] == second["stopped"] == [True, True]


def test_processes_exchange_values(results):
    _, first, second = results["compared"]["others"]
    for found in (first, second):
        assert found["sum"] == [2.0, 1.0]
        assert found["ranks"] == [0, 1]
        assert found["single"] == [1, 0]
    assert first["first"] == second["first"]
    assert first["first"][0] == 1


def test_lost_process_is_reported_and_training_resumes(results):
    lost = results["lost"]
    assert lost["codes"] == [[3, -9], [0, 0], [0], [0]]
    assert "Process 0 of 2" in lost["message"]
    assert "checkpoint" in lost["message"]
    done, *resumed = lost["epochs"]
    assert done >= 3
    assert resumed == [done + 3, done + 5]
    same, fewer = lost["warnings"]
    assert same == []
    assert "2 processes" in fewer[0]
    assert lost["difference"] < 1e-10
