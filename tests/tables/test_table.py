from pathlib import Path

import numpy as np
import pytest

from creinn.tables import read_table


def write(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_cells_stay_texts_and_missing_ones_are_none(tmp_path):
    table = read_table(write(tmp_path, "a, b ,c\n1, x y ,NA\n2.0,,007\n\n-3,?,1e3\n"), missing=["?"])
    assert table.columns == ["a", "b", "c"]
    assert len(table) == 3
    assert table.texts("a").tolist() == ["1", "2", "-3"]
    assert table.texts("b").tolist() == ["x y", None, None]
    assert table.texts("c").tolist() == [None, "007", "1e3"]
    np.testing.assert_array_equal(table.numbers("c"), [np.nan, 7.0, 1000.0])


def test_separator_byte_order_mark_quotes_and_short_rows(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes('\ufeffname;value\n"a;b";1\nc\n'.encode())
    table = read_table(path, separator=";")
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
        ("a,b\n1,2\n3,4,5\n", r"not a table: .*Expected 2 fields in line 3, saw 3"),
        ("a,b\n1,2,3\n3,4,5\n", r"not a table: .*Expected 2 fields in line 2, saw 3"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_table(write(tmp_path, text))


def test_other_encodings_and_absent_files_are_refused(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("größe\n1\n".encode("latin1"))
    with pytest.raises(ValueError, match=r"latin\.csv is not a text file in UTF-8"):
        read_table(path)
    with pytest.raises(FileNotFoundError, match=r"There is no file .*absent\.csv"):
        read_table(tmp_path / "absent.csv")


def test_a_cell_that_is_no_number_is_named(tmp_path):
    table = read_table(write(tmp_path, "age,size\n3,1\n,2\nabc,inf\n", "new.csv"))
    with pytest.raises(ValueError, match=r"new\.csv row 3, column 'age': 'abc' is not a number"):
        table.numbers("age")
    with pytest.raises(ValueError, match=r"new\.csv row 3, column 'size': 'inf' is not a finite number"):
        table.numbers("size")
    with pytest.raises(ValueError, match=r"new\.csv has no column 'weight'; its columns are age, size"):
        table.numbers("weight")
