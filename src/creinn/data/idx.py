"""IDX files, the format of MNIST and Fashion-MNIST: a path in, an array of bytes out.

A file is two zero bytes, a type code, the number of dimensions, each dimension as a big-endian 32-bit number, and the
values. It may be compressed with gzip, which is recognised by its content, not its name.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

_UNSIGNED_BYTE = 0x08


def read_idx(path: str | Path) -> npt.NDArray[np.uint8]:
    """Read one IDX file of unsigned bytes.

    Raises:
        ValueError: If the file is no such file, is damaged, or holds fewer or more values than its header says.
    """
    try:
        with _open(Path(path)) as file:
            return _read(file, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is truncated or damaged: {error}. Download it again.") from error


def _open(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path, "rb")) if compressed else path.open("rb")


def _read(file: BinaryIO, path: str | Path) -> npt.NDArray[np.uint8]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise ValueError(
            f"{path} is not an IDX file: it starts with {magic!r} instead of two zero bytes and a type code."
        )
    if magic[2] != _UNSIGNED_BYTE:
        raise ValueError(f"{path} holds IDX values of type 0x{magic[2]:02x}; only unsigned bytes, 0x08, are read.")
    header = file.read(4 * magic[3])
    if len(header) < 4 * magic[3]:
        raise ValueError(f"{path} is truncated: it ends inside its header. Download it again.")
    shape = struct.unpack(f">{magic[3]}I", header)
    expected = math.prod(shape)
    values = file.read(expected + 1)
    if len(values) != expected:
        found = f"only {len(values)}" if len(values) < expected else "more"
        raise ValueError(
            f"{path} is truncated or damaged: its header {shape} promises {expected} values, but {found} follow."
        )
    return np.frombuffer(values, np.uint8).reshape(shape)
