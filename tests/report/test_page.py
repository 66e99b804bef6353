"""Pages: complete in themselves, readable in both colour schemes, written whole or not at all; images in them."""

import base64
import io
import json
import os
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from markupsafe import Markup
from PIL import Image
from plotly.offline import get_plotlyjs

from creinn.report.figures import heat_map, training_curves
from creinn.report.page import (
    Section,
    Side,
    data_uri,
    image_grid,
    interval_bars,
    page_html,
    write_page,
)
from creinn.report.theme import FAINT, PALETTE


class Outline(HTMLParser):
    """Addresses, headings, text and scripts of a page."""

    def __init__(self, text):
        super().__init__()
        self.addresses, self.headings, self.scripts, self.ids, self.paragraphs = [], [], [], [], []
        self._tag = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._tag = tag
        for name, value in attrs:
            if name in ("src", "href", "action", "data", "srcset", "poster"):
                self.addresses.append(value)
            if name == "id":
                self.ids.append(value)
        if tag in ("script", "p", "h2"):
            self._list().append("")

    def handle_endtag(self, tag):
        self._tag = ""

    def handle_data(self, data):
        if self._tag in ("script", "p", "h2"):
            self._list()[-1] += data

    def _list(self):
        return {"script": self.scripts, "p": self.paragraphs, "h2": self.headings}[self._tag]


def sections():
    return [
        Section("First part", ["Text with <tags> & more.", heat_map([[1.0, 2.0]])]),
        Section(
            "Second", [Side([heat_map([[3.0]]), Markup("<table><tr><td>x</td></tr></table>")])]
        ),
        Section("Second", ["Again."]),
    ]


def test_page_has_no_external_links():
    outline = Outline(page_html("Title", sections()))
    assert outline.addresses == ["#section-1", "#section-2", "#section-3"]


def test_page_has_content_security_policy():
    assert "default-src 'none'; script-src 'unsafe-inline'" in page_html("Title", sections())


def test_sections_are_linked():
    outline = Outline(page_html("Title", sections(), lead="What it is."))
    assert outline.headings == ["First part", "Second", "Second"]
    ids = [name for name in outline.ids if not name.startswith("figure")]
    assert ids == ["section-1", "section-2", "section-3"]
    assert outline.paragraphs == ["What it is.", "Text with <tags> & more.", "Again."]


def test_plotly_is_embedded_once():
    scripts = Outline(page_html("Title", sections())).scripts
    assert sum(text == get_plotlyjs() for text in scripts) == 1
    assert sum("Plotly.newPlot" in text and text != get_plotlyjs() for text in scripts) == 2


def test_page_without_figures_has_no_script():
    assert Outline(page_html("Title", [Section("A", ["b"])])).scripts == []


def test_figures_contain_data():
    text = Outline(page_html("Title", [Section("A", [heat_map([[1.5, 2.5]])])])).scripts[-2]
    start = text.index("[", text.index("newPlot"))
    data, _ = json.JSONDecoder().raw_decode(text[start:])
    assert data[0]["type"] == "heatmap"
    assert data[0]["z"] == [[1.5, 2.5]] or data[0]["z"]["shape"] == "1, 2"


def test_figures_share_one_legend():
    rows = [{"epoch": 1, "loss": 0.5, "val_loss": 0.6, "accuracy": 0.9}]
    side = training_curves({"A": rows, "<B>": rows})
    page = page_html("Title", [Section("A", [side])])
    assert page.count('<div class="legend">') == 1
    named = re.findall(r"<button[^>]*><svg.*?</svg>([^<]*)</button>", page)
    assert named == ["A", "&lt;B&gt;"]
    assert re.search(
        r"<span><svg[^>]*><path [^>]*stroke-dasharray[^>]*/></svg>dashed: validation</span>", page
    )
    assert page.count('"showlegend":false') == 2  # of either figure
    assert side.parts[0].layout.showlegend is None  # the caller's figure is as it was
    assert '<div class="legend">' not in page_html("Title", [Section("A", [heat_map([[1.0]])])])


def test_figures_are_responsive():
    page = page_html("Title", [Section("A", [heat_map([[1.0]])])])
    assert '"responsive": true' in page
    assert '"displayModeBar": false' in page
    assert '"width":' not in page[page.index("Plotly.newPlot(", page.index("</head>")) :]


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """By WCAG 2: 3 is enough for lines, 4.5 for text."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def style():
    return re.search("<style>(.*?)</style>", page_html("Title", [Section("A", ["b"])]), re.DOTALL)[
        1
    ]


def test_color_contrast():
    light, dark = style().split("@media screen and (prefers-color-scheme: dark)")
    for scheme, paper in (
        (light, "#ffffff"),
        (dark, re.search("--paper: (#[0-9a-f]{6})", dark)[1]),
    ):
        colors = dict(re.findall(r"--(ink|faint|link): (#[0-9a-f]{6})", scheme))
        assert len(colors) == 3
        assert min(contrast(color, paper) for color in colors.values()) > 4.5
        assert min(contrast(color, paper) for color in (*PALETTE, FAINT)) > 3
    assert "text:not(.hoverlayer *) { fill: var(--ink) !important; }" in style()


def test_narrow_windows():
    narrow = style().partition("@media (max-width: 40rem)")[2]
    assert ".wide thead { display: none; }" in narrow
    assert "content: attr(data-column)" in narrow


def test_labels_are_escaped():
    page = page_html("Title", [Section("A", [heat_map([[1.0]], label="</script><b>")])])
    assert page.count("</script>") == Outline(page).scripts.__len__()
    assert "</script><b>" not in page


def test_page_is_deterministic():
    assert page_html("Title", sections()) == page_html("Title", sections())


def test_write_page_creates_folders(tmp_path):
    path = write_page(tmp_path / "a" / "report.html", "Tïtle", [Section("A", ["ü"])])
    assert os.listdir(path.parent) == ["report.html"]
    assert "<p>ü</p>" in path.read_text(encoding="utf-8")


def test_write_page_is_atomic(tmp_path, monkeypatch):
    path = write_page(tmp_path / "report.html", "Old", [Section("A", ["old"])])

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="space"):
        write_page(path, "New", [Section("A", ["new"])])
    assert "<p>old</p>" in path.read_text(encoding="utf-8")
    assert os.listdir(tmp_path) == ["report.html"]


def test_invalid_part_writes_nothing(tmp_path):
    with pytest.raises(TypeError, match="int"):
        write_page(tmp_path / "report.html", "Title", [Section("A", [3])])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("title", "content", "message"),
    [
        ("", [Section("A", ["b"])], "title"),
        ("T", [], "section"),
        ("T", [Section("", ["b"])], "heading"),
        ("T", [Section("A")], "part"),
    ],
)
def test_empty_pages_raise(title, content, message):
    with pytest.raises(ValueError, match=message):
        page_html(title, content)


def decoded(uri):
    head, content = uri.split(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))


def test_grey_image_by_hand():
    np.testing.assert_array_equal(
        decoded(data_uri(torch.tensor([[0.0, 0.5], [1.0, 0.2]]))), [[0, 128], [255, 51]]
    )


@pytest.mark.parametrize("shape", [(3, 5), (1, 3, 5), (3, 4, 5)])
def test_png_is_readable_by_pillow(shape):
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    expected = image.transpose(1, 2, 0) if shape == (3, 4, 5) else image.reshape(3, 5)
    np.testing.assert_array_equal(decoded(data_uri(image)), expected)


@pytest.mark.parametrize("shape", [(5,), (2, 3, 3), (0, 3), (1, 1, 3, 3)])
def test_invalid_shapes_raise(shape):
    with pytest.raises(ValueError, match="shape"):
        data_uri(np.zeros(shape))


def test_normalized_pixels_raise():
    with pytest.raises(ValueError, match="-1"):
        data_uri(np.array([[-1.0, 2.0]]))


def test_image_grid_captions():
    images = [np.zeros((2, 2)), np.ones((2, 2))]
    grid = image_grid(
        images, ["a < b", Markup("<b>c</b>")], [Markup("<svg>1</svg>"), Markup("<svg>2</svg>")]
    )
    assert re.findall(r'src="([^"]+)"', grid) == [data_uri(image) for image in images]
    assert re.findall("<figcaption>(.*?)</figcaption>", grid) == ["a &lt; b", "<b>c</b>"]
    assert grid.index("<svg>1</svg>") < grid.index("a &lt; b") < grid.index("<svg>2</svg>")


def test_invalid_image_grid_raises():
    with pytest.raises(ValueError, match="images"):
        image_grid([], [])
    with pytest.raises(ValueError, match="zip"):
        image_grid([np.zeros((2, 2))], ["a", "b"])
    with pytest.raises(ValueError, match="zip"):
        image_grid([np.zeros((2, 2))], ["a"], [Markup(""), Markup("")])


def test_interval_bars_by_hand():
    bars = interval_bars([0.1, 0.4], [0.6, 0.9], torch.tensor([0.35, 0.65]), ["a", "<b>"])
    titles = re.findall("<title>(.*?)</title>", bars)
    assert titles == ["a: 0.100 to 0.600", "&lt;b&gt;: 0.400 to 0.900"]
    # the scale starts at 30 = 8 * 3 letters + 6 and is 130 long: 0.1 -> 43, width 0.5 * 130 = 65, mark 30 + 45.5 - 1
    assert 'x="43.00" y="2" width="65.00"' in bars
    assert 'x="74.50"' in bars


def test_interval_bars_with_wrong_lengths_raise():
    with pytest.raises(ValueError, match="zip"):
        interval_bars([0.1, 0.4], [0.6], [0.35, 0.65], ["a", "b"])
    with pytest.raises(ValueError, match="names"):
        interval_bars([], [], [], [])


def test_missing_pillow_raises(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match="Pillow"):
        image_grid([np.zeros((2, 2))], ["a"])
