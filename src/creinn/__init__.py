"""Credal-set interval neural networks: classification with honest uncertainty.

Public names are imported at first use, so ``import creinn`` does not load
torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from creinn import baselines, data, evaluation, models, native, nn
    from creinn.classifier.credal import Ensemble
    from creinn.classifier.creinn import CreINN
    from creinn.credal.credal_set import CredalSet
    from creinn.credal.loss import bounds_cross_entropy, cross_entropy
    from creinn.graph.compile import compile
    from creinn.graph.compile import compile_for_predict as compile_for_predict
    from creinn.graph.convert import convert
    from creinn.graph.export import export
    from creinn.interval import Interval
    from creinn.nn import relative
    from creinn.nn.affine import project_
    from creinn.saving import load, save
    from creinn.training.config import TrainConfig
    from creinn.training.diagnose import diagnose
    from creinn.training.loop import fit

__version__ = "0.1.0"

_HOME = {
    # intervals, layers, networks
    "Interval": "creinn.nn.functional",  # registers the functions of torch
    "nn": "creinn.nn",
    "relative": "creinn.nn.relative",
    "project_": "creinn.nn.affine",
    "models": "creinn.models",
    "convert": "creinn.graph.convert",
    # credal sets, and classifiers that predict them
    "CredalSet": "creinn.credal.credal_set",
    "cross_entropy": "creinn.credal.loss",
    "bounds_cross_entropy": "creinn.credal.loss",
    "CreINN": "creinn.classifier.creinn",
    "Ensemble": "creinn.classifier.credal",
    "baselines": "creinn.baselines",
    # training, saving, inspection
    "TrainConfig": "creinn.training.config",
    "fit": "creinn.training.loop",
    "save": "creinn.saving",
    "load": "creinn.saving",
    "diagnose": "creinn.training.diagnose",
    "compile": "creinn.graph.compile",
    "compile_for_predict": "creinn.graph.compile",  # private
    "export": "creinn.graph.export",
    "native": "creinn.native",
    # data and evaluation
    "data": "creinn.data",
    "evaluation": "creinn.evaluation",
}
"""Module of each name."""

__all__ = [  # noqa: RUF022 (in the order of data flow)
    "Interval", "nn", "relative", "project_", "models", "convert",
    "CredalSet", "cross_entropy", "bounds_cross_entropy", "CreINN", "Ensemble", "baselines",
    "TrainConfig", "fit", "save", "load", "diagnose", "compile", "export", "native",
    "data", "evaluation",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'creinn' has no attribute {name!r}")
    home = import_module(_HOME[name])
    value = getattr(home, name, home)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
