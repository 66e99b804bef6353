"""Tables, figures and the HTML page: rows, curves and credal sets in, text, plotly figures and one file out.

In reading order: ``tables``, ``theme`` (colours, templates), ``page`` (with images), ``figures``, ``explorer``,
``provenance``. Tables need nothing more than torch brings; the rest needs plotly, and Pillow for images (``pip install
creinn[report]``), and is loaded when first asked for.
"""

# ruff: noqa: I001
from importlib import import_module
from typing import TYPE_CHECKING, Any

from creinn.report.tables import Spread, html_table, markdown_table, text_table, with_published

if TYPE_CHECKING:
    from creinn.report.explorer import Samples, choose_samples, explore
    from creinn.report.figures import (
        coarsen,
        confusion_map,
        coverage_chart,
        heat_map,
        increase_chart,
        rejection_curves,
    )
    from creinn.report.figures import reliability_chart, score_histograms, simplex, training_curves
    from creinn.report.page import Section, Side, image_grid, interval_bars, write_page

__all__ = [  # noqa: RUF022 (in the order of the files)
    "Spread", "html_table", "markdown_table", "text_table", "with_published",
    "Section", "Side", "image_grid", "interval_bars", "write_page",
    "confusion_map", "coverage_chart", "heat_map", "increase_chart", "rejection_curves", "reliability_chart",
    "score_histograms", "training_curves", "coarsen", "simplex",
    "Samples", "choose_samples", "explore",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        modules = (
            import_module(f"creinn.report.{file}") for file in ("page", "figures", "explorer")
        )
        return next(getattr(module, name) for module in modules if hasattr(module, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
