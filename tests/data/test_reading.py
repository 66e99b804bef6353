"""Reading tables: cells, separators, encodings, compressed files, chunks, and invalid files."""

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from creinn.data.reading import read_chunks
from creinn.data.table import Reading, Table


def read_table(path: Path, reading: Reading | None = None) -> Table:
    ((table,),) = read_chunks([path], reading or Reading())
    return table


def write(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_cells_are_strings_or_none(tmp_path):
    text = "a, b ,c\n1, x y ,NA\n2.0,,007\n\n-3,?,1e3\n"
    table = read_table(write(tmp_path, text), Reading(("NA", "?")))
    assert list(table.frame) == ["a", "b", "c"]
    assert table.texts("a").tolist() == ["1", "2", "-3"]  # a blank line is not a row
    assert table.texts("b").tolist() == ["x y", None, None]
    assert table.texts("c").tolist() == [None, "007", "1e3"]
    np.testing.assert_array_equal(table.numbers("c"), [np.nan, 7.0, 1000.0])


def test_separators_byte_order_mark_and_quotes(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes('\ufeffname;value\n"a;b";1\nc;\n'.encode())
    table = read_table(path)
    (note,) = table.notes
    assert "';'" in note
    assert read_table(path, Reading(separator=";")).notes == ()
    assert table.texts("name").tolist() == ["a;b", "c"]
    assert table.texts("value").tolist() == ["1", None]


def test_column_named_like_a_missing_value(tmp_path):
    assert read_table(write(tmp_path, "NA,b\n1,2\n")).frame.columns.tolist() == ["NA", "b"]


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("a,b\n", "no rows"),
        ("a,b,a\n1,2,3\n", "'a'"),
        ("a,,b\n1,2,3\n", "column 2"),
        ("a,b\n1,2\n3,4,5\n", "line 3.*separator="),
        ("a,b\n1,2,3\n3,4,5\n", "line 2.*separator="),
        ("a,b\n1,2\n\n3\n5,6\n", "line 4.*separator="),  # short
        ('a,b\n"1\n2",2\n3\n', "line 4"),  # a quoted line break
        ("# by hand\na,b\n1,2\n", "comment="),
        ("a,b\n1,2\n# end\n", "line 3.*comment="),
        ('[{"a": 1}]', "JSON"),
        ('{"a": 1}\n{"a": 2}\n', "JSON"),
    ],
)
def test_invalid_tables(tmp_path, text, token):
    with pytest.raises(ValueError, match=token):
        read_table(write(tmp_path, text))


def test_other_file_formats(tmp_path):
    for name in ("t.json", "t.xlsx"):
        with pytest.raises(ValueError, match="not CSV"):
            read_table(write(tmp_path, "1", name))


def test_comments_are_skipped(tmp_path):
    path = write(tmp_path, "# a;b\na,b\n1,x # one\n# two\n2,y\n")
    table = read_table(path, Reading(comment="#"))
    assert table.texts("b").tolist() == ["x", "y"]


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_other_encodings_are_detected_and_noted(tmp_path, encoding):
    path = tmp_path / "t.csv"
    path.write_bytes("größe,preis\n1,5 €\n".encode(encoding))
    table = read_table(path)
    assert list(table.frame) == ["größe", "preis"]
    assert table.texts("preis").tolist() == ["5 €"]
    (note,) = table.notes
    assert encoding in note
    assert read_table(path, Reading(encoding=encoding)).frame.columns.tolist() == ["größe", "preis"]
    assert read_table(path, Reading(encoding=encoding)).notes == ()


def test_wrong_encodings(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("größe\n1\n".encode("latin1"))
    with pytest.raises(ValueError, match="encoding="):
        read_table(path, Reading(encoding="utf-8"))
    with pytest.raises(ValueError, match="klingon"):
        Reading(encoding="klingon")
    path.write_bytes(b"PK\x03\0\0" + bytes(range(256)))
    with pytest.raises(ValueError, match="encoding="):
        read_table(path)


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        read_table(tmp_path / "absent.csv")


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("a;b\n1,5;2,5\n3,5;4,5\n", ";"),
        ("a\tb\n1,5\t2\n", "\t"),
        ("a|b|c\n1|2|x,y\n", "|"),
        ('a,b\n"x;y",1\n"z;w",2\n', ","),
        ("Doe\n1\n", ","),
    ],
)
def test_separators_are_detected(tmp_path, text, separator):
    assert read_table(write(tmp_path, text)).reading.separator == separator


def test_separator_has_one_character(tmp_path):
    for separator in ("::", ""):
        with pytest.raises(ValueError, match="separator="):
            read_table(write(tmp_path, "a::b\n1::2\n"), Reading(separator=separator))


def test_single_column(tmp_path):
    table = read_table(write(tmp_path, "a\n1\n\n3\n\n\n"))
    np.testing.assert_array_equal(table.numbers("a"), [1, np.nan, 3, np.nan, np.nan])
    assert len(read_table(write(tmp_path, "a,b\n1,2\n\n3,4\n\n\n"))) == 2


def test_index_column_is_dropped(tmp_path):
    table = read_table(write(tmp_path, ",a\n0,5\n1,6\n7,6\n"))
    assert list(table.frame) == ["a"]
    assert len(table.notes) == 1
    with pytest.raises(ValueError, match="no name"):
        read_table(write(tmp_path, "a,\n5,0\n6,1\n"))


def test_compressed_tables(tmp_path):
    text = b"a,b\n1,2\n"
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("__MACOSX/._t.csv", b"junk")
        archive.writestr("folder/t.csv", text)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text))
    for name in ("t.zip", "t.csv.gz"):
        assert read_table(tmp_path / name).texts("b").tolist() == ["2"]
    with zipfile.ZipFile(tmp_path / "t.zip", "a") as archive:
        archive.writestr("u.csv", text)
    with pytest.raises(ValueError, match=r"u\.csv"):
        read_table(tmp_path / "t.zip")
    (tmp_path / "broken.zip").write_bytes(b"junk")
    with pytest.raises(ValueError, match="damaged"):
        read_table(tmp_path / "broken.zip")


def test_truncated_compressed_file(tmp_path):
    text = "a,b\n" + "".join(f"{i},{i**3 % 977}\n" for i in range(9000))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode())[:-900])
    with pytest.raises(ValueError, match="truncated"):
        list(read_chunks([tmp_path / "t.csv.gz"], Reading(), rows=1000))


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
@pytest.mark.parametrize(
    "text",
    [
        '\n\nb;a\r\n1;x\r\n\r\n 2 ;"y\nz"\r\n3;\r\n;\r\n\r\n\r\n',  # blank lines are skipped
        "a\n1\n\n3\n\n\n",
        ",a\n0,5\n1,6\n2,x\n",
    ],
)
def test_chunks_equal_the_whole(tmp_path, text, rows):
    path = write(tmp_path, text)
    whole = read_table(path)
    chunks = [chunk for (chunk,) in read_chunks([path], Reading(), rows=rows)]
    assert [len(chunk) for chunk in chunks[:-1]] == [rows] * (len(chunks) - 1)
    assert chunks[-1].share == 1
    pd.testing.assert_frame_equal(pd.concat([chunk.frame for chunk in chunks]), whole.frame)
    assert {chunk.notes for chunk in chunks} == {whole.notes}
    assert {chunk.reading for chunk in chunks} == {whole.reading}


def test_row_numbers_of_chunks(tmp_path):
    path = write(tmp_path, "a,b\n" + "1,x\n" * 6 + "one,x\n")
    with pytest.raises(ValueError, match="row 7, column 'a': 'one'"):
        [table.numbers("a") for (table,) in read_chunks([path], Reading(), 3, ["a"])]
    stream = read_chunks([write(tmp_path, path.read_text() + "1,x,y\n")], Reading(), rows=3)
    next(stream), next(stream)
    with pytest.raises(ValueError, match="line 9"):
        next(stream)


def test_numbers_parsed_by_pandas(tmp_path):
    cells = ["1", " 2.5 ", "", "NA", "-3e5", "+.5", "7.", "0.1"]
    path = write(tmp_path, "a,b\n" + "".join(f"{cell},{cell}\n" for cell in cells))
    ((table,),) = read_chunks([path], Reading(), rows=10, numbers=["a"])
    assert table.frame["a"].dtype == np.float64
    np.testing.assert_allclose(table.numbers("a"), table.numbers("b"), rtol=1e-15)
    assert table.texts("a").tolist() == ["1", "2.5", None, None, "-300000", "0.5", "7", "0.1"]
    path = write(tmp_path, "a,b\n7,7\n7.0,7.0\n8,8\n")
    ((table,),) = read_chunks([path], Reading(("7",)), 10, ["a"])  # marks are compared as texts
    np.testing.assert_array_equal(table.numbers("a"), [np.nan, 7, 8])
    np.testing.assert_array_equal(table.numbers("b"), [np.nan, 7, 8])
    for cell in ("inf", "nan", "1,5", "x", "True"):
        path = write(tmp_path, f"a;b\n1;2\n{cell};2\n")
        ((table,),) = read_chunks([path], Reading(()), numbers=["a"])
        with pytest.raises(ValueError, match=f"row 2, column 'a': '{cell}'"):
            table.numbers("a")


def test_encoding_of_whole_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n" + b"1,x\n" * 300_000 + "1,größe\n".encode("cp1252"))
    chunks = [chunk for (chunk,) in read_chunks([path], Reading(), rows=200_000)]
    assert chunks[-1].frame["b"].iloc[-1] == "größe"
    assert "cp1252" in chunks[0].notes[0]


@pytest.mark.parametrize("rows", [(4, 2), (6, 4), (4, 9)])
def test_unequal_numbers_of_rows_raise(tmp_path, rows):
    paths = [write(tmp_path, "a\n" + "1\n" * n, f"{n}.csv") for n in rows]
    with pytest.raises(ValueError, match="rows"):
        list(read_chunks(paths, Reading(), rows=2))
    pairs = list(read_chunks([paths[0]] * 2, Reading(), rows=2))
    assert [len(table) for pair in pairs for table in pair] == [2] * rows[0]


def test_damaged_gzip_file_raises(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(ValueError, match="damaged"):
        list(read_chunks([path], Reading(), None))
