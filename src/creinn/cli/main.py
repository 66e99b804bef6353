"""``creinn COMMAND ...``: finds the command, parses its options, runs it, and turns errors into messages.

Exit codes: 0 done; 1 the data, files or settings are not as they must be; 2 the command line itself is not; 130 stopped
by Ctrl-C.
"""

import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, get_type_hints

from creinn.allocation import keep_freed_memory
from creinn.cli.parsing import UsageError, parse_options, summary

COMMANDS = ("demo", "train", "predict", "evaluate", "experiment", "benchmark", "export")
"""Names of the commands, in the order of the help; each is a module of :mod:`creinn.cli.options`, if there is one.

A module has ``run(options) -> int``, whose annotation names the dataclass of its options, or ``ACTIONS``: such
functions by the name of a sub-command.
"""

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    program = "creinn"
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(_overview())
            return OK if arguments else USAGE
        if arguments[0] == "--version":
            print(f"creinn {version('creinn')}")
            return OK
        program, run, rest = _find(arguments)
        if run is None:
            return OK
        keep_freed_memory()
        options: Any = parse_options(_options_of(run), program, rest)
        with warnings.catch_warnings():
            warnings.showwarning = _say  # type: ignore[assignment]
            return run(options)
    except SystemExit as exit_:  # --help of a command
        return int(exit_.code or 0)
    except (UsageError, ValueError, OSError, ImportError, FloatingPointError) as error:
        if debug:
            traceback.print_exc()
        usage = isinstance(error, UsageError)
        hint = f" See {program} --help." if usage else ""
        print(f"{program}: {_one_line(error)}{hint}", file=sys.stderr)
        return USAGE if usage else FAILED
    except KeyboardInterrupt:
        print(f"{program}: stopped.", file=sys.stderr)
        return INTERRUPTED


def available() -> dict[str, Any]:
    """Modules of the commands that are there, by name."""
    names = [name for name in COMMANDS if find_spec(f"creinn.cli.options.{name}") is not None]
    return {name: import_module(f"creinn.cli.options.{name}") for name in names}


def _find(arguments: list[str]) -> tuple[str, Callable[[Any], int] | None, list[str]]:
    """Name for messages, function and further arguments of a command; no function if its help was printed."""
    name, *rest = arguments
    if name not in COMMANDS or find_spec(f"creinn.cli.options.{name}") is None:
        raise UsageError(f"there is no command {name!r}; there are {', '.join(available())}.")
    module = import_module(f"creinn.cli.options.{name}")
    actions: dict[str, Callable[[Any], int]] | None = getattr(module, "ACTIONS", None)
    if actions is None:
        return f"creinn {name}", module.run, rest
    if rest and rest[0] in ("-h", "--help"):
        print(_listing(f"creinn {name}", {key: summary(_options_of(run)) for key, run in actions.items()}))
        return f"creinn {name}", None, []
    if not rest or rest[0] not in actions:
        found = f"{rest[0]!r} is none of them" if rest else "none is given"
        raise UsageError(f"{name} needs one of {', '.join(actions)}; {found}.")
    return f"creinn {name} {rest[0]}", actions[rest[0]], rest[1:]


def _options_of(run: Callable[[Any], int]) -> type:
    hints = get_type_hints(run)
    return next(hint for name, hint in hints.items() if name != "return")


def _overview() -> str:
    lines = {}
    for name, module in available().items():
        lines[name] = summary(module) if hasattr(module, "ACTIONS") else summary(_options_of(module.run))
    return _listing("creinn", lines)


def _listing(program: str, lines: dict[str, str]) -> str:
    width = max(map(len, lines), default=0)
    listed = "\n".join(f"  {name:<{width}}  {text}" for name, text in lines.items())
    hint = f"{program} COMMAND --help says more. --debug shows where an error arose."
    return f"usage: {program} COMMAND ...\n\n{listed}\n\n{hint}"


def _say(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
    """A warning of ours as a note, any other with its place."""
    ours = category.__module__.startswith("creinn") or category is UserWarning
    print(f"note: {message}" if ours else f"{filename}:{lineno}: {category.__name__}: {message}", file=sys.stderr)


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}."
    return " ".join(str(error).split()) or type(error).__name__
