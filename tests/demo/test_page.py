"""Tests of the page and the command of the demo."""

import json
import sys

import pytest
import torch

from creinn.cli.main import main
from creinn.demo import page
from creinn.demo.training import FAR, GROUPS, TEST, DemoConfig
from explorer_cases import record_of

pytest.importorskip("plotly")
pytest.importorskip("PIL")

HEADINGS = (
    "Results",
    "Images that differ from the training images",
    "Accuracy",
    "Most and least certain images",
    "Explore predictions",
    "All numbers",
    "Training and learned radii",
    "How this was made",
)


def test_command_writes_report_and_numbers(tmp_path, monkeypatch, capsys, demo_result):
    given = []
    monkeypatch.setattr(page, "run_demo", lambda config: given.append(config) or demo_result)
    out = tmp_path / "demo"
    arguments = [
        "demo",
        "--members",
        "2",
        "--epochs",
        "7",
        "--seed",
        "3",
        "--jobs",
        "1",
        "--no-progress",
        "--out",
    ]
    assert main([*arguments, str(out)]) == 0
    assert given == [DemoConfig(members=2, epochs=7, seed=3, jobs=1, progress=False)]
    files = sorted(path.name for path in out.iterdir())
    assert files == ["demo.yaml", "report.html", "results.json"]

    record = json.loads((out / "results.json").read_text())
    assert record["command"] == "creinn demo --members 2 --epochs 7 --seed 3 --jobs 1"
    assert record["runs"]["CreINN"] == demo_result.runs["CreINN"]
    assert record["versions"]["torch"] == torch.__version__
    assert record["images"]["photographs"] == len(demo_result.data[FAR])
    printed = capsys.readouterr().out
    assert printed.startswith("measure ")
    assert printed.count("CreINN ensemble") == printed.count("CreINN-D ensemble") == 1

    text = (out / "report.html").read_text(encoding="utf-8")
    assert [text.count(f"<h2>{heading}</h2>") for heading in HEADINGS] == [1] * len(HEADINGS)
    assert text.count('<img src="data:image/png;base64,') == text.count("<img ") == 4 + 6 * 4
    groups = record_of(text)["groups"]
    outside = [(group["data"], group["outside"]) for group in groups]
    assert outside == [(group, group != TEST) for group in GROUPS]
    for group in groups:
        found = demo_result.predictions["CreINN-D ensemble"][group["data"]]
        assert len(group["images"]) == len(group["steps"][0]["EU"]) <= len(found)


def test_most_and_least_certain_images_are_disjoint():
    most, least = page.extremes(torch.full((9,), 3.0), 4)  # all alike
    assert (most.tolist(), least.tolist()) == ([0, 1, 2, 3], [8, 7, 6, 5])
    most, least = page.extremes(torch.tensor([3.0, 1.0, 2.0]), 4)  # too few
    assert (most.tolist(), least.tolist()) == ([1], [0])


def test_invalid_directory_raises_before_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(page, "run_demo", lambda _: pytest.fail("trained"))
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file" / "demo")]) == 1
    assert "demo.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["plotly", "PIL"])
def test_missing_package_raises_before_training(tmp_path, monkeypatch, capsys, name):
    monkeypatch.setitem(sys.modules, name, None)
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert name in capsys.readouterr().err
