"""Resumed training ends as if never stopped; foreign and damaged checkpoints are refused."""

import json
import os

import pytest
import torch

from creinn import nn as inn
from creinn.baselines.snn import SNN
from creinn.classifier.creinn import CreINN
from creinn.files import read_tensors, write_tensors
from creinn.training import TrainConfig, fit
from creinn.training.checkpoint import CHECKPOINT_FORMAT, read_checkpoint

G = torch.Generator().manual_seed(0)
X, Y = torch.randn(60, 4, generator=G), torch.randint(3, (60,), generator=G)


def creinn(hidden=8, activation=inn.ReLU, mode="paper"):
    torch.manual_seed(0)
    layers = (
        inn.Linear(4, hidden),
        inn.BatchNorm1d(hidden),
        activation(),
        inn.Dropout(0.2),
        inn.Linear(hidden, 3),
    )
    return CreINN(torch.nn.Sequential(*layers), mode=mode)


def settings(directory, **changes):
    return TrainConfig(
        **({"epochs": 3, "batch_size": 16, "progress": False, "directory": directory} | changes)
    )


def augment(x, generator):
    return x + 0.1 * torch.rand(x.shape, generator=generator)


def same(a, b):
    first, second = a.state_dict(), b.state_dict()
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    "changes",
    [{}, {"milestones": (2, 4)}, {"keep": "best", "checkpoint_every": 3, "learning_rate": 0.02}],
)
def test_resumed_run_equals_uninterrupted_run(tmp_path, changes):
    whole, part, rest = creinn(), creinn(), creinn()
    history = fit(whole, (X, Y), (X[:20], Y[:20]), settings(None, epochs=6, **changes), augment)
    fit(part, (X, Y), (X[:20], Y[:20]), settings(tmp_path, epochs=2, **changes), augment)
    resumed = fit(rest, (X, Y), (X[:20], Y[:20]), settings(tmp_path, epochs=6, **changes), augment)
    assert same(whole, rest)
    assert not same(whole, part)
    assert resumed["val_loss"] == history["val_loss"]
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == 6


def test_resumed_run_preserves_memory_format_of_optimizer(tmp_path):
    images = torch.rand(len(X), 2, 5, 5, generator=torch.Generator().manual_seed(1))

    def model():
        torch.manual_seed(0)
        conv = inn.Conv2d(2, 4, 3)
        network = torch.nn.Sequential(conv, inn.ReLU(), inn.Flatten(), inn.Linear(36, 3))
        return CreINN(network).to(memory_format=torch.channels_last)

    whole, part, rest = model(), model(), model()
    fit(whole, (images, Y), None, settings(None, epochs=4))
    fit(part, (images, Y), None, settings(tmp_path, epochs=2))
    fit(rest, (images, Y), None, settings(tmp_path, epochs=4))
    assert same(whole, rest)


def test_finished_run_is_loaded(tmp_path):
    first, second = creinn(), creinn(mode="paper")
    history = fit(first, (X, Y), None, settings(tmp_path))
    stamp = (tmp_path / "last.safetensors").stat().st_mtime_ns
    torch.nn.init.zeros_(second.network[0].weight)
    assert fit(second, (X, Y), None, settings(tmp_path)) == history
    assert same(first, second)
    assert (tmp_path / "last.safetensors").stat().st_mtime_ns == stamp


def test_resumed_run_continues_patience(tmp_path):
    g = torch.Generator().manual_seed(1)
    val = torch.randn(40, 4, generator=g), torch.randint(3, (40,), generator=g)
    changes = {"patience": 2, "keep": "best", "learning_rate": 0.05}
    first, second = creinn(), creinn()
    history = fit(first, (X, Y), val, settings(tmp_path, epochs=40, **changes))
    assert len(history) < 40
    assert fit(second, (X, Y), val, settings(tmp_path, epochs=40, **changes)) == history
    assert same(first, second)


def test_resume_truncates_history(tmp_path):
    fit(creinn(), (X, Y), None, settings(tmp_path, epochs=2))
    with open(tmp_path / "history.jsonl", "a") as file:
        file.write('{"epoch": 3, "lo')
    fit(creinn(), (X, Y), None, settings(tmp_path, epochs=3))
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3]


def test_checkpoint_interval(tmp_path):
    seen = []

    def watch(x, generator):
        seen.append(len(read_checkpoint(tmp_path / "last.safetensors").rows))
        return x

    fit(
        creinn(),
        (X, Y),
        None,
        settings(tmp_path, epochs=5, checkpoint_every=2, batch_size=60),
        watch,
    )
    assert seen == [0, 0, 2, 2, 4]
    assert len(read_checkpoint(tmp_path / "last.safetensors").rows) == 5


def test_checkpoint_of_another_run_raises(tmp_path):
    fit(creinn(), (X, Y), (X, Y), settings(tmp_path), augment)
    attempts = [
        (
            creinn(hidden=9),
            (X, Y),
            settings(tmp_path),
            augment,
            "another architecture: .*out_features=8",
        ),
        (
            creinn(activation=inn.GELU),
            (X, Y),
            settings(tmp_path),
            augment,
            r"another architecture: '\(2\): ReLU\(\)' is",
        ),
        (
            creinn(mode="sound"),
            (X, Y),
            settings(tmp_path),
            augment,
            "another architecture: .*mode='paper'",
        ),
        (
            creinn().double(),
            (X, Y),
            settings(tmp_path),
            augment,
            r"weights: .*torch\.float",
        ),
        (SNN(torch.nn.Linear(4, 3)), (X, Y), settings(tmp_path), augment, "architecture"),
        (
            creinn(),
            (X, Y),
            settings(tmp_path, batch_size=20),
            augment,
            "with batch_size=16, but now batch_size=20",
        ),
        (creinn(), (X, Y), settings(tmp_path, seed=1), augment, "with seed=0, but now seed=1"),
        (
            creinn(),
            (X, Y),
            settings(tmp_path, milestones=(2,)),
            augment,
            r"with milestones=\[\], but now milestones=\[2\]",
        ),
        (
            creinn(),
            (X + 1, Y),
            settings(tmp_path),
            augment,
            "with train_data=60 rows.* but now train_data=60 rows",
        ),
        (creinn(), (X, Y), settings(tmp_path), None, "with augment=augment, but now augment=None"),
        (
            creinn(),
            (X, Y),
            settings(tmp_path, epochs=2),
            augment,
            "3 epochs",
        ),
    ]
    for model, data, config, hook, message in attempts:
        with pytest.raises(ValueError, match=message):
            fit(model, data, (X, Y), config, hook)
    with pytest.raises(ValueError, match="val_data"):
        fit(creinn(), (X, Y), None, settings(tmp_path), augment)


def test_irrelevant_settings_may_change(tmp_path):
    whole, rest = creinn(), creinn()
    fit(whole, (X, Y), (X, Y), settings(None, epochs=4))
    fit(creinn(), (X, Y), (X, Y), settings(tmp_path, epochs=2))
    (tmp_path / "run").mkdir()
    os.rename(tmp_path / "last.safetensors", tmp_path / "run" / "last.safetensors")
    fit(
        rest,
        (X, Y),
        (X, Y),
        settings(tmp_path / "run", epochs=4, device="auto", checkpoint_every=3, patience=50),
    )
    assert same(whole, rest)


def test_missing_best_weights_raise(tmp_path):
    g = torch.Generator().manual_seed(1)
    val = torch.randn(40, 4, generator=g), torch.randint(3, (40,), generator=g)
    history = fit(creinn(), (X, Y), val, settings(tmp_path, epochs=12, learning_rate=0.05))
    assert history.best_epoch < 12
    (tmp_path / "best.safetensors").unlink()
    with pytest.raises(ValueError, match=r"best\.safetensors"):
        fit(creinn(), (X, Y), val, settings(tmp_path, epochs=12, learning_rate=0.05, keep="best"))


def test_damaged_checkpoints_raise(tmp_path):
    fit(creinn(), (X, Y), None, settings(tmp_path))
    path = tmp_path / "last.safetensors"
    content = path.read_bytes()
    for size in (0, 7, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match="truncated"):
            fit(creinn(), (X, Y), None, settings(tmp_path))
    write_tensors(path, {"a": torch.zeros(1)}, {"what": "cake"})
    with pytest.raises(ValueError, match="cake"):
        fit(creinn(), (X, Y), None, settings(tmp_path))
    path.write_bytes(content)
    tensors, header = read_tensors(path)
    write_tensors(path, tensors, header | {"format": CHECKPOINT_FORMAT + 1})
    with pytest.raises(ValueError, match=f"format {CHECKPOINT_FORMAT + 1}"):
        fit(creinn(), (X, Y), None, settings(tmp_path))


def test_unwritable_directory_raises_before_training(tmp_path):
    (tmp_path / "file").write_text("not a directory")
    model = creinn()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(OSError, match=r"last\.safetensors"):
        fit(model, (X, Y), None, settings(tmp_path / "file" / "run"))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_full_disk_preserves_previous_checkpoint(tmp_path):
    fit(creinn(), (X, Y), None, settings(tmp_path, epochs=2))
    os.symlink("/dev/full", tmp_path / "last.safetensors.tmp")
    with pytest.raises(OSError, match="space"):
        fit(creinn(), (X, Y), None, settings(tmp_path, epochs=4))
    assert len(read_checkpoint(tmp_path / "last.safetensors").rows) == 2
    whole, rest = creinn(), creinn()
    fit(whole, (X, Y), None, settings(None, epochs=4))
    fit(rest, (X, Y), None, settings(tmp_path, epochs=4))
    assert same(whole, rest)
