"""The legend of one figure or several, as text that wraps: what a name is drawn with, once per name.

An entry is a button, by which the page's script shows and hides what it names, in all of the figures; that of a trace
with ``hoverinfo="skip"``, which only explains, is plain text.
"""

from collections.abc import Sequence
from typing import Any

from creinn.report.html import Html, markup
from creinn.report.theme import Figure

_DASHES = {"dash": ' stroke-dasharray="5 3"', "dot": ' stroke-dasharray="2 3"'}


def legend(figures: Sequence[Figure]) -> Html:
    """Markup of the legend; empty if there is one name only, and nothing to explain."""
    found: dict[str, Any] = {}
    for figure in figures:
        for trace in figure.data:
            if trace.name:
                found.setdefault(trace.name, trace)
    if len(found) < 2 and not any(map(_explains, found.values())):
        return Html("")
    entries = "\n".join(_entry(name, trace) for name, trace in found.items())
    return Html(f'<div class="legend">\n{entries}\n</div>\n')


def _entry(name: str, trace: Any) -> str:
    inner = f"{_swatch(trace)}{markup(name)}"
    if _explains(trace):
        return f"<span>{inner}</span>"
    return f'<button type="button" aria-pressed="true">{inner}</button>'


def _explains(trace: Any) -> bool:
    return trace.hoverinfo == "skip"


def _swatch(trace: Any) -> str:
    """A small picture of how a trace is drawn."""
    if trace.type == "bar" or trace.fill:
        fill = trace.marker.color if trace.type == "bar" else trace.fillcolor
        shape = f'<rect x="3" y="1" width="12" height="10" fill="{fill}" stroke="{_stroke(trace)}"/>'
    elif trace.mode == "markers":
        shape = f'<path d="M9 1l5 5l-5 5l-5-5z" fill="{trace.marker.color}"/>'
    else:
        dashes = _DASHES.get(trace.line.dash, "")
        shape = f'<path d="M0 6h18" stroke="{trace.line.color}" stroke-width="2"{dashes}/>'
    return f'<svg width="18" height="12" viewBox="0 0 18 12" aria-hidden="true">{shape}</svg>'


def _stroke(trace: Any) -> str:
    line = trace.marker.line if trace.type == "bar" else trace.line
    return line.color or trace.marker.color
