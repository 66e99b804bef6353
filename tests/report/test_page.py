import json
import os
from html.parser import HTMLParser

import pytest

from creinn.report.figures import heat_map
from creinn.report.html import Html
from creinn.report.page import Section, Side, page_html, write_page
from creinn.report.theme import script


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
        Section("Second", [Side([heat_map([[3.0]]), Html("<table><tr><td>x</td></tr></table>")])]),
        Section("Second", ["Again."]),
    ]


def test_page_names_no_outside_address():
    outline = Outline(page_html("Title", sections()))
    assert outline.addresses == ["#first-part", "#second", "#second-2"]


def test_page_forbids_loading_from_elsewhere():
    assert "default-src 'none'; script-src 'unsafe-inline'" in page_html("Title", sections())


def test_every_section_is_there_and_linked():
    outline = Outline(page_html("Title", sections(), lead="What it is."))
    assert outline.headings == ["First part", "Second", "Second"]
    assert [name for name in outline.ids if not name.startswith("figure")] == ["first-part", "second", "second-2"]
    assert outline.paragraphs == ["What it is.", "Text with <tags> & more.", "Again."]


def test_plotly_is_inlined_once():
    scripts = Outline(page_html("Title", sections())).scripts
    assert sum(text == script() for text in scripts) == 1
    assert sum("Plotly.newPlot" in text and text != script() for text in scripts) == 2


def test_a_page_without_figures_has_no_script():
    assert Outline(page_html("Title", [Section("A", ["b"])])).scripts == []


def test_figures_carry_their_data():
    text = Outline(page_html("Title", [Section("A", [heat_map([[1.5, 2.5]])])])).scripts[-1]
    start = text.index("[", text.index("newPlot"))
    data, _ = json.JSONDecoder().raw_decode(text[start:])
    assert data[0]["type"] == "heatmap"
    assert data[0]["z"] == [[1.5, 2.5]] or data[0]["z"]["shape"] == "1, 2"


def test_labels_cannot_break_out_of_the_script():
    page = page_html("Title", [Section("A", [heat_map([[1.0]], label="</script><b>")])])
    assert page.count("</script>") == Outline(page).scripts.__len__()
    assert "</script><b>" not in page


def test_the_same_input_gives_the_same_page():
    assert page_html("Title", sections()) == page_html("Title", sections())


def test_write_page_creates_folders_and_leaves_no_other_file(tmp_path):
    path = write_page(tmp_path / "a" / "report.html", "Tïtle", [Section("A", ["ü"])])
    assert os.listdir(path.parent) == ["report.html"]
    assert "<p>ü</p>" in path.read_text(encoding="utf-8")


def test_write_page_is_atomic(tmp_path, monkeypatch):
    path = write_page(tmp_path / "report.html", "Old", [Section("A", ["old"])])

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space left on device"):
        write_page(path, "New", [Section("A", ["new"])])
    assert "<p>old</p>" in path.read_text(encoding="utf-8")
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_part_that_cannot_be_shown_writes_nothing(tmp_path):
    with pytest.raises(TypeError, match="Section 'A' has a part of type int"):
        write_page(tmp_path / "report.html", "Title", [Section("A", [3])])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("title", "content", "message"),
    [
        ("", [Section("A", ["b"])], "needs a title"),
        ("T", [], "at least one section"),
        ("T", [Section("", ["b"])], "Section 0 has no heading"),
        ("T", [Section("A")], "Section 'A' is empty"),
        ("T", [Section("A", [Side([])])], "Section 'A' has a row of parts that is empty"),
    ],
)
def test_empty_pages_are_refused(title, content, message):
    with pytest.raises(ValueError, match=message):
        page_html(title, content)
