"""Tests of the command line: exit codes, messages and the help of the commands."""

import re
import subprocess
import sys
import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from typing import get_args

import pytest

from creinn import models
from creinn.classifier.methods import BASELINES
from creinn.cli import main as cli
from creinn.cli import options
from creinn.cli.parsing import option


@dataclass(frozen=True, kw_only=True)
class Options:
    """Do it."""

    times: int = option(1)


@pytest.fixture
def command(monkeypatch):
    """Return a function that replaces the commands."""

    def install(run):
        monkeypatch.setattr(cli, "COMMANDS", {"thing": Options})
        monkeypatch.setattr(cli, "run_command", lambda name, found, line: run(found))

    return install


def test_options_and_exit_code(command):
    def run(options: Options) -> int:
        return options.times

    command(run)
    assert cli.main(["thing"]) == 1
    assert cli.main(["thing", "--times", "0"]) == 0


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("the table\n  is round"), 1, "creinn thing: the table is round\n"),
        (FileNotFoundError("There is no file x."), 1, "creinn thing: There is no file x.\n"),
        (
            PermissionError(13, "Permission denied", "x.csv"),
            1,
            "creinn thing: x.csv: Permission denied.\n",
        ),
        (ImportError("Install it."), 1, "creinn thing: Install it.\n"),
        (FloatingPointError("The loss is NaN."), 1, "creinn thing: The loss is NaN.\n"),
        (KeyboardInterrupt(), 130, "creinn thing: stopped.\n"),
    ],
)
def test_errors_are_one_line_without_traceback(command, capsys, error, code, message):
    def run(options: Options) -> int:
        raise error

    command(run)
    assert cli.main(["thing"]) == code
    assert capsys.readouterr().err == message


def test_debug_prints_traceback(command, capsys):
    def run(options: Options) -> int:
        raise ValueError("bad")

    command(run)
    assert cli.main(["thing", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_internal_errors_propagate(command):
    def run(options: Options) -> int:
        raise KeyError("oops")

    command(run)
    with pytest.raises(KeyError):
        cli.main(["thing"])


def test_usage_errors_exit_with_code_two(command, capsys):
    def run(options: Options) -> int:
        return 0

    command(run)
    assert cli.main(["thing", "--often", "3"]) == 2
    expected = "creinn thing: unrecognized arguments: --often 3. See creinn thing --help.\n"
    assert capsys.readouterr().err == expected
    assert cli.main(["other"]) == 2
    assert "'other'" in capsys.readouterr().err
    assert cli.main([]) == 2


def test_unknown_names_raise(capsys):
    assert cli.main(["train", "x.csv", "--out", "m", "--method", "magic"]) == 2
    assert "'creinn-d', 'creinn', 'snn'" in capsys.readouterr().err
    assert cli.main(["train", "--out", "m", "--network", "vgg"]) == 2
    assert "'resnet8', 'resnet14'" in capsys.readouterr().err
    assert cli.main(["train", "x.csv", "--out", "m", "--members", "0"]) == 2
    assert "members" in capsys.readouterr().err
    assert cli.main(["train", "x.csv", "--out", "m", "--set", "speed=1"]) == 2
    assert "speed" in capsys.readouterr().err
    networks = {name.replace("-", "_") for name in get_args(options.Network)}
    assert networks == {*models.BUILDERS} - {"mlp"}
    others = {"creinn-d", "creinn", "deep-ensemble", "effcre", "crerl"}
    assert {*get_args(options.MethodName)} == others | {*BASELINES}


def test_help_lists_commands(capsys):
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert re.findall(r"^  (\w+) ", text, re.MULTILINE) == [
        *("demo", "train", "predict", "evaluate", "export")
    ]
    assert cli.main(["train", "--help"]) == 0
    assert "--validation-fraction" in capsys.readouterr().out
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("creinn 0.")


@pytest.mark.filterwarnings("default")
def test_warnings_are_printed_as_notes(command, capsys):
    def run(options: Options) -> int:
        warnings.warn("the gap is not 0", stacklevel=2)
        warnings.warn("old", DeprecationWarning, stacklevel=2)
        return 0

    command(run)
    assert cli.main(["thing"]) == 0
    printed = capsys.readouterr().err
    assert printed.startswith("note: the gap is not 0\n")
    assert "DeprecationWarning: old" in printed


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name, capsys):
    assert cli.main([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: creinn {name}")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_commands_have_at_most_25_options(name):
    kind = cli.COMMANDS[name]
    assert all(entry.metadata["help"] for entry in fields(kind))
    common = [entry for entry in fields(kind) if "setting" not in entry.metadata]
    assert len(common) + (len(common) < len(fields(kind))) <= 25  # with --set


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"]])
def test_help_does_not_import_torch(arguments):
    code = f"import sys; from creinn.cli.main import main; main({arguments}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_installed_program():
    program = Path(sys.executable).with_name("creinn")
    if not program.exists():
        pytest.skip("the package is not installed")
    done = subprocess.run(
        [program, "predict", "absent", "x.csv", "--out", "p.csv"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "absent" in done.stderr
