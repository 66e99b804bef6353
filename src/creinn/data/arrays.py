"""Arrays in ``.npz`` and ``.npy`` files as memory maps: a path in, arrays by name out, read when they are used."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

_HEADERS: dict[tuple[int, int], Callable[[Any], tuple[Any, bool, Any]]] = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}
_LOCAL_HEADER = (
    30  # bytes before the name of a member; the last four are the lengths of name and extra field
)


def open_arrays(path: str | Path) -> dict[str, np.memmap]:
    """The arrays that ``numpy.savez`` or ``numpy.save`` wrote, by name, as memory maps that cannot be written to.

    :func:`creinn.fit`, ``fit_distance`` and ``predict`` read such arrays batch by batch. NumPy itself maps ``.npy``
    files alone. The one array of such a file has the name of the file, without its suffix.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a member is compressed, no array or one of objects, or the file is damaged.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "data.npz"
        >>> np.savez(path, x=np.arange(6.0).reshape(2, 3), y=np.array([0, 1]))
        >>> arrays = open_arrays(path)
        >>> arrays["x"][1], arrays["y"].shape
        (memmap([3., 4., 5.]), (2,))
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    if path.suffix == ".npy":
        with open(path, "rb") as file:
            return {path.stem: _mapped(path, path.name, file, 0)}
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise ValueError(
            f"{path} is not a whole .npz file: {error}. It is truncated or damaged."
        ) from error
    with archive, open(path, "rb") as file:
        return {
            info.filename.removesuffix(".npy"): _mapped(
                path, info.filename, archive.open(info), _start(path, info, file)
            )
            for info in archive.infolist()
        }


def _start(path: Path, info: zipfile.ZipInfo, file: Any) -> int:
    """Where in the archive the bytes of a member begin; refuses one that is compressed."""
    if info.compress_type != zipfile.ZIP_STORED:
        why = "and only what is stored as it is can be mapped"
        advice = "Write the file with numpy.savez, not numpy.savez_compressed; or let numpy.load read it whole."
        raise ValueError(f"{info.filename} in {path} is compressed, {why}. {advice}")
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER)
    return info.header_offset + len(header) + sum(np.frombuffer(header[-4:], "<u2").tolist())


def _mapped(path: Path, name: str, stream: Any, start: int) -> np.memmap:
    """The array of which ``stream`` gives the bytes, that are at ``start`` in the file."""
    try:
        shape, in_columns, dtype = _HEADERS[npy.read_magic(stream)](stream)
        if dtype.hasobject:
            raise ValueError("it holds Python objects")
        return np.memmap(path, dtype, "r", start + stream.tell(), shape, "F" if in_columns else "C")
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{name} in {path} cannot be mapped as an array of numbers: {error}."
        ) from error
