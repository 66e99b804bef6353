"""Draw flowcharts (``mermaid`` fences) as SVG without scripts.

The supported syntax is chains of nodes joined by ``-->`` and ``&``. A node is a name or
``name["text<br/>text"]``.
"""

import html
import re
from itertools import pairwise
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

CHAR, LINE, PAD, GAP = (
    7.8,
    17,
    10,
    15,
)  # letter, line, padding and gap in pixels


def parse(lines: list[str]) -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """Return the texts of the nodes by name, and the edges."""
    texts: dict[str, list[str]] = {}
    edges = []
    for line in lines:
        groups = []
        for step in line.split("-->"):
            found = re.findall(r'(\w+)(?:\["(.*?)"\])?', step)
            for name, text in found:
                if text or name not in texts:
                    texts[name] = (text or name).split("<br/>")
            groups.append([name for name, _ in found])
        edges += [(a, b) for left, right in pairwise(groups) for a in left for b in right]
    return texts, edges


def layers_of(texts: dict[str, list[str]], edges: list[tuple[str, str]]) -> list[list[Any]]:
    """Assign nodes and long edges to layers by their longest path."""
    depth = dict.fromkeys(texts, 0)
    for _ in texts:
        for a, b in edges:
            depth[b] = max(depth[b], depth[a] + 1)
    layers: list[list[Any]] = [
        [name for name in texts if depth[name] == k] for k in range(max(depth.values()) + 1)
    ]
    for a, b in edges:
        for k in range(depth[a] + 1, depth[b]):
            layers[k].append((a, b))
    before: dict[Any, list[Any]] = {}
    for a, b in edges:
        chain = [a, *((a, b) for _ in range(depth[b] - depth[a] - 1)), b]
        for left, right in pairwise(chain):
            before.setdefault(right, []).append(left)
    for above, layer in pairwise(layers):
        place = {node: (k + 0.5) / len(above) for k, node in enumerate(above)}
        layer.sort(
            key=lambda n: (
                sum(found := [place[m] for m in before.get(n, []) if m in place])
                / max(len(found), 1)
            )
        )
    return layers


def svg(source: str) -> str:
    """Draw a chart from the top down, or from the bottom up (``BT``)."""
    first, *lines = [line.strip() for line in source.strip().splitlines()]
    texts, edges = parse(lines)
    size = {
        n: (max(map(len, t)) * CHAR + 2 * PAD, len(t) * LINE + 2 * PAD) for n, t in texts.items()
    }
    layers = layers_of(texts, edges)
    sizes = [[size.get(node, (8, 8)) for node in layer] for layer in layers]
    width = max(sum(wide + GAP for wide, _ in row) for row in sizes)
    middle: dict[Any, list[tuple[float, float]]] = {}
    start = 4.0
    for layer, row in zip(layers, sizes, strict=True):
        deep, gap = (
            max(high for _, high in row),
            (width - sum(wide for wide, _ in row)) / len(layer),
        )
        at = gap / 2
        for node, (wide, _) in zip(layer, row, strict=True):
            middle.setdefault(node, []).append((at + wide / 2, start + deep / 2))
            at += wide + gap
        start += deep + 2 * GAP
    height = start - 2 * GAP + 4
    up = first.endswith("BT")
    if up:
        middle = {node: [(x, height - y) for x, y in places] for node, places in middle.items()}
    sign = -1 if up else 1

    parts = []
    for a, b in edges:
        (x, y), (u, v) = middle[a][0], middle[b][0]
        end = (u, v - sign * (size[b][1] / 2 + 5))
        way = [(x, y + sign * size[a][1] / 2), *middle.get((a, b), []), end]
        path = f"M{way[0][0]:.0f},{way[0][1]:.0f}"
        for (x, y), (u, v) in pairwise(way):
            path += f" C{x:.0f},{(y + v) / 2:.0f} {u:.0f},{(y + v) / 2:.0f} {u:.0f},{v:.0f}"
        parts.append(
            f'<path d="{path}" fill="none" stroke="currentColor" opacity=".6" marker-end="url(#tip)"/>'
        )
    for name, text in texts.items():
        (x, y), (wide, high) = middle[name][0], size[name]
        parts.append(
            f'<rect x="{x - wide / 2:.0f}" y="{y - high / 2:.0f}" width="{wide:.0f}" height="{high:.0f}" rx="6" '
            'fill="var(--color-background-secondary)" stroke="currentColor"/>'
        )
        for k, line in enumerate(text):
            at = y + LINE * (k - (len(text) - 1) / 2) + 4
            weight = "600" if k == 0 else "400"
            parts.append(
                f'<text x="{x:.0f}" y="{at:.0f}" font-weight="{weight}">{html.escape(line)}</text>'
            )
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    style = 'font-size="13" text-anchor="middle" fill="currentColor" font-family="sans-serif"'
    return (
        f'<svg role="img" viewBox="0 0 {width:.0f} {height:.0f}" style="max-width: {width:.0f}px" {style}>'
        f'<defs>{tip}<path d="M0,0 L8,4 L0,8 z" fill="currentColor"/></marker></defs>{"".join(parts)}</svg>'
    )


class Mermaid(Directive):
    """Directive of the language ``mermaid``."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the chart as HTML."""
        return [nodes.raw("", svg("\n".join(self.content)), format="html")]
