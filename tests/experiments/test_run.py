"""Tests of runs: records, failures and interruptions."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from creinn.classifier.base import Classifier
from creinn.classifier.credal import Ensemble
from creinn.files import read_tensors
from creinn.training import History
from experiments import tasks
from experiments.catalogue import EXPERIMENTS
from experiments.command import main
from experiments.definition import Timing
from experiments.plan import RADII_EPOCHS, make_plan
from experiments.preparation import network_inputs, prepare_all
from experiments.run import RunConfig, run_experiment
from experiments.store import Store, packed_files, read_packed, write_packed
from experiments.tasks import RunContext

INTERVAL_CONDITIONS, POINT_CONDITIONS = (
    EXPERIMENTS[f"{kind}-cifar10"].conditions for kind in ("interval", "points-to-intervals")
)


def run(experiment, data, out, **options):
    config = RunConfig(complete=False, progress=False, **options)
    return run_experiment(experiment, data, out, config)


def records(out, start=""):
    found = {
        name: record
        for path in packed_files(Path(out))
        for name, record in read_packed(path)[1].items()
    }
    return {name: record for name, record in sorted(found.items()) if name.startswith(start)}


def kinds(names):
    """Return the names of tasks without their keys."""
    return sorted(name.rsplit("-", 1)[0] for name in names)


SINGLES = ["creinn-0", "creinn-1", "snn-0", "snn-1"]
ENSEMBLES = ["ensemble-creinn-ensemble-0", "ensemble-deep-ensemble-0"]


def test_tasks_are_recorded(finished):
    out, outcome = finished
    assert (outcome.total, outcome.failed) == (10, {})
    expected = sorted(
        [*ENSEMBLES, *(f"{kind}-{name}" for kind in ("train", "evaluate") for name in SINGLES)]
    )
    assert kinds(outcome.done) == expected
    found = records(out)
    assert kinds(found) == expected
    for record in found.values():
        assert {
            "settings",
            "versions",
            "commit",
            "date",
            "seconds",
            "key",
            "threads",
            "device",
        } <= set(record)
        assert record["versions"]["torch"]
    training = next(iter(records(out, "train-creinn-1").values()))
    assert training["settings"]["seed"] == 1
    assert training["settings"]["training"]["milestones"] == [1]
    assert [row["epoch"] for row in training["history"]] == [1, 2]
    assert training["history"][1]["learning_rate"] == pytest.approx(1e-4)
    assert training["images"] == {"train": 50, "validation": 10}
    assert training["radii"]["shape"] == [2, 1, 3, 3]
    assert not list(out.glob("work/training/*"))  # checkpoints are gone


def test_metrics_are_recorded_with_running_and_batch_statistics(finished):
    out, _ = finished
    for record in (*records(out, "evaluate").values(), *records(out, "ensemble").values()):
        assert set(record["metrics"]) == {"running", "batch"}
        for found in record["metrics"].values():
            assert set(found["sets"]) == {"points"}
            assert 0 <= found["sets"]["points"]["accuracy"] <= 1
            assert all(len(curve) == 100 for curve in found["sets"]["points"]["curves"].values())
            assert found["ood"]["mnist"]["total"]["base_rate"] == 0.5
        assert record["metrics"]["running"] != record["metrics"]["batch"]


def test_completed_tasks_are_skipped(finished, tiny, tiny_data):
    out, _ = finished
    (path,) = packed_files(out)
    before = path.read_bytes()
    outcome = run(tiny, tiny_data, out)
    assert (outcome.total, outcome.done, outcome.failed) == (10, (), {})
    assert path.read_bytes() == before


def test_changed_setting_reruns_dependent_tasks(finished, tiny, tiny_data, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "out")
    without_ood = run(replace(tiny, ood=()), tiny_data, out)
    assert kinds(without_ood.done) == sorted(
        [*ENSEMBLES, *(f"evaluate-{name}" for name in SINGLES)]
    )
    other = replace(tiny, options={"snn": {"logit_norm": True}})
    assert {name.split("-")[1] for name in run(other, tiny_data, out).done} == {"snn", "deep"}
    more = run(replace(tiny, seeds=3, methods=("snn", "deep-ensemble")), tiny_data, out)
    assert kinds(more.done) == ["ensemble-deep-ensemble-0", "evaluate-snn-2", "train-snn-2"]
    assert run(tiny, tiny_data, out).done == ()  # earlier files are kept


def test_existing_records_are_reused(finished, tiny, tiny_data, tmp_path):
    (path,) = packed_files(finished[0])
    shutil.copy(path, tmp_path)
    assert run(tiny, tiny_data, tmp_path).done == ()
    # the missing record needs the members, whose predictions were not copied
    about, found = read_packed(path)
    (name,) = (name for name in found if name.startswith("ensemble-deep"))
    write_packed(
        tmp_path / path.name,
        about,
        {other: record for other, record in found.items() if other != name},
    )
    outcome = run(tiny, tiny_data, tmp_path)
    expected = [
        "ensemble-deep-ensemble-0",
        *(f"{k}-snn-{i}" for k in ("evaluate", "train") for i in (0, 1)),
    ]
    assert kinds(outcome.done) == expected
    assert records(tmp_path)[name]["metrics"] == found[name]["metrics"]


def test_ensemble_matches_networks(finished, tiny, tiny_data, tmp_path):
    out, _ = finished
    sources = prepare_all(tiny, tiny_data, tmp_path, complete=False)
    plan = make_plan(tiny, sources.identities)
    context, test = RunContext(tiny, sources, Store(out), ""), sources.test.read()
    found = [
        context.trained(task.needs[0])
        for task in plan
        if task.kind == "evaluate" and task.method == "creinn"
    ]
    x = network_inputs(test, None, found[0][1])
    prediction = Ensemble([model for model, _ in found]).predict(x)
    recorded = next(iter(records(out, "ensemble-creinn").values()))["metrics"]["running"]["sets"][
        "points"
    ]
    assert recorded["accuracy"] == pytest.approx(
        (prediction.label == test.labels).double().mean().item(), abs=1e-6
    )
    for name in ("total", "aleatoric", "epistemic"):
        assert recorded["means"][name] == pytest.approx(
            getattr(prediction, name).mean().item(), abs=1e-4
        )


def test_failed_task_does_not_stop_others(tiny, tiny_data, tmp_path, monkeypatch):
    train = tasks.train

    def failing(context, task):
        if task.method == "creinn" and task.number == 0:
            raise FloatingPointError("the loss is NaN")
        train(context, task)

    monkeypatch.setattr(tasks, "train", failing)
    quick = replace(tiny, training=replace(tiny.training, epochs=1))
    outcome = run(quick, tiny_data, tmp_path)
    assert {name.rsplit("-", 1)[0]: reason for name, reason in outcome.failed.items()} == {
        "evaluate-creinn-0": "the loss is NaN"
    }
    assert "ensemble-creinn-ensemble-0" not in kinds(outcome.done)
    assert "ensemble-deep-ensemble-0" in kinds(outcome.done)
    assert "failing" in next(tmp_path.glob("work/failures/*")).read_text()
    monkeypatch.setattr(tasks, "train", train)
    assert kinds(run(quick, tiny_data, tmp_path).done) == [
        "ensemble-creinn-ensemble-0",
        "evaluate-creinn-0",
        "train-creinn-0",
    ]


def test_interval_conditions(tiny, tiny_data, tmp_path):
    quick = replace(
        tiny, seeds=1, ood=(), methods=("creinn",), training=replace(tiny.training, epochs=1)
    )
    outcome = run(
        replace(quick, name="interval", conditions=INTERVAL_CONDITIONS), tiny_data, tmp_path
    )
    assert (outcome.failed, len(outcome.done)) == ({}, 4)
    shifts = {
        tuple(r["metrics"]["running"]["sets"]) for r in records(tmp_path, "evaluate").values()
    }
    assert shifts == {tuple(map(str, condition.tests)) for condition in INTERVAL_CONDITIONS}
    for record in records(tmp_path, "evaluate").values():
        sets = record["metrics"]["running"]["sets"]
        assert next(iter(sets.values()))["increase"]["total"] == {"mean": 1.0, "excluded": 0}
    assert len(run(quick, tiny_data, tmp_path).done) == 2
    shared = run(
        replace(quick, name="points-to-intervals", conditions=POINT_CONDITIONS), tiny_data, tmp_path
    )
    assert kinds(shared.done) == [
        "evaluate-creinn-0"
    ]  # the network trained on points is used again


def test_two_classes(tiny, tiny_data, tmp_path, monkeypatch):
    """The network has one logit."""
    from experiments.preparation import Prepared

    read = Prepared.read

    def binary(self):
        data = read(self)
        return replace(data, labels=data.labels % 2, classes=("even", "odd"))

    monkeypatch.setattr(Prepared, "read", binary)
    quick = replace(tiny, seeds=1, logits=1, training=replace(tiny.training, epochs=1))
    assert run(quick, tiny_data, tmp_path).failed == {}
    found = next(iter(records(tmp_path, "evaluate-creinn").values()))
    assert found["metrics"]["running"]["sets"]["points"]["means"]["total"] <= 1


@pytest.mark.parametrize("method", ["bnn-r", "bnn-f", "fsvi", "fsvi-norm", "bnn-l", "bnn-l-norm"])
def test_baselines_by_name(method, tiny, tiny_data, tmp_path):
    options = {} if method.startswith("bnn-l") else {method: {"samples": 3}}
    quick = replace(
        tiny,
        methods=(method, f"{method}-ensemble"),
        training=replace(tiny.training, epochs=1),
        options=options,
    )
    outcome = run(quick, tiny_data, tmp_path)
    assert (outcome.failed, len(outcome.done)) == ({}, 5)
    sets = next(iter(records(tmp_path, "ensemble").values()))["metrics"]["running"]["sets"][
        "points"
    ]
    assert sets["means"]["total"] == pytest.approx(
        sets["means"]["aleatoric"] + sets["means"]["epistemic"], abs=1e-4
    )


def test_inference_times(tiny, tiny_data, tmp_path):
    timed = replace(
        tiny,
        methods=("snn", "creinn"),
        conditions=(),
        ood=(),
        timing=Timing(batches=(1, 4), rounds=2),
    )
    outcome = run(timed, tiny_data, tmp_path)
    assert kinds(outcome.done) == ["time-all-0"]
    (record,) = records(tmp_path).values()
    assert set(record["seconds_per_call"]) == {"snn", "creinn"}
    for sizes in record["seconds_per_call"].values():
        assert set(sizes) == {"1", "4"}
        assert all(0 < t["least"] <= t["median"] for by in sizes.values() for t in by.values())
    assert record["parameters"]["creinn"] > record["parameters"]["snn"]
    assert run(timed, tiny_data, tmp_path).done == ()


def test_interrupt_ends_run(tiny, tiny_data, tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "fit", lambda *arguments: History((), interrupted=True))
    with pytest.raises(KeyboardInterrupt):
        run(tiny, tiny_data, tmp_path)
    assert records(tmp_path) == {}


@pytest.mark.parametrize(
    ("augment", "flip"), [("none", None), ("crop", False), ("crop-flip", True)]
)
def test_training_images_are_augmented(augment, flip, tiny, tiny_data, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        tasks, "fit", lambda *given: asked.append(given[-1]) or History((), interrupted=True)
    )
    with pytest.raises(KeyboardInterrupt):
        run(replace(tiny, training=replace(tiny.training, augment=augment)), tiny_data, tmp_path)
    assert getattr(asked[0], "flip", None) is flip


def test_threads_of_the_caller_are_restored(finished, tiny, tiny_data):
    before = torch.get_num_threads()
    run(tiny, tiny_data, finished[0])
    assert torch.get_num_threads() == before
    assert issubclass(Ensemble, Classifier)


def test_jobs_must_be_positive(tiny, tiny_data, tmp_path):
    with pytest.raises(ValueError, match="jobs must be at least 1, got 0"):
        run(tiny, tiny_data, tmp_path, jobs=0)


KILLED = ["run", "fashion-mnist-small", "--methods", "creinn,creinn-ensemble", "--seeds", "2"]
KILLED += ["--epochs", "8", "--width", "2", "--batch-size", "16", "--train-images", "60"]
KILLED += ["--test-images", "40", "--no-complete", "--no-progress"]


@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="looks for worker processes in /proc"
)
def test_killed_run_resumes(tiny_data, tmp_path, capsys):
    """A process with two workers is killed, and another run finishes its work."""
    arguments = [*KILLED, "--data", str(tiny_data), "--out", str(tmp_path)]
    process = subprocess.Popen([sys.executable, "-m", "experiments", *arguments, "--jobs", "2"])
    try:
        deadline = time.monotonic() + 240
        every = "work/training/*/history.jsonl"
        while not (
            histories := [p for p in tmp_path.glob(every) if p.read_text().count("\n") > 1]
        ):  # one is kept
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert children
    for child in children:  # nothing is done twice
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)
    assert records(tmp_path) == {}
    first = {path.parent.name: json.loads(path.read_text().splitlines()[0]) for path in histories}
    assert main(arguments) == 0
    assert "5 tasks, 5 completed" in capsys.readouterr().out
    for name, row in first.items():
        record = records(tmp_path)[name]
        assert record["history"][0]["seconds"] == pytest.approx(
            row["seconds"], rel=1e-6
        )  # not trained again
        assert len(record["history"]) == 8


def test_train_radii_of_trained_network(tiny, tiny_data, tmp_path):
    """The weights of the trained network are the centres."""
    experiment = replace(tiny, methods=("creinn-radii",), seeds=1)
    outcome = run(experiment, tiny_data, tmp_path)
    assert not outcome.failed
    assert [name.rsplit("-", 2)[0] for name in outcome.done] == [
        "train-snn-norm",
        "train-creinn-radii",
        "evaluate-creinn-radii",
    ]
    start, widened = (
        read_tensors(next((tmp_path / "work" / "weights").glob(f"train-{name}-*.safetensors")))[0]
        for name in ("snn-norm", "creinn-radii")
    )
    sources, centers = (
        [tensor for name, tensor in found.items() if name.endswith(".weight") and tensor.ndim > 1]
        for found in (start, widened)
    )
    assert len(centers) == len(sources) > 5
    assert all(any(torch.equal(center, source) for source in sources) for center in centers)
    radii = [tensor for name, tensor in widened.items() if name.endswith("weight_radius")]
    assert all(bool((radius > 0).any()) for radius in radii)
    (record,) = records(tmp_path, "train-creinn-radii").values()
    assert len(record["history"]) == RADII_EPOCHS


def test_add_distance_to_trained_network(tiny, tiny_data, tmp_path):
    """The model has the weights and the classes of the network, and wider sets."""
    experiment = replace(tiny, methods=("snn-norm", "creinn-d"), seeds=1)
    outcome = run(experiment, tiny_data, tmp_path)
    assert not outcome.failed
    found = {name.rsplit("-", 2)[0]: record for name, record in records(tmp_path).items()}
    start, with_distance = found["train-snn-norm"], found["train-creinn-d"]
    assert with_distance["parameters"] == start["parameters"]
    assert with_distance["seconds"] >= start["seconds"]
    assert with_distance["distance_scale"] > 0
    ours, theirs = (
        found[f"evaluate-{name}"]["metrics"]["running"]["sets"]["points"]
        for name in ("creinn-d", "snn-norm")
    )
    assert ours["accuracy"] == theirs["accuracy"]
    assert ours["means"]["epistemic"] > 0
