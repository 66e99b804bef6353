"""What becomes of real training processes, see ``processes.py``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FILES = ["best.safetensors", "history.jsonl", "last.safetensors"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_processes(tmp_path):
    # Some virtual machines promise AMX and do not have it; bfloat16 needs no more than AVX-512.
    environment = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", **os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("processes.py")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)

    # Killed by SIGKILL nine times or more, a run ends with the weights of one that was not.
    killed = results["killed"]
    assert killed["kills"] >= 9
    assert killed["during_write"] >= 1
    assert 0 < killed["done"] < killed["total"]
    assert killed["same"]
    assert killed["same_best"]
    assert killed["epochs"] == killed["lines"] == killed["total"]
    assert killed["left"] == FILES

    # Ctrl-C saves all finished epochs, exits cleanly, and the run goes on to the same weights.
    interrupted = results["interrupted"]
    assert interrupted["code"] == 0
    assert interrupted["interrupted"]
    assert 4 <= interrupted["saved"] == interrupted["epochs"] < killed["total"]
    assert interrupted["same"]

    # Where files cannot grow, the error says so, the checkpoint before is kept, and the run goes on from it.
    full = results["full"]
    assert full["code"] == 3
    assert "best.safetensors: File too large. The existing file is unchanged." in full["error"]
    assert full["saved"] == 2
    assert full["left"] == FILES
    assert full["after"] == 4

    # Mixed precision computes something else, learns as well, and keeps its weights in single precision.
    mixed = results["mixed"]
    half, whole = mixed["losses"]
    assert half == pytest.approx(whole, rel=0.05)
    assert not mixed["same"]
    assert mixed["dtypes"] == ["torch.float32", "torch.int64"]
