"""Tests of ``python -m experiments``."""

import pytest

from experiments import tasks
from experiments.command import _parsers, main, resolve

TINY = ["--methods", "snn", "--seeds", "1", "--epochs", "1", "--width", "2", "--train-images", "60"]
TINY += ["--test-images", "20", "--no-complete", "--no-progress"]


def parse(*words):
    return _parsers()[0].parse_args(["run", *words, "--data", "d", "--out", "o"])


def test_list_names_every_experiment(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert "cifar10-svhn-small" in out
    assert "resnet50, width 64; all training images, 150 epochs, 15 runs; SNN, BNN-R" in out


def test_run_and_report(tiny_data, tmp_path, capsys):
    arguments = ["run", "fashion-mnist-small", *TINY]
    arguments += ["--data", str(tiny_data), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert "2 tasks, 2 completed" in capsys.readouterr().out
    assert main(arguments) == 0
    assert "2 tasks, 0 completed" in capsys.readouterr().out
    again = tmp_path / "out" / "work" / "fashion-mnist-small.yaml"
    assert main(["run", "fashion-mnist-small", "--config", str(again)]) == 0
    assert "2 tasks, 0 completed" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "out")]) == 0
    files = [tmp_path / "out" / f"report.{end}" for end in ("md", "html")]
    assert capsys.readouterr().out.split() == list(map(str, files))
    assert files[1].stat().st_size > 1e6  # it contains the script, so it opens offline


def test_missing_data_raise(tmp_path, capsys):
    arguments = ["--data", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(["run", "fashion-mnist-small", *arguments]) == 1
    assert "fashion-mnist (train)" in capsys.readouterr().err


def test_invalid_command_lines(tmp_path, capsys):
    assert main(["run", "mnist", "--data", str(tmp_path), "--out", str(tmp_path)]) == 1
    assert "'mnist'" in capsys.readouterr().err
    assert main([]) == 2
    assert main(["run", "fashion-mnist-small", "--data", str(tmp_path)]) == 2
    assert "--out" in capsys.readouterr().err
    config = tmp_path / "options.yaml"
    config.write_text("epoch: 3")
    assert main(["run", "fashion-mnist-small", "--config", str(config)]) == 1
    assert "epoch" in capsys.readouterr().err


def test_failed_tasks_give_exit_code_one(tiny_data, tmp_path, capsys, monkeypatch):
    def fail(*_):
        raise FloatingPointError("the loss is NaN")

    monkeypatch.setattr(tasks, "train", fail)
    where = ["--data", str(tiny_data), "--out", str(tmp_path)]
    assert main(["run", "fashion-mnist-small", *TINY, *where]) == 1
    err = capsys.readouterr().err
    assert "evaluate-snn-0" in err
    assert "NaN" in err


def test_method_options():
    chosen = resolve(parse("cifar10-svhn", "--options", "{bnn-r: {kl_weight: 0.5}}")).options
    assert (chosen["bnn-r"], chosen["bnn-f"]) == ({"kl_weight": 0.5}, {"kl_weight": 0.1})


def test_options_change_the_experiment():
    words = ("--methods", "creinn", "--epochs", "3", "--steps", "2", "--batch-size", "64")
    chosen = resolve(parse("cifar10-svhn", *words))
    assert (chosen.methods, chosen.training.epochs) == (("creinn",), 1)
    assert chosen.training.batch_size == 64
    with pytest.raises(ValueError, match="'cre'"):
        resolve(parse("cifar10-svhn", "--methods", "cre"))
