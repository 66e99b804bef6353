"""Guards the docs: names, files and links in them exist."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


def find(path):
    """What a dotted path names: the longest part that is a module, then attributes."""
    names = path.split(".")
    for length in range(len(names), 0, -1):
        try:
            found = importlib.import_module(".".join(names[:length]))
        except ModuleNotFoundError:
            continue
        for name in names[length:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_the_package_exist(page):
    for path in re.findall(r"`(creinn(?:\.\w+)+)", page.read_text()):
        assert find(path) is not None, path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


def test_the_changes_of_the_architecture_page_are_made_in_files_that_exist():
    table = (ROOT / "docs" / "architecture.md").read_text().split("| change |")[1]
    paths = re.findall(r"`([\w/]+\.(?:py|json|yaml))`", table)
    assert len(paths) > 10
    for path in paths:
        if "NAME" not in path:
            assert (ROOT / path).exists() or (ROOT / "src" / "creinn" / path).exists(), path
