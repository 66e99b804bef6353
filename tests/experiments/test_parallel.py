"""Tests of parallel runs: a Dask cluster that loses a worker, Ctrl-C and invalid arguments."""

import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import joblib
import pytest
import torch
from distributed import LocalCluster
from filelock import FileLock

from experiments import run as running
from experiments.command import main
from experiments.definition import Timing
from experiments.parallel import workers
from experiments.run import RunConfig, run_experiment
from experiments.store import packed_files, read_packed

EPOCHS = 8
SETTINGS = ["fashion-mnist-small", "--methods", "snn,deep-ensemble", "--seeds", "2"]
SETTINGS += ["--epochs", str(EPOCHS), "--width", "2", "--batch-size", "16"]
SETTINGS += ["--train-images", "60", "--test-images", "20", "--no-complete", "--no-progress"]


def first_epoch(out, is_running):
    """Return the name of a training and the first row of its history."""
    histories = "work/training/*/history.jsonl"
    while not (found := [path for path in out.glob(histories) if path.read_text().count("\n") > 1]):
        assert is_running()
        time.sleep(0.005)
    return found[0].parent.name, json.loads(found[0].read_text().splitlines()[0])


def kill_trainer(out, cluster):
    """Kill the process that trains and return its progress."""
    name, row = first_epoch(out, lambda: cluster.status.name == "running")
    inode = str((out / "work" / "locks" / f"{name}.lock").stat().st_ino)
    (holder,) = {
        line.split()[4]
        for line in Path("/proc/locks").read_text().splitlines()
        if f":{inode} " in line
    }
    os.kill(int(holder), signal.SIGKILL)
    return name, row


@pytest.mark.skipif(
    not Path("/proc/locks").exists(), reason="looks for the process that trains in /proc"
)
def test_killed_worker(tiny_data, tmp_path, monkeypatch, capsys):
    """One of two workers is killed, and the other resumes from its checkpoint."""
    how = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": 0, "dashboard_address": ":0"}
    with (
        concurrent.futures.ThreadPoolExecutor(1) as pool,
        LocalCluster(**how, silence_logs="ERROR") as cluster,
    ):
        killed = pool.submit(kill_trainer, tmp_path / "out", cluster)
        monkeypatch.chdir(tmp_path)  # another directory
        where = ["--data", str(tiny_data), "--out", "out", "--address", cluster.scheduler_address]
        assert main(["run", *SETTINGS, *where, "--backend", "dask"]) == 0
        name, row = killed.result()
    assert "5 tasks, 5 completed" in capsys.readouterr().out
    (path,) = packed_files(tmp_path / "out")
    found = read_packed(path)[1]
    kinds = sorted(record["kind"] for record in found.values())
    assert kinds == ["ensemble", "evaluate", "evaluate", "train", "train"]
    assert {record["threads"] for record in found.values()} == {1}
    history = found[name]["history"]
    assert [row["epoch"] for row in history] == list(range(1, EPOCHS + 1))
    assert history[0]["seconds"] == pytest.approx(row["seconds"], rel=1e-6)  # not trained again


@pytest.mark.skipif(os.name != "posix", reason="sends Ctrl-C to a group of processes")
@pytest.mark.parametrize("backend", ["loky", "dask", "ray"])
def test_interrupt_ends_run_and_workers(backend, tiny_data, tmp_path):
    if backend == "ray" and find_spec("ray") is None:
        pytest.skip("ray is not installed; pip install creinn[ray]")
    long = ["--epochs", "400"]  # after the first of many epochs
    command = [sys.executable, "-m", "experiments", "run", *SETTINGS, *long, "--backend", backend]
    command += ["--jobs", "2", "--data", str(tiny_data), "--out", str(tmp_path)]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # background jobs ignore it
    ) as process:
        try:
            first_epoch(tmp_path, lambda: process.poll() is None)
        finally:
            os.killpg(process.pid, signal.SIGINT)  # also to the workers, as a terminal does
        assert "stopped" in process.communicate()[1]
    assert process.returncode == 130
    locks = list(tmp_path.glob("work/locks/*"))
    assert locks
    for lock in locks:  # no process holds a lock
        FileLock(lock).acquire(timeout=0)


def test_incompatible_options_raise(tiny, tiny_data, tmp_path):
    with pytest.raises(ValueError, match="slurm"):
        workers("slurm")
    with pytest.raises(ValueError, match="tcp://a:1"):
        workers("loky", address="tcp://a:1")
    with pytest.raises(ValueError, match="jobs=2"):
        workers("dask", 2, "tcp://a:1")
    timed = replace(tiny, timing=Timing(batches=(1,), rounds=1))
    with pytest.raises(ValueError, match="backend=dask"):
        run_experiment(timed, tiny_data, tmp_path, RunConfig(backend="dask"))


@pytest.mark.skipif(find_spec("ray") is not None, reason="ray is installed")
def test_missing_package_raises(tiny_data, tmp_path, capsys):
    where = ["--data", str(tiny_data), "--out", str(tmp_path)]
    assert main(["run", *SETTINGS, *where, "--backend", "ray"]) == 1
    expected = "The backend ray needs ray, which is not installed. Install it with: pip install creinn[ray]"
    assert expected in capsys.readouterr().err


def test_multithreaded_workers_raise():
    how = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": ":0"}
    with (
        LocalCluster(**how) as cluster,
        pytest.raises(ValueError, match="--nthreads 1"),
        workers("dask", address=cluster.scheduler_address),
    ):
        pass


def test_single_worker_cluster():
    with workers("dask") as parallel_config:
        (process,) = joblib.Parallel(parallel_config.n_jobs)([joblib.delayed(os.getpid)()])
    assert process != os.getpid()


def test_unshared_directory_raises(tiny, tiny_data, tmp_path, monkeypatch):
    """The workers write to a directory of the same name on their own disks."""
    monkeypatch.setattr(running, "_do", lambda context, task: ((task.name,), None))
    outcome = run_experiment(tiny, tiny_data, tmp_path, RunConfig(complete=False, progress=False))
    assert len(outcome.failed) == outcome.total == 10
    assert "Do all workers see" in next(iter(outcome.failed.values()))


def test_threads_per_worker(tiny, tiny_data, tmp_path, monkeypatch):
    monkeypatch.setattr(
        running, "_do", lambda context, task: ((f"{torch.get_num_threads()}",), None)
    )
    outcome = run_experiment(
        tiny, tiny_data, tmp_path, RunConfig(complete=False, progress=False, threads=3)
    )
    assert outcome.done == ("3",)
