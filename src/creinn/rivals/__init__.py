"""The methods that CreINN is measured against, behind the same interface.

In: an ordinary network, or one of ``local`` or ``flipout`` layers. Out: samples of distributions. Read ``prediction``,
``snn`` (also ensembles), ``bnn`` (BNN-R of ``local``, BNN-F of ``flipout`` layers), ``fsvi`` (function-space
inference), ``laplace`` (BNN-L: last-layer Laplace with the Laplace bridge).
"""

from creinn.nn.families import register_family
from creinn.rivals import flipout, local
from creinn.rivals.bnn import BNN
from creinn.rivals.fsvi import FSVI
from creinn.rivals.laplace import LaplaceBNN
from creinn.rivals.prediction import DirichletPredictive, Predictive
from creinn.rivals.snn import SNN, DeepEnsemble

__all__ = [
    "BNN",
    "FSVI",
    "SNN",
    "DeepEnsemble",
    "DirichletPredictive",
    "LaplaceBNN",
    "Predictive",
    "flipout",
    "local",
]

register_family("local", local)
register_family("flipout", flipout)
