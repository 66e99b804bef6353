"""Tables, figures and HTML pages for the results of an evaluation.

Figures and images require ``pip install creinn[report]``, and plots
require ``creinn[plots]``.
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

__all__ = [  # noqa: RUF022
    "MeanStd", "html_table", "markdown_table", "text_table",
    "Section", "Side", "image_grid", "interval_bars", "write_page",
    "coarsen", "confusion_map", "coverage_chart", "heat_map", "rejection_curves",
    "reliability_chart", "score_histograms", "simplex", "training_curves",
    "Samples", "choose_samples", "explore",
    "plot_ood", "plot_rejection", "plot_reliability",
]
