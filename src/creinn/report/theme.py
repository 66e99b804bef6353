"""How every figure looks: plotly, one palette, one plain template.

Plotly is an optional dependency; importing this module without it says how to get it.
"""

from collections.abc import Sized
from typing import Any

try:
    import plotly.graph_objects as go
    from plotly.graph_objects import Figure
    from plotly.offline import get_plotlyjs
    from plotly.subplots import make_subplots
except ImportError as error:
    raise ImportError(
        "Reports need plotly, which is not installed. Install it with: pip install creinn[report]"
    ) from error

INK, FAINT, GRID = "#1f2933", "#6b7280", "#e5e7eb"
PALETTE = ("#2563a8", "#c8641b", "#2f8f5b", "#7c4fa0", "#b83a4b", "#2b8c9b", "#8a6a3b", "#6b7280")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

_AXIS = {
    "showline": True,
    "linecolor": FAINT,
    "ticks": "outside",
    "tickcolor": FAINT,
    "gridcolor": GRID,
    "zeroline": False,
    "automargin": True,
    "title": {"standoff": 8},
}
_TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "colorway": PALETTE,
        "margin": {"l": 60, "r": 20, "t": 70, "b": 50},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.1, "yanchor": "bottom"},
        "hoverlabel": {"font": {"family": FONT}},
    }
)


def script() -> str:
    """Plotly's own script, about 5 MB, to be inlined once per page."""
    return get_plotlyjs()


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


def figure(height: int = 380, **layout: Any) -> Figure:
    """An empty figure in the common style."""
    return Figure(layout={"template": _TEMPLATE, "height": height, **layout})


def panels(titles: list[str], columns: int, height: int = 300, **options: Any) -> Figure:
    """An empty figure of panels, row by row, each of ``height`` pixels; ``options`` go to ``make_subplots``."""
    rows = -(-len(titles) // columns)
    spacing = {"horizontal_spacing": 0.24 / columns, "vertical_spacing": min(0.3, 90 / (rows * height))}
    grid = make_subplots(rows=rows, cols=columns, subplot_titles=titles, **(spacing | options))
    grid.update_layout(template=_TEMPLATE, height=rows * height + 100)
    grid.update_annotations(font={"size": 14, "color": INK})
    return grid


def place(index: int, columns: int) -> dict[str, int]:
    """Row and column, from 1, of panel number ``index``."""
    return {"row": index // columns + 1, "col": index % columns + 1}


def require(values: Sized, name: str) -> None:
    """Refuse to draw nothing.

    Raises:
        ValueError: If ``values`` is empty.
    """
    if len(values) == 0:
        raise ValueError(f"There is nothing to draw: {name} is empty.")
