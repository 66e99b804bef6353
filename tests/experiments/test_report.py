"""Tests of the reports."""

import re
import shutil
from dataclasses import replace

import pytest

from creinn.report.tables import MeanStd
from experiments.catalogue import EXPERIMENTS
from experiments.definition import Timing
from experiments.report import increase_chart, mean_history, write_report
from experiments.result_tables import (
    INFERENCE_TIME,
    PUBLISHED,
    SCORES,
    lookup,
    quality_table,
    read_studies,
    spread,
    statistics_table,
    time_table,
    with_published,
)
from experiments.run import RunConfig, run_experiment
from experiments.store import packed_files, read_packed, write_packed

INTERVAL_CONDITIONS, POINT_CONDITIONS = (
    EXPERIMENTS[f"{kind}-cifar10"].conditions for kind in ("interval", "points-to-intervals")
)


@pytest.fixture(scope="session")
def studied(finished, tiny, tiny_data, tmp_path_factory):
    """Return results of every kind of experiment."""
    out = shutil.copytree(finished[0], tmp_path_factory.mktemp("studied") / "out")
    base = replace(
        tiny, ood=(), seeds=1, training=replace(tiny.training, epochs=1), methods=("creinn",)
    )
    further = [
        replace(
            base,
            name="interval",
            conditions=INTERVAL_CONDITIONS[:1],
            methods=("creinn", "creinn-ensemble"),
        ),
        replace(base, name="from-points", conditions=POINT_CONDITIONS),
        replace(
            tiny,
            name="time",
            ood=(),
            conditions=(),
            methods=("snn", "creinn"),
            timing=Timing(batches=(1,), rounds=1),
        ),
    ]
    for experiment in further:
        config = RunConfig(complete=False, progress=False)
        assert not run_experiment(experiment, tiny_data, out, config).failed
    return out


def test_report_holds_tables_and_figures(studied):
    markdown, page = write_report(studied)
    text, html = markdown.read_text(), page.read_text()
    assert re.search(r"\| CreINN \| 2 \| \d+\.\d\d ± \d+\.\d\d \| 0\.\d{3} ± 0\.\d{3} \|", text)
    for name in ("fashion-mnist-small", "interval", "from-points", "time"):
        assert f"## {name}" in text
        assert f">{name}</h2>" in html
    assert "Deep Ensembles (2)" in text
    assert (
        "Ensembles are limited by the number of runs: Deep Ensembles (2) of 2 instead of 10" in text
    )
    assert "noise [0.12, 0.16]" in text
    assert "AUROC TU, test batch" in text
    for heading in (
        "Accuracy-rejection curves",
        "dashed: validation",
        "Learned radii",
        "Predictions of one CreINN",
        "A test image under noise",
        "Relative increase of uncertainty of CreINN, noise",
        "Accuracy-rejection curves of CreINN, brightness",
        "Budget",
        "A credal set, by the paper&#39;s example",
    ):
        assert heading in html
    assert "10 of 10 tasks are recorded" in text


def test_table_matches_records(studied):
    study = next(s for s in read_studies(studied) if s.name == "fashion-mnist-small")
    row = next(r for r in quality_table(study, "mnist") if r["model"] == "CreINN")
    found = [
        record["metrics"]
        for path in packed_files(studied)
        for name, record in read_packed(path)[1].items()
        if name.startswith("evaluate-creinn-")
    ]
    ood = [
        f["running"]["ood"]["mnist"]["epistemic"]["auroc"]
        for f in found
        if "mnist" in f["running"]["ood"]
    ]
    assert row["AUROC EU"] == MeanStd.of(ood)
    assert row["accuracy %"].mean == pytest.approx(
        50 * sum(f["running"]["sets"]["points"]["accuracy"] for f in found if f["running"]["ood"])
    )
    points = [f["running"]["sets"]["points"] for f in found if f["running"]["ood"]]
    assert row["log loss"] == MeanStd.of([p["log_loss"] for p in points])
    batch = next(r for r in statistics_table(study, "mnist") if r["model"] == "CreINN")
    assert batch["AUROC EU, test batch"] == MeanStd.of(
        [f["batch"]["ood"]["mnist"]["epistemic"]["auroc"] for f in found if f["batch"]["ood"]]
    )
    snn = quality_table(study, "mnist")[0]
    assert (snn["AUARC EU"], snn["AUROC EU"]) == (None, None)


def test_records_without_scores(finished):
    (study,) = read_studies(finished[0])
    for entry in study.entries:
        if entry.kind in ("evaluate", "ensemble"):
            for key in SCORES.values():
                del entry.record["metrics"]["running"]["sets"]["points"][key]
    assert not {name for row in quality_table(study, "mnist") for name in row} & set(SCORES)


def test_published_numbers(finished):
    (study,) = read_studies(finished[0])
    settings = {**study.settings, "paper": "cifar10-svhn"}
    row = quality_table(replace(study, settings=settings), "mnist")[-1]
    assert row["AUROC TU (paper)"] == MeanStd(0.895, 0.003)
    assert list(row).index("AUROC TU (paper)") == list(row).index("AUROC TU") + 1


def test_published_numbers_match_specification():
    means = {
        name: [c and c.mean for c in row.values()]
        for name, row in PUBLISHED["cifar10-svhn"].items()
    }
    assert means["creinn"] == [84.20, 0.939, 0.939, 0.943, 0.727, 0.745, 0.854, 0.874]
    assert means["deep-ensemble"] == [85.16, 0.966, 0.962, 0.966, 0.783, 0.796, 0.873, 0.865]
    assert means["creinn-ensemble"] == [87.32, 0.969, 0.957, 0.970, 0.791, 0.895, 0.877, 0.948]
    assert means["bnn-l-ensemble"] == [89.12, 0.978, 0.978, 0.980, 0.838, 0.834, 0.904, 0.896]
    assert means["snn"] == [81.40, 0.950]
    assert len(means) == 12
    assert PUBLISHED["chest-xray"]["creinn-ensemble"]["AUARC EU"] == MeanStd(0.938, 0.007)
    assert INFERENCE_TIME["creinn"] == 4.56


def test_time_relative_to_the_snn_by_hand():
    def calls(seconds):
        return {
            "1": {what: {"least": seconds, "median": seconds} for what in ("label", "uncertainty")}
        }

    record = {
        "parameters": {"snn": 10, "creinn": 20},
        "seconds_per_call": {"snn": calls(0.002), "creinn": calls(0.007)},
    }
    row = time_table(record, ["snn", "creinn"])[1]
    assert row["1 image, label: ms"] == pytest.approx(7)
    assert row["1 image, label: \u00d7 SNN"] == pytest.approx(3.5)
    assert row["\u00d7 SNN (paper)"] == 4.56


def test_unfinished_experiment(finished, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "out", ignore=shutil.ignore_patterns("work"))
    (path,) = packed_files(out)
    about, records = read_packed(path)
    kept = {
        name: record
        for name, record in records.items()
        if not re.match(r".*creinn|evaluate-snn-1", name)
    }
    write_packed(path, about, kept)
    markdown, _ = write_report(out)
    text = markdown.read_text()
    assert "4 of 10 tasks are recorded" in text
    assert "| SNN | 1 |" in text
    assert "CreINN |" not in text


def test_empty_folder_raises(tmp_path):
    with pytest.raises(ValueError, match="--out"):
        write_report(tmp_path)


def test_spread_and_lookup():
    found = [{"a": {"b": 1.0}}, {"a": {"b": 3.0}}, {"a": None}]
    assert spread(found, "a", "b") == MeanStd(2.0, pytest.approx(2**0.5))
    assert spread(found, "a", "c") is None
    assert lookup(found[2], "a", "b") is None


def test_mean_history_by_hand():
    runs = [[{"epoch": 1, "loss": 1.0, "width": None}, {"epoch": 2, "loss": 0.5, "width": None}]]
    runs.append([{"epoch": 1, "loss": 3.0, "width": None}])
    assert mean_history(runs) == [{"epoch": 1, "loss": 2.0, "width": None}]


def test_published_columns():
    ours = [{"model": "A", "acc": 0.8, "ours only": 1}, {"model": "B", "acc": 0.7, "ours only": 2}]
    rows = with_published(ours, {"A": {"acc": 0.84}})
    assert [list(row) for row in rows] == [["model", "acc", "acc (paper)", "ours only"]] * 2
    assert [row["acc (paper)"] for row in rows] == [0.84, None]


def test_increase_chart():
    figure = increase_chart({"EU": {"0": MeanStd(1.0), ".1": MeanStd(2.0, 0.5)}})
    (trace,) = figure.data
    assert (list(trace.y), list(trace.error_y.array)) == ([1.0, 2.0], [0.0, 0.5])
    assert figure.layout.shapes[0].y0 == 1.0
