"""Test the progress of training in a terminal and in a log file."""

import io
import re
import sys

import pytest
import torch

from creinn import distributed
from creinn.baselines.snn import SNN
from creinn.classifier.creinn import CreINN
from creinn.training import TrainConfig, fit, progress
from creinn.training.loop import fit_members
from creinn.training.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def data():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(40, 3, generator=generator), torch.arange(40) % 2


def snn():
    return SNN(torch.nn.Linear(3, 2))


def test_progress_line_every_ten_seconds(capsys):
    now = 100.0
    shown = Progress(True, clock=lambda: now)
    shown.start(epochs=5, finished_epochs=1, steps=10)
    lines = {}
    for epoch in (2, 3):
        shown.start_epoch(epoch)
        for step in range(1, 11):
            now += 3
            shown.update(step, {"loss": 0.5, "width": None})
            lines[now - 100] = capsys.readouterr().err
        shown.end_epoch(10)
    shown.close()
    # lines after 12, 24, 36, ... seconds; 40 steps of 3 seconds take 120 seconds
    assert [time for time, line in lines.items() if line] == [12, 24, 36, 48, 60]
    assert lines[12] == "epoch 2/5, step 4/10, loss 0.5000, 01:48 left\n"
    assert lines[60] == "epoch 3/5, step 10/10, loss 0.5000, 01:00 left\n"


def test_first_epoch_of_stream_has_no_remaining_time(capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0)
    shown = Progress(True)
    shown.start(epochs=2, finished_epochs=0, steps=None)
    shown.start_epoch(1)
    shown.update(1, {"loss": 0.5})
    assert capsys.readouterr().err == "epoch 1/2, step 1, loss 0.5000\n"
    shown.end_epoch(1)
    shown.start_epoch(2)
    shown.update(1, {"loss": 0.5})
    assert capsys.readouterr().err == "epoch 2/2, step 1/1, loss 0.5000, 00:00 left\n"


def test_fit_prints_lines_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0)
    monkeypatch.setattr(distributed, "SYNC_SECONDS", 1e9)  # also on a slow machine
    fit(snn(), data(), None, TrainConfig(epochs=2, batch_size=128))
    first, second = capsys.readouterr().err.splitlines()
    line = r"epoch 1/2, step 1/1, loss \d\.\d{4}, accuracy \d\.\d{4}, 00:00 left"
    assert re.fullmatch(line, first)
    assert second.startswith("epoch 2/2")
    fit(snn(), data(), None, TrainConfig(epochs=2, progress=False))
    assert capsys.readouterr().err == ""


def test_short_training_prints_nothing_without_a_terminal(capsys):
    fit(snn(), data(), None, TrainConfig(epochs=2))
    assert capsys.readouterr().err == ""


def test_ensemble_members_share_one_progress(capsys, monkeypatch):
    """The time of three networks is the sum of their times."""
    now = iter(range(0, 100, 4))
    monkeypatch.setattr(progress.Progress.__init__, "__defaults__", (1, lambda: next(now)))
    fit_members(snn, 3, data(), None, TrainConfig(epochs=1))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("network 2/3, epoch 1/1")


@pytest.mark.parametrize("has_distance", [False, True])
def test_terminal_shows_progress_bar(monkeypatch, has_distance):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    model = CreINN(network, distance=True) if has_distance else SNN(network)
    fit(model, data(), None, TrainConfig(epochs=2))
    shown = terminal.getvalue()
    assert "epoch 2/2" in shown
    assert "loss=" in shown
    assert "accuracy=" in shown
    assert "width" not in shown  # a CreINN-D has no width before the distance is fitted
