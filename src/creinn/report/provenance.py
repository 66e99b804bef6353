"""Provenance of a result: command, versions and commit."""

import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

PACKAGES = ("creinn", "torch", "numpy", "scikit-learn", "scipy", "plotly")


def provenance(command: str) -> dict[str, Any]:
    """Return the command, commit (or ``None``) and versions."""
    found = {name: next(iter(distributions(name=name)), None) for name in PACKAGES}
    return {
        "command": command,
        "commit": commit(Path(__file__).parent),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {name: package and package.version for name, package in found.items()},
    }


def provenance_rows(origin: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return :func:`provenance` as a table."""
    versions = [f"{name} {found}" for name, found in origin["versions"].items() if found]
    facts = {**origin, "commit": origin["commit"] or "unknown", "versions": ", ".join(versions)}
    return [{"what": name, "value": str(value)} for name, value in facts.items()]


def commit(directory: Path) -> str | None:
    """Return the git commit of a directory, with ``-dirty`` after changes.

    It is ``None`` if the directory is not tracked.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(directory), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()

    try:
        if not git("ls-files", "."):
            return None
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):  # no git or repository
        return None
