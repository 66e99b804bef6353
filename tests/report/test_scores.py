"""Reliability charts and confusion maps hold the counts given."""

import numpy as np
import pytest

from creinn.evaluation import reliability
from creinn.report.scores import MOST_NUMBERS, confusion_map, reliability_chart


def test_reliability_chart_holds_the_bins_and_explains_the_dashed_line():
    found = reliability([[0.75, 0.25], [0.75, 0.25], [0.0, 1.0]], [0, 1, 1], bins=4)
    first, second = reliability_chart(found).parts
    bars, line = first.data
    np.testing.assert_array_equal(bars.x, [0.125, 0.375, 0.625, 0.875])
    np.testing.assert_array_equal(bars.y, [np.nan, np.nan, 0.5, 1.0])
    np.testing.assert_allclose(second.data[0].y, [0, 0, 2 / 3, 1 / 3])
    assert (line.name, line.line.dash, line.x, line.y) == (
        "dashed: accuracy equals probability",
        "dash",
        (0, 1),
        (0, 1),
    )
    assert first.layout.yaxis.range == (0, 1)


def test_confusion_map_shows_shares_and_counts():
    (trace,) = confusion_map([[3, 1], [0, 0]], ["yes", "a name that is very long"]).data
    np.testing.assert_array_equal(trace.z, [[0.75, 0.25], [0, 0]])
    np.testing.assert_array_equal(trace.text, [[3, 1], [0, 0]])
    assert trace.texttemplate == "%{text}"
    figure = confusion_map([[3, 1], [0, 0]], ["yes", "a name that is very long"])
    assert figure.layout.xaxis.ticktext == ("yes", "a name that i…")
    assert figure.layout.yaxis.autorange == "reversed"


def test_many_classes_have_no_numbers():
    count = MOST_NUMBERS + 1
    assert confusion_map(np.eye(count, dtype=int), [str(k) for k in range(count)]).data[0].texttemplate is None


def test_counts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"3 classes need a square matrix of counts, but the shape is \(2, 2\)"):
        confusion_map([[1, 0], [0, 1]], ["a", "b", "c"])
