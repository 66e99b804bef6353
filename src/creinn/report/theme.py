"""How every figure looks: plotly, one palette, one plain template, for light pages and dark ones.

Backgrounds are transparent, and the palette has a contrast of 3 or more with either page. Text is dark here; on a page
the style sheet gives it the colour of the scheme.

Plotly is an optional dependency; importing this module without it says how to get it.
"""

from collections.abc import Sequence, Sized

try:
    import plotly.graph_objects as go
    from plotly.graph_objects import Figure
    from plotly.offline import get_plotlyjs as get_plotlyjs
except ImportError as error:
    raise ImportError(
        "Reports need plotly, which is not installed. Install it with: pip install creinn[report]"
    ) from error

INK, FAINT, GRID, CLEAR = "#1f2933", "#76808d", "rgba(128, 138, 150, 0.25)", "rgba(0, 0, 0, 0)"
PALETTE = ("#3577c4", "#cf6a1f", "#2f8f5b", "#9465bd", "#cf4a5c", "#2b8c9b", "#977545", "#76808d")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

_AXIS = {
    "showline": True,
    "linecolor": FAINT,
    "ticks": "outside",
    "tickcolor": FAINT,
    "gridcolor": GRID,
    "zeroline": False,
    "automargin": True,
    "title": {"standoff": 8, "font": {"size": 13}},
}
_TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "colorway": PALETTE,
        "title": {"font": {"size": 14}, "x": 0.5, "xanchor": "center", "y": 1, "yanchor": "top", "pad": {"t": 14}},
        "margin": {"l": 50, "r": 24, "t": 40, "b": 40},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": -0.25, "yanchor": "top"},
        "hoverlabel": {"font": {"family": FONT}},
    }
)


def color(index: int) -> str:
    """Colour number ``index`` of the palette, which repeats."""
    return PALETTE[index % len(PALETTE)]


def translucent(hex_color: str, opacity: float) -> str:
    """A colour ``#rrggbb`` with an opacity, as CSS.

    Example:
        >>> translucent("#2563a8", 0.25)
        'rgba(37, 99, 168, 0.25)'
    """
    red, green, blue = (int(hex_color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"


def figure(title: str = "", height: int = 320) -> Figure:
    """An empty figure in the common style."""
    return Figure(layout={"template": _TEMPLATE, "height": height, "title": {"text": title}})


def explained(name: str, dash: str, x: Sequence[float | None] = (None,)) -> go.Scatter:
    """What a kind of line means, for the legend: a grey line through ``(x, x)``, or none."""
    return go.Scatter(x=x, y=x, name=name, mode="lines", hoverinfo="skip", line={"color": FAINT, "dash": dash})


def require(values: Sized, name: str) -> None:
    """Refuse to draw nothing.

    Raises:
        ValueError: If ``values`` is empty.
    """
    if len(values) == 0:
        raise ValueError(f"There is nothing to draw: {name} is empty.")
