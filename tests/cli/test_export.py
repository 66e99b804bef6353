"""Tests of ``creinn export``."""

import json
import shutil

import onnxruntime
import pytest
import torch

from creinn import CreINN, Interval, load, models, save
from creinn import nn as inn
from creinn.cli import export as export_module


def test_default_format_is_onnx(run, model, tmp_path):
    done = run("export", model, "--out wine.onnx")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("wrote wine.onnx: ")
    assert "preprocessing" in done.out
    session = onnxruntime.InferenceSession(tmp_path / "wine.onnx")
    about, again = session.get_modelmeta().custom_metadata_map, load(model)
    assert (
        json.loads(about["class_names"]) == again.class_names == ["class_0", "class_1", "class_2"]
    )
    assert json.loads(about["preprocessing"])["kind"] == "table"
    x = torch.randn(20, 13, generator=torch.Generator().manual_seed(0))
    (upper,) = session.run(["upper"], {"x": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(upper), again.predict(x).upper, atol=1e-5, rtol=0)


def test_torch_program_in_model_directory(run, interval_model, tmp_path):
    interval_model = shutil.copytree(interval_model, tmp_path / "model")
    done = run("export", interval_model, "--format pt2 --intervals")
    assert (done.code, done.err) == (0, "")
    extra = {"creinn.json": ""}
    program = torch.export.load(interval_model / "model.pt2", extra_files=extra).module()
    x = torch.randn(20, 13, generator=torch.Generator().manual_seed(0))
    again = load(interval_model)
    box = Interval(x - 0.1, x + 0.2)
    torch.testing.assert_close(
        program(box.lower, box.upper)["lower"], again.predict(box).lower, atol=1e-5, rtol=0
    )
    assert json.loads(extra["creinn.json"])["class_names"] == again.class_names
    assert "--force" in run.error("export", interval_model, "--format pt2")
    run.ok("export", interval_model, "--format pt2 --force")
    program = torch.export.load(interval_model / "model.pt2").module()
    torch.testing.assert_close(program(x)["lower"], again.predict(x).lower, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--format onnx --out wine.pt2", "--format"),
        ("--out wine.txt", "wine.txt"),
        ("--intervals", "--intervals"),
    ],
)
def test_invalid_arguments_raise(run, model, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in run.error("export", model, arguments)
    assert not list(tmp_path.iterdir())


def test_baselines_export_no_sets(run, ordinary):
    assert "SNN" in run.error("export", ordinary, "--out model.onnx")


def test_images_have_the_size_of_training(run, tmp_path, monkeypatch):
    shapes = []

    def write(model, path, x):
        shapes.append(tuple(x.shape))
        path.write_bytes(b"")

    monkeypatch.setattr(export_module, "export", write)
    model = CreINN(models.resnet8(num_classes=3, width=2, layers=inn))
    save(model, tmp_path, preprocessing={"kind": "images", "channels": 3, "size": [8, 6]})
    run.ok("export", tmp_path)
    assert shapes == [(1, 3, 8, 6)]
