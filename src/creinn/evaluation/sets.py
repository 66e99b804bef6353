r"""Set-valued decisions: how good sets of classes are, and sets of an ordinary network to compare them with.

In: sets as masks ``(N, K)``, such as :meth:`creinn.CredalSet.classes` gives, and true classes; or the distributions of
an ordinary network. Out: coverage, size and accuracy of the sets; or sets with the mean size that is asked for.

A larger set contains the true class more easily, so two methods are compared at one mean size. An ordinary network
gets there with one number for all rows, in two ways:

==============================  ===============================  ================================================
number                          sets                             a class is in the set
==============================  ===============================  ================================================
:func:`threshold_for_size`      :func:`threshold_sets`           if its probability is at least the threshold
:func:`tail_for_size`           :func:`cumulative_sets`          if it is among the fewest, most probable ones that
                                                                 leave at most the tail to the others
==============================  ===============================  ================================================

Both numbers come from probabilities alone, without labels, by sorting: the mean size is a step function of the number,
whose steps are known. The most probable class is always in the set, the first of them where several are. Beyond the
paper; the second way gives the sets of adaptive conformal prediction without randomisation, Romano, Sesia and Candès
(2020).
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from creinn.evaluation.checks import as_distributions, as_labels, as_numpy


class SetDecisions(NamedTuple):
    """How good sets of classes are.

    ``coverage`` is the share of sets that contain the true class, ``size`` the mean number of classes, ``single`` the
    share of sets that are one class, ``single_accuracy`` the accuracy of those, ``None`` if there are none, and
    ``discounted`` the discounted accuracy: a set of m classes that contains the true one counts 1/m.
    """

    coverage: float
    size: float
    single: float
    single_accuracy: float | None
    discounted: float


def set_decisions(classes: Any, labels: Any) -> SetDecisions:
    """Coverage, size and accuracy of sets of classes.

    Args:
        classes: Whether each class is in the set, boolean, shape ``(N, K)``; no set is empty.
        labels: True classes, integers in [0, K), shape ``(N,)``.

    Raises:
        TypeError: If ``classes`` is not boolean, or ``labels`` are not integers.
        ValueError: If there are no rows, the shapes do not fit, a set is empty, or a label is not a class.

    Example:
        >>> set_decisions([[True, False, False], [False, True, True]], [0, 2])
        SetDecisions(coverage=1.0, size=1.5, single=0.5, single_accuracy=1.0, discounted=0.75)
    """
    sets, truth = _as_sets(classes, labels)
    size = sets.sum(1)
    covered = np.take_along_axis(sets, truth[:, None], 1)[:, 0]
    single = size == 1
    return SetDecisions(
        coverage=float(covered.mean()),
        size=float(size.mean()),
        single=float(single.mean()),
        single_accuracy=float(covered[single].mean()) if single.any() else None,
        discounted=float((covered / size).mean()),
    )


def threshold_for_size(probabilities: Any, size: float) -> float:
    """The least threshold with which the sets of :func:`threshold_sets` have at most ``size`` classes on average.

    That is the number next above the largest probability that has to stay out; 0, with every class in every set, if
    none has to. Classes of equal probability, in whatever rows, are all in or all out, so the mean size may be less
    than ``size``, but no threshold comes nearer without being larger. The most probable classes are always in and have
    no part in the choice.

    Args:
        probabilities: Distributions, shape ``(N, K)``, K >= 2.
        size: Mean number of classes, from 1 to K.

    Raises:
        TypeError: If the probabilities are not real numbers.
        ValueError: If they are not distributions, there are none, or ``size`` is out of range.

    Example:
        >>> p = [[0.7, 0.2, 0.1], [0.5, 0.4, 0.1]]
        >>> threshold_sets(p, threshold_for_size(p, 1.5)).tolist()
        [[True, False, False], [True, True, False]]
    """
    p = as_distributions(probabilities)
    others = np.sort(_descending(p)[:, 1:], None)[::-1]
    allowed = _classes_beside_the_first(p.shape, size)
    return 0.0 if allowed == len(others) else float(np.nextafter(others[allowed], math.inf))


def threshold_sets(probabilities: Any, threshold: float) -> npt.NDArray[np.bool_]:
    """Classes whose probability is at least ``threshold``, and always the first most probable one.

    Args:
        probabilities: Distributions, shape ``(N, K)``, K >= 2.
        threshold: In [0, 1], for example from :func:`threshold_for_size`.

    Returns:
        Whether each class is in the set, shape ``(N, K)``.

    Raises:
        TypeError: If the probabilities are not real numbers.
        ValueError: If they are not distributions, there are none, or ``threshold`` is out of range.

    Example:
        >>> threshold_sets([[0.5, 0.4, 0.1], [0.3, 0.3, 0.4]], 0.4).tolist()
        [[True, True, False], [False, False, True]]
    """
    p = as_distributions(probabilities)
    sets: npt.NDArray[np.bool_] = p >= _as_share(threshold, "threshold")
    sets[np.arange(len(p)), p.argmax(1)] = True
    return sets


def tail_for_size(probabilities: Any, size: float) -> float:
    """The least tail with which the sets of :func:`cumulative_sets` have at most ``size`` classes on average.

    A set grows from m classes to more when the tail falls below what its first m leave. Sets for which that is equal
    grow together, so the mean size may be less than ``size``, but no tail comes nearer without being larger. Classes of
    probability 0 are never needed: where there are some, the mean size may stay below a large ``size``.

    Args:
        probabilities: Distributions, shape ``(N, K)``, K >= 2.
        size: Mean number of classes, from 1 to K.

    Raises:
        TypeError: If the probabilities are not real numbers.
        ValueError: If they are not distributions, there are none, or ``size`` is out of range.

    Example:
        >>> p = [[0.75, 0.125, 0.125], [0.5, 0.25, 0.25]]
        >>> tail_for_size(p, 1.5)  # the second row takes its second class: a quarter is left to the third
        0.25
    """
    p = as_distributions(probabilities)
    left = np.sort(_left_to_others(_descending(p)), None)[::-1]
    allowed = _classes_beside_the_first(p.shape, size)
    return 0.0 if allowed == len(left) else float(left[allowed])


def cumulative_sets(probabilities: Any, tail: float) -> npt.NDArray[np.bool_]:
    """The fewest, most probable classes that leave at most ``tail`` to the others: their sum reaches 1 - ``tail``.

    What is left is summed from the smallest probability on. It keeps its digits where a sum near 1 has none left, so
    the sets of very sure networks can be told apart. Of classes of equal probability the first is taken first.

    Args:
        probabilities: Distributions, shape ``(N, K)``, K >= 2.
        tail: In [0, 1], for example from :func:`tail_for_size`.

    Returns:
        Whether each class is in the set, shape ``(N, K)``.

    Raises:
        TypeError: If the probabilities are not real numbers.
        ValueError: If they are not distributions, there are none, or ``tail`` is out of range.

    Example:
        >>> cumulative_sets([[0.5, 0.375, 0.125], [0.25, 0.0, 0.75]], 0.25).tolist()
        [[True, True, False], [False, False, True]]
    """
    p = as_distributions(probabilities)
    order = np.argsort(-p, axis=1, kind="stable")
    needed = _left_to_others(np.take_along_axis(p, order, 1)) > _as_share(tail, "tail")
    in_order = np.concatenate([np.ones((len(p), 1), bool), needed], 1)
    sets = np.empty_like(in_order)
    np.put_along_axis(sets, order, in_order, 1)
    return sets


def _descending(p: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.sort(p, 1)[:, ::-1]


def _left_to_others(descending: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Entry m - 1: what the first m classes leave, for m = 1 to K - 1."""
    return np.cumsum(descending[:, :0:-1], 1)[:, ::-1]


def _classes_beside_the_first(shape: tuple[int, ...], size: float) -> int:
    """How many of all rows' further classes may be in, so that the mean size as a float is at most ``size``."""
    rows, classes = shape
    if not 1 <= size <= classes:
        raise ValueError(
            f"size is the mean number of classes in a set, from 1 to {classes} for {classes} classes, found {size!r}."
        )
    total = math.floor(size * rows)  # one too few, or too many, where the product is rounded
    total += (total + 1) / rows <= size
    total -= total / rows > size
    return total - rows


def _as_share(value: float, name: str) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is a probability, in [0, 1], found {value!r}.")
    return value


def _as_sets(classes: Any, labels: Any) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    sets, truth = as_numpy(classes), as_numpy(labels)
    if sets.size == 0:
        raise ValueError("classes is empty: there is nothing to evaluate. Pass at least one set.")
    if sets.dtype != np.bool_:
        raise TypeError(
            f"classes must be boolean, but its dtype is {sets.dtype}. Pass a mask, such as CredalSet.classes gives."
        )
    if sets.ndim != 2 or truth.shape != sets.shape[:1]:
        raise ValueError(
            f"classes must have shape (samples, classes) and labels (samples,), but their shapes are {sets.shape} and "
            f"{truth.shape}."
        )
    if not (full := sets.any(1)).all():
        raise ValueError(
            f"The set of row {int(full.argmin())} is empty. A decision keeps one class at least: where none is to be "
            "ruled out, keep all."
        )
    return sets, as_labels(truth, sets.shape[1])
