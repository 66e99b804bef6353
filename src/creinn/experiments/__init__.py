"""The paper's protocol: experiments by name, run piece by piece, reported beside the published numbers.

In: a name and folders of data and results. Out: records, tables, a report; and the demo, an experiment on embedded
data with a page of its own. Read ``definition``, ``catalogue``, ``plan``, ``store``, ``inputs``, ``predictions``,
``pieces``, ``cluster``, ``run``; then ``tables``, ``report``, ``demo``. The first two load no torch.
"""

from creinn.experiments.catalogue import EXPERIMENTS, experiment
from creinn.experiments.definition import (
    Arm,
    Experiment,
    Images,
    Network,
    Shift,
    Timing,
    Training,
    few_steps,
    tailor,
)

__all__ = [  # noqa: RUF022 (in the order of the files)
    "Images", "Network", "Training", "Shift", "Arm", "Timing", "Experiment", "tailor", "few_steps",
    "EXPERIMENTS", "experiment",
]  # fmt: skip
