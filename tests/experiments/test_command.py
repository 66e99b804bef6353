"""``creinn experiment``: list, run, report; missing data and failures are named."""

import pytest

from creinn.cli.experiment import resolve
from creinn.cli.main import main
from creinn.cli.options import RunOptions
from creinn.cli.parsing import options_yaml, parse_options


def test_list_names_every_experiment(capsys):
    assert main(["experiment", "list"]) == 0
    out = capsys.readouterr().out
    assert "cifar10-svhn-small" in out
    assert (
        "resnet50, width 64; all training images, 150 epochs, 15 runs; SNN, BNN-R, BNN-F, FSVI, BNN-L"
        in out
    )


def test_run_and_report(tiny_data, tmp_path, capsys):
    arguments = [
        "--data",
        str(tiny_data),
        "--out",
        str(tmp_path / "out"),
        "--no-complete",
        "--no-progress",
    ]
    arguments += ["--methods", "snn", "--seeds", "1", "--epochs", "1", "--width", "2"]
    arguments += ["--train-images", "60", "--test-images", "20"]
    assert main(["experiment", "run", "fashion-mnist-small", *arguments]) == 0
    assert "fashion-mnist-small: 2 pieces, 2 of them done now." in capsys.readouterr().out
    assert main(["experiment", "run", "fashion-mnist-small", *arguments]) == 0
    assert "2 pieces, 0 of them done now." in capsys.readouterr().out
    assert main(["experiment", "report", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.split() == [
        str(tmp_path / "out" / f"report.{end}") for end in ("md", "html")
    ]
    assert (
        tmp_path / "out" / "report.html"
    ).stat().st_size > 1e6  # with its script, it opens offline


def test_missing_data_are_named(tmp_path, capsys):
    arguments = ["--data", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(["experiment", "run", "fashion-mnist-small", *arguments]) == 1
    assert "Found no fashion-mnist (train)" in capsys.readouterr().err


def test_unknown_experiment_and_missing_action(tmp_path, capsys):
    assert (
        main(["experiment", "run", "mnist", "--data", str(tmp_path), "--out", str(tmp_path)]) == 1
    )
    assert "There is no experiment 'mnist'" in capsys.readouterr().err
    assert main(["experiment"]) == 2


def test_failed_pieces_are_named_and_give_exit_code_one(tiny_data, tmp_path, capsys, monkeypatch):
    from creinn.experiments import pieces

    def fail(*arguments):
        raise FloatingPointError("the loss is NaN")

    monkeypatch.setattr(pieces, "train", fail)
    arguments = ["--data", str(tiny_data), "--out", str(tmp_path), "--no-complete", "--no-progress"]
    arguments += ["--methods", "snn", "--seeds", "1", "--train-images", "60", "--test-images", "20"]
    assert main(["experiment", "run", "fashion-mnist-small", *arguments]) == 1
    assert "evaluate-snn-0" in (err := capsys.readouterr().err)
    assert "failed: the loss is NaN" in err


def test_options_of_a_method_come_from_the_command_line(tmp_path):
    arguments = [
        "cifar10-svhn",
        "--data",
        "d",
        "--out",
        "o",
        "--options",
        "{bnn-r: {kl_weight: 0.5}}",
    ]
    options = parse_options(RunOptions, "creinn experiment run", arguments)
    chosen = resolve(options).options
    assert (chosen["bnn-r"], chosen["bnn-f"]) == ({"kl_weight": 0.5}, {"kl_weight": 0.1})
    file = tmp_path / "again.yaml"
    file.write_text(options_yaml("experiment run", options))
    assert parse_options(RunOptions, "creinn experiment run", ["--config", str(file)]) == options


def test_options_change_the_experiment(tmp_path):
    options = RunOptions(
        name="cifar10-svhn",
        data=tmp_path,
        out=tmp_path,
        methods=("creinn",),
        epochs=3,
        steps=2,
        batch_size=64,
    )
    chosen = resolve(options)
    assert (chosen.methods, chosen.training.epochs, chosen.training.batch_size) == (
        ("creinn",),
        1,
        64,
    )
    with pytest.raises(ValueError, match="'cre'"):
        resolve(RunOptions(name="cifar10-svhn", data=tmp_path, out=tmp_path, methods=("cre",)))
