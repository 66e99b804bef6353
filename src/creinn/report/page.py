"""HTML pages with text, tables, figures and images in a single file.

The file can be opened without a network: the script of plotly is part of it, and its content
security policy does not allow other sources.
"""

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from creinn.evaluation.checks import as_numpy
from creinn.files import write_bytes
from creinn.report.theme import plotly, render, require

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Part: TypeAlias = "str | Figure | Side"


@dataclass(frozen=True)
class Side:
    """Parts that are shown side by side if the window is wide enough.

    Args:
        parts: The parts. The figures have a common legend.
        width: The minimum width of a part in CSS pixels.
    """

    parts: Sequence[Part]
    width: int = 300


@dataclass(frozen=True)
class Section:
    """A section of a page with text, markup (tables, images), figures and :class:`Side`."""

    heading: str
    parts: Sequence[Part] = ()


def write_page(path: str | Path, title: str, sections: Sequence[Section], lead: str = "") -> Path:
    """Write a page and return its path; an existing file is replaced.

    Args:
        path: The path of the file.
        title: The title of the page.
        sections: The sections of the page, at least one.
        lead: The first paragraph of the page.

    Raises:
        ValueError: If the title, the sections, a heading or the parts of a section are empty.
        TypeError: If a part is not text or a figure.
        OSError: If the file cannot be written. An existing file is not changed in this case.
    """
    path = Path(path)
    write_bytes(path, page_html(title, sections, lead).encode("utf-8"))
    return path


def page_html(title: str, sections: Sequence[Section], lead: str = "") -> str:
    """Return the page as a string; see :func:`write_page`."""
    if not title or not sections:
        raise ValueError("The page must have a title and at least one section.")
    shown: dict[str, tuple[str, list[tuple[Part, list[Figure]]]]] = {}
    for section in sections:
        if not section.heading or not section.parts:
            raise ValueError(
                f"Section {section.heading!r} must have a heading and at least one part."
            )
        parts = [(part, _figures(part, section.heading)) for part in section.parts]
        anchor = re.sub(r"[^a-z0-9]+", "-", section.heading.lower()).strip("-") or "section"
        names = (anchor if number == 1 else f"{anchor}-{number}" for number in count(1))
        shown[next(name for name in names if name not in shown)] = section.heading, parts
    has_figures = any(figures for _, parts in shown.values() for _, figures in parts)
    numbers = count(1)

    def draw(figure: "Figure") -> Markup:
        bare = plotly().Figure(figure).update_layout(showlegend=False)
        config = {"displayModeBar": False, "responsive": True}
        options = {"full_html": False, "include_plotlyjs": False, "config": config}
        return Markup(bare.to_html(**options, div_id=f"figure-{next(numbers)}"))

    script = _script() if has_figures else ""
    content = {"title": title, "lead": lead, "sections": shown}
    return f"{render('page.html', **content, draw=draw, legend=_legend, plotly=script)}\n"


def _script() -> Markup:
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())


def _figures(part: Part, heading: str) -> list["Figure"]:
    """Return the figures of a part, and check its type."""
    if isinstance(part, Side):
        if len(part.parts) == 0:
            raise ValueError(f"Section {heading!r} has a Side without parts.")
        return [figure for one in part.parts for figure in _figures(one, heading)]
    if isinstance(part, str):
        return []
    if not hasattr(part, "to_plotly_json"):
        raise TypeError(
            f"Section {heading!r} has a part of type {type(part).__name__}. Parts are text, plotly "
            "figures or Side."
        )
    return [part]


def _legend(figures: Sequence["Figure"]) -> dict[str, Any]:
    """Return a trace for each name, or nothing if a legend is not necessary."""
    found: dict[str, Any] = {}
    for trace in (trace for figure in figures for trace in figure.data if trace.name):
        found.setdefault(trace.name, trace)
    explains = any(trace.hoverinfo == "skip" for trace in found.values())
    return found if len(found) > 1 or explains else {}


def image_grid(
    images: Sequence[Any], captions: Sequence[str], details: Sequence[str] = (), size: int = 88
) -> Markup:
    """Return a grid of images with captions; this requires Pillow.

    Args:
        images: Arrays or tensors of shape ``(height, width)``, ``(1, height, width)`` or
            ``(3, height, width)``, with bytes or with numbers in [0, 1].
        captions: The text or markup below each image.
        details: The text or markup next to each image, or an empty list.
        size: The width of an image in CSS pixels.

    Raises:
        ValueError: If there are no images, the lengths differ, or an image is invalid.
    """
    require(images, "images")
    cells = zip(map(data_uri, images), captions, details or [""] * len(images), strict=True)
    return render("images.html", cells=list(cells), size=size)


def interval_bars(lower: Any, upper: Any, point: Any, names: Sequence[str]) -> Markup:
    """Draw the probability intervals of a prediction as bars, with marks at ``point``."""
    require(names, "names")
    bounds = [as_numpy(values).astype(float) for values in (lower, upper, point)]
    return render("bars.html", rows=list(zip(names, *bounds, strict=True)))


def data_uri(image: Any, most: int | None = None) -> str:
    """Return an image as a ``data:`` address; see :func:`image_grid` for the shapes.

    The format is PNG. An image with more than ``most`` pixels in one direction is reduced to this
    size and stored as WebP.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("Images require Pillow: pip install creinn[report]") from error
    pixels = _as_bytes(image)
    picture = Image.fromarray(pixels if pixels.ndim == 2 else pixels.transpose(1, 2, 0))
    kind, options = "png", dict[str, Any](optimize=True)
    if most is not None and max(picture.size) > most:
        picture.thumbnail((most, most))
        kind, options = "webp", {"quality": 80}
    written = io.BytesIO()
    picture.save(written, kind, **options)
    return f"data:image/{kind};base64," + base64.b64encode(written.getvalue()).decode("ascii")


def _as_bytes(image: Any) -> npt.NDArray[np.uint8]:
    """Check the shape and the range of an image, and convert it to bytes."""
    pixels = as_numpy(image)
    if pixels.ndim == 3 and len(pixels) == 1:
        pixels = pixels[0]
    if pixels.size == 0 or not (pixels.ndim == 2 or (pixels.ndim == 3 and len(pixels) == 3)):
        raise ValueError(f"Expected an image of 1 or 3 channels, got shape {pixels.shape}.")
    if pixels.dtype == np.uint8:
        return pixels
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise ValueError(
            f"Expected bytes or numbers in [0, 1], got the range {pixels.min():g} to "
            f"{pixels.max():g}. Undo the normalization first."
        )
    return (pixels * 255).round().astype(np.uint8)
