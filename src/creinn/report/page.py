"""One self-contained HTML file of headings, text, tables and figures, which opens without a network.

In: sections. Out: a file, written whole or not at all. Plotly's script is inlined once, and the page's own policy
forbids the browser to load anything from elsewhere.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from creinn.report.html import Html, markup
from creinn.report.style import STYLE
from creinn.report.theme import Figure, script
from creinn.tensorfile import write_bytes

Part: TypeAlias = str | Figure


@dataclass(frozen=True)
class Side:
    """Parts that stand side by side where the window is wide enough, each at least ``width`` CSS pixels wide."""

    parts: Sequence["Part | Side"]
    width: int = 320


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it.

    Args:
        heading: Text of the heading.
        parts: Plain text (a paragraph), :class:`Html` (tables, image grids), plotly figures, or :class:`Side`.
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
    writer = _Writer()
    body, links = [], []
    for section in sections:
        anchor = writer.anchor(section.heading)
        links.append(f'<a href="#{anchor}">{markup(section.heading)}</a>')
        parts = "\n".join(writer.part(part, section.heading) for part in section.parts)
        body.append(f'<section id="{anchor}">\n<h2>{markup(section.heading)}</h2>\n{parts}\n</section>')
    inlined = f"<script>{script()}</script>" if writer.figures else ""
    opening = f'<p class="lead">{markup(lead.strip())}</p>' if lead else ""
    navigation = f"<nav>{''.join(links)}</nav>" if len(links) > 1 else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{markup(title)}</title>\n<style>{STYLE}</style>\n{inlined}\n</head>\n"
        f"<body>\n<header>\n<h1>{markup(title)}</h1>\n{opening}\n{navigation}\n</header>\n"
        f"<main>\n{chr(10).join(body)}\n</main>\n</body>\n</html>\n"
    )


_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_CONFIG = {"displaylogo": False, "responsive": True}


class _Writer:
    """Turns parts into markup and numbers the figures and anchors."""

    def __init__(self) -> None:
        self.figures = 0
        self.anchors: set[str] = set()

    def anchor(self, heading: str) -> str:
        base = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "section"
        name, number = base, 2
        while name in self.anchors:
            name, number = f"{base}-{number}", number + 1
        self.anchors.add(name)
        return name

    def part(self, part: Part | Side, heading: str) -> str:
        if isinstance(part, Side):
            if len(part.parts) == 0:
                raise ValueError(f"Section {heading!r} has a row of parts that is empty.")
            inner = "\n".join(f'<div class="item">{self.part(one, heading)}</div>' for one in part.parts)
            return f'<div class="side" style="--least: {part.width}px">\n{inner}\n</div>'
        if isinstance(part, Html):
            return part
        if isinstance(part, str):
            return f"<p>{markup(part.strip())}</p>"
        if isinstance(part, Figure):
            self.figures += 1
            name = f"figure-{self.figures}"
            inner = part.to_html(full_html=False, include_plotlyjs=False, config=_CONFIG, div_id=name)
            return f'<div class="figure">{inner}</div>'
        raise TypeError(
            f"Section {heading!r} has a part of type {type(part).__name__}; parts are text, Html, plotly figures "
            "or Side."
        )


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
