"""One self-contained HTML file of headings, text, tables, figures and images, which opens without a network.

In: sections. Out: a file, written whole or not at all. Plotly's script is inlined once, and the page's own policy
forbids the browser to load anything from elsewhere. Without plotly, importing this module says how to get it.
"""

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from markupsafe import Markup

from creinn.evaluation.checks import as_numpy
from creinn.files import write_bytes
from creinn.report.theme import render, require

try:
    from plotly import graph_objects as go
    from plotly.graph_objects import Figure
    from plotly.offline import get_plotlyjs
except ImportError as error:
    raise ImportError(
        "Reports need plotly, which is not installed. Install it with: pip install creinn[report]"
    ) from error

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
    """A heading, and under it paragraphs of text, Markup (tables, image grids), plotly figures and :class:`Side`."""

    heading: str
    parts: Sequence[Part | Side] = ()


def write_page(path: str | Path, title: str, sections: Sequence[Section], lead: str = "") -> Path:
    """Write the page, with the paragraph ``lead`` under its title, and give its path; replaces one that is there.

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
    if not title:
        raise ValueError("A page needs a title, but it is empty.")
    if len(sections) == 0:
        raise ValueError("A page needs at least one section, but there are none.")
    shown: dict[str, tuple[str, list[tuple[Part | Side, list[Figure]]]]] = {}
    for index, section in enumerate(sections):
        if not section.heading:
            raise ValueError(f"Section {index} has no heading.")
        if len(section.parts) == 0:
            raise ValueError(
                f"Section {section.heading!r} is empty: it has no text, table or figure."
            )
        base = re.sub(r"[^a-z0-9]+", "-", section.heading.lower()).strip("-") or "section"
        names = (base if number == 1 else f"{base}-{number}" for number in count(1))
        anchor = next(name for name in names if name not in shown)
        shown[anchor] = (
            section.heading,
            [(part, _figures(part, section.heading)) for part in section.parts],
        )
    numbers = count(1)

    def draw(figure: Figure) -> Markup:
        bare = go.Figure(figure).update_layout(showlegend=False)
        name, config = f"figure-{next(numbers)}", {"displayModeBar": False, "responsive": True}
        return Markup(
            bare.to_html(full_html=False, include_plotlyjs=False, config=config, div_id=name)
        )

    has_figures = any(figures for _, parts in shown.values() for _, figures in parts)
    plotly = Markup(get_plotlyjs()) if has_figures else ""
    page = render(
        "page.html",
        title=title,
        lead=lead,
        sections=shown,
        draw=draw,
        legend=_legend,
        plotly=plotly,
    )
    return f"{page}\n"


def _figures(part: Part | Side, heading: str) -> list[Figure]:
    """Figures of a part; refuses what cannot be shown."""
    if isinstance(part, Side):
        if len(part.parts) == 0:
            raise ValueError(f"Section {heading!r} has a row of parts that is empty.")
        return [figure for one in part.parts for figure in _figures(one, heading)]
    if not isinstance(part, str | Figure):
        found = f"Section {heading!r} has a part of type {type(part).__name__}"
        raise TypeError(f"{found}; parts are text, Markup, plotly figures or Side.")
    return [part] if isinstance(part, Figure) else []


def _legend(figures: Sequence[Figure]) -> dict[str, Any]:
    """What each name is drawn with, once per name; empty if there is one name only, and nothing to explain."""
    found: dict[str, Any] = {}
    for trace in (trace for figure in figures for trace in figure.data if trace.name):
        found.setdefault(trace.name, trace)
    return (
        found
        if len(found) > 1 or any(trace.hoverinfo == "skip" for trace in found.values())
        else {}
    )


def image_grid(
    images: Sequence[Any], captions: Sequence[str], details: Sequence[str] = (), size: int = 88
) -> Markup:
    """Images ``size`` CSS pixels wide, each with a caption under it and a detail, such as bars, beside it; by Pillow.

    Images are arrays or tensors ``(height, width)``, ``(1, height, width)`` or ``(3, height, width)``; bytes, or
    numbers in [0, 1]. Captions and details are text or Markup.

    Raises:
        ValueError: If there are no images, the lengths differ, or an image has another shape or range.
    """
    require(images, "images")
    if len(captions) != len(images) or len(details) not in (0, len(images)):
        counts = f"{len(images)} images, {len(captions)} captions and {len(details)} details"
        raise ValueError(
            f"There must be one caption, and one detail or none, per image, but there are {counts}."
        )
    cells = zip(map(data_uri, images), captions, details or [""] * len(images), strict=True)
    return render("images.html", cells=cells, size=size)


def interval_bars(lower: Any, upper: Any, point: Any, names: Sequence[str]) -> Markup:
    """Probability intervals of one prediction, a bar per class, with marks at a distribution ``point`` within them.

    Raises:
        ValueError: If there are no classes, or the lengths differ.
    """
    bounds = [as_numpy(values).astype(float) for values in (lower, upper, point)]
    if len(names) == 0 or any(values.shape != (len(names),) for values in bounds):
        found = f"the shapes are {', '.join(str(values.shape) for values in bounds)} for {len(names)} classes"
        raise ValueError(
            f"Bars need one lower bound, upper bound and point per class, but {found}."
        )
    return render("bars.html", rows=list(zip(names, *bounds, strict=True)))


def data_uri(image: Any, most: int | None = None) -> str:
    """An image as a ``data:`` address that holds a PNG; takes and refuses what :func:`image_grid` does.

    One that is higher or wider than ``most`` pixels is shrunk to these, and is a WebP.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "Images on a page need Pillow, which is not installed. Install it with: pip install creinn[report]"
        ) from error
    pixels = as_numpy(image)
    if pixels.ndim == 3 and len(pixels) == 1:
        pixels = pixels[0]
    if (pixels.ndim != 2 and (pixels.ndim != 3 or len(pixels) != 3)) or pixels.size == 0:
        allowed = "(height, width), (1, height, width) or (3, height, width)"
        raise ValueError(f"An image must have shape {allowed}, not {pixels.shape}.")
    if pixels.dtype != np.uint8:
        if not ((pixels >= 0) & (pixels <= 1)).all():
            found = f"run from {pixels.min():g} to {pixels.max():g}. Undo the normalisation first"
            raise ValueError(f"Pixels must be bytes or numbers in [0, 1], but {found}.")
        pixels = (pixels * 255).round().astype(np.uint8)
    picture = Image.fromarray(pixels if pixels.ndim == 2 else pixels.transpose(1, 2, 0))
    kind, options = "png", dict[str, Any](optimize=True)
    if most is not None and max(picture.size) > most:
        picture.thumbnail((most, most))
        kind, options = "webp", {"quality": 80}
    written = io.BytesIO()
    picture.save(written, kind, **options)
    return f"data:image/{kind};base64," + base64.b64encode(written.getvalue()).decode("ascii")
