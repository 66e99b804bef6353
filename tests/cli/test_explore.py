"""Tests of the explorer in the report of ``creinn evaluate``."""

import base64
import io

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from creinn import CreINN, Interval, load
from creinn.cli import sources
from creinn.data import image_folder, normalize
from creinn.report import explorer
from creinn.report.tables import NO_VALUE
from explorer_cases import record_of


@pytest.fixture
def explored(run, tmp_path):
    """Run the command, and return the groups of samples on the page."""

    def call(*arguments):
        page = tmp_path / "r.html"
        run.ok("evaluate", *arguments, "--report", page, "--out e.json")
        return record_of(page.read_text(encoding="utf-8"))["groups"]

    return call


def assert_step(step, prediction, tolerance=2e-5):
    for name in ("lower", "upper"):
        np.testing.assert_allclose(
            np.array(step[name]) / explorer.SCALE, getattr(prediction, name), atol=tolerance
        )
    np.testing.assert_allclose(step["EU"], prediction.epistemic, atol=1e-4)


def widths_of(group):
    return [float(step["said"].split()[0]) for step in group["steps"]]


def test_rows_match_files(run, explored, model, wine, foreign, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MOST_ROWS", 8)  # many parts
    inside, outside = explored(model, wine[1], "--ood", foreign, "--batch-size", 4)
    assert (inside["outside"], outside["outside"]) == (False, True)
    for group, path in ((inside, wine[1]), (outside, foreign)):
        run.ok("predict", model, path, "--out p.csv --force")
        expected, written = pd.read_csv(tmp_path / "p.csv"), pd.read_csv(path)
        names = ["class_0", "class_1", "class_2"]
        (step,) = group["steps"]
        assert group["data"] == str(path)
        assert group["names"] == [f"row {i + 1}" for i in range(len(expected))]
        assert [names[k] for k in step["label"]] == expected.label.tolist()
        assert ["|".join(names[k] for k in kept) for kept in step["kept"]] == expected.set.tolist()
        for bound in ("lower", "upper"):
            values = expected[[f"{bound}_{name}" for name in names]]
            np.testing.assert_allclose(np.array(step[bound]) / explorer.SCALE, values, atol=1.1e-5)
        for short in ("AU", "EU", "TU"):
            np.testing.assert_allclose(step[short], expected[short], atol=1e-5)
        assert group["columns"] == list(written.columns)
        cells = pd.DataFrame(group["cells"], columns=group["columns"])
        np.testing.assert_allclose(cells.iloc[:, :13].astype(float), written.iloc[:, :13])
    assert [names[k] for k in inside["truth"]] == pd.read_csv(wine[1]).kind.tolist()
    assert outside["truth"] is None


def test_many_rows_are_subsampled(explored, model, wine, foreign, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MOST_ROWS", 8)
    (whole,) = explored(model, wine[1], "--batch-size", 4)
    monkeypatch.setattr(explorer, "MOST", 12)
    (some,) = explored(model, wine[1], "--batch-size", 4)
    rows = [int(name.split()[1]) - 1 for name in some["names"]]
    assert len(rows) == 12
    assert set(np.argsort(whole["steps"][0]["TU"])[-6:]) <= set(rows)
    for name in ("TU", "lower", "upper", "label"):
        expected = np.array(whole["steps"][0][name])[rows]
        np.testing.assert_allclose(
            some["steps"][0][name], expected, rtol=0, atol=1 if expected.ndim == 2 else 1e-5
        )
    assert some["cells"] == [whole["cells"][i] for i in rows]
    assert some["truth"] == [whole["truth"][i] for i in rows]
    assert "12 of 54 rows of" in " ".join((tmp_path / "r.html").read_text().split())
    assert [len(group["names"]) for group in explored(model, wine[1], "--ood", foreign)] == [6, 6]


def test_points_are_widened_by_standard_deviations(explored, interval_model, wine, tmp_path):
    frame = pd.read_csv(wine[1])
    frame.loc[3, "alcohol"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    complete, gapped = explored(interval_model, "t.csv")
    assert gapped["names"] == ["row 4"]
    assert len(gapped["steps"]) == 1
    assert gapped["cells"][0][0] == NO_VALUE
    assert widths_of(complete) == [0, 0.1, 0.2, 0.5, 1]
    assert complete["own"] == 0
    model = load(interval_model)
    columns = model.preprocessing["columns"]
    rows = frame.drop(index=3)
    x = np.stack(
        [(rows[column["name"]] - column["mean"]) / column["scale"] for column in columns], 1
    )
    x = torch.tensor(x, dtype=torch.float32)
    for step in complete["steps"]:
        radius = float(step["said"].split()[0]) / 2
        assert_step(step, model.predict(Interval(x - radius, x + radius) if radius else x))


def test_measured_intervals_are_scaled(explored, interval_model, wine, tmp_path):
    frame = pd.read_csv(wine[1])[:9]
    numbers = frame.columns[:13]
    for side, sign in (("lower", -1), ("upper", 1)):
        moved = frame.copy()
        moved[numbers] += sign * 0.05 * frame[numbers].std()
        moved.to_csv(tmp_path / f"{side}.csv", index=False)
    (group,) = explored(interval_model, "--lower lower.csv --upper upper.csv")
    assert widths_of(group) == [0, 0.5, 1, 1.5, 2]
    assert group["own"] == 2
    low, high = (pd.read_csv(tmp_path / f"{side}.csv").alcohol[0] for side in ("lower", "upper"))
    assert [float(number) for number in group["cells"][0][0].split(" to ")] == pytest.approx(
        [low, high]
    )
    model = load(interval_model)
    scale = {column["name"]: column["scale"] for column in model.preprocessing["columns"]}
    mean = {column["name"]: column["mean"] for column in model.preprocessing["columns"]}
    center = torch.tensor(
        ((frame[numbers] - pd.Series(mean)) / pd.Series(scale)).to_numpy(), dtype=torch.float32
    )
    measured = torch.tensor(
        (0.05 * frame[numbers].std() / pd.Series(scale)).to_numpy(), dtype=torch.float32
    )
    for step in group["steps"]:
        radius = float(step["said"].split()[0]) * measured
        assert_step(step, model.predict(Interval(center - radius, center + radius)), 2e-4)


def test_images_are_widened_within_unit_interval(run, explored, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for name, level in (("bright", 220), ("dark", 20)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(6):
            pixels = rng.normal(level, 30, (8, 8, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    quick = "--set width=2 --epochs 1 --method creinn --validation-fraction 0"
    run.ok("train photos --out m", quick)
    asked, predict = [], CreINN.predict
    monkeypatch.setattr(
        CreINN, "predict", lambda model, x, *rest: asked.append(x) or predict(model, x, *rest)
    )
    (group,) = explored("m photos")
    assert group["names"][:2] == ["bright/0.png", "bright/1.png"]
    images = image_folder(tmp_path / "photos", size=8).inputs
    for uri, image in zip(group["images"], images, strict=True):
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))))
        np.testing.assert_array_equal(shown, image.permute(1, 2, 0))
    x, about = images.float() / 255, load(tmp_path / "m").preprocessing
    assert widths_of(group) == [0, 0.02, 0.05, 0.1, 0.2]
    for width, found in zip((0.02, 0.05, 0.1, 0.2), asked[-4:], strict=True):
        pixels = Interval((x - width / 2).clamp(0, 1), (x + width / 2).clamp(0, 1))
        expected = normalize(pixels, about["mean"], about["std"])
        torch.testing.assert_close(found.lower, expected.lower)
        torch.testing.assert_close(found.upper, expected.upper)
