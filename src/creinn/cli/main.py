"""``creinn COMMAND ...``: parse the options, and run the command.

The exit code is 0 for success, 1 for an error in the data, files or
settings, 2 for an error in the command line, and 130 after Ctrl-C.
"""

import inspect
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from creinn.cli import options
from creinn.cli.parsing import UsageError, options_yaml, parse_options
from creinn.malloc import keep_freed_memory

COMMANDS: dict[str, type] = {
    "demo": options.DemoOptions,
    "train": options.TrainOptions,
    "predict": options.PredictOptions,
    "evaluate": options.EvaluateOptions,
    "export": options.ExportOptions,
}
OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def run_command(name: str, found: Any, line: str) -> int:
    """Run one command."""
    match name:  # the commands import torch
        case "demo":
            from creinn.demo import DemoConfig, run_and_report
            from creinn.files import write_bytes

            # check the directory before the training
            write_bytes(found.out / "demo.yaml", options_yaml("demo", found).encode())
            settings = {name: value for name, value in vars(found).items() if name != "out"}
            return run_and_report(DemoConfig(**settings), found.out, line)
        case "train":
            from creinn.cli.train import train

            return train(found)
        case "predict":
            from creinn.cli.predict import predict

            return predict(found)
        case "evaluate":
            from creinn.cli.evaluate import evaluate

            return evaluate(found, line)
        case _:
            from creinn.cli.export import export_model

            return export_model(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    command, program = arguments[0] if arguments else "", "creinn"
    if command in ("", "-h", "--help"):
        _print_overview()
        return OK if command else USAGE
    if command == "--version":
        print(f"creinn {version('creinn')}")
        return OK
    try:
        if command not in COMMANDS:
            raise UsageError(f"{command!r} is not one of the commands {', '.join(COMMANDS)}.")
        program = f"creinn {command}"
        keep_freed_memory()
        if "WORLD_SIZE" in os.environ:  # torch reads it on import
            os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        found: Any = parse_options(COMMANDS[command], program, arguments[1:])
        with warnings.catch_warnings():
            warnings.showwarning = _print_warning  # type: ignore[assignment]
            return run_command(command, found, shlex.join(["creinn", *arguments]))
    except SystemExit as exit_:  # --help
        return int(exit_.code or 0)
    except (UsageError, ValueError, OSError, ImportError, FloatingPointError) as error:
        if debug:
            traceback.print_exc()
        is_usage = isinstance(error, UsageError)
        hint = f" See {program} --help." if is_usage else ""
        print(f"{program}: {_one_line(error)}{hint}", file=sys.stderr)
        return USAGE if is_usage else FAILED
    except KeyboardInterrupt:
        print(f"{program}: stopped.", file=sys.stderr)
        return INTERRUPTED


def _print_overview() -> None:
    print("usage: creinn COMMAND ...\n")
    for name, kind in COMMANDS.items():
        summary, *_ = inspect.getdoc(kind).splitlines()  # type: ignore[union-attr]
        print(f"  {name:<8}  {summary}")
    print("\ncreinn COMMAND --help lists the options. --debug prints the traceback of an error.")


def _print_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any
) -> None:
    """Print a warning, and its place if it is of another package."""
    is_ours = category.__module__.startswith("creinn") or category is UserWarning
    place = "note" if is_ours else f"{filename}:{lineno}: {category.__name__}"
    print(f"{place}: {message}", file=sys.stderr)


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}."
    return " ".join(str(error).split()) or type(error).__name__
