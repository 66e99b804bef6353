"""Parsing of the options of a command, which are the fields of a dataclass.

The most important fields are options of the command line. The other fields are settings, which can
be specified by ``--set NAME=VALUE`` or in the YAML file of ``--config``. The name of the field
``from_`` is ``from`` on the command line.
"""

import inspect
import json
import os
import shlex
import textwrap
from argparse import SUPPRESS, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, field, fields
from importlib.metadata import version
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, Union, get_args, get_origin

import yaml
from jsonargparse import ActionYesNo, ArgumentError, ArgumentParser

Options = TypeVar("Options")
GROUPS = ("data", "method", "training", "output")
INPUTS, OUTPUTS = ("data", "lower", "upper", "ood", "ood_lower", "ood_upper"), ("out", "report")
"""The options that are files."""


class UsageError(Exception):
    """Error in the command line or in a file with options."""


def option(default: Any = MISSING, group: str = "output", help: str = "", **kind: bool) -> Any:
    """Define an option; the name of a positional option is not written."""
    return field(default=default, metadata={"group": group, "help": help, **kind})


def setting(default: Any, group: str, help: str) -> Any:
    """Define a setting, which is specified by ``--set`` or in a file."""
    return option(default, group, help, setting=True)


def parse_options(kind: type[Options], program: str, arguments: Sequence[str]) -> Options:
    """Parse the options of the command line and of the file of ``--config``.

    If an option is in both, the command line is used.

    Raises:
        UsageError: If an option is unknown, missing or of the wrong type, or the file is invalid.
    """
    entries: Any = fields(kind)  # type: ignore[arg-type]
    parser = _parser(kind, program)
    try:
        given = parser.parse_args(arguments, defaults=False).as_dict()
        file, pairs = given.pop("config", None), given.pop("set", [])
        read = {} if file is None else yaml.safe_load(file.read_text(encoding="utf-8"))
        if not isinstance(read, dict):
            raise ValueError(f"{file} must be a YAML file with the names and values of the options")
        if wrong := [pair for pair in pairs if "=" not in pair]:
            raise ValueError(f"The value of --set must be NAME=VALUE, got {wrong[0]!r}")
        for entry in entries:
            if "setting" in entry.metadata:
                parser.add_argument(f"--{entry.name}", type=_type(entry.type))
        read |= dict(pair.split("=", 1) for pair in pairs)
        read = {name: value for name, value in read.items() if value is not None} | given
        found = parser.parse_object(read, defaults=False).as_dict()
        for entry in entries:
            if entry.default is MISSING and _key(entry) not in found:
                raise ValueError(f"{_flag(entry)} is required")
        return kind(**{e.name: found[_key(e)] for e in entries if _key(e) in found})
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


def check_outputs(command: str, options: Any) -> None:
    """Raise an error if an output would replace an input, the model or other files.

    The options are written beside the first output, to a file with the suffix ``.yaml``. Files that
    were written by the same command are replaced. With ``--force`` all other files are replaced.
    """
    outputs = [path for name in OUTPUTS if (path := getattr(options, name, None)) is not None]
    record = options.out.with_suffix(".yaml")
    if record in outputs:
        raise ValueError(
            f"The options are written to {record}. Choose another name for the result."
        )
    inputs = [path for name in INPUTS if (path := getattr(options, name, None)) is not None]
    inputs += [options.model / name for name in ("config.json", "model.safetensors", "train.yaml")]
    ours = _written_before(record, command)
    for path in (*outputs, record):
        if not path.exists():
            continue
        if path.is_dir():
            raise ValueError(f"{path} is a directory. Give a file.")
        places = [path] if path in ours else [path, *path.absolute().parents]
        existing = [source for source in inputs if source.exists()]
        if any(os.path.samefile(source, place) for source in existing for place in places):
            raise ValueError(f"{path} is part of an input of this command. Choose another file.")
        if path not in ours and not options.force:
            raise ValueError(
                f"{path} exists and was not written by creinn {command}. Choose another file, or "
                "replace it with --force."
            )
        print(f"note: {path} exists and will be replaced")


def _written_before(record: Path, command: str) -> set[Path]:
    """Return the set of files that were written by an earlier run of the command."""
    try:
        text = record.read_text(encoding="utf-8")
        named = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return set()
    if f"; again: creinn {command} " not in text.partition("\n")[0] or not isinstance(named, dict):
        return set()
    return {record, *(Path(named[key]) for key in OUTPUTS if named.get(key))}


def _parser(kind: type, program: str) -> ArgumentParser:
    """Return a parser of the common options; the settings are described below them."""
    how: Any = {"formatter_class": RawDescriptionHelpFormatter, "argument_default": SUPPRESS}
    how |= {"exit_on_error": False, "print_config": None, "allow_abbrev": False}
    parser = ArgumentParser(prog=program, description=inspect.getdoc(kind), **how)
    text = "YAML file with any options by name."
    parser.add_argument("--config", metavar="FILE", type=Path, help=text)
    groups = {title: parser.add_argument_group(title) for title in GROUPS}
    settings = []
    for entry in fields(kind):
        text = " ".join(entry.metadata["help"].split())
        if not any(entry.default is empty for empty in (MISSING, None, False, (), "")):
            text = f"{text} (default: {_text(entry.default)})"
        if "setting" in entry.metadata:
            text = textwrap.indent(textwrap.fill(text, 76), "      ")
            settings.append(f"  {_key(entry)}\n{text}")
            continue
        what: dict[str, Any] = {"help": text.replace("%", "%%")}
        if isinstance(entry.default, bool):
            what |= {"action": ActionYesNo(no_prefix="no-"), "default": SUPPRESS}
        else:
            what["type"] = _type(entry.type)
        if "positional" in entry.metadata:
            what["nargs"] = "?"
        elif bool in get_args(entry.type):
            what |= {"nargs": "?", "const": True}
        groups[entry.metadata["group"]].add_argument(_flag(entry), **what)
    if settings:
        text = "Setting from the list below; can be repeated."
        groups["output"].add_argument("--set", action="append", metavar="NAME=VALUE", help=text)
        parser.epilog = "\n".join(["settings, for --set or the file of --config:", *settings])
    return parser


def _type(hint: Any) -> Any:
    """Return the type of jsonargparse for the annotation of a field, without ``None``."""
    if get_origin(hint) is tuple:
        return _comma_separated(get_args(hint)[0])
    kinds = tuple(kind for kind in get_args(hint) if kind is not NoneType)
    return Union[kinds] if NoneType in get_args(hint) else hint  # noqa: UP007


def _comma_separated(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that converts ``a,b``, ``[a, "b,c"]`` or a YAML list."""

    # The name is not "convert", because jsonargparse would import that name from the package.
    def to_tuple(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str) and not (value.startswith("[") and value.endswith("]")):
            return tuple(kind(item.strip()) for item in value.split(",") if item.strip())
        items = yaml.safe_load(value) if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or any(type(item) is not kind for item in items):
            raise ValueError(f"The value must be a list of {kind.__name__}, got {value!r}")
        return tuple(items)

    return to_tuple


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
