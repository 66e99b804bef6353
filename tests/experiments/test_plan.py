"""Tests of the tasks of an experiment and of their keys."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.catalogue import EXPERIMENTS
from experiments.definition import Images
from experiments.plan import VERSIONS, Task, draw_members, make_plan
from experiments.store import read_packed

DATA = [("cifar10", "a"), ("cifar10", "b"), ("svhn", "c")]
FOUR = ("snn", "deep-ensemble", "creinn", "creinn-ensemble")
CIFAR = replace(EXPERIMENTS["cifar10-svhn-small"], methods=FOUR)


def keys(plan, kind):
    return {task.key for task in of_kind(plan, kind)}


def of_kind(plan, kind):
    return [task for task in plan if task.kind == kind]


def test_counts():
    plan = make_plan(CIFAR, DATA)
    kinds = [task.kind for task in plan]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "train": 15,
        "evaluate": 15,
        "ensemble": 2,
    }
    assert [len(task.needs) for task in of_kind(plan, "ensemble")] == [10, 5]
    assert len({task.key for task in plan}) == len(plan)


def test_runs_of_the_paper_and_its_ensembles():
    plan = make_plan(replace(EXPERIMENTS["cifar10-svhn"], methods=FOUR), DATA)
    assert len(of_kind(plan, "evaluate")) == 30
    assert [(p.method, len(p.needs)) for p in of_kind(plan, "ensemble")] == (
        [("deep-ensemble", 10)] * 15 + [("creinn-ensemble", 5)] * 15
    )


def test_plan_is_deterministic():
    assert make_plan(CIFAR, DATA) == make_plan(CIFAR, DATA)


@pytest.mark.parametrize(
    "change",
    [
        {"training": replace(CIFAR.training, epochs=13)},
        {"network": replace(CIFAR.network, width=9)},
        {"mean": (0.5, 0.5, 0.5)},
        {"logits": 11},
    ],
    ids=lambda change: next(iter(change)),
)
def test_training_setting_changes_all_keys(change):
    before, after = make_plan(CIFAR, DATA), make_plan(replace(CIFAR, **change), DATA)
    for kind in ("train", "evaluate", "ensemble"):
        assert not keys(before, kind) & keys(after, kind)


def test_method_option_changes_keys_of_method():
    before, after = (
        make_plan(CIFAR, DATA),
        make_plan(replace(CIFAR, options={"creinn": {"mode": "sound"}}), DATA),
    )
    changed = {p.method for p in before} - {
        p.method for p in before if p.key in keys(after, p.kind)
    }
    assert changed == {"creinn", "creinn-ensemble"}


def test_test_data_do_not_change_training_keys():
    before = make_plan(CIFAR, DATA)
    for other in ([DATA[0], ("cifar10", "x"), DATA[2]], DATA[:2]):
        after = make_plan(CIFAR, other)
        assert keys(before, "train") == keys(after, "train")
        assert not keys(before, "evaluate") & keys(after, "evaluate")
        assert not keys(before, "ensemble") & keys(after, "ensemble")


def test_training_data_change_all_keys():
    assert not keys(make_plan(CIFAR, DATA), "train") & keys(
        make_plan(CIFAR, [("c", "x"), *DATA[1:]]), "train"
    )


def test_more_runs_preserve_existing_keys():
    more = make_plan(replace(CIFAR, seeds=7), DATA)
    assert keys(make_plan(CIFAR, DATA), "evaluate") < keys(more, "evaluate")


def test_points_to_intervals_shares_trainings():
    points = make_plan(CIFAR, DATA)
    shifted = make_plan(EXPERIMENTS["points-to-intervals-cifar10-small"], DATA[:2])
    assert keys(shifted, "train") == {
        p.key for p in points if p.kind == "train" and p.method == "creinn"
    }
    assert not keys(shifted, "evaluate") & keys(points, "evaluate")
    intervals = make_plan(EXPERIMENTS["interval-cifar10-small"], DATA[:2])
    assert len(keys(intervals, "train")) == 10
    assert not keys(intervals, "train") & keys(points, "train")
    assert {task.condition.name for task in intervals} == {"noise", "brightness"}


def test_ensemble_members_are_planned():
    plan = make_plan(replace(CIFAR, methods=("bnn-r-ensemble",)), DATA)
    assert {p.method for p in of_kind(plan, "evaluate")} == {"bnn-r"}
    assert [len(p.needs) for p in of_kind(plan, "ensemble")] == [5]


def test_versions_change_keys(monkeypatch):
    before = [Task(kind, "snn", 0, {}).key for kind in ("train", "evaluate")]
    monkeypatch.setitem(VERSIONS, "train", VERSIONS["train"] + 1)
    after = [Task(kind, "snn", 0, {}).key for kind in ("train", "evaluate")]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, True]


def test_draws_are_distinct_and_sorted():
    drawn = draw_members(15, 10, 15)
    assert len(set(drawn)) == 15
    assert all(list(d) == sorted(set(d)) and len(d) == 10 and max(d) < 15 for d in drawn)
    assert draw_members(3, 2, 99) == draw_members(3, 2, 99)
    assert sorted(draw_members(3, 2, 99)) == [(0, 1), (0, 2), (1, 2)]


def test_timing_is_one_task():
    plan = make_plan(EXPERIMENTS["inference-time"], DATA)
    assert [p.kind for p in plan] == ["time"]
    other = replace(EXPERIMENTS["inference-time"], test=Images(name="cifar10", size=16))
    assert make_plan(other, DATA)[0].key != plan[0].key


@pytest.mark.parametrize(
    "name", ["chest-xray-small", "interval-cifar10-small", "points-to-intervals-cifar10-small"]
)
def test_recorded_experiments_have_current_keys(name):
    """The keys of records under version control must not change."""
    path = Path(__file__).parents[2] / "results" / "experiments" / f"{name}.jsonl.gz"
    found = read_packed(path)[1]
    training, evaluation = (
        next(record["settings"] for record in found.values() if record["kind"] == kind)
        for kind in ("train", "evaluate")
    )
    data = [training["data"], evaluation["test"], *evaluation["ood"]]
    assert {task.name for task in make_plan(EXPERIMENTS[name], data)} == set(found)
