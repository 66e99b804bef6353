"""Plots of an evaluation with matplotlib; each function returns the axes.

A prediction is a :class:`creinn.CredalSet` or an object with its
attributes.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from creinn.credal.plot import axes_or_new
from creinn.evaluation import ood_detection, reliability, summary
from creinn.evaluation.arrays import as_numpy
from creinn.report.theme import FAINT, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_rejection(prediction: Any, labels: Any, ax: Any = None) -> "Axes":
    """Plot the accuracy if uncertain rows are rejected, with the AUARC.

    Args:
        prediction: Prediction of the rows.
        labels: True classes ``(rows,)``.
        ax: The axes. The default is a new figure.
    """
    ax = axes_or_new(ax)
    for name, curve in summary.rejection(prediction, labels).items():
        label = f"{summary.MEASURES[name]}, AUARC {curve.area:.3f}"
        ax.plot(curve.rejection, curve.accuracy, label=label)
    ax.set(xlabel="share of rejected rows", ylabel="accuracy of the other rows", xlim=(0, 1))
    ax.legend()
    return ax


def plot_ood(
    inside: Any, outside: Any, by: str = "epistemic", bins: int = 40, ax: Any = None
) -> "Axes":
    """Plot histograms of an uncertainty, with the AUROC of OOD detection.

    Args:
        inside: Prediction of in-distribution data.
        outside: Prediction of out-of-distribution data, or several by
            name.
        by: ``"aleatoric"``, ``"epistemic"`` or ``"total"``.
        bins: Number of bins.
        ax: The axes.
    """
    if by not in summary.MEASURES:
        raise ValueError(f"by must be one of {', '.join(summary.MEASURES)}; got {by!r}.")
    groups = outside if isinstance(outside, Mapping) else {"out of distribution": outside}
    known = as_numpy(getattr(inside, by))
    scores = {"in distribution": known}
    for name, prediction in groups.items():
        score = as_numpy(getattr(prediction, by))
        scores[f"{name}, AUROC {ood_detection(known, score).auroc:.3f}"] = score
    ax = axes_or_new(ax)
    edges = np.histogram_bin_edges(np.concatenate(list(scores.values())), bins)
    for label, score in scores.items():
        ax.hist(score, edges, weights=np.full(len(score), 1 / len(score)), alpha=0.5, label=label)
    ax.set(xlabel=f"{by} uncertainty", ylabel="share of rows")
    ax.legend()
    return ax


def plot_reliability(prediction: Any, labels: Any, bins: int = 15, ax: Any = None) -> "Axes":
    """Plot the accuracy in bins of the probability of the label.

    The arguments are as in :func:`plot_rejection`.
    """
    found = reliability(prediction.probabilities, labels, bins, prediction.label)
    ax = axes_or_new(ax)
    left, width = found.edges[:-1], np.diff(found.edges)
    ax.bar(left, found.accuracy, width, align="edge", color=PALETTE[0], alpha=0.5, edgecolor="w")
    ax.plot([0, 1], [0, 1], "--", color=FAINT)
    ax.set(xlabel="probability of the label", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    return ax
