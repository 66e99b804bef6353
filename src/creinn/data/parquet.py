"""Read and write Parquet tables in chunks of rows; requires pyarrow.

Columns may hold integers, floats, booleans, dates and texts; each keeps its type.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pandas as pd

from creinn.data.table import Reading, Table, check_names, clean_texts

_INDEX = "__index_level_0__"  # name of row labels that pandas writes


def is_parquet(path: Path) -> bool:
    """Whether the suffix of a file is that of Parquet."""
    return path.suffix.lower() in (".parquet", ".pq")


def parquet_chunks(path: Path, reading: Reading, rows: int | None) -> Iterator[Table]:
    """Read a file in chunks of ``rows``, or whole; see ``read_chunks``."""
    pa, pq = _pyarrow()
    try:
        with pq.ParquetFile(path) as file:
            known, total = file.schema_arrow, file.metadata.num_rows
            if total == 0:
                raise ValueError(f"{path} has columns, but no rows.")
            left_out = [_INDEX] if _INDEX in known.names else []
            columns = [name for name in known.names if name not in left_out]
            check_names(columns, str(path))
            notes = [f"{path}: row labels of pandas were left out"] * len(left_out)
            schema = pa.schema([(name, _kind(pa, known.field(name), path)) for name in columns])
            first, size = 0, rows or total
            for batch in _regrouped(pa, file.iter_batches(size, columns=columns), size):
                frame = _frame(pa, batch.cast(schema), first)
                first += len(frame)
                yield Table(str(path), frame, reading, tuple(notes), first / total)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {error}. Is it complete?") from error


class ParquetWriter:
    """Writer of chunks of rows; the first chunk determines the types of the columns.

    Example:
        >>> import io
        >>> with ParquetWriter(file := io.BytesIO()) as writer:
        ...     writer.write(pd.DataFrame({"x": [1.5], "name": ["a"]}))
        >>> pd.read_parquet(file)["x"].tolist()
        [1.5]
    """

    def __init__(self, file: BinaryIO) -> None:
        self._pa, self._pq = _pyarrow()
        self._file, self._writer = file, cast(Any, None)

    def write(self, frame: pd.DataFrame) -> None:
        """Append rows."""
        pa = self._pa
        if self._writer is None:
            found = pa.Schema.from_pandas(frame, preserve_index=False).remove_metadata()
            empty = {pa.null(), pa.large_string()}  # missing texts only; texts of pandas
            fields = [pa.field(f.name, pa.string() if f.type in empty else f.type) for f in found]
            self._writer = self._pq.ParquetWriter(self._file, pa.schema(fields))
        self._writer.write_table(
            pa.Table.from_pandas(frame, self._writer.schema, preserve_index=False)
        )

    def __enter__(self) -> "ParquetWriter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            'Parquet files need pyarrow. Install it: pip install "creinn[parquet]"'
        ) from error
    return pyarrow, pyarrow.parquet


def _kind(pa: Any, field: Any, path: Path) -> Any:
    """Type to read a column as; raises a ``ValueError`` for lists and other nested types."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    is_text = (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )
    if is_text or pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        return pa.float64()
    if any(has(kind) for has in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)):
        return kind
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return kind
    raise ValueError(
        f"{path}, column {field.name!r} has the type {kind}. Only numbers, texts, booleans and "
        "dates can be read; remove the column from the file."
    )


def _regrouped(pa: Any, batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """The same rows in tables of ``rows`` each, independent of the row groups."""
    waiting = None
    for batch in batches:
        table = pa.Table.from_batches([batch])
        waiting = table if waiting is None else pa.concat_tables([waiting, table])
        while len(waiting) >= rows:
            yield waiting.slice(0, rows)
            waiting = waiting.slice(rows)
    if waiting is not None and len(waiting):
        yield waiting


def _frame(pa: Any, table: Any, first: int) -> pd.DataFrame:
    """A table for pandas, rows numbered from ``first``; integers and booleans may be missing."""
    frame = table.to_pandas(types_mapper=pd.ArrowDtype)
    for name in table.schema.names:
        if pa.types.is_string(table.schema.field(name).type):
            frame[name] = clean_texts(frame[name])
    return frame.set_axis(pd.RangeIndex(first, first + len(frame)), axis=0)
