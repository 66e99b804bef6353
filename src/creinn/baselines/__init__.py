"""Baseline methods with the same interface as CreINN.

They predict samples of distributions, or credal sets (EffCre, CreRL).
"""

from creinn.baselines.bayesian_layers import flipout, local_reparameterization
from creinn.baselines.bnn import BNN
from creinn.baselines.crerl import CreRL
from creinn.baselines.effcre import EffCre
from creinn.baselines.fsvi import FSVI
from creinn.baselines.laplace import LaplaceBNN
from creinn.baselines.predictive import DirichletPredictive, Predictive
from creinn.baselines.snn import SNN, DeepEnsemble

__all__ = [
    "BNN", "FSVI", "SNN", "CreRL", "DeepEnsemble", "DirichletPredictive", "EffCre",
    "LaplaceBNN", "Predictive", "flipout", "local_reparameterization",
]  # fmt: skip
