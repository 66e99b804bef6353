"""One self-contained HTML file of headings, text, tables and figures, which opens without a network.

In: sections. Out: a file, written whole or not at all. Plotly's script is inlined once, and the page's own policy
forbids the browser to load anything from elsewhere.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from markupsafe import Markup

from creinn.files import write_bytes
from creinn.report.templating import render
from creinn.report.theme import FONT, GRID, Figure, get_plotlyjs

Part: TypeAlias = str | Figure


@dataclass(frozen=True)
class Side:
    """Parts that stand side by side where the window is wide enough, each at least ``width`` CSS pixels wide.

    Figures among them have one legend together, below.
    """

    parts: Sequence["Part | Side"]
    width: int = 300


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it.

    Args:
        heading: Text of the heading.
        parts: Plain text (a paragraph), :class:`markupsafe.Markup` (tables, image grids), plotly figures, or
            :class:`Side`.
    """

    heading: str
    parts: Sequence[Part | Side] = field(default_factory=tuple)


def write_page(path: str | Path, title: str, sections: Sequence[Section], lead: str = "") -> Path:
    """Write the page, replacing one that is there.

    Args:
        path: Name of the file; its folder is created.
        title: Title of the page.
        sections: What is on it, in order.
        lead: A paragraph under the title.

    Returns:
        Path of the file.

    Raises:
        ValueError: If there is no title, no section, or a section without heading or parts.
        TypeError: If a part is neither text nor a figure.
        OSError: If the file cannot be written; a page that was there before is intact.
    """
    path = Path(path)
    write_bytes(path, page_html(title, sections, lead).encode("utf-8"))
    return path


def page_html(title: str, sections: Sequence[Section], lead: str = "") -> str:
    """The page as text; see :func:`write_page`."""
    _check(title, sections)
    anchors = _anchors([section.heading for section in sections])
    shown = [
        (anchor, section.heading, [(part, _figures(part, section.heading)) for part in section.parts])
        for anchor, section in zip(anchors, sections, strict=True)
    ]
    has_figures = any(figures for _, _, parts in shown for _, figures in parts)
    numbers = count(1)

    def draw(figure: Figure) -> Markup:
        bare = Figure(figure).update_layout(showlegend=False)
        name, config = f"figure-{next(numbers)}", {"displayModeBar": False, "responsive": True}
        return Markup(bare.to_html(full_html=False, include_plotlyjs=False, config=config, div_id=name))

    plotly = Markup(get_plotlyjs()) if has_figures else ""
    how = {"draw": draw, "legend": _legend, "plotly": plotly, "FONT": FONT, "GRID": GRID}
    page = render("page.html", title=title, lead=lead, sections=shown, **how)
    return f"{page}\n"


def _anchors(headings: Sequence[str]) -> list[str]:
    """Names of the sections in addresses, no two the same."""
    anchors: list[str] = []
    for heading in headings:
        base = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "section"
        further = (f"{base}-{number}" for number in count(2))
        anchors.append(base if base not in anchors else next(name for name in further if name not in anchors))
    return anchors


def _figures(part: Part | Side, heading: str) -> list[Figure]:
    """Figures of a part; refuses what cannot be shown."""
    if isinstance(part, Side):
        if len(part.parts) == 0:
            raise ValueError(f"Section {heading!r} has a row of parts that is empty.")
        return [figure for one in part.parts for figure in _figures(one, heading)]
    if not isinstance(part, str | Figure):
        raise TypeError(
            f"Section {heading!r} has a part of type {type(part).__name__}; parts are text, Markup, plotly figures "
            "or Side."
        )
    return [part] if isinstance(part, Figure) else []


def _legend(figures: Sequence[Figure]) -> dict[str, Any]:
    """What each name is drawn with, once per name; empty if there is one name only, and nothing to explain."""
    found: dict[str, Any] = {}
    for figure in figures:
        for trace in figure.data:
            if trace.name:
                found.setdefault(trace.name, trace)
    return found if len(found) > 1 or any(trace.hoverinfo == "skip" for trace in found.values()) else {}


def _check(title: str, sections: Sequence[Section]) -> None:
    if not title:
        raise ValueError("A page needs a title, but it is empty.")
    if len(sections) == 0:
        raise ValueError("A page needs at least one section, but there are none.")
    for index, section in enumerate(sections):
        if not section.heading:
            raise ValueError(f"Section {index} has no heading.")
        if len(section.parts) == 0:
            raise ValueError(f"Section {section.heading!r} is empty: it has no text, table or figure.")
