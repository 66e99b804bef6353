"""``creinn COMMAND ...``: finds the command, parses its options, runs it, and turns errors into messages.

Exit codes: 0 done; 1 the data, files or settings are not as they must be; 2 the command line itself is not; 130 stopped
by Ctrl-C.
"""

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from creinn.cli import options
from creinn.cli.parsing import UsageError, parse_options, summary
from creinn.malloc import keep_freed_memory


def _demo(found: options.DemoOptions) -> int:
    from creinn.cli.demo import demo

    return demo(found)


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
"""The options of each command and its function, in the order of the help.

The function returns the exit code, or raises an error that :func:`main` prints. It imports the
module of the command, because most of these modules load torch.
"""

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
HELP = Path(__file__).with_name("help.yaml")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
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
            raise UsageError(f"{command!r} is no command; there are {', '.join(COMMANDS)}.")
        program = f"creinn {command}"
        kind, run = COMMANDS[command]
        keep_freed_memory()
        if (
            "WORLD_SIZE" in os.environ
        ):  # torch, not loaded yet, would warn once per rank of what training asks of it
            os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        found: Any = parse_options(kind, program, arguments[1:], _helps(command))
        with warnings.catch_warnings():
            warnings.showwarning = _say  # type: ignore[assignment]
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


def _helps(command: str) -> dict[str, str]:
    return yaml.safe_load(HELP.read_text(encoding="utf-8")).get(command, {})


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = (f"  {name:<{width}}  {summary(kind)}" for name, (kind, _) in COMMANDS.items())
    hint = "creinn COMMAND --help says more. --debug shows where an error arose."
    return "usage: creinn COMMAND ...\n\n" + "\n".join(lines) + f"\n\n{hint}"


def _say(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any
) -> None:
    """A warning of ours as a note, any other with its place."""
    ours = category.__module__.startswith("creinn") or category is UserWarning
    print(
        f"note: {message}" if ours else f"{filename}:{lineno}: {category.__name__}: {message}",
        file=sys.stderr,
    )


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}."
    return " ".join(str(error).split()) or type(error).__name__
