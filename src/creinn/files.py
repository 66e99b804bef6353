"""Files that survive a crash: tensors with a JSON header in one safetensors file, and text.

Nothing in a file is ever executed. Each file is written under a temporary name, forced to disk and then renamed, so
that its name always stands for a whole file: the new one or the one before.
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

_HEADER = "creinn"  # the entry of the safetensors metadata that holds the header


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors and header, all or nothing; tensors that share memory are written one by one.

    Raises:
        OSError: If the file cannot be written; what was at ``path`` before is unchanged.
        TypeError, ValueError: If the header is not JSON, or holds NaN or an infinite number.
    """
    apart: dict[str, Tensor] = {}  # safetensors refuses tensors that share memory
    memories = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if memory in memories else tensor
        memories.add(memory)
    write_bytes(path, safetensors.torch.save(apart, {_HEADER: json.dumps(header, allow_nan=False)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors (on the CPU) and header.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is truncated, or not written by :func:`write_tensors`.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            header = (file.metadata() or {}).get(_HEADER)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is truncated, or is no safetensors file: {error}.") from error
    if header is None:
        raise ValueError(f"{path} was not written by creinn: its header is missing.")
    return tensors, json.loads(header)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file and force it to disk; on an ``OSError`` what was at ``path`` before is unchanged."""
    with new_file(path) as file, writing(path):
        file.write(content)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to be written, which gets its name when it is whole and on disk; after an error there is none.

    Example:
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp(), "text")
        >>> with new_file(path) as file:
        ...     _ = file.write(b"some")
        ...     path.exists()
        False
        >>> path.read_bytes()
        b'some'
    """
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open(temporary, "wb")  # noqa: SIM115  (closed below)
        try:
            yield file
            with writing(path):
                file.flush()
                os.fsync(file.fileno())
        finally:
            with writing(path):
                file.close()
        with writing(path):
            os.replace(temporary, path)
            if (
                os.name == "posix"
            ):  # elsewhere a directory cannot be opened, and a rename needs no more
                _sync(path.parent)
    except BaseException:
        with suppress(OSError):  # never created, or the directory itself is the trouble
            temporary.unlink()
        raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """An ``OSError`` in writing a new file says so, and what became of the one before."""
    try:
        yield
    except OSError as error:
        kept = (
            "The file that was there before is intact."
            if path.is_file()
            else "Nothing was written."
        )
        raise OSError(f"Cannot write {path}: {error.strerror or error}. {kept}") from error


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
