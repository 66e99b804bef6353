"""HTML pages with text, tables, figures and images in a single file.

The file contains the script of plotly, and its content security policy
allows no other sources.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from creinn.evaluation.arrays import as_numpy
from creinn.files import write_bytes
from creinn.report.theme import plotly, render, require

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Part: TypeAlias = "str | Figure | Side"


@dataclass(frozen=True)
class Side:
    """Parts side by side, with a common legend."""

    parts: Sequence[Part]
    width: int = 300  # smallest width of a part in CSS pixels


@dataclass(frozen=True)
class Section:
    """Section of text, markup, figures and :class:`Side`."""

    heading: str
    parts: Sequence[Part] = ()


def write_page(path: str | Path, title: str, sections: Sequence[Section], lead: str = "") -> Path:
    """Write a page and return its path; an existing file is replaced.

    ``lead`` is the first paragraph.
    """
    path = Path(path)
    write_bytes(path, page_html(title, sections, lead).encode("utf-8"))
    return path


def page_html(title: str, sections: Sequence[Section], lead: str = "") -> str:
    """See :func:`write_page`."""
    if not (title and sections and all(section.heading and section.parts for section in sections)):
        raise ValueError("A page needs a title and sections with heading and parts.")
    shown = [(one.heading, [(part, _figures(part)) for part in one.parts]) for one in sections]
    numbers = count(1)

    def draw(figure: "Figure") -> Markup:
        bare = plotly().Figure(figure).update_layout(showlegend=False)
        config = {"displayModeBar": False, "responsive": True}
        options = {"full_html": False, "include_plotlyjs": False, "config": config}
        return Markup(bare.to_html(**options, div_id=f"figure-{next(numbers)}"))

    script = ""
    if any(figures for _, parts in shown for _, figures in parts):
        from plotly.offline import get_plotlyjs

        script = Markup(get_plotlyjs())
    content = {"title": title, "lead": lead, "sections": shown}
    return f"{render('page.html', **content, draw=draw, legend=_legend, plotly=script)}\n"


def _figures(part: Part) -> list["Figure"]:
    if isinstance(part, Side):
        return [figure for one in part.parts for figure in _figures(one)]
    if not isinstance(part, str) and not hasattr(part, "to_plotly_json"):
        raise TypeError(f"Expected a text, a figure or a Side, got {type(part)}.")
    return [] if isinstance(part, str) else [part]


def _legend(figures: Sequence["Figure"]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for trace in (trace for figure in figures for trace in figure.data if trace.name):
        found.setdefault(trace.name, trace)
    explains = any(trace.hoverinfo == "skip" for trace in found.values())
    return found if len(found) > 1 or explains else {}


def image_grid(
    images: Sequence[Any], captions: Sequence[str], details: Sequence[str] = ()
) -> Markup:
    """Return a grid of images with captions; this requires Pillow.

    Args:
        images: Bytes or numbers in [0, 1] of shape ``(height, width)`` or
            ``(channels, height, width)`` with 1 or 3 channels.
        captions: Text or markup below the images.
        details: Text or markup next to the images.
    """
    require(images, "images")
    cells = zip(map(data_uri, images), captions, details or [""] * len(images), strict=True)
    return render("images.html", cells=list(cells))


def interval_bars(lower: Any, upper: Any, point: Any, names: Sequence[str]) -> Markup:
    """Draw probability intervals as bars, with marks at ``point``."""
    require(names, "names")
    bounds = [as_numpy(values).astype(float) for values in (lower, upper, point)]
    return render("bars.html", rows=list(zip(names, *bounds, strict=True)))


def data_uri(image: Any, most: int | None = None) -> str:
    """Return an image of :func:`image_grid` as a ``data:`` address in PNG.

    An image with a side of more than ``most`` pixels is reduced to WebP.
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
    pixels = as_numpy(image)
    if pixels.ndim == 3 and len(pixels) == 1:
        pixels = pixels[0]
    if pixels.size == 0 or not (pixels.ndim == 2 or (pixels.ndim == 3 and len(pixels) == 3)):
        raise ValueError(f"Expected 1 or 3 channels, got shape {pixels.shape}.")
    if pixels.dtype == np.uint8:
        return pixels
    if not ((pixels >= 0) & (pixels <= 1)).all():
        found = f"{pixels.min():g} to {pixels.max():g}"
        raise ValueError(f"Expected bytes or numbers in [0, 1], got {found}. Undo normalization.")
    return (pixels * 255).round().astype(np.uint8)
