"""Tests of saved models: round trips, interrupted writing and damaged files."""

import json
import os

import pytest
import torch
from safetensors.torch import save_file

from creinn import models
from creinn import nn as inn
from creinn.baselines import BNN, FSVI, SNN, DeepEnsemble, LaplaceBNN, local_reparameterization
from creinn.baselines.factory import CLASSES
from creinn.classifier.credal import Ensemble
from creinn.classifier.creinn import CreINN
from creinn.files import read_tensors, write_tensors
from creinn.saving import FORMAT, load, read_config, save

X, Y = torch.rand(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3


def creinn(seed=0, **options):
    torch.manual_seed(seed)
    model = CreINN(models.mlp(4, 3, hidden=(8,), layers=inn), **options)
    model(X)  # moves the running statistics
    return model.eval()


def snn(seed=0, **options):
    torch.manual_seed(seed)
    model = SNN(models.mlp(4, 3, hidden=(8,), layers=torch.nn), **options)
    model(X)
    return model.eval()


def baseline(kind, layers=torch.nn, **options):
    torch.manual_seed(0)
    model = kind(models.mlp(4, 3, hidden=(8,), layers=layers), **options)
    model(X)
    model.after_training([(X, Y)])
    return model.eval()


def sequential():
    torch.manual_seed(0)
    return CreINN(torch.nn.Sequential(inn.Linear(4, 5), inn.GELU(), inn.Linear(5, 1)))


def images():
    torch.manual_seed(0)
    return CreINN(models.resnet8(num_classes=3, width=4, in_channels=1, layers=inn), mode="sound")


MODELS = {
    "CreINN": creinn,
    "sound": lambda: creinn(mode="sound"),
    "no norm": lambda: creinn(logit_norm=False),
    "double": lambda: creinn().double(),
    "binary sequential": sequential,
    "ResNet": images,
    "Ensemble": lambda: Ensemble([creinn(1), creinn(2, mode="sound")]),
    "SNN": snn,
    "SNN with norm": lambda: snn(logit_norm=True),
    "DeepEnsemble": lambda: DeepEnsemble([snn(1), snn(2)]),
    "CreINN-D": lambda: creinn(distance=True).fit_distance(X, Y),
    "BNN": lambda: baseline(BNN, local_reparameterization),
    "FSVI": lambda: baseline(FSVI),
    "LaplaceBNN": lambda: baseline(LaplaceBNN),
}


@pytest.mark.parametrize("name", MODELS)
def test_round_trip(name, tmp_path):
    model = MODELS[name]().eval()
    save(model, tmp_path / "deep" / "model")
    again = load(tmp_path / "deep" / "model")
    assert type(again) is type(model)
    assert not again.training
    assert again.num_classes == model.num_classes
    expected, found = model.state_dict(), again.state_dict()
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        assert torch.equal(value, found[key])
        assert value.dtype == found[key].dtype
        assert value.stride() == found[key].stride()  # products depend on the layout
    x = torch.rand(2, 1, 16, 16) if name == "ResNet" else X
    x = x.to(next(model.parameters()).dtype)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        expected = model(x).probabilities
        torch.manual_seed(0)
        torch.testing.assert_close(again(x).probabilities, expected)
    files = {path.name for path in (tmp_path / "deep" / "model").iterdir()}
    assert files == {"config.json", "model.safetensors"}


def test_config_is_readable(tmp_path):
    scale = {"mean": [0.5], "std": [0.25]}
    save(creinn(mode="sound"), tmp_path, classes=["ham", "eggs", "spam"], preprocessing=scale)
    config = json.loads((tmp_path / "config.json").read_text())
    assert read_config(tmp_path) == config
    assert config["kind"] == "CreINN"
    assert config["options"] == {
        "mode": "sound",
        "num_logits": 3,
        "logit_norm": True,
        "distance": None,
        "loss": "intersection",
        "feature_layers": None,
        "logits_layer": None,
        "temperature": False,
    }
    assert config["classes"] == ["ham", "eggs", "spam"]
    assert config["preprocessing"] == {"mean": [0.5], "std": [0.25]}
    assert config["format"] == FORMAT
    assert config["versions"]["torch"] == torch.__version__


def test_save_with_names_and_preparation(tmp_path):
    save(creinn(), tmp_path / "a", classes=["ham", "eggs", "spam"], preprocessing={"mean": [0.5]})
    load(tmp_path / "a").save(tmp_path / "b")
    config = read_config(tmp_path / "b")
    assert config["classes"] == ["ham", "eggs", "spam"]
    assert config["preprocessing"] == {"mean": [0.5]}


def test_saving_is_deterministic(tmp_path):
    for name in ("a", "b"):
        save(creinn(), tmp_path / name)
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_saving_again_replaces_model(tmp_path):
    save(creinn(1), tmp_path)
    (tmp_path / "notes.txt").write_text("keep me")
    save(snn(2), tmp_path, classes=["a", "b", "c"])
    assert isinstance(load(tmp_path), SNN)
    assert (tmp_path / "notes.txt").read_text() == "keep me"


def test_edited_names_are_loaded(tmp_path):
    save(creinn(), tmp_path, classes=["a", "b", "c"])
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace('"b"', '"bee"'))
    assert read_config(tmp_path)["classes"] == ["a", "bee", "c"]


def test_killed_save_preserves_previous_model(tmp_path):
    old = creinn()
    save(old, tmp_path / "model", classes=["a", "b", "c"])
    save(snn(), tmp_path / "other")
    os.replace(tmp_path / "other" / "config.json", tmp_path / "model" / "config.json")
    again = load(tmp_path / "model")
    assert isinstance(again, CreINN)
    torch.testing.assert_close(again(X).lower, old(X).lower)
    assert read_config(tmp_path / "model")["classes"] == ["a", "b", "c"]
    (tmp_path / "model" / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="safetensors"):
        load(tmp_path / "model")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_full_disk_preserves_previous_model(tmp_path):
    old = creinn()
    save(old, tmp_path)
    os.symlink("/dev/full", tmp_path / "model.safetensors.tmp")
    with pytest.raises(OSError, match="space"):
        save(creinn(1, mode="sound"), tmp_path)
    torch.testing.assert_close(load(tmp_path)(X).lower, old(X).lower)


class Custom(torch.nn.Module):
    """Network without a description."""

    def __init__(self):
        super().__init__()
        self.first, self.last = inn.Linear(4, 5), inn.Linear(5, 3)

    def forward(self, x):
        y = self.first(x)
        return self.last(y) if len(y.shape) == 2 and y.lower.sum() > -1e9 else y


def test_load_with_given_network(tmp_path):
    torch.manual_seed(0)
    model = CreINN(Custom()).eval()
    with pytest.warns(UserWarning, match="network="):
        save(model, tmp_path)
    with pytest.raises(ValueError, match="network="):
        load(tmp_path)
    again = load(tmp_path, network=Custom())
    torch.testing.assert_close(again(X).lower, model(X).lower)
    ensemble = Ensemble([CreINN(Custom()), CreINN(Custom())]).eval()
    with pytest.warns(UserWarning, match="network="):
        save(ensemble, tmp_path)
    again = load(tmp_path, network=Custom())
    torch.testing.assert_close(again(X).lower, ensemble(X).lower)
    assert not torch.equal(again.members[0](X).lower, again.members[1](X).lower)
    with pytest.raises(ValueError, match=r"members\.0\.network"):
        load(tmp_path, network=inn.Linear(4, 3))


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 3)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.head(self.two(self.one(x)))


def test_tied_weights_are_preserved(tmp_path):
    model = SNN(Tied())
    save(model, tmp_path)
    again = load(tmp_path, network=Tied())
    assert again.network.two.weight is again.network.one.weight
    torch.testing.assert_close(again(X).probabilities, model(X).probabilities)


def test_load_on_another_device(tmp_path):
    save(creinn(), tmp_path)
    assert next(load(tmp_path, device="meta").parameters()).device.type == "meta"
    assert next(load(tmp_path, device=torch.device("cpu")).parameters()).device.type == "cpu"


def test_truncated_files_raise(tmp_path):
    save(creinn(), tmp_path)
    for name in ("model.safetensors", "config.json"):
        content = (tmp_path / name).read_bytes()
        for size in (0, 5, len(content) // 2, len(content) - 3):
            (tmp_path / name).write_bytes(content[:size])
            with pytest.raises(ValueError, match=name):
                load(tmp_path)
        (tmp_path / name).write_bytes(content)
    content = bytearray((tmp_path / "model.safetensors").read_bytes())
    content[-2] ^= 1
    (tmp_path / "model.safetensors").write_bytes(bytes(content))
    with pytest.raises(ValueError, match="checksum"):
        load(tmp_path)


def test_foreign_files_raise(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(tmp_path / "nowhere")
    save(creinn(), tmp_path)
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="safetensors"):
        load(tmp_path)
    write_tensors(tmp_path / "model.safetensors", {}, {"what": "training checkpoint"})
    with pytest.raises(ValueError, match="safetensors"):
        load(tmp_path)
    for text in ('{"architectures": ["Bert"]}', "[1, 2]"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match="config"):
            load(tmp_path)


def change(directory, **changes):
    """Rewrite the configuration in both files."""
    weights, config = read_tensors(directory / "model.safetensors")
    write_tensors(directory / "model.safetensors", weights, config | changes)
    (directory / "config.json").write_text(json.dumps(config | changes))


def test_unknown_formats_and_kinds_raise(tmp_path):
    save(creinn(), tmp_path)
    change(tmp_path, format=FORMAT + 1)
    with pytest.raises(ValueError, match="format"):
        load(tmp_path)
    change(tmp_path, format=FORMAT, kind="os.system")
    with pytest.raises(ValueError, match=r"os\.system"):
        load(tmp_path)
    change(tmp_path, kind="CreINN", options={"mode": "paper", "run": "rm"})
    with pytest.raises(ValueError, match="run"):
        load(tmp_path)


def test_weights_of_another_network_raise(tmp_path):
    save(creinn(), tmp_path)
    network = read_config(tmp_path)["network"]
    assert network["arguments"]["hidden"] == [8]
    change(tmp_path, network=network | {"arguments": network["arguments"] | {"hidden": [9]}})
    with pytest.raises(ValueError, match=r"network\.body\.0\.weight"):
        load(tmp_path)
    change(tmp_path, network=network | {"arguments": network["arguments"] | {"hidden": []}})
    with pytest.raises(ValueError, match=r"network\.body\.0\.weight"):
        load(tmp_path)


def test_unsupported_models_raise(tmp_path):
    class Other(SNN):
        pass

    with pytest.raises(TypeError, match="Other"):
        save(Other(torch.nn.Linear(4, 3)), tmp_path)
    with pytest.raises(ValueError, match="got 2"):
        save(creinn(), tmp_path, classes=["a", "b"])
    with pytest.raises(TypeError, match="Tensor"):
        save(creinn(), tmp_path, preprocessing=torch.zeros(1))
    with pytest.raises(ValueError, match="NaN"):
        save(creinn(), tmp_path, preprocessing=[float("nan")])
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        save(creinn(), tmp_path / "file")
    assert set(CLASSES) >= {"CreINN", "Ensemble", "SNN", "DeepEnsemble"}
