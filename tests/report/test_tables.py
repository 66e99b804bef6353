"""Tests of tables as Markdown, text and HTML, with means, deviations and published columns."""

import re

import numpy as np
import pytest

from creinn.report.tables import MeanStd, format_cell, html_table, markdown_table, text_table

DASH = "\N{EN DASH}"
ROWS = [
    {"model": "SNN", "acc": MeanStd(0.814, 0.0123), "time": 1},
    {"model": "CreINN | x5", "acc": 0.8732, "time": None},
]


def test_spread_by_hand():
    # mean of 1, 2, 6 is 3; squared deviations 4 + 1 + 9 = 14, over 2 is 7
    spread = MeanStd.of([1.0, 2.0, 6.0])
    assert spread.mean == pytest.approx(3)
    assert spread.std == pytest.approx(7**0.5)


def test_single_run_has_no_standard_deviation():
    assert format_cell(MeanStd.of([0.25])) == "0.250"


def test_no_runs_raise():
    with pytest.raises(ValueError, match="data"):
        MeanStd.of([])


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (0.12345, "0.123"),
        (np.float32(0.5), "0.500"),
        (np.int64(7), "7"),
        (None, DASH),
        ("text", "text"),
        (MeanStd(0.5, 0.25), "0.500 ± 0.250"),
        (float("nan"), "nan"),
    ],
)
def test_format_cell(cell, expected):
    assert format_cell(cell) == expected


def test_markdown_table_by_hand():
    assert markdown_table(ROWS, digits={"acc": 2}).splitlines() == [
        "| model | acc | time |",
        "|---|---:|---:|",
        "| SNN | 0.81 ± 0.01 | 1 |",
        rf"| CreINN \| x5 | 0.87 | {DASH} |",
    ]


def test_text_table_is_aligned():
    lines = text_table(ROWS).splitlines()
    assert len(set(map(len, lines))) == 1
    assert lines[2] == "SNN          0.814 ± 0.012     1"
    assert lines[3].startswith("CreINN | x5")


def test_html_table_escapes_and_marks_columns():
    table = html_table([{"model": "a<b", "acc": 0.8, "acc (paper)": 0.84}], digits=2)
    assert "<td>a&lt;b</td>" in table
    cells = re.findall(r'<td class="([^"]+)">([^<]+)</td>', table)
    assert cells == [("number", "0.80"), ("number published", "0.84")]


def test_wide_html_table_labels_cells():
    table = html_table([{"a": 1, "b": 2, "c": MeanStd(0.5, 0.25), 'e "f"': 5}])
    assert "<table class=wide>" in table
    assert '<td class="number" data-column="e &#34;f&#34;">5</td>' in table
    assert ">0.500 ±&nbsp;0.250<" in table
    assert "wide" not in html_table([{"a": 1, "b": 2, "c": 3}])


@pytest.mark.parametrize("table", [text_table, markdown_table, html_table])
def test_empty_tables_raise(table):
    with pytest.raises(ValueError, match="row"):
        table([])
    with pytest.raises(ValueError, match="column"):
        table([{}])


def test_missing_cells():
    rows = markdown_table([{"a": 1}, {"b": 2}]).splitlines()[2:]
    assert rows == [f"| 1 | {DASH} |", f"| {DASH} | 2 |"]
