"""Small pictures inside a page: images as data URIs, and probability intervals as bars.

In: arrays. Out: :class:`Html`, without any file beside the page.
"""

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from creinn.evaluation.checks import as_numpy
from creinn.report.html import Html, markup
from creinn.report.theme import FAINT, GRID, PALETTE


def image_grid(images: Sequence[Any], captions: Sequence[str], details: Sequence[Html] = (), size: int = 88) -> Html:
    """Images side by side, each with a caption under it and, if given, a detail beside it.

    Args:
        images: Arrays or tensors ``(height, width)``, ``(1, height, width)`` or ``(3, height, width)``; bytes, or
            numbers in [0, 1]. Pixels stay sharp when enlarged.
        captions: A line or more for each image; an :class:`Html` goes in as it is.
        details: Markup for each image, such as :func:`interval_bars`.
        size: Width of an image in CSS pixels.

    Raises:
        ValueError: If there are no images, the lengths differ, or an image has another shape or range.
    """
    if len(images) == 0:
        raise ValueError("There is nothing to draw: images is empty.")
    if len(captions) != len(images) or len(details) not in (0, len(images)):
        raise ValueError(
            f"There must be one caption, and one detail or none, per image, but there are {len(images)} images, "
            f"{len(captions)} captions and {len(details)} details."
        )
    cells = []
    for index, image in enumerate(images):
        picture = f'<img src="{data_uri(image)}" alt="image {index + 1}" width="{size}">'
        detail = details[index] if details else ""
        cells.append(
            f'<figure class="cell"><div class="pair">{picture}{detail}</div>'
            f"<figcaption>{markup(captions[index])}</figcaption></figure>"
        )
    return Html(f'<div class="images">{"".join(cells)}</div>')


def interval_bars(lower: Any, upper: Any, point: Any, names: Sequence[str]) -> Html:
    """Probability intervals of one prediction as bars from lower to upper, with a mark at ``point``.

    Args:
        lower: Lower bounds, one per class.
        upper: Upper bounds.
        point: The distribution to mark, such as the intersection probability.
        names: Names of the classes.

    Raises:
        ValueError: If there are no classes, or the lengths differ.
    """
    bounds = [as_numpy(values).astype(float) for values in (lower, upper, point)]
    if len(names) == 0 or any(values.shape != (len(names),) for values in bounds):
        raise ValueError(
            f"Bars need one lower bound, upper bound and point per class, but the shapes are "
            f"{', '.join(str(values.shape) for values in bounds)} for {len(names)} classes."
        )
    step, left, length = 11, 8 * max(map(len, names)) + 6, 130
    marks = []
    for row, (name, low, high, middle) in enumerate(zip(names, *bounds, strict=True)):
        y = row * step
        marks.append(
            f'<text x="{left - 5}" y="{y + 9}" text-anchor="end" font-size="9.5">{markup(name)}</text>'
            f'<rect x="{left}" y="{y + 2}" width="{length}" height="7" fill="{GRID}"/>'
            f'<rect x="{left + length * low:.2f}" y="{y + 2}" width="{max(length * (high - low), 0.8):.2f}" height="7" '
            f'fill="{PALETTE[0]}"><title>{markup(name)}: {low:.3f} to {high:.3f}</title></rect>'
            f'<rect x="{left + length * middle - 1:.2f}" y="{y + 0.5}" width="2" height="10" fill="{PALETTE[1]}"/>'
        )
    bottom = len(names) * step
    scale = "".join(
        f'<text x="{left + length * at}" y="{bottom + 10}" text-anchor="middle" font-size="9" fill="{FAINT}">'
        f"{at:g}</text>"
        for at in (0, 0.5, 1)
    )
    width, height = left + length + 10, bottom + 13
    return Html(
        f'<svg class="bars" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="probability intervals">{"".join(marks)}{scale}</svg>'
    )


def data_uri(image: Any) -> str:
    """An image as a ``data:`` address that holds a PNG.

    Raises:
        ValueError: If the shape is none of those of :func:`image_grid`, or a number is outside [0, 1].
    """
    pixels = _pixels(as_numpy(image))
    return "data:image/png;base64," + base64.b64encode(_png(pixels)).decode("ascii")


def _pixels(image: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Bytes of shape ``(height, width)`` or ``(height, width, 3)``."""
    if image.ndim == 2:
        image = image[None]
    if image.ndim != 3 or image.shape[0] not in (1, 3) or image.size == 0:
        raise ValueError(
            f"An image must have shape (height, width), (1, height, width) or (3, height, width), not {image.shape}."
        )
    if image.dtype != np.uint8:
        if not ((image >= 0) & (image <= 1)).all():
            raise ValueError(
                f"Pixels must be bytes or numbers in [0, 1], but run from {image.min():g} to {image.max():g}. "
                "Undo the normalisation first."
            )
        image = (image * 255).round().astype(np.uint8)
    return image[0] if image.shape[0] == 1 else image.transpose(1, 2, 0)


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Encode without filtering, by the PNG specification (ISO/IEC 15948)."""
    height, width = pixels.shape[:2]
    color_type = 0 if pixels.ndim == 2 else 2  # grey, or red-green-blue
    lines = np.ascontiguousarray(pixels).reshape(height, -1)
    raw = b"".join(b"\0" + line.tobytes() for line in lines)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, color_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
