"""Common style of the reports: colors, fonts and jinja2 templates.

The colors have a contrast of at least 3 on light and dark pages.
"""

import math
from collections.abc import Sized
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

INK, FAINT, GRID, CLEAR = "#1f2933", "#76808d", "rgba(128, 138, 150, 0.25)", "rgba(0, 0, 0, 0)"
PALETTE = ("#3577c4", "#cf6a1f", "#2f8f5b", "#9465bd", "#cf4a5c", "#2b8c9b", "#977545", "#76808d")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

_TEMPLATES = Environment(
    loader=PackageLoader("creinn.report"),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals.update(INK=INK, FAINT=FAINT, GRID=GRID, CLEAR=CLEAR, PALETTE=PALETTE, FONT=FONT)
_TEMPLATES.globals["log"] = math.log


def color(index: int) -> str:
    """Return a color of the palette, in turn."""
    return PALETTE[index % len(PALETTE)]


def translucent(shade: str, opacity: float) -> str:
    """Make a color translucent."""
    return f"rgba{(*bytes.fromhex(shade[1:]), opacity)}"


def render(template: str, **values: Any) -> Markup:
    """Render a template."""
    return Markup(_TEMPLATES.get_template(template).render(values))


def texts(template: str, **values: Any) -> dict[str, str]:
    """Return the texts of a template by name."""
    found = vars(_TEMPLATES.get_template(template).make_module(values)).items()
    return {name: " ".join(str(text).split()) for name, text in found if name[0] != "_"}


def require(values: Sized, name: str) -> None:
    """Raise a ``ValueError`` if ``values`` is empty."""
    if len(values) == 0:
        raise ValueError(f"Nothing to draw: {name} is empty.")


def plotly() -> Any:
    """Import ``plotly.graph_objects``."""
    try:
        from plotly import graph_objects
    except ImportError as error:
        raise ImportError("Reports require plotly: pip install creinn[report]") from error
    return graph_objects
