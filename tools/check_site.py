"""Fail if a page of the site has a dead link or loads a file from another site."""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "object": "data",
    "link": "href",
}
NOT_LOADED = {"canonical", "next", "prev", "index", "search", "author", "license"}
"""Relations of ``link`` that a browser does not follow by itself."""


class Page(HTMLParser):
    """The loaded files, the links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Collect the attributes of a tag."""
        given = {name: value or "" for name, value in attributes}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag in LOADED and LOADED[tag] in given and given.get("rel") not in NOT_LOADED:
            self.loads.append(given[LOADED[tag]])
        elif tag == "a" and "href" in given:
            self.links.append(given["href"])


def problems(folder: Path) -> list[str]:
    """Return the problems of all pages."""
    pages = {
        path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))
    }
    found = [] if pages else [f"There is no page in {folder}."]
    for path, page in pages.items():
        where = path.relative_to(folder)
        found += [f"{where} loads {target}" for target in page.loads if urlsplit(target).netloc]
        for target in (*page.loads, *page.links):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not file.exists():
                found.append(f"{where} links to {target}, which is not there")
            elif (
                parts.fragment
                and file in pages
                and unquote(parts.fragment) not in pages[file].places
            ):
                found.append(f"{where} links to {target}, a place that is not on that page")
    for path in folder.rglob("*.css"):
        outside = re.findall(
            r"(?:@import|url\()\s*[\"']?(https?://[^\"')]+)", path.read_text(encoding="utf-8")
        )
        found += [f"{path.relative_to(folder)} loads {target}" for target in outside]
    return found


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]).resolve())
    print("\n".join(wrong) or "all links lead somewhere, and nothing is loaded from elsewhere")
    sys.exit(bool(wrong))
