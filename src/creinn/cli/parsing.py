"""Parsing of the options of a command, which are the fields of a dataclass.

Settings are given by ``--set NAME=VALUE`` or in the YAML file of
``--config``. The field ``from_`` is ``from`` on the command line.
"""

import argparse
import inspect
import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, field, fields
from importlib.metadata import version
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, Union, get_args, get_origin

import yaml
from jsonargparse import ActionYesNo, ArgumentError, ArgumentParser

Options = TypeVar("Options")
HELP_GROUPS = ("data", "method", "training", "output")


class UsageError(Exception):
    """Error in the command line."""


def option(default: Any = MISSING, group: str = "output", help: str = "", **kind: bool) -> Any:
    """Define an option."""
    return field(default=default, metadata={"group": group, "help": help, **kind})


def setting(default: Any, help: str) -> Any:
    """Define a setting."""
    return option(default, help=help, setting=True)


def parse_options(kind: type[Options], program: str, arguments: Sequence[str]) -> Options:
    """Parse the options, which override the file of ``--config``.

    Raises:
        UsageError: If an option is unknown, missing or of the wrong type,
            or if the file is invalid.
    """
    file = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    file.add_argument("--config", nargs=1, default=[])
    try:
        known, others = file.parse_known_args(arguments)
        config = [f"--config={path}" for path in known.config]
        found = _parser(kind, program).parse_args([*config, *others])
        given = {}
        for entry in fields(kind):  # type: ignore[arg-type]
            value = found.get(_key(entry))
            if value is not None:
                given[entry.name] = tuple(value) if isinstance(value, list) else value
            elif entry.default is MISSING:
                raise ValueError(f"{_flag(entry)} is required")
        return kind(**given)
    except (argparse.ArgumentError, ArgumentError, TypeError, ValueError) as error:
        raise UsageError(str(error).rstrip(". \n") + ".") from error


def options_yaml(command: str, options: Any) -> str:
    """Return the options as text of a file."""
    values = {_key(entry): getattr(options, entry.name) for entry in fields(options)}
    plain = json.loads(json.dumps(values, default=str))  # convert paths and tuples
    style: dict[str, Any] = {"default_flow_style": None, "allow_unicode": True, "width": 2**16}
    text = yaml.safe_dump(plain, sort_keys=False, **style)
    return f"# creinn {version('creinn')}; again: creinn {command} --config THIS_FILE\n{text}"


def check_outputs(command: str, options: Any, report: Path | None = None) -> None:
    """Raise an error if an output would replace another file.

    The options are written beside ``options.out``. Files of an earlier run
    of the command are replaced, and with ``--force`` all files except
    inputs.
    """
    record = options.out.with_suffix(".yaml")
    outputs = [options.out] if report is None else [options.out, report]
    if record in outputs:
        raise ValueError(f"{record} contains the options. Use another name.")
    text = record.read_text(encoding="utf-8", errors="replace") if record.is_file() else ""
    is_ours = f"; again: creinn {command} " in text.partition("\n")[0]
    for path in filter(Path.exists, [*outputs, record]):
        if path.is_dir():
            raise ValueError(f"{path} is a directory. Give a file.")
        if any(source.exists() and source.samefile(path) for source in options.inputs):
            raise ValueError(f"{path} is an input. Use another file.")
        if not options.force and not (is_ours and (path == record or f": {path}\n" in text)):
            found = f"{path} exists and was not written by creinn {command}"
            raise ValueError(f"{found}. Use another file or --force.")
        print(f"note: {path} exists and will be replaced")


class _Setting(argparse.Action):
    """Parse ``NAME=VALUE`` like an option."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        name, is_pair, value = values.partition("=")
        if not is_pair:
            raise argparse.ArgumentError(self, f"expected NAME=VALUE, got {values!r}")
        namespace.update(parser.parse_object({name: value}, defaults=False))


def _parser(kind: type, program: str) -> ArgumentParser:
    parser = ArgumentParser(
        prog=program,
        description=inspect.getdoc(kind),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        exit_on_error=False,
        print_config=None,
        allow_abbrev=False,
    )
    text = "YAML file with any options by name."
    parser.add_argument("--config", metavar="FILE", action="config", help=text)
    groups = {title: parser.add_argument_group(title) for title in HELP_GROUPS}
    settings = []
    for entry in fields(kind):
        kinds, text = entry.metadata, _help(entry)
        what: dict[str, Any] = {"type": _type(entry.type)}
        if "setting" in kinds:
            parser.add_argument(f"--{entry.name}", help=argparse.SUPPRESS, **what)
            settings += [f"  {_key(entry)}", textwrap.indent(textwrap.fill(text, 76), "      ")]
            continue
        if "positional" in kinds:
            what |= {"nargs": "?", "default": argparse.SUPPRESS}  # the file can give it
        elif "repeated" in kinds:
            what = {"type": _texts, "action": "extend"}
        elif isinstance(entry.default, bool):
            what = {"action": ActionYesNo(no_prefix="no-"), "default": None}
        groups[kinds["group"]].add_argument(_flag(entry), help=text.replace("%", "%%"), **what)
    if settings:
        text = "Setting of the list below; can be repeated."
        groups["output"].add_argument("--set", action=_Setting, metavar="NAME=VALUE", help=text)
        parser.epilog = "\n".join(["settings, for --set or the file of --config:", *settings])
    return parser


def _help(entry: Field[Any]) -> str:
    text, default = " ".join(entry.metadata["help"].split()), entry.default
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    has_default = default not in (MISSING, None, "") and not isinstance(default, bool)
    return f"{text} (default: {default})" if has_default else text


def _type(hint: Any) -> Any:
    """Return the type of a field without ``None``."""
    if get_origin(hint) is tuple:
        return _comma_separated(get_args(hint)[0])
    kinds = tuple(kind for kind in get_args(hint) if kind is not NoneType)
    return Union[kinds] if NoneType in get_args(hint) else hint  # noqa: UP007


def _comma_separated(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """Return a parser of ``a,b`` or a list."""

    def items(value: Any) -> tuple[Any, ...]:
        parts = value.split(",") if isinstance(value, str) else map(str, value)
        return tuple(kind(part.strip()) for part in parts if part.strip())

    return items


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(map(str, value))


def _key(entry: Field[Any]) -> str:
    return entry.name.removesuffix("_")


def _flag(entry: Field[Any]) -> str:
    name = _key(entry)
    return name if "positional" in entry.metadata else f"--{name.replace('_', '-')}"
