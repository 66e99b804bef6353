"""Images and interval bars in pages: by hand, read back, other shapes refused."""

import base64
import io
import re
import sys

import numpy as np
import pytest
import torch
from markupsafe import Markup

from creinn.report.page import data_uri, image_grid, interval_bars

Image = pytest.importorskip("PIL.Image")


def decoded(uri):
    head, content = uri.split(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))


def test_grey_image_by_hand():
    np.testing.assert_array_equal(decoded(data_uri(torch.tensor([[0.0, 0.5], [1.0, 0.2]]))), [[0, 128], [255, 51]])


@pytest.mark.parametrize("shape", [(3, 5), (1, 3, 5), (3, 4, 5)])
def test_png_is_read_back_by_another_program(shape):
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    expected = image.transpose(1, 2, 0) if shape == (3, 4, 5) else image.reshape(3, 5)
    np.testing.assert_array_equal(decoded(data_uri(image)), expected)


@pytest.mark.parametrize("shape", [(5,), (2, 3, 3), (0, 3), (1, 1, 3, 3)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="An image must have shape"):
        data_uri(np.zeros(shape))


def test_normalised_pixels_are_refused():
    with pytest.raises(ValueError, match=r"run from -1 to 2\. Undo the normalisation"):
        data_uri(np.array([[-1.0, 2.0]]))


def test_image_grid_shows_each_image_with_its_caption():
    images = [np.zeros((2, 2)), np.ones((2, 2))]
    grid = image_grid(images, ["a < b", Markup("<b>c</b>")], [Markup("<svg>1</svg>"), Markup("<svg>2</svg>")])
    assert re.findall(r'src="([^"]+)"', grid) == [data_uri(image) for image in images]
    assert re.findall("<figcaption>(.*?)</figcaption>", grid) == ["a &lt; b", "<b>c</b>"]
    assert grid.index("<svg>1</svg>") < grid.index("a &lt; b") < grid.index("<svg>2</svg>")


def test_image_grid_refuses_nothing_and_wrong_lengths():
    with pytest.raises(ValueError, match="images is empty"):
        image_grid([], [])
    with pytest.raises(ValueError, match="1 images, 2 captions and 0 details"):
        image_grid([np.zeros((2, 2))], ["a", "b"])
    with pytest.raises(ValueError, match="1 images, 1 captions and 2 details"):
        image_grid([np.zeros((2, 2))], ["a"], [Markup(""), Markup("")])


def test_interval_bars_by_hand():
    bars = interval_bars([0.1, 0.4], [0.6, 0.9], torch.tensor([0.35, 0.65]), ["a", "<b>"])
    assert re.findall("<title>(.*?)</title>", bars) == ["a: 0.100 to 0.600", "&lt;b&gt;: 0.400 to 0.900"]
    # the scale starts at 30 = 8 * 3 letters + 6 and is 130 long: 0.1 -> 43, width 0.5 * 130 = 65, mark 30 + 45.5 - 1
    assert 'x="43.00" y="2" width="65.00"' in bars
    assert 'x="74.50"' in bars


def test_interval_bars_refuse_wrong_lengths():
    with pytest.raises(ValueError, match=r"\(2,\), \(1,\), \(2,\) for 2 classes"):
        interval_bars([0.1, 0.4], [0.6], [0.35, 0.65], ["a", "b"])
    with pytest.raises(ValueError, match="for 0 classes"):
        interval_bars([], [], [], [])


def test_without_pillow_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"need Pillow.*pip install creinn\[report\]"):
        image_grid([np.zeros((2, 2))], ["a"])
