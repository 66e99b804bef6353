"""Figures of the study as SVG.

The colours and the font are those of the reports. The same numbers always give the same text.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from creinn.classifier.methods import METHODS, base_method
from creinn.report.theme import FAINT, FONT, GRID, INK, PALETTE, require

ROW, HEAD, FOOT, GAP = 17, 64, 44, 34
"""Pixels: a line of the dot plot, the space above and below panels, and that between them."""

LETTER = 6.4
"""Pixels of a letter, about."""


class Dot(NamedTuple):
    """Two measures of one method in one panel; ``None`` if the method does not have it."""

    filled: float | None
    hollow: float | None


class Curve(NamedTuple):
    """One line of a panel."""

    label: str
    color: str
    dashed: bool
    x: Sequence[float]
    y: Sequence[float]


class Axis(NamedTuple):
    """Map from numbers between ``low`` and ``high`` to pixels between ``start`` and ``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a number."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, step: float) -> list[float]:
        """Return the multiples of ``step`` on the axis."""
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(number * step, 6) for number in range(first, last + 1)]


def dot_plot(
    panels: Mapping[str, Mapping[str, Dot]],
    colors: Mapping[str, str],
    filled: str,
    hollow: str,
    x_title: str,
) -> str:
    """Draw a panel per pair of data sets with a filled and a hollow dot per method.

    Args:
        panels: Dots by panel and method.
        colors: Colours by method, in the order of the lines.
        filled: Label of filled dots.
        hollow: Label of hollow dots.
        x_title: Label of the axis; 0.5 is chance.

    Raises:
        ValueError: If there is no dot.
    """
    values = [
        value
        for dots in panels.values()
        for dot in dots.values()
        for value in dot
        if value is not None
    ]
    require(values, "the mapping of dots")
    low = min(0.5, math.floor(min(values) * 10) / 10)
    left, width = 12 + LETTER * max(map(len, colors)), 210
    bottom = HEAD + ROW * len(colors)
    parts = [
        _circle(left + 6, 18, INK, True) + _text(left + 16, 22, filled),
        _circle(left + 186, 18, INK, False) + _text(left + 196, 22, hollow),
    ]
    rows = {method: HEAD + ROW * (number + 0.5) for number, method in enumerate(colors)}
    parts += [_text(left - 8, y + 4, method, "end", colors[method]) for method, y in rows.items()]
    for number, (title, dots) in enumerate(panels.items()):
        start = left + number * (width + GAP)
        axis = Axis(low, 1, start, start + width)
        parts.append(_text(start + width / 2, HEAD - 12, title, "middle"))
        parts += [_line(start, y, start + width, y, GRID) for y in rows.values()]
        parts += [
            _line(axis(0.5), HEAD, axis(0.5), bottom, FAINT, "3 3"),
            _line(start, bottom, start + width, bottom),
        ]
        for tick in axis.ticks(0.1 if low > 0.35 else 0.2):
            parts += [
                _line(axis(tick), bottom, axis(tick), bottom + 4),
                _tick(axis(tick), bottom + 17, f"{tick:.1f}"),
            ]
        parts.append(_tick(start + width / 2, bottom + 35, x_title))
        for method, dot in dots.items():
            for value, is_filled in ((dot.hollow, False), (dot.filled, True)):
                if value is not None:
                    parts.append(_circle(axis(value), rows[method], colors[method], is_filled))
    return _picture(left + len(panels) * (width + GAP), bottom + FOOT, ", ".join(panels), parts)


def curve_plot(panels: Mapping[str, Sequence[Curve]], x_title: str, y_title: str) -> str:
    """Draw a panel of curves per data set, each with its own vertical axis.

    Raises:
        ValueError: If there is no curve.
    """
    curves = [curve for found in panels.values() for curve in found]
    require(curves, "the list of curves")
    left, width, height = 58, 280, 230
    bottom, pitch = HEAD + height, width + 52
    parts = [_text(14, HEAD + height / 2, y_title, "middle", turned=True)]
    place = float(left)
    for label, (color, dashed) in {
        curve.label: (curve.color, curve.dashed) for curve in curves
    }.items():
        parts += [
            _line(place, 18, place + 24, 18, color, "6 3" if dashed else "", 2),
            _text(place + 30, 22, label),
        ]
        place += 54 + LETTER * len(label)
    for number, (title, found) in enumerate(panels.items()):
        start = left + number * pitch
        step = 0.05 if max(max(c.y) for c in found) - min(min(c.y) for c in found) < 0.3 else 0.1
        low = math.floor(min(min(curve.y) for curve in found) / step) * step
        across, up = Axis(0, 1, start, start + width), Axis(low, 1, bottom, HEAD)
        parts.append(_text(start + width / 2, HEAD - 12, title, "middle"))
        for tick in up.ticks(step):
            parts += [
                _line(start, up(tick), start + width, up(tick), GRID),
                _tick(start - 20, up(tick) + 4, f"{tick:.2f}"),
            ]
        parts.append(_line(start, bottom, start + width, bottom))
        for tick in across.ticks(0.2):
            parts += [_line(across(tick), bottom, across(tick), bottom + 4)]
            parts.append(_tick(across(tick), bottom + 17, f"{tick:.0%}"))
        parts.append(_tick(start + width / 2, bottom + 35, x_title))
        for curve in found:
            points = " ".join(
                f"{across(x):.1f},{up(y):.1f}" for x, y in zip(curve.x, curve.y, strict=True)
            )
            dash = ' stroke-dasharray="6 3"' if curve.dashed else ""
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{curve.color}" '
                f'stroke-width="2"{dash}/>'
            )
    return _picture(max(place, left + len(panels) * pitch), bottom + FOOT, ", ".join(panels), parts)


def shade(method: str) -> str:
    """Return grey for baselines and a colour for each form of CreINN."""
    forms = sorted(
        (name for name, method in METHODS.items() if method.is_credal),
        key=lambda name: name != "creinn-d",
    )
    base = base_method(method)
    return (
        PALETTE[forms.index(base) % (len(PALETTE) - 1)] if base in forms else FAINT
    )  # the last colour is grey


def _picture(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'font-family="{escape(FONT)}" font-size="12" fill="{INK}">'
    )
    return "\n".join(
        [
            head,
            f"<title>{escape(title)}</title>",
            '<rect width="100%" height="100%" fill="white"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _circle(x: float, y: float, color: str, filled: bool) -> str:
    inside, radius = (
        (color, 3.5) if filled else ("white", 5.5)
    )  # a filled one leaves the ring of a hollow one visible
    place = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius}"'
    return f'<circle {place} fill="{inside}" stroke="{color}" stroke-width="1.5"/>'


def _line(
    x: float, y: float, to_x: float, to_y: float, color: str = FAINT, dash: str = "", width: int = 1
) -> str:
    place = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line {place} stroke="{color}" stroke-width="{width}"{dashes}/>'


def _text(
    x: float, y: float, text: str, anchor: str = "start", color: str = INK, turned: bool = False
) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{color}"{turn}>{escape(text)}</text>'


def _tick(x: float, y: float, text: str) -> str:
    return _text(x, y, text, "middle", FAINT)
