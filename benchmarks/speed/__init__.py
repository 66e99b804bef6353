"""Speed and memory beside the ordinary network: contenders of one architecture, timed in turns in one process.

In: :class:`Settings`. Out: a record of plain JSON (:func:`run_benchmark`) and its tables as Markdown
(:func:`benchmark_markdown`). In reading order: ``architectures``, ``contenders`` (``four_products`` is the layers of
one), ``settings``, ``memory``, ``study``, ``tables``.
"""

from benchmarks.speed.settings import Settings
from benchmarks.speed.study import run_benchmark
from benchmarks.speed.tables import benchmark_markdown

__all__ = ["Settings", "benchmark_markdown", "run_benchmark"]
