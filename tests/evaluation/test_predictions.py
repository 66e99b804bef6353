"""Scores, calibration and sets of classes against slow definitions, and by hand; what is refused."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from credal_cases import distributions
from creinn import CredalSet
from creinn.evaluation import (
    SetDecisions,
    brier,
    confusion,
    cumulative_sets,
    expected_calibration_error,
    log_loss,
    reliability,
    set_decisions,
    tail_for_size,
    threshold_for_size,
    threshold_sets,
)

P = [[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.1, 0.3, 0.6], [0.6, 0.4, 0.0]]
Y = [0, 1, 2, 2]
THREE = np.array(P[:3])


@st.composite
def predictions(draw):
    """Distributions whose confidences fall on the edges of 4, 8 and 16 bins; and true classes."""
    p = draw(distributions())
    return p, draw(st.lists(st.integers(0, p.shape[1] - 1), min_size=len(p), max_size=len(p)))


def slow_calibration_error(p, labels, bins):
    """Sum over bins of share times gap, by the definition; in a bin if low < confidence <= high."""
    error = 0.0
    for b in range(bins):
        rows = [i for i in range(len(p)) if b / bins < max(p[i]) <= (b + 1) / bins]
        if rows:
            right = sum(list(p[i]).index(max(p[i])) == labels[i] for i in rows) / len(rows)
            said = sum(max(p[i]) for i in rows) / len(rows)
            error += len(rows) / len(p) * abs(right - said)
    return error


@settings(deadline=None)
@given(predictions(), st.sampled_from([1, 2, 4, 8, 16]))
def test_scores_are_those_of_the_definitions(given_, bins):
    p, labels = given_
    rows = range(len(p))
    slow_log = [-math.log(max(p[i][labels[i]], np.finfo(float).eps)) for i in rows]
    assert log_loss(p, labels) == pytest.approx(sum(slow_log) / len(p), abs=1e-12)
    slow_brier = [(q - (k == labels[i])) ** 2 for i in rows for k, q in enumerate(p[i])]
    assert brier(p, labels) == pytest.approx(sum(slow_brier) / len(p), abs=1e-12)
    expected = slow_calibration_error(p, labels, bins)
    assert expected_calibration_error(p, labels, bins) == pytest.approx(expected, abs=1e-12)
    found = p.argmax(1)
    counts = [
        [sum((labels[i], found[i]) == (t, f) for i in rows) for f in range(p.shape[1])]
        for t in range(p.shape[1])
    ]
    assert confusion(found, labels, p.shape[1]).tolist() == counts


def test_scores_by_hand():
    assert log_loss(P[:3], Y[:3]) == pytest.approx(-math.log(0.7 * 0.4 * 0.6) / 3)
    assert log_loss(P, Y) == pytest.approx(
        (-math.log(0.7 * 0.4 * 0.6) + 36.04365) / 4, abs=1e-5
    )  # a zero for the truth
    assert brier(P, Y) == pytest.approx((0.14 + 0.62 + 0.26 + 1.52) / 4)
    # two bins hold all: .7 right, .5 wrong, .6 right, .6 wrong, and .5 is in the lower one
    assert expected_calibration_error(P, Y, bins=2) == pytest.approx(
        (0.5 + 3 * abs(2 / 3 - 1.9 / 3)) / 4
    )
    assert confusion([0, 0, 2, 0], Y, 3).tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 1]]


def test_reliability_by_hand():
    found = reliability(P, Y, bins=5)
    np.testing.assert_allclose(found.edges, [0, 0.2, 0.4, 0.6, 0.8, 1])
    assert found.rows.sum() == 4
    assert found.rows[:2].tolist() == [0, 0]
    assert np.isnan(found.accuracy[0])
    assert np.isnan(found.confidence[4])
    np.testing.assert_allclose(found.accuracy[2:4], [1 / 3, 1.0])


def test_the_predicted_class_decides_where_others_are_as_probable():
    p = [[0.5, 0.5], [0.5, 0.5]]  # nothing is known, but the model has a label
    assert expected_calibration_error(p, [1, 1], predicted=[1, 1]) == 0.5
    assert reliability(p, [1, 1], 2, predicted=[1, 0]).accuracy[0] == 0.5


def test_single_precision_and_credal_sets():
    sets = CredalSet(torch.tensor([[0.1, 0.2, 0.3]] * 7), torch.tensor([[0.3, 0.5, 0.6]] * 7))
    p, labels = sets.probabilities, torch.tensor([0, 1, 2, 0, 1, 2, 2])
    assert p.dtype == torch.float32
    assert log_loss(p, labels) == pytest.approx(
        -p.double().log()[torch.arange(7), labels].mean().item(), abs=1e-6
    )


@pytest.mark.parametrize("score", [log_loss, brier, expected_calibration_error, reliability])
def test_bad_input_is_named(score):
    with pytest.raises(ValueError, match=r"must be 1, but is 3 at index \(0,\)"):
        score([[1.0, 2.0]], [0])
    with pytest.raises(ValueError, match="Label 2 in row 0 is not a class: there are 2"):
        score([[0.5, 0.5]], [2])
    with pytest.raises(
        ValueError, match=r"labels must have shape \(1,\), one class per row, but have shape \(2,\)"
    ):
        score([[0.5, 0.5]], [0, 1])
    with pytest.raises(TypeError, match="must be class indices"):
        score([[0.5, 0.5]], [0.5])
    with pytest.raises(ValueError, match="shape"):
        score([[0.5, 0.5]], [[0]])


def test_bad_counts_are_named():
    with pytest.raises(ValueError, match="at least one bin"):
        reliability(P, Y, bins=0)
    with pytest.raises(
        ValueError, match=r"labels must have shape \(2,\), one class per row, but have shape \(1,\)"
    ):
        confusion([0, 1], [0], 2)
    with pytest.raises(ValueError, match=r"one class per row, but have shape \(0,\)"):
        confusion(np.zeros(0, int), np.zeros(0, int), 2)
    with pytest.raises(ValueError, match="Label 3 in row 1"):
        confusion([0, 3], [0, 1], 2)


@st.composite
def distributions_and_size(draw):
    p = draw(distributions(most=5))
    rows, classes = p.shape
    attainable = st.integers(rows, rows * classes).map(lambda total: total / rows)
    return p, draw(st.one_of(attainable, st.floats(1, classes)))


def slow_threshold_set(row, threshold):
    """The definition, class by class."""
    top = list(row).index(max(row))
    return [bool(k == top or q >= threshold) for k, q in enumerate(row)]


def slow_cumulative_set(row, level):
    """Take classes, most probable and first first, until their sum reaches the level."""
    chosen, total = set(), 0
    for k in sorted(range(len(row)), key=lambda k: (-row[k], k)):
        if not chosen or total < level:
            chosen.add(k)
            total += row[k]
    return [k in chosen for k in range(len(row))]


def nearest_sets(p, size, slow_set, numbers):
    """Of the sets of all numbers, those of the largest mean size that is at most ``size``."""
    found = [np.array([slow_set(row, number) for row in p]) for number in numbers]
    return max((sets for sets in found if sets.sum() / len(p) <= size), key=lambda sets: sets.sum())


@settings(max_examples=300, deadline=None, derandomize=True)
@given(distributions_and_size())
def test_threshold_comes_as_near_to_the_size_as_any_can(case):
    p, size = case
    steps = np.unique(p)
    expected = nearest_sets(p, size, slow_threshold_set, [0, 2, *steps, *(steps + 1e-9)])
    threshold = threshold_for_size(p, size)
    sets = threshold_sets(p, threshold)
    np.testing.assert_array_equal(sets, expected)
    assert sets.sum(1).mean() <= size
    if threshold > 0:  # the least one: any smaller gives a larger mean size than was asked for
        assert threshold_sets(p, np.nextafter(threshold, 0)).sum(1).mean() > size


@settings(max_examples=300, deadline=None, derandomize=True)
@given(distributions_and_size())
def test_tail_comes_as_near_to_the_size_as_any_can(case):
    p, size = case
    levels = [
        0,
        1,
        *{float(sum(row[:m])) for row in -np.sort(-p, 1) for m in range(1, p.shape[1] + 1)},
    ]
    expected = nearest_sets(p, size, slow_cumulative_set, levels)
    tail = tail_for_size(p, size)
    sets = cumulative_sets(p, tail)
    np.testing.assert_array_equal(sets, expected)
    assert sets.sum(1).mean() <= size
    if tail > 0:
        assert cumulative_sets(p, np.nextafter(tail, 0)).sum(1).mean() > size


@settings(max_examples=200, deadline=None, derandomize=True)
@given(distributions(most=5), st.integers(0, 32))
def test_sets_are_those_of_the_definition(p, step):
    number = step / 32
    np.testing.assert_array_equal(
        threshold_sets(p, number), [slow_threshold_set(row, number) for row in p]
    )
    np.testing.assert_array_equal(
        cumulative_sets(p, number), [slow_cumulative_set(row, 1 - number) for row in p]
    )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(distributions(most=5), st.data())
def test_decisions_are_those_of_the_definition(p, data):
    n, k = p.shape
    sets = [slow_threshold_set(row, data.draw(st.sampled_from([0, 0.25, 0.5, 2]))) for row in p]
    labels = data.draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))
    hits = [row[label] for row, label in zip(sets, labels, strict=True)]
    alone = [hit for hit, row in zip(hits, sets, strict=True) if sum(row) == 1]
    expected = (
        sum(hits) / n,
        sum(map(sum, sets)) / n,
        len(alone) / n,
        sum(alone) / len(alone) if alone else None,
        sum(hit / sum(row) for hit, row in zip(hits, sets, strict=True)) / n,
    )
    found = set_decisions(sets, labels)
    assert found.single_accuracy == pytest.approx(expected[3])
    assert found._replace(single_accuracy=0) == pytest.approx(
        SetDecisions(*expected)._replace(single_accuracy=0)
    )


@pytest.mark.parametrize("rows", [3, 7, 49, 107])
def test_mean_sizes_that_rounding_makes_inexact_are_reached(rows):
    # (s / n) * n may be less than s: the total must still be s.
    p = np.random.default_rng(rows).dirichlet(np.ones(4), rows)
    for total in range(rows, 4 * rows + 1):
        assert threshold_sets(p, threshold_for_size(p, total / rows)).sum() == total
        assert cumulative_sets(p, tail_for_size(p, total / rows)).sum() == total
        if total > rows:  # n times a size just below may be rounded up to s: the total must be less
            below = np.nextafter(total / rows, 0)
            assert threshold_sets(p, threshold_for_size(p, below)).sum() == total - 1


def test_by_hand():
    # In: {0}, {0, 1}, {1, 2}. True: 0, 2, 1. Covered 2 of 3, sizes 1 + 2 + 2, discounted (1 + 0 + 1/2) / 3.
    found = set_decisions(
        [[True, False, False], [True, True, False], [False, True, True]], [0, 2, 1]
    )
    assert found == pytest.approx((2 / 3, 5 / 3, 1 / 3, 1.0, 0.5))
    # Two further classes for three rows: of 0.4, 0.3, 0.2, 0.1, ... the first two; 0.2 stays out.
    assert threshold_for_size(THREE, 5 / 3) == np.nextafter(0.2, 1)
    expected = [[True, False, False], [True, True, False], [False, True, True]]
    assert threshold_sets(THREE, 0.25).tolist() == expected
    # The first classes leave 0.3, 0.5, 0.4; two may have a second one, so 0.3 may be left.
    assert tail_for_size(THREE, 5 / 3) == pytest.approx(0.3)
    assert cumulative_sets(THREE, 0.31).tolist() == expected


def test_no_single_class_has_no_accuracy():
    found = set_decisions([[True, True]], [1])
    assert found == SetDecisions(
        coverage=1.0, size=2.0, single=0.0, single_accuracy=None, discounted=0.5
    )


def test_ends_of_the_range_of_sizes():
    top = np.eye(3, dtype=bool)[THREE.argmax(1)]
    for size, expected in ((1, top), (3, np.ones((3, 3), bool))):
        np.testing.assert_array_equal(
            threshold_sets(THREE, threshold_for_size(THREE, size)), expected
        )
        np.testing.assert_array_equal(cumulative_sets(THREE, tail_for_size(THREE, size)), expected)


def test_ties_are_in_or_out_together_and_the_first_class_is_always_in():
    p = np.full((2, 4), 0.25)
    assert (
        threshold_sets(p, threshold_for_size(p, 3.9)).tolist() == [[True, False, False, False]] * 2
    )
    assert threshold_sets(p, threshold_for_size(p, 4)).all()
    assert cumulative_sets(p, tail_for_size(p, 2.9)).tolist() == [[True, True, False, False]] * 2


def test_classes_of_probability_zero_are_never_needed():
    p = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]
    assert cumulative_sets(p, tail_for_size(p, 3)).tolist() == [
        [True, False, False],
        [True, True, False],
    ]
    assert threshold_sets(p, threshold_for_size(p, 3)).all()


def test_very_sure_rows_are_told_apart():
    # In float32 all first probabilities are 1; what is left differs, and is least in the first row.
    p = np.array([[1, 1e-20], [1, 1e-10], [1, 1e-15]], np.float32)
    assert cumulative_sets(p, tail_for_size(p, 4 / 3))[:, 1].tolist() == [False, True, False]


def test_the_threshold_of_some_rows_serves_others():
    other = [[0.9, 0.05, 0.05], [0.34, 0.33, 0.33]]
    assert threshold_sets(other, threshold_for_size(THREE, 5 / 3)).sum(1).tolist() == [1, 3]
    assert cumulative_sets(other, tail_for_size(THREE, 5 / 3)).sum(1).tolist() == [1, 3]


def test_order_of_rows_and_of_classes_does_not_matter():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(5), 40)
    rows, classes = rng.permutation(40), rng.permutation(5)
    for find, sets in ((threshold_for_size, threshold_sets), (tail_for_size, cumulative_sets)):
        number = find(p, 2.3)
        assert find(p[rows][:, classes], 2.3) == pytest.approx(number, rel=1e-12)
        np.testing.assert_array_equal(
            sets(p[rows][:, classes], number), sets(p, number)[rows][:, classes]
        )


def test_lists_numpy_and_torch_agree():
    p = [[0.5, 0.375, 0.125], [0.25, 0.25, 0.5]]
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        tensor = torch.tensor(p, dtype=dtype, requires_grad=True)
        for find, sets in ((threshold_for_size, threshold_sets), (tail_for_size, cumulative_sets)):
            number = find(tensor, 1.5)
            assert type(number) is float
            assert number == find(p, 1.5) == find(np.array(p, np.float32), 1.5)
            assert sets(tensor, number).tolist() == sets(p, number).tolist()
    credal = CredalSet([[0.5, 0.1, 0.0], [0.2, 0.2, 0.2]], [[0.9, 0.4, 0.1], [0.6, 0.6, 0.6]])
    found = set_decisions(credal.classes("dominance"), torch.tensor([0, 2]))
    assert found == pytest.approx((1.0, 2.0, 0.5, 1.0, 2 / 3))
    assert found == set_decisions(credal.classes("dominance").tolist(), [0, 2])


@pytest.mark.parametrize(
    "function", [threshold_for_size, threshold_sets, tail_for_size, cumulative_sets]
)
def test_what_are_no_distributions_is_refused(function):
    with pytest.raises(
        ValueError, match=r"probabilities must be finite, but is nan at index \(0, 1\)"
    ):
        function([[0.5, float("nan")]], 1)
    with pytest.raises(ValueError, match="probabilities is empty"):
        function(np.zeros((0, 3)), 1)
    with pytest.raises(
        ValueError,
        match=r"shape \(samples, classes\) with two classes or more, but have shape \(2,\)",
    ):
        function([0.5, 0.5], 1)
    with pytest.raises(ValueError, match=r"but have shape \(2, 1\)"):
        function([[1.0], [1.0]], 1)
    with pytest.raises(
        ValueError, match=r"must be >= 0, but is -1 at index \(1, 0\)\. Were logits passed"
    ):
        function([[0.5, 0.5], [-1, 2]], 1)
    with pytest.raises(
        ValueError, match=r"sum of each row.* must be 1, but is 1\.5 at index \(1,\)\. Were logits"
    ):
        function([[0.5, 0.5], [1, 0.5]], 1)
    with pytest.raises(
        TypeError, match="probabilities must hold real numbers, but its dtype is complex128"
    ):
        function([[1j, 1]], 1)


@pytest.mark.parametrize("function", [threshold_for_size, tail_for_size])
@pytest.mark.parametrize("size", [0.99, 3.01, -1, float("nan"), float("inf")])
def test_sizes_out_of_range_are_refused(function, size):
    with pytest.raises(ValueError, match=rf"from 1 to 3 for 3 classes, found {size}"):
        function(THREE, size)


@pytest.mark.parametrize("number", [-0.1, 1.1, float("nan")])
def test_numbers_out_of_range_are_refused(number):
    with pytest.raises(
        ValueError, match=rf"threshold is a probability, in \[0, 1\], found {number}"
    ):
        threshold_sets(THREE, number)
    with pytest.raises(ValueError, match=rf"tail is a probability, in \[0, 1\], found {number}"):
        cumulative_sets(THREE, number)


def test_sets_and_labels_that_do_not_fit_are_refused():
    sets = np.array([[True, False], [True, True]])
    with pytest.raises(ValueError, match=r"with one row at least, but have shape \(0, 3\)"):
        set_decisions(np.zeros((0, 3), bool), np.zeros(0, int))
    with pytest.raises(
        TypeError, match=r"classes must be boolean, but its dtype is float64\. Pass a mask"
    ):
        set_decisions(sets.astype(float), [0, 1])
    with pytest.raises(
        ValueError, match=r"labels must have shape \(2,\), one class per row, but have shape \(3,\)"
    ):
        set_decisions(sets, [0, 1, 1])
    with pytest.raises(
        ValueError, match=r"classes must have shape \(samples, classes\).*but have shape \(2,\)"
    ):
        set_decisions(sets[0], [0, 1])
    with pytest.raises(
        TypeError, match=r"labels must be class indices \(integers\), but their dtype is float64"
    ):
        set_decisions(sets, [0.0, 1.0])
    with pytest.raises(TypeError, match="their dtype is bool"):
        set_decisions(sets, [True, False])
    with pytest.raises(ValueError, match=r"The set of row 1 is empty"):
        set_decisions([[True, False], [False, False]], [0, 1])
    for label in (-1, 2):
        with pytest.raises(
            ValueError, match=rf"Label {label} in row 1 is not a class: there are 2"
        ):
            set_decisions(sets, [0, label])
