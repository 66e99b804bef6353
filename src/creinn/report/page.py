"""One self-contained HTML file of headings, text, tables and figures, which opens without a network.

In: sections. Out: a file, written whole or not at all. Plotly's script is inlined once, and the page's own policy
forbids the browser to load anything from elsewhere.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from creinn.files import write_bytes
from creinn.report.html import Html, markup
from creinn.report.legend import legend
from creinn.report.style import STYLE
from creinn.report.theme import Figure, script

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
    inlined, last = (f"<script>{text}</script>" if writer.figures else "" for text in (script(), _SCRIPT))
    opening = f'<p class="lead">{markup(lead.strip())}</p>' if lead else ""
    navigation = f"<nav>{''.join(links)}</nav>" if len(links) > 1 else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{markup(title)}</title>\n<style>{STYLE}</style>\n{inlined}\n</head>\n"
        f"<body>\n<header>\n<h1>{markup(title)}</h1>\n{opening}\n{navigation}\n</header>\n"
        f"<main>\n{chr(10).join(body)}\n</main>\n{last}</body>\n</html>\n"
    )


_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_CONFIG = {"displayModeBar": False, "responsive": True}
_SCRIPT = """
document.addEventListener("click", ({ target }) => {
  const entry = target.closest(".legend button");
  if (!entry) return;
  const shown = entry.getAttribute("aria-pressed") === "false";
  entry.setAttribute("aria-pressed", shown);
  for (const plot of entry.closest(".drawn").querySelectorAll(".js-plotly-plot")) {
    const places = [...plot.data.keys()].filter((i) => plot.data[i].name === entry.textContent);
    if (places.length) Plotly.restyle(plot, { visible: shown }, places);
  }
});
const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => Plotly.Plots.resize(target)));
for (const plot of document.querySelectorAll(".js-plotly-plot")) {
  resized.observe(plot);  // a row of figures gets narrower with each that joins it
  if (matchMedia("(pointer: coarse)").matches) Plotly.relayout(plot, { dragmode: false });  // a finger scrolls
}
"""


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
        """Markup of a part, with the legend of its figures below."""
        drawn = list(_figures(part))
        inner = self._inner(part, heading)
        return f'<div class="drawn">\n{inner}\n{legend(drawn)}</div>' if drawn else inner

    def _inner(self, part: Part | Side, heading: str) -> str:
        if isinstance(part, Side):
            if len(part.parts) == 0:
                raise ValueError(f"Section {heading!r} has a row of parts that is empty.")
            inner = "\n".join(f'<div class="item">{self._inner(one, heading)}</div>' for one in part.parts)
            return f'<div class="side" style="--least: {part.width}px">\n{inner}\n</div>'
        if isinstance(part, Html):
            return part
        if isinstance(part, str):
            return f"<p>{markup(part.strip())}</p>"
        if isinstance(part, Figure):
            self.figures += 1
            bare = Figure(part).update_layout(showlegend=False)
            name = f"figure-{self.figures}"
            return bare.to_html(full_html=False, include_plotlyjs=False, config=_CONFIG, div_id=name)
        raise TypeError(
            f"Section {heading!r} has a part of type {type(part).__name__}; parts are text, Html, plotly figures "
            "or Side."
        )


def _figures(part: Part | Side) -> Iterator[Figure]:
    if isinstance(part, Figure):
        yield part
    elif isinstance(part, Side):
        for one in part.parts:
            yield from _figures(one)


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
