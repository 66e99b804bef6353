"""Tables, figures and the HTML page, which is a jinja2 template.

Tables need nothing more than torch brings; the rest needs plotly, and Pillow for images (``pip install
creinn[report]``), and is loaded when first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from creinn.report.tables import Spread, html_table, markdown_table, text_table, with_published

if TYPE_CHECKING:
    from creinn.report.figures import heat_map, increase_chart, rejection_curves, score_histograms, training_curves
    from creinn.report.images import image_grid, interval_bars
    from creinn.report.page import Section, Side, write_page
    from creinn.report.scores import confusion_map, reliability_chart
    from creinn.report.ternary import coarsen, simplex

__all__ = [
    "Section",
    "Side",
    "Spread",
    "coarsen",
    "confusion_map",
    "heat_map",
    "html_table",
    "image_grid",
    "increase_chart",
    "interval_bars",
    "markdown_table",
    "rejection_curves",
    "reliability_chart",
    "score_histograms",
    "simplex",
    "text_table",
    "training_curves",
    "with_published",
    "write_page",
]

_MODULES = {
    "figures": ("heat_map", "increase_chart", "rejection_curves", "score_histograms", "training_curves"),
    "images": ("image_grid", "interval_bars"),
    "page": ("Section", "Side", "write_page"),
    "scores": ("confusion_map", "reliability_chart"),
    "ternary": ("coarsen", "simplex"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_module(f"{__name__}.theme")  # says that plotly is missing before anything large is loaded
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
