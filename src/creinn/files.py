"""Atomic files: bytes, and tensors with a JSON header.

A file is written to a temporary name and then renamed, so an interruption
leaves the old file or the new one. Tensors are in the safetensors format.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import safetensors
import safetensors.torch
from torch import Tensor

_HEADER = "creinn"  # key in the safetensors metadata


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors and a JSON header to a file.

    Raises:
        OSError: If the file cannot be written; an existing file is not
            changed.
        TypeError, ValueError: If the header is not JSON without NaN.
    """
    copies: dict[str, Tensor] = {}
    memories = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        # safetensors does not accept tensors that share memory
        copies[name] = tensor.clone() if memory in memories else tensor
        memories.add(memory)
    metadata = {_HEADER: json.dumps(header, allow_nan=False)}
    write_bytes(path, safetensors.torch.save(copies, metadata))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors, on the CPU, and the header of a file.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is damaged or has no header.
    """
    if not path.is_file():
        raise FileNotFoundError(f"The file {path} does not exist.")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(_HEADER)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is truncated or not a safetensors file: {error}.") from error
    if header is None:
        raise ValueError(f"{path} was not written by creinn: it has no header.")
    return tensors, json.loads(header)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file; an ``OSError`` leaves an existing file unchanged."""
    try:
        with new_file(path) as file:
            file.write(content)
    except OSError as error:
        raise OSError(f"Cannot write {path}: {error.strerror or error}.") from error


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that gets its name when the block ends without an error.

    Example:
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp(), "text")
        >>> with new_file(path) as file:
        ...     path.exists()
        False
        >>> path.exists()
        True
    """
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
