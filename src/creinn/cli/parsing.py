"""Options of a command: a dataclass in, a parser out; a YAML file may give any option, and gets all of them in the end.

The name of a field is the name of its option (with dashes), its default is the default. A field with the metadata
:data:`POSITIONAL` is given by its place instead. An underscore at the end of a field's name, for names that Python
keeps to itself, is no part of the option's.
"""

import argparse
import inspect
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml
from jsonargparse import ActionYesNo, ArgumentError, ArgumentParser

Options = TypeVar("Options")
POSITIONAL = MappingProxyType({"positional": True})
"""Metadata of a field that is given by its place on the command line, not by ``--name``; a YAML file names it."""


class UsageError(Exception):
    """The command line, or a file of options, is not as it must be."""


def parse_options(
    kind: type[Options],
    program: str,
    arguments: Sequence[str],
    helps: Mapping[str, str] = MappingProxyType({}),
) -> Options:
    """Options of the dataclass ``kind`` from the command line and from the YAML file that ``--config`` names.

    What stands on the command line goes before what stands in the file. ``--help`` prints ``helps`` and exits.

    Raises:
        UsageError: If an option is unknown, missing or of the wrong type, or the file cannot be read.
    """
    try:
        found = _parser(kind, program, helps).parse_args(_normalised(kind, arguments))
        values = {
            entry.name: found[key] for entry in _fields(kind) if (key := _key(entry.name)) in found
        }
        for entry in _fields(kind):
            if entry.name not in values and entry.default is MISSING:
                raise UsageError(f"missing: {entry.name.upper()}.")
        return kind(**values)
    except (ArgumentError, argparse.ArgumentError) as error:
        raise UsageError(_message(error)) from error
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error


def options_yaml(command: str, options: Any) -> str:
    """All options as YAML that ``--config`` takes; the first line says by which version they were used."""
    values = {_key(entry.name): getattr(options, entry.name) for entry in _fields(type(options))}
    values = json.loads(json.dumps(values, default=str))  # paths as texts, tuples as lists
    text = yaml.safe_dump(
        values, sort_keys=False, allow_unicode=True, default_flow_style=None, width=2**16
    )
    return f"# creinn {version('creinn')}; again: creinn {command} --config THIS_FILE\n{text}"


def command_line(command: str, options: Any, leave_out: Sequence[str] = ()) -> str:
    """What to type for the same options, without those that are as by default and those that ``leave_out`` names."""
    words = ["creinn", command]
    for entry in _fields(type(options)):
        value = getattr(options, entry.name)
        if entry.name in leave_out or value == entry.default:
            continue
        text = ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
        if entry.metadata.get("positional"):
            words.append(text)
        elif isinstance(value, bool):
            words.append(_option(entry.name) if value else _option(f"no_{entry.name}"))
        else:
            words += [_option(entry.name), text]
    return shlex.join(words)


def summary(kind: type) -> str:
    """First line of the docstring of a class."""
    return (inspect.getdoc(kind) or "").split("\n", 1)[0]


class _Parser(ArgumentParser):
    def format_help(self, formatter: Any = None) -> str:
        return re.sub(r"<class\s+'(\w+)'>", r"\1", super().format_help())


def _parser(kind: type, program: str, helps: Mapping[str, str]) -> ArgumentParser:
    how: Any = {"exit_on_error": False, "print_config": None, "allow_abbrev": False}
    parser = _Parser(
        prog=program, description=(inspect.getdoc(kind) or "").partition("\n\nArgs:")[0], **how
    )
    parser.add_argument(
        "--config", action="config", metavar="FILE", help="YAML file with any of these options."
    )
    hints = get_type_hints(kind)
    for entry in _fields(kind):
        inside = set(get_args(hints[entry.name])) - {type(None)}
        # An optional text is never read as YAML, in which "#1" or "~" is null.
        hint = inside.pop() if inside in ({str}, {Path}) else hints[entry.name]
        what: dict[str, Any] = {"type": hint, "help": helps.get(_key(entry.name), "")}
        if entry.metadata.get("positional"):
            # No default here: it would overwrite what the file of options says.
            parser.add_argument(entry.name, nargs="?", default=argparse.SUPPRESS, **what)
            continue
        if what["type"] is bool:
            what = {"action": ActionYesNo(yes_prefix="", no_prefix="no-"), "help": what["help"]}
        what |= {"required": True} if entry.default is MISSING else {"default": entry.default}
        parser.add_argument(_option(entry.name), **what)
    return parser


def _normalised(kind: type, arguments: Sequence[str]) -> list[str]:
    """Underscores in names as dashes, ``5,6`` as ``[5,6]`` with texts in quotes, the file of options first."""
    hints = {_option(name): hint for name, hint in get_type_hints(kind).items()} | {"--config": str}
    found: list[str] = []
    pending = list(arguments)
    while pending:
        token = pending.pop(0)
        name, equals, value = token.partition("=")
        name = name.replace("_", "-")
        if not token.startswith("--") or name not in hints or hints[name] is bool:
            found.append(token)
            continue
        if (
            not equals
            and bool in get_args(hints[name])
            and (not pending or pending[0].startswith("--"))
        ):
            equals, value = "=", "true"  # may stand alone, like a plain truth value
        elif not equals and pending:
            equals, value = "=", pending.pop(0)
        if (
            equals
            and get_origin(hints[name]) is tuple
            and not (value.startswith("[") and value.endswith("]"))
        ):
            items = [item.strip() for item in value.split(",") if item.strip()]
            value = json.dumps(items) if str in get_args(hints[name]) else f"[{','.join(items)}]"
        found.append(f"{name}{equals}{value}")
    return sorted(found, key=lambda token: not token.startswith("--config="))


def _message(error: Exception) -> str:
    text = " ".join(str(error).split())
    text = re.sub(r"Parser key \"(\w+)\": ", lambda m: f"{_option(m[1])}: ", text)
    text = re.sub(r"Expected an? <class '(\w+)'>\.", r"expected \1.", text)
    text = re.sub(r"Expected a typing\.Literal\[(.*?)\]", r"expected one of \1", text)
    union = re.search(
        r"Does not validate against .*?Subtypes: \[(.*?)\] Errors:.* Given value: ", text
    )
    if union is not None:
        names = re.findall(r"'(\w+)'", union[1].replace("NoneType", "null"))
        text = text.replace(union[0], f"expected {' or '.join(names)}. Got value: ")
    text = text.replace("the following arguments are required: ", "missing: --")
    return text.rstrip(".") + "."


def _fields(kind: Any) -> list[Field[Any]]:
    """Those given by their place first, then those of the class itself, then those of its bases."""
    order = [name for part in kind.__mro__ for name in inspect.get_annotations(part)]
    return sorted(
        fields(kind), key=lambda f: (not f.metadata.get("positional"), order.index(f.name))
    )


def _option(name: str) -> str:
    return f"--{_key(name).replace('_', '-')}"


def _key(name: str) -> str:
    """Name of a field in a file of options."""
    return name.removesuffix("_")
