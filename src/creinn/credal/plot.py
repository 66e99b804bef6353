"""Plots of credal sets with matplotlib."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from creinn.credal.probability import intersection_probability, vertices

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 10
CORNERS = ((0.0, 0.0), (1.0, 0.0), (0.5, 0.75**0.5))  # an equilateral triangle


def axes_or_new(ax: Any = None) -> "Axes":
    """Return the axes, or those of a new figure."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install creinn[plots]") from error
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def plot_credal_sets(
    lower: Tensor, upper: Tensor, names: Sequence[str] | None = None, ax: Any = None
) -> "Axes":
    """Plot reachable bounds; see :meth:`creinn.CredalSet.plot`."""
    count, shape = lower.shape[-1], tuple(lower.shape)
    names = [str(k) for k in range(count)] if names is None else names
    if lower.ndim > 2 or not 1 <= lower[..., 0].numel() <= MOST_ROWS:
        raise ValueError(f"Expected 1 to {MOST_ROWS} rows, got {shape}. Use s[:{MOST_ROWS}].")
    if len(names) != count:
        raise ValueError(f"Expected {count} names, got {len(names)}.")
    low, high = (bound.detach().cpu().double().reshape(-1, count) for bound in (lower, upper))
    ax, draw = axes_or_new(ax), _plot_simplex if count == 3 else _plot_intervals
    labels = [f"row {row}" for row in range(len(low))] if len(low) > 1 else [None]
    draw(low, high, names, labels, ax)
    if len(low) > 1:
        ax.legend()
    return ax


def outline(lower: Tensor, upper: Tensor) -> Tensor:
    """Return the vertices of a set of three classes, sorted by angle."""
    corners = vertices(lower.detach(), upper.detach())
    x, y = ((corners - corners.mean(0)) @ corners.new_tensor(CORNERS)).T
    return corners[torch.atan2(y, x).argsort()]


def _plot_intervals(
    low: Tensor, high: Tensor, names: Sequence[str], labels: Sequence[str | None], ax: "Axes"
) -> None:
    middle, width = intersection_probability(low, high), 0.8 / len(low)
    for row, label in enumerate(labels):
        x = torch.arange(len(names)) + width * (row - (len(low) - 1) / 2)
        heights, color = (high - low)[row], f"C{row}"
        ax.bar(x, heights, 0.9 * width, low[row], color=color, alpha=0.4, label=label)
        ax.plot(x, middle[row], "D", color=color, markersize=4)
    ax.set(xlabel="class", ylabel="probability", ylim=(-0.02, 1.02))
    ax.set_xticks(range(len(names)), names)


def _plot_simplex(
    low: Tensor, high: Tensor, names: Sequence[str], labels: Sequence[str | None], ax: "Axes"
) -> None:
    corners = torch.tensor(CORNERS, dtype=torch.float64)
    middle = intersection_probability(low, high) @ corners
    ax.fill(*corners.T, facecolor="none", edgecolor="grey")
    for row, label in enumerate(labels):
        polygon, color = outline(low[row], high[row]) @ corners, f"C{row}"
        ax.fill(*polygon.T, facecolor=color, edgecolor=color, alpha=0.4, label=label)
        ax.plot(*middle[row], "D", color=color)
    for name, corner in zip(names, CORNERS, strict=True):
        offset = (0, 6 if corner[1] else -16)
        ax.annotate(name, corner, offset, textcoords="offset points", ha="center")
    ax.set_aspect("equal")
    ax.axis("off")
