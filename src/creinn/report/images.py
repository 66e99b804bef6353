"""Small pictures inside a page: images as data URIs, and probability intervals as bars.

In: arrays. Out: :class:`markupsafe.Markup`, without any file beside the page.
"""

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from creinn.evaluation.checks import as_numpy
from creinn.report.templating import render
from creinn.report.theme import FAINT, GRID, PALETTE

try:
    from PIL import Image
except ImportError as error:
    raise ImportError(
        "Images on a page need Pillow, which is not installed. Install it with: pip install creinn[report]"
    ) from error


def image_grid(images: Sequence[Any], captions: Sequence[str], details: Sequence[str] = (), size: int = 88) -> Markup:
    """Images side by side, each with a caption under it and, if given, a detail beside it.

    Args:
        images: Arrays or tensors ``(height, width)``, ``(1, height, width)`` or ``(3, height, width)``; bytes, or
            numbers in [0, 1]. Pixels stay sharp when enlarged.
        captions: A line or more for each image; a :class:`markupsafe.Markup` goes in as it is.
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
    cells = zip(map(data_uri, images), captions, details or [""] * len(images), strict=True)
    return render("images.html", cells=cells, size=size)


def interval_bars(lower: Any, upper: Any, point: Any, names: Sequence[str]) -> Markup:
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
    rows = list(zip(names, *bounds, strict=True))
    return render("bars.html", rows=rows, FAINT=FAINT, GRID=GRID, PALETTE=PALETTE)


def data_uri(image: Any) -> str:
    """An image as a ``data:`` address that holds a PNG.

    Raises:
        ValueError: If the shape is none of those of :func:`image_grid`, or a number is outside [0, 1].
    """
    png = io.BytesIO()
    Image.fromarray(_pixels(as_numpy(image))).save(png, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode("ascii")


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
