"""The paper's protocol: experiments by name, run piece by piece, reported beside the published numbers.

Definitions can be imported without loading torch; running and reporting load it.
"""

from creinn.experiments.catalogue import EXPERIMENTS, experiment
from creinn.experiments.definition import Arm, Experiment, Images, Network, Shift, Timing, Training
from creinn.experiments.tailoring import few_steps, tailor

__all__ = [
    "EXPERIMENTS",
    "Arm",
    "Experiment",
    "Images",
    "Network",
    "Shift",
    "Timing",
    "Training",
    "experiment",
    "few_steps",
    "tailor",
]
