"""Speed and memory beside the ordinary network: contenders of one architecture, timed in turns in one process.

In: :class:`Settings`. Out: a record of plain JSON (:func:`run_benchmark`) and its tables as Markdown
(:func:`benchmark_markdown`). Weights are as initialised, batch norms have seen one batch: time does not depend on what
a network has learnt.
"""

from benchmarks.speed.settings import Settings, resolve_settings
from benchmarks.speed.study import run_benchmark
from benchmarks.speed.tables import benchmark_markdown

__all__ = ["Settings", "benchmark_markdown", "resolve_settings", "run_benchmark"]
