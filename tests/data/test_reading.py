"""Reading tables: cells, separators, encodings, packed files, and what is no table."""

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from creinn.data.reading import in_step, is_packed_table, read_chunks, read_table
from creinn.data.table import AUTO, Reading


def write(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_cells_stay_texts_and_missing_ones_are_none(tmp_path):
    table = read_table(
        write(tmp_path, "a, b ,c\n1, x y ,NA\n2.0,,007\n\n-3,?,1e3\n"), Reading(("NA", "?"))
    )
    assert table.columns == ["a", "b", "c"]
    assert table.texts("a").tolist() == [
        "1",
        "2",
        None,
        "-3",
    ]  # a blank line is a row too, unless the last
    assert table.texts("b").tolist() == ["x y", None, None, None]
    assert table.texts("b", known=["?"]).tolist() == ["x y", None, None, "?"]
    assert table.texts("c").tolist() == [None, "007", None, "1e3"]
    np.testing.assert_array_equal(table.numbers("c"), [np.nan, 7.0, np.nan, 1000.0])


def test_separator_byte_order_mark_quotes_and_short_rows(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes('\ufeffname;value\n"a;b";1\nc\n'.encode())
    table = read_table(path)
    assert table.notes == (f"{path}: cells are parted by ';'",)
    assert read_table(path, Reading(separator=";")).notes == ()
    assert table.texts("name").tolist() == ["a;b", "c"]
    assert table.texts("value").tolist() == ["1", None]


def test_column_named_like_a_missing_value(tmp_path):
    assert read_table(write(tmp_path, "NA,b\n1,2\n")).columns == ["NA", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"t\.csv is empty"),
        ("a,b\n", r"t\.csv has a header line, but no rows"),
        ("a,b,a\n1,2,3\n", r"columns 1 and 3 have the same name 'a'"),
        ("a,,b\n1,2,3\n", r"column 2 of 3 has no name"),
        (
            "a,b\n1,2\n3,4,5\n",
            r"not a table with ',' between cells: .*Expected 2 fields in line 3, saw 3",
        ),
        (
            "a,b\n1,2,3\n3,4,5\n",
            r"not a table with ',' between cells: .*Expected 2 fields in line 2, saw 3",
        ),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_table(write(tmp_path, text))


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("cp1252", "cp1252"), ("utf-16", "utf-16"), ("utf-16-le", "utf-16-le"), ("utf-16-be",) * 2],
)
def test_other_encodings_are_found_and_said(tmp_path, encoding, said):
    path = tmp_path / "t.csv"
    path.write_bytes("größe,preis\n1,5 €\n".encode(encoding))
    table = read_table(path)
    assert table.columns == ["größe", "preis"]
    assert table.texts("preis").tolist() == ["5 €"]
    assert table.notes == (
        f"{path} is not in UTF-8 and is read as {said}; name another --encoding if letters are wrong",
    )
    assert read_table(path, Reading(encoding=encoding)).columns == ["größe", "preis"]
    assert read_table(path, Reading(encoding=encoding)).notes == ()


def test_encodings_that_do_not_fit(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("größe\n1\n".encode("latin1"))
    with pytest.raises(
        ValueError, match=r"latin\.csv is not a text in utf-8: .* Name another --encoding"
    ):
        read_table(path, Reading(encoding="utf-8"))
    with pytest.raises(ValueError, match="There is no encoding 'klingon'"):
        read_table(path, Reading(encoding="klingon"))
    path.write_bytes(b"PK\x03\0\0" + bytes(range(256)))
    with pytest.raises(
        ValueError, match=r"latin\.csv is not a text in UTF-8 or UTF-16\. Name another --encoding"
    ):
        read_table(path)


def test_absent_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file .*absent\.csv"):
        read_table(tmp_path / "absent.csv")


def test_a_cell_that_is_no_number_is_named(tmp_path):
    table = read_table(write(tmp_path, "age,size\n3,1\n,2\nabc,inf\n", "new.csv"))
    with pytest.raises(ValueError, match=r"new\.csv row 3, column 'age': 'abc' is not a number"):
        table.numbers("age")
    with pytest.raises(
        ValueError, match=r"new\.csv row 3, column 'size': 'inf' is not a finite number"
    ):
        table.numbers("size")
    with pytest.raises(
        ValueError, match=r"new\.csv has no column 'weight'; its columns are age, size"
    ):
        table.numbers("weight")


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("a;b\n1,5;2,5\n3,5;4,5\n", ";"),
        ("a\tb\n1,5\t2\n", "\t"),
        ("a|b|c\n1|2|x,y\n", "|"),
        ('a,b\n"x;y",1\n"z;w",2\n', ","),
        ("a,b\n1,2\n3,4,5\n", ","),
        ("Doe\n1\n", ","),
    ],
)
def test_separators_are_found(tmp_path, text, separator):
    path = write(tmp_path, text)
    if "4,5\n" in text and separator == ",":
        with pytest.raises(ValueError, match="between cells"):
            read_table(path)
    else:
        assert read_table(path).reading.separator == separator


def test_a_separator_is_one_sign(tmp_path):
    for separator in ("::", ""):
        with pytest.raises(ValueError, match=f"separator must be one sign.*got '{separator}'"):
            read_table(write(tmp_path, "a::b\n1::2\n"), Reading(separator=separator))


def test_every_line_of_one_column_is_a_row(tmp_path):
    table = read_table(write(tmp_path, "a\n1\n\n3\n\n\n"))
    np.testing.assert_array_equal(table.numbers("a"), [1, np.nan, 3, np.nan, np.nan])
    assert (
        len(read_table(write(tmp_path, "a,b\n1,2\n\n3,4\n\n\n"))) == 3
    )  # the last lines are no rows here


def test_a_column_that_numbers_the_rows_is_left_out(tmp_path):
    table = read_table(write(tmp_path, ",a\n0,5\n1,6\n7,6\n"))
    assert table.columns == ["a"]
    assert table.notes == (
        f"{table.name}: the first column has no name and numbers the rows, so it is left out",
    )
    for text in (",a\n0,5\n0,6\n", ",a\nx,5\ny,6\n", "a,\n5,0\n6,1\n"):
        with pytest.raises(ValueError, match="has no name in the header line"):
            read_table(write(tmp_path, text))


def test_packed_tables(tmp_path):
    text = b"a,b\n1,2\n"
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("__MACOSX/._t.csv", b"junk")
        archive.writestr("folder/t.csv", text)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text))
    for name in ("t.zip", "t.csv.gz"):
        assert read_table(tmp_path / name).texts("b").tolist() == ["2"]
    assert is_packed_table(tmp_path / "t.zip")
    with zipfile.ZipFile(tmp_path / "t.zip", "a") as archive:
        archive.writestr("u.csv", text)
    with pytest.raises(
        ValueError, match=r"t\.zip holds 2 tables \(folder/t\.csv, u\.csv\), but one is needed"
    ):
        read_table(tmp_path / "t.zip")
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        archive.writestr("a.png", b"")
    assert not is_packed_table(tmp_path / "images.zip")
    (tmp_path / "broken.zip").write_bytes(b"junk")
    assert not is_packed_table(tmp_path / "broken.zip")


def joined(path, rows):
    chunks = list(read_chunks(path, rows=rows))
    assert [chunk.first for chunk in chunks] == list(range(0, sum(map(len, chunks)), rows))
    assert chunks[-1].share == 1
    return chunks, pd.concat([chunk.frame for chunk in chunks], ignore_index=True)


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
@pytest.mark.parametrize(
    "text",
    [
        '\n\nb;a\r\n1;x\r\n\r\n 2 ;"y\nz"\r\n3\r\n;\r\n\r\n\r\n',  # blank lines before, between and behind
        "a\n1\n\n3\n\n\n",
        ",a\n0,5\n1,6\n2,x\n",
    ],
)
def test_chunks_are_the_whole(tmp_path, text, rows):
    path = write(tmp_path, text)
    whole = read_table(path)
    chunks, frame = joined(path, rows)
    pd.testing.assert_frame_equal(frame, whole.frame)
    assert {chunk.notes for chunk in chunks} == {whole.notes}
    assert {chunk.reading for chunk in chunks} == {whole.reading}


def test_rows_of_chunks_are_called_as_in_the_file(tmp_path):
    path = write(tmp_path, "a,b\n" + "1,x\n" * 6 + "one,x\n" + "1,x,y\n")
    stream = read_chunks(path, rows=3, numbers=["a"])
    next(stream), next(stream)
    with pytest.raises(ValueError, match=r"u\.csv row 7, column 'a': 'one' is not a number"):
        [
            table.numbers("a")
            for table in read_chunks(
                write(tmp_path, path.read_text()[:-6], "u.csv"), AUTO, 3, ["a"]
            )
        ]
    with pytest.raises(ValueError, match="Expected 2 fields in line 9, saw 3"):
        next(stream)


def test_numbers_that_pandas_reads_are_those_of_the_texts(tmp_path):
    cells = ["1", " 2.5 ", "", "NA", "-3e5", "+.5", "7.", "0.1"]
    path = write(tmp_path, "a,b\n" + "".join(f"{cell},{cell}\n" for cell in cells))
    (table,) = read_chunks(path, rows=10, numbers=["a"])
    assert table.frame["a"].dtype == np.float64
    np.testing.assert_allclose(table.numbers("a"), table.numbers("b"), rtol=1e-15)
    assert table.texts("a").tolist() == ["1", "2.5", None, None, "-300000", "0.5", "7", "0.1"]
    path = write(tmp_path, "a,b\n7,7\n7.0,7.0\n8,8\n")
    (table,) = read_chunks(
        path, Reading(("7",)), 10, ["a"]
    )  # as a mark of missing values it is a text
    np.testing.assert_array_equal(table.numbers("a"), [np.nan, 7, 8])
    np.testing.assert_array_equal(table.numbers("b"), [np.nan, 7, 8])
    for cell in ("inf", "nan", "1,5", "x", "True"):
        (table,) = read_chunks(write(tmp_path, f"a;b\n1;2\n{cell};2\n"), Reading(()), numbers=["a"])
        with pytest.raises(
            ValueError, match=f"row 2, column 'a': '{cell}' is not a (finite )?number"
        ):
            table.numbers("a")


def test_the_encoding_is_that_of_the_whole_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n" + b"1,x\n" * 300_000 + "1,größe\n".encode("cp1252"))
    chunks, frame = joined(path, 200_000)
    assert frame["b"].iloc[-1] == "größe"
    assert chunks[0].notes == (
        f"{path} is not in UTF-8 and is read as cp1252; name another --encoding if letters are wrong",
    )


def test_an_index_must_be_one_in_all_chunks(tmp_path):
    with pytest.raises(ValueError, match="column 1 of 2 has no name in the header line"):
        list(read_chunks(write(tmp_path, ",a\n0,5\n1,6\nx,6\n"), rows=2))


@pytest.mark.parametrize("rows", [(4, 2), (4, 3), (6, 4), (4, 9)])
def test_tables_of_a_pair_go_in_step(tmp_path, rows):
    paths = [write(tmp_path, "a\n" + "1\n" * n, f"{n}.csv") for n in rows]
    message = rf"{rows[0]}\.csv has {rows[0]} rows, but .*{rows[1]}\.csv has {rows[1]}\. Each row must have both bounds"
    with pytest.raises(ValueError, match=message):
        list(in_step(*(read_chunks(path, rows=2) for path in paths)))
    pairs = list(in_step(*(read_chunks(paths[0], rows=2) for _ in range(2))))
    assert [len(table) for pair in pairs for table in pair] == [2] * rows[0]


def test_a_packed_file_that_is_cut_off_is_refused(tmp_path):
    text = "a,b\n" + "".join(f"{i},{i**3 % 977}\n" for i in range(9000))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode())[:-900])
    with pytest.raises(
        ValueError, match=r"t\.csv\.gz cannot be unpacked: .*It is truncated or damaged"
    ):
        list(read_chunks(tmp_path / "t.csv.gz", rows=1000))
