"""Baseline methods with the same interface as CreINN.

Each module contains one method. A baseline takes an ordinary network, or a network of
``local_reparameterization`` (BNN-R) or ``flipout`` (BNN-F) layers, and predicts samples of
distributions, or credal sets (EffCre, CreRL).
"""

from creinn.baselines import flipout, local_reparameterization
from creinn.baselines.bnn import BNN
from creinn.baselines.crerl import CreRL
from creinn.baselines.deep_ensemble import DeepEnsemble
from creinn.baselines.effcre import EffCre
from creinn.baselines.fsvi import FSVI
from creinn.baselines.laplace import LaplaceBNN
from creinn.baselines.predictive import DirichletPredictive, Predictive
from creinn.baselines.snn import SNN
from creinn.nn.registry import register_family

__all__ = [
    "BNN", "FSVI", "SNN", "CreRL", "DeepEnsemble", "DirichletPredictive", "EffCre",
    "LaplaceBNN", "Predictive", "flipout", "local_reparameterization",
]  # fmt: skip

register_family("local_reparameterization", local_reparameterization)
register_family("flipout", flipout)
