"""Tests of the study of guarantees on generated features."""

import json

import numpy as np
import pytest
import torch

from creinn.credal.credal_set import CredalSet
from creinn.distance.feature_layers import HEAD
from experiments.study import annotated, guarantees

WIDTHS = {"block": 4, HEAD: 384}


@pytest.fixture
def work(tmp_path):
    """Features, classes and votes of ten classes of images, two of X-rays and three of texts."""
    rng = np.random.default_rng(0)
    kinds = {"test": (800, 10), "SVHN": (60, 10), "X-ray": (80, 2), "X-ray train": (600, 2)}
    kinds |= {annotated.LEARNED: (600, 3), **dict.fromkeys(annotated.FOREIGN, (50, 3))}
    for name, (rows, classes) in kinds.items():
        is_text = classes == 3
        width = WIDTHS[HEAD] if is_text else sum(WIDTHS.values())
        labels = np.arange(rows) % classes
        means = 0.7 * np.random.default_rng(classes).normal(size=(classes, width))
        x = (means[labels] + rng.normal(size=(rows, width))).astype(np.float32)
        shares = np.full((rows, classes), 0.3 / classes)
        shares[np.arange(rows), labels] += 0.7
        votes = np.stack([rng.multinomial(20, row) for row in shares]).astype(np.float32)
        np.save(tmp_path / f"{name}.npy", x)
        np.save(
            tmp_path / f"{name}{'-votes' if is_text else '-labels'}.npy",
            votes if is_text else labels,
        )
        if name == "test":
            (tmp_path / "cifar10h").mkdir()
            np.savez(tmp_path / "cifar10h" / "votes.npz", votes=votes)
    (tmp_path / "places.json").write_text(json.dumps(WIDTHS))
    return tmp_path


def test_record_has_all_parts(work, monkeypatch):
    for name, value in (("DIVISIONS", 4), ("TRAININGS", 1), ("DECAYS", (1e-2,))):
        monkeypatch.setattr(guarantees, name, value)
    monkeypatch.setattr(guarantees, "IMAGE_ROWS", (300, 100))
    monkeypatch.setattr(guarantees, "TEXT_ROWS", (200, 100))
    found = guarantees.measure(work, work)
    for data, foreign in (("images", "SVHN"), ("texts", "tweets")):
        for margin in ("deviation", "additive"):
            numbers = found["margins"][data][margin]
            assert numbers["coverage"] > 0.8
            assert {f"width {foreign}", f"auroc {foreign} widened"} <= numbers.keys()
        runs = found["label_distributions"][data]["weak decay"]
        for numbers in runs.values():  # the networks fit the training rows too closely
            assert numbers["temperature"] > 1
            assert numbers["log_loss_scaled"] < numbers["log_loss"]
    assert set(found["abstention"]["X-ray"]["0.05"]) == set(guarantees.CRITERIA)
    assert found["abstention"]["X-ray"]["0.05"]["total"]["accepted"] > 0  # few calibration rows


def test_averages_skip_missing_numbers():
    runs = [{"a": 1.0, "b": 5.0}, {"a": 2.0}]
    assert guarantees.averages(runs) == {"a": 1.5, "b": 5.0}


def test_widened_sets_by_hand():
    # scores 0.1, ..., 0.9: the margin at 90 % is the 9th of 9, and 0.5 +- 0.9 covers [0, 1]
    s = CredalSet([[0.5, 0.5]], [[0.5, 0.5]])
    wide = guarantees.widened(s, torch.arange(1, 10) / 10, "additive")
    assert wide.lower.tolist() == [[0.0, 0.0]]
    narrow = guarantees.widened(s, torch.arange(1, 10) / 100, "additive")
    assert narrow.upper[0].tolist() == pytest.approx([0.59, 0.59], abs=1e-4)
