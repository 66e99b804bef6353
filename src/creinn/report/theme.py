"""How everything in a report looks: colours, letters, and jinja2 templates, for light pages and dark ones.

The palette has a contrast of 3 or more with either page. Templates escape text and trust :class:`markupsafe.Markup`.
"""

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
_TEMPLATES.globals |= {
    "INK": INK,
    "FAINT": FAINT,
    "GRID": GRID,
    "CLEAR": CLEAR,
    "PALETTE": PALETTE,
    "FONT": FONT,
}


def color(index: int) -> str:
    """Colour number ``index`` of the palette, which repeats."""
    return PALETTE[index % len(PALETTE)]


def render(template: str, **values: Any) -> Markup:
    """Markup of an HTML template."""
    return Markup(_TEMPLATES.get_template(template).render(values))


def texts(template: str, **values: Any) -> dict[str, str]:
    """The texts that a template sets, by name, each in one line."""
    module = _TEMPLATES.get_template(template).make_module(values)
    return {
        name: " ".join(str(text).split())
        for name, text in vars(module).items()
        if not name.startswith("_")
    }


def require(values: Sized, name: str) -> None:
    """Raise a ``ValueError`` if there is nothing to draw."""
    if len(values) == 0:
        raise ValueError(f"There is nothing to draw: {name} is empty.")
