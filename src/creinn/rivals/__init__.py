"""The methods that CreINN is measured against, behind the same prediction interface.

SNN: ordinary network; BNN-R and BNN-F: variational networks of :mod:`creinn.rivals.local` and
:mod:`creinn.rivals.flipout` layers; FSVI: function-space variational inference; BNN-L: last-layer Laplace with the
Laplace bridge; each also as an ensemble.
"""

from creinn.nn.families import register_family
from creinn.rivals import flipout, local
from creinn.rivals.bnn import BNN
from creinn.rivals.dirichlet import DirichletPredictive
from creinn.rivals.ensemble import DeepEnsemble
from creinn.rivals.fsvi import FSVI
from creinn.rivals.laplace import LaplaceBNN
from creinn.rivals.prediction import Predictive
from creinn.rivals.snn import SNN

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
