"""Parsing of the options of a command, which are the fields of a dataclass.

The common options are options of the command line. The other options are settings. They are given
by ``--set NAME=VALUE`` or in the YAML file of ``--config``. The name of the field ``from_`` is
``from`` on the command line.
"""

import inspect
import json
import shlex
import textwrap
from argparse import SUPPRESS, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import MISSING, Field, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import yaml
from jsonargparse import ActionYesNo, ArgumentError, ArgumentParser

from creinn.cli.option_types import convert_options, option_type

Options = TypeVar("Options")
GROUPS = ("data", "method", "training", "output")


class UsageError(Exception):
    """Error in the command line or in a file with options."""


def option(default: Any = MISSING, group: str = "output", help: str = "", **kind: bool) -> Any:
    """Define an option; the name of a positional option is not written."""
    return field(default=default, metadata={"group": group, "help": help, **kind})


def setting(default: Any, group: str, help: str) -> Any:
    """Define a less common option for ``--set`` or for a file."""
    return option(default, group, help, setting=True)


def parse_options(kind: type[Options], program: str, arguments: Sequence[str]) -> Options:
    """Parse the options of the command line and of the file of ``--config``.

    If an option is in both, the command line is used.

    Raises:
        UsageError: If an option is unknown, missing or of the wrong type, or the file is invalid.
    """
    entries: Any = fields(kind)  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    types = {_key(entry): (option_type(hints[entry.name]), entry.default) for entry in entries}
    try:
        given = _parser(kind, program).parse_args(arguments).as_dict()
        file, pairs = given.pop("config", None), given.pop("set", [])
        read = {} if file is None else yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        if not isinstance(read, dict):
            raise ValueError(f"{file}: expected lines of the form 'name: value'")
        if wrong := [pair for pair in pairs if "=" not in pair]:
            raise ValueError(f"--set: expected NAME=VALUE, found {wrong[0]!r}")
        chosen = dict(pair.split("=", 1) for pair in pairs)
        _check_names(read, types)
        _check_names(chosen, [_key(entry) for entry in entries if "setting" in entry.metadata])
        found = convert_options(types, {**read, **chosen, **given})
        return kind(**{entry.name: found[_key(entry)] for entry in entries})
    except (ArgumentError, OSError, TypeError, ValueError, yaml.YAMLError) as error:
        raise UsageError(" ".join(str(error).split()).rstrip(".") + ".") from error


def options_yaml(command: str, options: Any) -> str:
    """Return all options as a file for ``--config``, with the version and the command."""
    values = {_key(entry): getattr(options, entry.name) for entry in fields(options)}
    plain = json.loads(json.dumps(values, default=str))  # convert paths and tuples
    style: Any = {"allow_unicode": True, "default_flow_style": None, "width": 2**16}
    text = yaml.safe_dump(plain, sort_keys=False, **style)
    return f"# creinn {version('creinn')}; again: creinn {command} --config THIS_FILE\n{text}"


def command_line(command: str, options: Any, leave_out: Sequence[str] = ()) -> str:
    """Return a command line with the options that are not equal to the default."""
    words = ["creinn", command]
    for entry in fields(options):
        value = getattr(options, entry.name)
        if entry.name in leave_out or value == entry.default:
            continue
        if "positional" in entry.metadata:
            words.append(_text(value))
        elif "setting" in entry.metadata:
            words += ["--set", f"{_key(entry)}={_text(value)}"]
        elif isinstance(entry.default, bool):
            words.append(_flag(entry) if value else _flag(entry).replace("--", "--no-", 1))
        else:
            words += [_flag(entry), _text(value)]
    return shlex.join(words)


def summary(kind: type) -> str:
    """Return the first line of the docstring of a class."""
    return (inspect.getdoc(kind) or "").split("\n", 1)[0]


def _parser(kind: type, program: str) -> ArgumentParser:
    """Return a parser of strings; required options can also be given in a file."""
    how: Any = {"formatter_class": RawDescriptionHelpFormatter, "argument_default": SUPPRESS}
    how |= {"exit_on_error": False, "print_config": None, "allow_abbrev": False}
    parser = ArgumentParser(prog=program, description=inspect.getdoc(kind), **how)
    parser.add_argument("--config", metavar="FILE", help="YAML file with any options by name.")
    groups = {title: parser.add_argument_group(title) for title in GROUPS}
    hints, settings = get_type_hints(kind), []
    for entry in fields(kind):
        text = entry.metadata.get("help", "")
        if not any(entry.default is empty for empty in (MISSING, None, False, (), "")):
            text = f"{text} (default: {_text(entry.default)})"
        if "setting" in entry.metadata:
            settings.append(
                f"  {_key(entry)}\n{textwrap.indent(textwrap.fill(text, 76), '      ')}"
            )
            continue
        what: dict[str, Any] = {"help": text.replace("%", "%%")}
        if isinstance(entry.default, bool):
            what |= {"action": ActionYesNo(no_prefix="no-"), "default": SUPPRESS}
        elif "positional" in entry.metadata or bool in get_args(hints[entry.name]):
            what |= {"nargs": "?"} | ({} if "positional" in entry.metadata else {"const": "true"})
        groups[entry.metadata.get("group", "output")].add_argument(_flag(entry), **what)
    if settings:
        text = "Setting from the list below; can be repeated."
        groups["output"].add_argument("--set", action="append", metavar="NAME=VALUE", help=text)
        parser.epilog = "\n".join(["settings, for --set or the file of --config:", *settings])
    return parser


def _check_names(values: Any, known: Any) -> None:
    for name in values:
        if name not in known:
            raise ValueError(f"unknown name {name!r}; known are {', '.join(known)}")


def _key(entry: Field[Any]) -> str:
    return entry.name.removesuffix("_")


def _flag(entry: Field[Any]) -> str:
    name = _key(entry)
    return name if "positional" in entry.metadata else f"--{name.replace('_', '-')}"


def _text(value: Any) -> str:
    """Return the value as it is written on the command line."""
    if isinstance(value, tuple):
        return json.dumps(value) if "," in "".join(map(str, value)) else ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
