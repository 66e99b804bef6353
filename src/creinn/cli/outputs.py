"""What a command may write: never over its own input or the model, and over other files only by ``--force``."""

import os
from collections.abc import Sequence
from pathlib import Path

import yaml

from creinn.saving import CONFIG, WEIGHTS

OPTIONS = "train.yaml"
"""File in a model directory with the options of its training."""


def check_outputs(
    command: str, outputs: Sequence[Path], inputs: Sequence[Path | None], model: Path, force: bool
) -> None:
    """Refuse, before any work, to replace what is not an earlier result of the same command.

    Args:
        command: Which writes; the options are kept beside its first output, with the suffix ``.yaml``.
        outputs: Files to write.
        inputs: Files and folders that are read.
        model: Model directory that is read.
        force: Whether to replace files that this command has not written; never an input.

    Raises:
        ValueError: If so; the message names the file.
    """
    options = outputs[0].with_suffix(".yaml")
    if options in outputs:
        raise ValueError(f"{options} is where the options are kept. Give the result another suffix.")
    read = [path for path in (*inputs, *(model / name for name in (CONFIG, WEIGHTS, OPTIONS))) if path is not None]
    ours = _written_before(options, command)
    for path in (*outputs, options):
        if not path.exists():
            continue
        if path.is_dir():
            raise ValueError(f"{path} is a directory. Name a file to write.")
        places = [path] if path in ours else [path, *path.absolute().parents]
        if any(os.path.samefile(source, place) for source in read if source.exists() for place in places):
            raise ValueError(f"{path} is an input of this command, or part of one. Name another file to write.")
        if path not in ours and not force:
            raise ValueError(
                f"{path} is there already, and creinn {command} did not write it. Name another file, or replace it "
                f"with --force."
            )
        print(f"note: {path} is there already and will be replaced")


def _written_before(options: Path, command: str) -> set[Path]:
    """The files that an earlier run names in its options, and these."""
    try:
        text = options.read_text(encoding="utf-8")
        named = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return set()
    if f"; again: creinn {command} " not in text.partition("\n")[0] or not isinstance(named, dict):
        return set()
    return {options, *(Path(named[key]) for key in ("out", "report") if named.get(key))}
