"""Tests of the check of the documentation."""

import importlib.util
from pathlib import Path

TOOL = Path(__file__).parents[1] / "tools" / "check_site.py"
spec = importlib.util.spec_from_file_location("check_site", TOOL)
check_site = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_site)


def test_valid_site_passes(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="more/page.html#there">x</a><a href="https://elsewhere.org">y</a>'
    )
    (tmp_path / "more" / "page.html").write_text(
        '<p id="there"><a href="../index.html">z</a><link rel="next" href="#there">'
    )
    assert check_site.problems(tmp_path) == []


def test_dead_links_and_foreign_sources(tmp_path):
    (tmp_path / "index.html").write_text(
        '<script src="https://cdn.org/x.js"></script><link rel="stylesheet" href="//cdn.org/x.css">'
        '<a href="gone.html">x</a><a href="#nowhere">y</a><img src="picture.png">'
    )
    (tmp_path / "style.css").write_text(
        '@import "https://fonts.org/a.css"; p { background: url(https://b.org/c.png) }'
    )
    assert check_site.problems(tmp_path) == [
        "index.html loads https://cdn.org/x.js",
        "index.html loads //cdn.org/x.css",
        "index.html links to picture.png, which is not there",
        "index.html links to gone.html, which is not there",
        "index.html links to #nowhere, a place that is not on that page",
        "style.css loads https://fonts.org/a.css",
        "style.css loads https://b.org/c.png",
    ]


def test_empty_folder_raises(tmp_path):
    assert check_site.problems(tmp_path) == [f"There is no page in {tmp_path}."]
