"""Command line of benchmarks of cells, each a network and a size."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def cell_parser(
    about: str, cells: Sequence[str], metavar: str, rounds: int, seconds: float, out: Path
) -> Any:
    """Return a parser of the common options."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--cells", nargs="+", default=cells, metavar=metavar)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument(
        "--seconds", type=float, default=seconds, help="after which no round begins, of each cell"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="narrow networks, for a first look")
    parser.add_argument("--out", type=Path, default=out)
    return parser


def command_line(module: str, arguments: Sequence[str] | None) -> str:
    """Return the command line of this process."""
    return (
        f"python -m {module} {shlex.join(sys.argv[1:] if arguments is None else arguments)}".strip()
    )


def plain(options: argparse.Namespace) -> dict[str, Any]:
    """Convert options for JSON."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(options).items()
    }
