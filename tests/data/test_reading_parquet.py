"""Tables in Parquet: the same as in CSV, in chunks or whole, and written chunk by chunk."""

import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from creinn.data.columns import parse_dates
from creinn.data.encoder import TableEncoder
from creinn.data.reading import read_chunks
from creinn.data.table import Reading, Table

ROWS = {
    "whole": [1, 2, None, 2**53 + 1],
    "number": [0.5, None, 1.0, -999.0],
    "truth": [True, None, False, True],
    "day": [datetime.date(2020, 1, 31), datetime.date(2021, 2, 3), None, datetime.date(2020, 1, 1)],
    "text": [" a ", "", "NA", None],
    "y": ["u", "v", "u", "v"],
}


def read_table(path: Path, reading: Reading | None = None) -> Table:
    ((table,),) = read_chunks([path], reading or Reading())
    return table


@pytest.fixture
def path(tmp_path):
    table = pa.table({**ROWS, "kind": pa.array(["x", "y", "x", None]).dictionary_encode()})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=3)
    return tmp_path / "t.parquet"


def test_column_types(path):
    table = read_table(path)
    assert table.texts("whole").tolist() == ["1", "2", None, str(2**53 + 1)]
    np.testing.assert_array_equal(
        read_table(path, Reading(decimal=",")).numbers("number"), [0.5, np.nan, 1, -999]
    )
    assert table.texts("number").tolist() == ["0.5", None, "1", "-999"]
    assert table.texts("truth").tolist() == ["True", None, "False", "True"]
    assert table.texts("text").tolist() == ["a", None, None, None]
    assert table.texts("kind").tolist() == ["x", "y", "x", None]
    assert parse_dates(table.cells("day"), "ISO8601").dt.day.tolist()[:2] == [31, 3]
    marked = read_table(path, Reading(("-999",)))
    assert np.isnan(marked.numbers("number")[3])


def test_chunks_do_not_depend_on_row_groups(path):
    whole = read_table(path).frame
    for rows in (1, 2, 3, 100):
        chunks = [chunk for (chunk,) in read_chunks([path], Reading(), rows=rows)]
        assert [len(chunk) for chunk in chunks[:-1]] == [rows] * (len(chunks) - 1)
        pd.testing.assert_frame_equal(pd.concat([chunk.frame for chunk in chunks]), whole)


def test_csv_and_parquet_give_equal_encoders(tmp_path):
    rng = np.random.default_rng(0)
    eighths = (
        rng.integers(-20, 20, 40) / 8
    )  # the numbers are the same for each format of the decimals
    frame = pd.DataFrame({"x": eighths, "n": rng.integers(0, 9, 40), "y": rng.integers(0, 2, 40)})
    frame["flag"] = frame.x > 0
    frame["when"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(frame.n, "D")
    frame.loc[3, "x"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    tables = [read_table(tmp_path / name) for name in ("t.csv", "t.parquet")]
    (encoder, notes), (other, other_notes) = (
        TableEncoder.fit([table], "y", (), ["n"]) for table in tables
    )
    assert encoder.columns == other.columns
    assert len(notes) == len(other_notes)
    for learnt in tables:
        x, _ = encoder.encode([learnt])
        np.testing.assert_allclose(x, encoder.encode(tables[:1])[0], rtol=1e-6)
    assert tables[0].texts("y").tolist() == tables[1].texts("y").tolist()


def test_unreadable_files_raise(tmp_path, path):
    whole = path.read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cut\.parquet"):
        read_table(tmp_path / "cut.parquet")
    pq.write_table(pa.table({"a": [[1], [2]]}), tmp_path / "list.parquet")
    with pytest.raises(ValueError, match=r"'a'.*list"):
        read_table(tmp_path / "list.parquet")
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "none.parquet")
    with pytest.raises(ValueError, match=r"none\.parquet.*no rows"):
        read_table(tmp_path / "none.parquet")
    pd.DataFrame({"a": [1, 2]}, index=["r", "s"]).to_parquet(tmp_path / "index.parquet")
    table = read_table(tmp_path / "index.parquet")
    assert list(table.frame) == ["a"]
    assert "index" in table.notes[0]
