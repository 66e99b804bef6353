"""Tables, figures and HTML pages for the results of an evaluation.

Figures need plotly and images need Pillow (``pip install creinn[report]``); plots need matplotlib
(``creinn[plots]``). These packages are imported when a function needs them.
"""

# fmt: off
# ruff: noqa: I001
from creinn.report.tables import MeanStd, html_table, markdown_table, text_table
from creinn.report.page import Section, Side, image_grid, interval_bars, write_page
from creinn.report.figures import (
    coarsen, confusion_map, coverage_chart, heat_map, rejection_curves, reliability_chart,
    score_histograms, simplex, training_curves,
)
from creinn.report.explorer import Samples, choose_samples, explore
from creinn.report.plots import plot_ood, plot_rejection, plot_reliability

__all__ = [  # noqa: RUF022 (in the order of the modules)
    "MeanStd", "html_table", "markdown_table", "text_table",
    "Section", "Side", "image_grid", "interval_bars", "write_page",
    "coarsen", "confusion_map", "coverage_chart", "heat_map", "rejection_curves",
    "reliability_chart", "score_histograms", "simplex", "training_curves",
    "Samples", "choose_samples", "explore",
    "plot_ood", "plot_rejection", "plot_reliability",
]
