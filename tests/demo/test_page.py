"""The page of the demo and its command."""

import json
import subprocess
import sys

import pytest
import torch

from creinn.cli import demo as command
from creinn.cli.options import DemoOptions
from creinn.demo import page, training
from creinn.demo.training import FAR, GROUPS, TEST, DemoConfig
from explorer_cases import record_of

pytest.importorskip("plotly")
pytest.importorskip("PIL")

HEADINGS = (
    "Results",
    "Accuracy when uncertain images are rejected",
    "Images unlike those of the training",
    "Credal sets in the simplex",
    "Most and least certain images",
    "Explore predictions",
    "Training and learned radii",
    "How this was made",
)


def test_command_writes_a_report_and_the_numbers(tmp_path, monkeypatch, capsys, demo_result):
    given = []
    monkeypatch.setattr(training, "run_demo", lambda config: given.append(config) or demo_result)
    options = DemoOptions(
        out=tmp_path / "demo", members=2, epochs=7, seed=3, jobs=1, progress=False
    )
    assert command.demo(options) == 0
    assert given == [DemoConfig(members=2, epochs=7, seed=3, jobs=1, progress=False)]
    files = sorted(path.name for path in options.out.iterdir())
    assert files == ["demo.yaml", "report.html", "results.json"]

    record = json.loads((options.out / "results.json").read_text())
    assert record["command"] == "creinn demo --members 2 --epochs 7 --seed 3 --jobs 1"
    assert record["runs"]["CreINN"] == demo_result.runs["CreINN"]
    assert record["versions"]["torch"] == torch.__version__
    assert record["images"]["photographs"] == len(demo_result.data[FAR])
    printed = capsys.readouterr().out
    assert printed.startswith("measure ")
    assert printed.count("CreINN ensemble") == printed.count("CreINN-D ensemble") == 1

    text = (options.out / "report.html").read_text(encoding="utf-8")
    assert [text.count(f"<h2>{heading}</h2>") for heading in HEADINGS] == [1] * len(HEADINGS)
    assert text.count('<img src="data:image/png;base64,') == text.count("<img ") == 4 + 6 * 4
    groups = record_of(text)["groups"]
    outside = [(group["data"], group["outside"]) for group in groups]
    assert outside == [(group, group != TEST) for group in GROUPS]
    for group in groups:
        found = demo_result.predictions["CreINN-D ensemble"][group["data"]]
        assert len(group["images"]) == len(group["steps"][0]["EU"]) <= len(found)


def test_no_image_is_both_most_and_least_certain():
    most, least = page.extremes(torch.full((9,), 3.0), 4)  # all alike
    assert (most.tolist(), least.tolist()) == ([0, 1, 2, 3], [8, 7, 6, 5])
    most, least = page.extremes(torch.tensor([3.0, 1.0, 2.0]), 4)  # too few
    assert (most.tolist(), least.tolist()) == ([1], [0])


def test_an_unusable_directory_is_found_before_the_training(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "run_demo", lambda _: pytest.fail("trained"))
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Cannot write"):
        command.demo(DemoOptions(out=tmp_path / "file" / "demo"))


def test_missing_plotly_is_found_before_the_training(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(ImportError, match="plotly"):
        command.demo(DemoOptions())


def test_options_are_read_without_loading_torch():
    script = "import sys, creinn.cli.demo; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
