"""``creinn COMMAND ...``: parse the options, run a command and print the errors.

The exit code is 0 for success, 1 for an error in the data, files or settings, 2 for an error in the
command line, and 130 if the command is interrupted by Ctrl-C. An error is printed as one line.
"""

import inspect
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib.metadata import version
from typing import Any

from creinn.cli import options
from creinn.cli.parsing import UsageError, command_line, options_yaml, parse_options
from creinn.malloc import keep_freed_memory


def _demo(found: options.DemoOptions) -> int:
    from creinn.demo.page import run_and_report
    from creinn.files import write_bytes

    settings = {entry.name: getattr(found, entry.name) for entry in fields(found)}
    command = command_line("demo", found, leave_out=("out", "progress"))
    # The options are written before the training, so a bad directory is found early.
    write_bytes(found.out / "demo.yaml", options_yaml("demo", found).encode())
    run_and_report(command=command, **settings)
    return 0


def _train(found: options.TrainOptions) -> int:
    from creinn.cli.train import train

    return train(found)


def _predict(found: options.PredictOptions) -> int:
    from creinn.cli.predict import predict

    return predict(found)


def _evaluate(found: options.EvaluateOptions) -> int:
    from creinn.cli.evaluate import evaluate

    return evaluate(found)


def _export(found: options.ExportOptions) -> int:
    from creinn.cli.export import export_model

    return export_model(found)


COMMANDS: dict[str, tuple[type, Callable[[Any], int]]] = {
    "demo": (options.DemoOptions, _demo),
    "train": (options.TrainOptions, _train),
    "predict": (options.PredictOptions, _predict),
    "evaluate": (options.EvaluateOptions, _evaluate),
    "export": (options.ExportOptions, _export),
}
"""The options and the function of each command; most functions import torch."""

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    program = "creinn"
    try:
        command = arguments[0] if arguments else ""
        if command in ("", "-h", "--help"):
            print(_overview())
            return OK if arguments else USAGE
        if command == "--version":
            print(f"creinn {version('creinn')}")
            return OK
        if command not in COMMANDS:
            raise UsageError(f"{command!r} is not a command; commands are {', '.join(COMMANDS)}.")
        program = f"creinn {command}"
        kind, run = COMMANDS[command]
        keep_freed_memory()
        if "WORLD_SIZE" in os.environ:  # before the import of torch: avoid warnings
            os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        found: Any = parse_options(kind, program, arguments[1:])
        with warnings.catch_warnings():
            warnings.showwarning = _print_warning  # type: ignore[assignment]
            return run(found)
    except SystemExit as exit_:  # --help of a command
        return int(exit_.code or 0)
    except (UsageError, ValueError, OSError, ImportError, FloatingPointError) as error:
        if debug:
            traceback.print_exc()
        usage = isinstance(error, UsageError)
        hint = f" See {program} --help." if usage else ""
        print(f"{program}: {options.with_flags(_one_line(error))}{hint}", file=sys.stderr)
        return USAGE if usage else FAILED
    except KeyboardInterrupt:
        print(f"{program}: stopped.", file=sys.stderr)
        return INTERRUPTED


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = (f"  {name:<{width}}  {_summary(kind)}" for name, (kind, _) in COMMANDS.items())
    hint = "creinn COMMAND --help lists the options. --debug prints the traceback of an error."
    return "usage: creinn COMMAND ...\n\n" + "\n".join(lines) + f"\n\n{hint}"


def _summary(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def _print_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any
) -> None:
    """Print a warning, with the file and the line if it is not a warning of creinn."""
    ours = category.__module__.startswith("creinn") or category is UserWarning
    print(
        f"note: {message}" if ours else f"{filename}:{lineno}: {category.__name__}: {message}",
        file=sys.stderr,
    )


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}."
    return " ".join(str(error).split()) or type(error).__name__
