"""What a result rests on: command, versions and the commit of the code."""

import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

PACKAGES = ("creinn", "torch", "numpy", "scikit-learn", "scipy", "plotly")


def provenance(command: str) -> dict[str, Any]:
    """The command as the user would type it, versions of what was used, and the commit, ``None`` if there is none."""
    return {
        "command": command,
        "commit": commit(Path(__file__).parent),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {
            name: next((found.version for found in distributions(name=name)), None)
            for name in PACKAGES
        },
    }


def provenance_rows(origin: Mapping[str, Any]) -> list[dict[str, str]]:
    """Rows of a table of what :func:`provenance` gives, and of what was added to it."""
    facts = {**origin, "commit": origin["commit"] or "unknown"}
    facts["versions"] = ", ".join(
        f"{name} {found}" for name, found in origin["versions"].items() if found
    )
    return [{"what": name, "value": str(value)} for name, value in facts.items()]


def commit(directory: Path) -> str | None:
    """Git commit of the code in ``directory``, with ``-dirty`` if files were changed.

    ``None`` outside a repository, and for what lies in one but is not tracked by it, such as an installed package.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(directory), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        return (
            git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
            if git("ls-files", ".")
            else None
        )
    except (OSError, subprocess.SubprocessError):  # no git, no repository, or no commit yet
        return None
