"""Credal sets drawn in the triangle of three probabilities.

In: one credal set of three classes, or of more together with the two that get a corner of their own. Out: a figure
with the polygon of the set, the lines of its bounds and the intersection probability, as in the paper's figure of
redundant and reachable bounds.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from creinn.credal.credal_set import CredalSet
from creinn.evaluation.checks import as_numpy
from creinn.report.figures import figure
from creinn.report.page import Figure
from creinn.report.theme import FAINT, PALETTE, translucent

Points = npt.NDArray[np.float64]


def simplex(
    credal_set: CredalSet, names: Sequence[str], given: tuple[Any, Any] | None = None, height: int = 400
) -> Figure:
    """Draw one credal set of three classes in a triangle whose corners have ``names``.

    Dotted lines show bounds as ``given``, before they were made reachable. Merge further classes by :func:`coarsen`.

    Raises:
        ValueError: If the set is not one set of three classes, or there are not three names.
    """
    if tuple(credal_set.lower.shape) != (3,) or len(names) != 3:
        raise ValueError(
            f"The simplex shows one set of three named classes, but the bounds have shape "
            f"{tuple(credal_set.lower.shape)} and there are {len(names)} names. Pick one row, and merge classes with "
            f"coarsen()."
        )
    axes = {f"{axis}axis": {"title_text": name} for axis, name in zip("abc", names, strict=True)}
    drawing = figure(height=height, ternary={"sum": 1, **axes}, margin={"l": 60, "r": 60, "t": 40, "b": 45})

    def add(name: str, points: Points, mode: str, **options: Any) -> None:
        """A trace through ``points`` of shape ``(n, 3)``; a row of NaN breaks the line."""
        a, b, c = np.where(np.isnan(points), None, points).T
        hover = "%{a:.3f}, %{b:.3f}, %{c:.3f}"
        drawing.add_scatterternary(a=a, b=b, c=c, name=name, mode=mode, hovertemplate=hover, **options)

    if given is not None:
        line = {"color": FAINT, "width": 1, "dash": "dot"}
        add("bounds as given", _bound_lines(*given), "lines", line=line, connectgaps=False)
    line = {"color": PALETTE[0], "width": 1, "dash": "dash"}
    add("reachable bounds", _bound_lines(credal_set.lower, credal_set.upper), "lines", line=line, connectgaps=False)
    line = {"color": PALETTE[0], "width": 2}
    fill = {"fill": "toself", "fillcolor": translucent(PALETTE[0], 0.25), "marker": {"size": 5}}
    add("credal set", _outline(as_numpy(credal_set.vertices())), "lines+markers", line=line, **fill)
    diamond = {"color": PALETTE[1], "size": 10, "symbol": "diamond", "line": {"color": "white", "width": 1}}
    add("intersection probability", as_numpy(credal_set.intersection)[None], "markers", marker=diamond)
    return drawing


def coarsen(credal_set: CredalSet, first: int, second: int) -> CredalSet:
    r"""The set of ``(q_first, q_second, everything else together)``, exactly.

    For a set of probability intervals the sums over a group of classes fill
    :math:`[\sum \underline q_j, \sum \overline q_j]` as far as :math:`\sum q = 1` lets them, so that the image under
    merging classes is again a set of probability intervals; nothing is lost or added.

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


def _bound_lines(lower: Any, upper: Any) -> Points:
    """Ends of the lines ``q_k = bound`` across the triangle, with a NaN row after each; class by class."""
    rows = []
    for k, bounds in enumerate(zip(as_numpy(lower), as_numpy(upper), strict=True)):
        others = [j for j in range(3) if j != k]
        for bound in np.clip(bounds, 0, 1):
            ends = np.zeros((2, 3))
            ends[:, k] = bound
            ends[[0, 1], others] = 1 - bound
            rows.extend([*ends, np.full(3, np.nan)])
    return np.array(rows)


def _outline(vertices: Points) -> Points:
    """Vertices of a convex polygon in the order of its outline, the first again at the end."""
    x, y = vertices[:, 1] - vertices[:, 2], vertices[:, 0] * np.sqrt(3)  # an equilateral triangle
    around = vertices[np.argsort(np.arctan2(y - y.mean(), x - x.mean()), kind="stable")]
    return np.concatenate([around, around[:1]])
