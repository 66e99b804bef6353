"""Tests that exported graphs have the outputs of the model, for ONNX and ``torch.export``."""

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import creinn
from creinn import CredalSet, CreINN, Ensemble, Interval, models
from creinn import nn as inn
from creinn.baselines import SNN
from creinn.graph import export as exporting
from creinn.graph.export import export
from distance_cases import blobs

ROWS = 1000
CLOSE = 1e-5
EXAMPLE = Path(__file__).parents[2] / "examples" / "export.py"


def inputs(rows: int = ROWS) -> torch.Tensor:
    """Return rows with an increasing distance from the training data."""
    return blobs(rows, seed=1)[0] * torch.linspace(0.5, 4, rows).unsqueeze(1)


def interval_model(
    logits: int = 3, mode: str = "paper", seed: int = 0, radius: float = 0.3
) -> CreINN:
    torch.manual_seed(seed)
    network = models.mlp(4, logits, hidden=(8,))
    inn.scale_radii_(network, radius)
    model = CreINN(network, mode=mode)
    model(blobs()[0])  # running statistics of the norms
    return model.eval()


def distance_model(logits: int = 3) -> CreINN:
    torch.manual_seed(0)
    x, y = blobs(classes=max(logits, 2))
    network = models.mlp(4, logits, hidden=(8,), layers=torch.nn)
    return CreINN(network, distance=0.05).fit_distance(x, y)


def with_errors(model: CreINN, x: torch.Tensor, by: str = "total") -> torch.Tensor:
    """Return labels that differ from the predictions of the more uncertain half."""
    found = model.predict(x)
    ranking = found.ranking(by)
    return torch.where(ranking > ranking.median(), (found.label + 1) % 3, found.label)


def calibrated_model() -> CreINN:
    x, y = inputs(300), torch.arange(300) % 3
    model = interval_model().calibrate(x, y, coverage=0.6, score="raps")
    return model.calibrate(x, with_errors(model, x), max_error=0.2)


MODELS = {
    "CreINN": calibrated_model,
    "ensemble": lambda: Ensemble(
        [interval_model(1, "sound", radius=0.05), distance_model(1)], combine="envelope"
    ),
}


@pytest.fixture(scope="module")
def example() -> Iterator[dict[str, Any]]:
    """Run the example and return its variables."""
    left = runpy.run_path(str(EXAMPLE))
    yield left
    left["folder"].cleanup()


@pytest.fixture(scope="module")
def files(tmp_path_factory, example) -> dict[str, tuple[Any, Path]]:
    """Return the models and the paths of the files."""
    made = {"CreINN-D": (example["model"], example["path"])}
    for name, build in MODELS.items():
        made[name] = model, path = build(), tmp_path_factory.mktemp(name) / "model.onnx"
        export(model, path)
    return made


@pytest.fixture(params=["CreINN-D", *MODELS])
def exported(request, files):
    """Return a model, a session of onnxruntime and inputs."""
    model, path = files[request.param]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = inputs()
    if request.param == "CreINN-D":
        x = (
            torch.randn(ROWS, 13, generator=torch.Generator().manual_seed(0))
            * torch.linspace(0.2, 2, ROWS)[:, None]
        )
    return model, session, x


def run(session, *x: torch.Tensor) -> dict[str, torch.Tensor]:
    names = [output.name for output in session.get_outputs()]
    given = {entry.name: part.numpy() for entry, part in zip(session.get_inputs(), x, strict=True)}
    return {
        name: torch.from_numpy(value)
        for name, value in zip(names, session.run(names, given), strict=True)
    }


def assert_same(found: dict[str, torch.Tensor], expected: CredalSet) -> None:
    """Compare the numbers to 1e-5, and the labels and classes if they are clear."""
    wanted = {
        "lower": expected.lower,
        "upper": expected.upper,
        "probabilities": expected.intersection,
    }
    wanted |= {"TU": expected.total, "AU": expected.aleatoric, "EU": expected.epistemic}
    for name, value in wanted.items():
        if name in found:
            torch.testing.assert_close(
                found[name], value, atol=CLOSE, rtol=0, msg=lambda text, n=name: f"{n}: {text}"
            )
    best, second = expected.intersection.topk(2).values.unbind(1)
    clear = best - second > CLOSE
    assert clear.float().mean() > 0.3
    assert torch.equal(found["label"][clear], expected.label[clear])
    clear = (expected.lower.amax(1, keepdim=True) - expected.upper).abs() > CLOSE
    assert clear.float().mean() > 0.3
    assert torch.equal(found["classes"][clear], expected.classes()[clear])
    if "conformal" in found:
        assert (
            found["conformal"] != expected.classes("conformal")
        ).float().mean() < 0.01  # scores near the quantile


@torch.no_grad()
def test_onnxruntime(exported):
    model, session, x = exported
    expected = model(x).with_conformal(model.calibration.conformal)
    width = expected.width.amax(1)
    assert width.max() > 0.5 > 0.2 > width.min()  # sets of every kind
    assert 1.0 < expected.classes().float().sum(1).mean() < model.num_classes
    found = run(session, x)
    names = ["lower", "upper", "probabilities", "label", "TU", "AU", "EU", "classes"]
    calibrated = ["conformal", "accepted"] * (model.calibration.conformal is not None)
    assert list(found) == names + calibrated
    assert_same(found, expected)


@torch.no_grad()
def test_number_of_rows(exported):
    model, session, x = exported
    for rows in (1, 7):
        assert_same(run(session, x[:rows]), model.predict(x[:rows]))
    assert [*session.get_inputs()[0].shape] == ["rows", x.shape[1]]


@torch.no_grad()
def test_rows_far_away(exported):
    model, session, x = exported
    found, expected = run(session, 1e6 * x), model(1e6 * x)
    for name in ("lower", "upper"):
        torch.testing.assert_close(found[name], getattr(expected, name), atol=CLOSE, rtol=0)
    assert all(bool(value.float().isfinite().all()) for value in found.values())


def test_metadata(files):
    about = onnxruntime.InferenceSession(files["CreINN-D"][1]).get_modelmeta().custom_metadata_map
    assert json.loads(about["class_names"]) == ["class_0", "class_1", "class_2"]
    assert json.loads(about["preprocessing"]) == files["CreINN-D"][0].preprocessing
    assert json.loads(about["creinn"]) == creinn.__version__
    assert (
        "class_names"
        not in onnxruntime.InferenceSession(files["CreINN"][1]).get_modelmeta().custom_metadata_map
    )


def test_example_runs_without_torch(example):
    """The second part of the example is a process without torch."""
    *rows, last = example["done"].stdout.splitlines()
    assert len(rows) == 3
    assert all(row.endswith(f"not ruled out: {row.split()[0]}") for row in rows)
    assert "[0.00, 1.00]" in last
    assert last.endswith("class_0, class_1, class_2")


def reload(model, path: Path, example=None):
    export(model, path, example)
    return torch.export.load(path).module()


@torch.no_grad()
@pytest.mark.parametrize(("logits", "dtype"), [(1, torch.float64), (4, torch.float32)])
def test_torch_export_in_all_modes(tmp_path, logits, dtype):
    modes = ("paper", "scaled", "sound")
    model = Ensemble([interval_model(logits, mode, seed) for seed, mode in enumerate(modes)]).to(
        dtype
    )
    x = inputs(50).to(dtype)
    assert_same(reload(model, tmp_path / "model.pt2")(x), model(x))


@torch.no_grad()
@pytest.mark.parametrize(("score", "by"), [("lower", "class"), ("distribution", None)])
def test_calibration(tmp_path, score, by):
    model, x, y = interval_model(), inputs(300), torch.arange(300) % 3
    if score == "distribution":
        model.calibrate(x, torch.nn.functional.one_hot(y).float() * 0.7 + 0.1, coverage=0.6)
    else:
        model.calibrate(x, y, coverage=0.6, by=by, score=score)
    found, expected = reload(model, tmp_path / "model.pt2")(x), model.predict(x)
    if score == "distribution":
        torch.testing.assert_close(
            found["widened_upper"], expected.widened().upper, atol=CLOSE, rtol=0
        )
        torch.testing.assert_close(
            found["widened_lower"], expected.widened().lower, atol=CLOSE, rtol=0
        )
        assert (found["widened_upper"] - found["upper"]).max() > 0.05
    else:
        assert 0.5 < found["conformal"].float().sum(1).mean() < 3
        assert (found["conformal"] != expected.classes("conformal")).float().mean() < 0.01


def test_calibration_that_is_not_exported():
    x, y = inputs(300), torch.arange(300) % 3
    for options, said in (
        ({"random": True}, "random"),
        ({"by": torch.arange(300) % 2}, "groups"),
    ):
        model = interval_model().calibrate(x, y, coverage=0.6, **options)
        with pytest.warns(UserWarning, match=said):
            assert exporting._kept_calibration(model) == (None, None)


@torch.no_grad()
@pytest.mark.parametrize("by", ["total", "aleatoric", "epistemic", "entropy"])
def test_accepted(tmp_path, by):
    model, x = interval_model(), inputs(600)
    model.calibrate(x, with_errors(model, x, by), max_error=0.2, by=by)
    found, expected = reload(model, tmp_path / "model.pt2")(x), model.predict(x)
    assert 0.1 < expected.accepted.float().mean() < 0.9
    assert (found["accepted"] != expected.accepted).float().mean() < 0.01
    assert "conformal" not in found


@torch.no_grad()
def test_accepted_by_onnxruntime(files):
    model, path = files["CreINN"]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found, expected = run(session, inputs())["accepted"], model.predict(inputs()).accepted
    assert 0.1 < expected.float().mean() < 0.9
    assert (found != expected).float().mean() < 0.01


def test_limit_that_is_not_exported():
    x, groups = inputs(300), torch.arange(300) % 2
    model = interval_model()
    model.calibrate(x, model.predict(x).label, max_error=0.5, by=groups)
    with pytest.warns(UserWarning, match="groups"):
        assert exporting._kept_calibration(model) == (None, None)
    model = interval_model(12)
    model.calibrate(x, model.predict(x).label, max_error=0.5, by="epistemic")
    with pytest.warns(UserWarning, match="lower entropy"):
        assert exporting._kept_calibration(model) == (None, None)


@torch.no_grad()
def test_intervals(tmp_path):
    model, x = interval_model(mode="sound"), Interval(inputs(50) - 0.1, inputs(50) + 0.2)
    assert_same(
        reload(model, tmp_path / "model.pt2", Interval.point(inputs(1)))(x.lower, x.upper), model(x)
    )
    with pytest.raises(TypeError, match="Interval"):
        export(distance_model(), tmp_path / "none.pt2", x)


@torch.no_grad()
def test_many_classes(tmp_path):
    lower_entropy = runpy.run_path(str(EXAMPLE.with_name("entropy_numpy.py")))["lower_entropy"]
    model, x = interval_model(12), inputs(50)
    found, expected = reload(model, tmp_path / "model.pt2")(x), model(x)
    assert list(found) == ["lower", "upper", "probabilities", "label", "TU", "classes"]
    assert_same(found, expected)
    least, gap = lower_entropy(found["lower"].numpy(), found["upper"].numpy())
    np.testing.assert_allclose(least, expected.aleatoric.numpy(), atol=CLOSE)
    np.testing.assert_allclose(
        found["TU"].numpy() - least, expected.epistemic.numpy(), atol=2 * CLOSE
    )
    assert not gap.any()


class Own(torch.nn.Module):
    """Network with a condition on the shape, which is not a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = inn.Linear(4, 8), inn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.nn.functional.relu(self.first(x)) if x.shape[1] == 4 else x)


@torch.no_grad()
def test_networks_that_are_not_compiled(tmp_path):
    torch.manual_seed(0)
    model = CreINN(Own())
    model(blobs()[0])
    program = reload(model, tmp_path / "model.pt2")
    assert model.training  # as before
    assert_same(program(inputs(50)), model.eval()(inputs(50)))


@torch.no_grad()
def test_images(tmp_path):
    torch.manual_seed(0)
    network = models.resnet8(3, width=4)
    inn.scale_radii_(network, 0.01)
    model, x = CreINN(network), torch.rand(20, 3, 16, 16)
    model(x)
    with pytest.raises(ValueError, match="Conv2d"):
        export(model, tmp_path / "model.pt2")
    assert_same(reload(model, tmp_path / "model.pt2", x[:1])(x), model.eval()(x))


def test_invalid_arguments(tmp_path, monkeypatch):
    with pytest.raises(TypeError, match="SNN"):
        export(SNN(models.mlp(4, 3, layers=torch.nn)), tmp_path / "model.onnx")
    with pytest.raises(ValueError, match=r"model\.tflite"):
        export(interval_model(), tmp_path / "model.tflite")
    unfitted = CreINN(models.mlp(4, 3, layers=torch.nn), distance=True)
    with pytest.raises(RuntimeError, match="fitted"):
        export(unfitted, tmp_path / "model.onnx")
    with pytest.raises(TypeError, match="dict"):
        export(interval_model(), tmp_path / "model.pt2", {"x": torch.zeros(1, 4)})
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "creinn\[onnx\]"'):
        export(interval_model(), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
