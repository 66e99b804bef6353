"""Credal-set interval neural networks: classification that knows what it does not know.

Names in the order in which data flow through them. They are loaded when first asked for, so that ``import creinn`` and
the command line's help do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from creinn import data, evaluation, models, nn, relative, rivals
    from creinn.conversion import convert
    from creinn.credal import CredalSet, bounds_cross_entropy, cross_entropy
    from creinn.creinn import CreINN, Ensemble
    from creinn.diagnosis import diagnose
    from creinn.inference import compile
    from creinn.interval import Interval
    from creinn.nn.parameters import project_
    from creinn.saving import load, save
    from creinn.training.config import TrainConfig
    from creinn.training.loop import fit

__version__ = "0.1.0"

_HOME = {
    # intervals, layers, networks
    "Interval": "creinn.interval",
    "nn": None,
    "relative": None,
    "project_": "creinn.nn.parameters",
    "models": None,
    "convert": "creinn.conversion",
    # credal sets, and classifiers that predict them
    "CredalSet": "creinn.credal",
    "cross_entropy": "creinn.credal",
    "bounds_cross_entropy": "creinn.credal",
    "CreINN": "creinn.creinn",
    "Ensemble": "creinn.creinn",
    "rivals": None,
    # training, saving, looking inside
    "TrainConfig": "creinn.training.config",
    "fit": "creinn.training.loop",
    "save": "creinn.saving",
    "load": "creinn.saving",
    "diagnose": "creinn.diagnosis",
    "compile": "creinn.inference",
    # data and evaluation
    "data": None,
    "evaluation": None,
}  # name: the module that defines it; None for a module of this package

__all__ = [  # noqa: RUF022 (in the order of data flow)
    "Interval", "nn", "relative", "project_", "models", "convert",
    "CredalSet", "cross_entropy", "bounds_cross_entropy", "CreINN", "Ensemble", "rivals",
    "TrainConfig", "fit", "save", "load", "diagnose", "compile",
    "data", "evaluation",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'creinn' has no attribute {name!r}")
    home = _HOME[name]
    value = import_module(f"creinn.{name}") if home is None else getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
