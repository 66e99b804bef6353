"""Figures: the drawn values, and the errors for invalid inputs."""

import subprocess
import sys

import numpy as np
import pytest

from creinn.evaluation import AccuracyRejection, accuracy_rejection, reliability
from creinn.report.figures import (
    CURVE_POINTS,
    MOST_NUMBERS,
    confusion_map,
    heat_map,
    rejection_curves,
    reliability_chart,
    score_histograms,
    training_curves,
)
from creinn.report.theme import PALETTE


def curve(*accuracy):
    return AccuracyRejection(np.arange(len(accuracy)) / len(accuracy), np.array(accuracy))


def titles(side):
    return [part.layout.title.text for part in side.parts]


def test_rejection_curves_contain_data():
    curves = {"A": {"AU": curve(0.5, 1.0), "EU": curve(0.6, 0.8)}, "B": {"EU": curve(0.7, 0.9)}}
    side = rejection_curves(curves)
    assert titles(side) == ["AU", "EU"]
    assert [[t.name for t in part.data] for part in side.parts] == [["A"], ["A", "B"]]
    for part, measure in zip(side.parts, titles(side), strict=True):
        for trace in part.data:
            np.testing.assert_array_equal(trace.x, curves[trace.name][measure].rejection)
            np.testing.assert_array_equal(trace.y, curves[trace.name][measure].accuracy)
    (first,), (second, third) = (part.data for part in side.parts)
    assert first.line.color == second.line.color == PALETTE[0] != third.line.color


def test_model_without_measure():
    whole = {name: curve(1.0) for name in ("AU", "EU", "TU")}
    side = rejection_curves({"SNN": {"AU": curve(1.0), "TU": curve(1.0)}, "CreINN": whole})
    assert titles(side) == ["AU", "EU", "TU"]
    assert [len(part.data) for part in side.parts] == [2, 1, 2]


@pytest.mark.parametrize(
    ("accuracy", "low", "high"),
    [
        ((1.0, 1.0), 0.792, 1.008),
        ((0.0, 0.0), -0.008, 0.208),
        ((0.5, 1.0), 0.48, 1.02),
        ((0.9, 0.95), 0.742, 0.958),
    ],
)
def test_axis_of_constant_accuracy(accuracy, low, high):
    side = rejection_curves({"A": {"AU": curve(*accuracy), "EU": curve(*accuracy)}})
    for part in side.parts:
        assert part.layout.yaxis.range == pytest.approx((low, high))
    (part,) = training_curves(
        {"A": [{"epoch": e, "accuracy": a} for e, a in enumerate(accuracy)]}
    ).parts
    assert part.layout.yaxis.range == pytest.approx((low, high))


def test_long_curves_are_subsampled():
    rng = np.random.default_rng(0)
    full = accuracy_rejection(rng.random(5000), rng.random(5000) < 0.8)
    trace = rejection_curves({"A": {"EU": full}}).parts[0].data[0]
    assert len(trace.x) == CURVE_POINTS
    for end in (0, -1):
        assert (trace.x[end], trace.y[end]) == (full.rejection[end], full.accuracy[end])
    assert set(trace.y) <= set(full.accuracy)


def test_no_curves_raise():
    with pytest.raises(ValueError, match="curves"):
        rejection_curves({})
    with pytest.raises(ValueError, match="curves"):
        rejection_curves({"A": {}})


def test_score_histograms_by_hand():
    # the bins are [0, 1) and [1, 2]
    (figure,) = score_histograms(
        {"A": {"known": [0.0, 0.5, 0.9, 2.0], "new": [1.0, 1.5]}}, "EU (bits)", bins=2
    ).parts
    known, new = figure.data
    np.testing.assert_array_equal(known.x, [0.5, 1.5])
    np.testing.assert_array_equal(known.y, [0.75, 0.25])
    np.testing.assert_array_equal(new.y, [0.0, 1.0])
    np.testing.assert_array_equal(new.width, [1.0, 1.0])
    assert (known.name, new.name) == ("known", "new")
    assert figure.layout.barmode == "overlay"
    assert (figure.layout.title.text, figure.layout.xaxis.title.text) == ("A", "EU (bits)")


def test_histogram_of_equal_scores():
    (trace,) = score_histograms({"A": {"known": [0.3, 0.3]}}, bins=3).parts[0].data
    np.testing.assert_allclose(trace.y, [0, 1, 0])


def test_groups_have_one_color():
    side = score_histograms({"A": {"x": [0.0], "y": [1.0]}, "B": {"y": [1.0]}})
    assert side.parts[1].data[0].marker.color == side.parts[0].data[1].marker.color


def test_invalid_scores_raise():
    with pytest.raises(ValueError, match="scores"):
        score_histograms({})
    with pytest.raises(ValueError, match="A"):
        score_histograms({"A": {}})
    with pytest.raises(ValueError, match="finite"):
        score_histograms({"A": {"x": [float("nan")]}})


def row(epoch, loss, val_loss=None, width=None):
    return {"epoch": epoch, "loss": loss, "accuracy": None, "width": width, "val_loss": val_loss}


def test_training_curves_contain_history():
    side = training_curves(
        {"A": [row(1, 0.9, 1.0), row(2, 0.5, 0.7)], "B": [row(1, 0.8, width=0.3)]}
    )
    assert titles(side) == ["loss", "width"]
    drawn = [
        [(t.name, t.line.dash, list(t.x), list(t.y)) for t in part.data] for part in side.parts
    ]
    assert drawn == [
        [
            ("A", "solid", [1, 2], [0.9, 0.5]),
            ("A", "dash", [1, 2], [1.0, 0.7]),
            ("B", "solid", [1], [0.8]),
            ("dashed: validation", "dash", [None], [None]),
        ],
        [("B", "solid", [1], [0.3])],
    ]


def test_training_curves_with_given_colors():
    (figure,) = training_curves(
        {"A": [row(1, 0.9)], "B": [row(1, 0.8)]}, colors={"B": "#123456"}
    ).parts
    assert [t.line.color for t in figure.data] == [PALETTE[0], "#123456"]


def test_empty_histories_raise():
    with pytest.raises(ValueError, match="loss"):
        training_curves({})
    with pytest.raises(ValueError, match="width"):
        training_curves({"A": []})


def test_heat_map_contains_matrix():
    figure = heat_map([[0.0, 0.5, 1.0], [0.25, 0.0, 2.0]])
    np.testing.assert_array_equal(figure.data[0].z, [[0.0, 0.5, 1.0], [0.25, 0.0, 2.0]])
    assert figure.data[0].zmin == 0
    assert figure.layout.yaxis.autorange == "reversed"


def test_reliability_chart():
    found = reliability([[0.75, 0.25], [0.75, 0.25], [0.0, 1.0]], [0, 1, 1], bins=4)
    first, second = reliability_chart(found).parts
    bars, line = first.data
    np.testing.assert_array_equal(bars.x, [0.125, 0.375, 0.625, 0.875])
    np.testing.assert_array_equal(bars.y, [np.nan, np.nan, 0.5, 1.0])
    np.testing.assert_allclose(second.data[0].y, [0, 0, 2 / 3, 1 / 3])
    assert (line.name, line.line.dash) == ("dashed: accuracy equals probability", "dash")
    assert line.x == line.y == (0, 1)
    assert first.layout.yaxis.range == (0, 1)


def test_confusion_map_shows_shares_and_counts():
    (trace,) = confusion_map([[3, 1], [0, 0]], ["yes", "a name that is very long"]).data
    np.testing.assert_array_equal(trace.z, [[0.75, 0.25], [0, 0]])
    np.testing.assert_array_equal(trace.text, [[3, 1], [0, 0]])
    assert trace.texttemplate == "%{text}"
    figure = confusion_map([[3, 1], [0, 0]], ["yes", "a name that is very long"])
    assert figure.layout.xaxis.ticktext == ("yes", "a name that i…")
    assert figure.layout.yaxis.autorange == "reversed"


def test_many_classes_have_no_cell_labels():
    count = MOST_NUMBERS + 1
    (trace,) = confusion_map(np.eye(count, dtype=int), [str(k) for k in range(count)]).data
    assert trace.texttemplate is None


def test_invalid_counts_raise():
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        confusion_map([[1, 0], [0, 1]], ["a", "b", "c"])


def test_tables_work_without_plotly_and_figures_raise_import_error():
    script = """
import sys
sys.modules["plotly"] = None
import creinn.report
print(creinn.report.markdown_table([{"a": 1}]).splitlines()[-1])
try:
    creinn.report.heat_map([[1.0]])
except ImportError as error:
    print("plotly" in str(error))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["| 1 |", "True"]
