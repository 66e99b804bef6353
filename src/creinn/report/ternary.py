r"""Credal sets drawn in the triangle of three probabilities.

In: one credal set of three classes, or of more classes together with the two that get a corner of their own. Out: a
plotly figure with the polygon of the set, the lines of its bounds and the intersection probability, as in the figure
of the paper that shows redundant and reachable bounds.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from creinn.credal.credal_set import CredalSet
from creinn.report.theme import CLEAR, FAINT, GRID, PALETTE, Figure, figure, go, translucent


def simplex(
    credal_set: CredalSet, names: Sequence[str], given: tuple[Any, Any] | None = None, height: int = 400
) -> Figure:
    """Draw one credal set of three classes.

    Args:
        credal_set: The set, with bounds of shape ``(3,)``.
        names: Names of the corners.
        given: Lower and upper bounds before they were made reachable, drawn dotted.
        height: Pixels.

    Raises:
        ValueError: If the set is not one set of three classes, or there are not three names. Use :func:`coarsen` first
            if there are more classes.
    """
    if tuple(credal_set.lower.shape) != (3,) or len(names) != 3:
        raise ValueError(
            f"The simplex shows one set of three named classes, but the bounds have shape "
            f"{tuple(credal_set.lower.shape)} and there are {len(names)} names. Pick one row, and merge classes with "
            f"coarsen()."
        )
    lower, upper = _numbers(credal_set.lower), _numbers(credal_set.upper)
    drawing = figure(height=height)
    if given is not None:
        drawing.add_trace(_lines("bounds as given", _bound_lines(*map(_numbers, given)), FAINT, "dot"))
    drawing.add_trace(_lines("reachable bounds", _bound_lines(lower, upper), PALETTE[0], "dash"))
    outline = _around(_numbers(credal_set.vertices()))
    drawing.add_trace(
        _ternary(
            np.concatenate([outline, outline[:1]]),
            name="credal set",
            mode="lines+markers",
            fill="toself",
            fillcolor=translucent(PALETTE[0], 0.25),
            line={"color": PALETTE[0], "width": 2},
            marker={"size": 5},
        )
    )
    drawing.add_trace(
        _ternary(
            _numbers(credal_set.intersection)[None],
            name="intersection probability",
            mode="markers",
            marker={"color": PALETTE[1], "size": 10, "symbol": "diamond", "line": {"color": "white", "width": 1}},
        )
    )
    axes = {
        f"{axis}axis": {
            "title": {"text": name, "font": {"size": 13}},
            "min": 0,
            "showline": True,
            "linecolor": FAINT,
            "gridcolor": GRID,
            "tickfont": {"size": 10},
            "tickvals": [0.25, 0.5, 0.75],
        }
        for axis, name in zip("abc", names, strict=True)
    }
    drawing.update_layout(
        ternary={"sum": 1, "bgcolor": CLEAR, **axes},
        margin={"l": 60, "r": 60, "t": 40, "b": 45},
    )
    return drawing


def coarsen(credal_set: CredalSet, first: int, second: int) -> CredalSet:
    r"""The set of ``(q_first, q_second, everything else together)``, exactly.

    For a set of probability intervals the sums over a group of classes fill
    :math:`[\sum \underline q_j, \sum \overline q_j]` as far as :math:`\sum q = 1` lets them, so that the image under
    merging classes is again a set of probability intervals; nothing is lost or added.

    Args:
        credal_set: One set of at least three classes.
        first: A class.
        second: Another class.

    Raises:
        ValueError: If the bounds are not a vector of at least three classes, or the classes are not two different ones.

    Example:
        >>> s = CredalSet(torch.tensor([0.1, 0.2, 0.1, 0.1]), torch.tensor([0.5, 0.6, 0.2, 0.2]))
        >>> coarsen(s, 0, 1).lower, coarsen(s, 0, 1).upper
        (tensor([0.1000, 0.2000, 0.2000]), tensor([0.5000, 0.6000, 0.4000]))
    """
    lower, upper = credal_set.lower, credal_set.upper
    if lower.ndim != 1 or len(lower) < 3:
        raise ValueError(f"Expected one set of at least three classes, but the bounds have shape {tuple(lower.shape)}.")
    if first == second or not (0 <= first < len(lower) and 0 <= second < len(lower)):
        raise ValueError(
            f"The classes must be two different ones of 0 .. {len(lower) - 1}, but are {first} and {second}."
        )
    rest = [index for index in range(len(lower)) if index not in (first, second)]

    def merged(bound: Tensor) -> Tensor:
        return torch.stack([bound[first], bound[second], bound[rest].sum()])

    return CredalSet(merged(lower), merged(upper).clamp_max(1))


def _numbers(values: Any) -> npt.NDArray[np.float64]:
    return torch.as_tensor(values).detach().cpu().double().numpy()


def _ternary(points: npt.NDArray[np.float64], **options: Any) -> go.Scatterternary:
    """A trace through ``points`` of shape ``(n, 3)``; a row of NaN breaks the line."""
    a, b, c = ([None if np.isnan(value) else float(value) for value in column] for column in points.T)
    return go.Scatterternary(a=a, b=b, c=c, hovertemplate="%{a:.3f}, %{b:.3f}, %{c:.3f}", **options)


def _lines(name: str, points: npt.NDArray[np.float64], color: str, dash: str) -> go.Scatterternary:
    line = {"color": color, "width": 1, "dash": dash}
    return _ternary(points, name=name, mode="lines", line=line, connectgaps=False)


def _bound_lines(lower: npt.NDArray[np.float64], upper: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Ends of the lines ``q_k = bound`` across the triangle, with a NaN row after each; class by class."""
    rows = []
    for k in range(3):
        others = [j for j in range(3) if j != k]
        for bound in np.clip((lower[k], upper[k]), 0, 1):
            ends = np.zeros((2, 3))
            ends[:, k] = bound
            ends[[0, 1], others] = 1 - bound
            rows.extend([*ends, np.full(3, np.nan)])
    return np.array(rows)


def _around(vertices: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Vertices of a convex polygon in the order of its outline."""
    x, y = vertices[:, 1] - vertices[:, 2], vertices[:, 0] * np.sqrt(3)  # an equilateral triangle
    return vertices[np.argsort(np.arctan2(y - y.mean(), x - x.mean()), kind="stable")]
