"""Inference time of each method, side by side (Table "Relative inference time").

Methods take turns call by call, so that what else the machine does falls on all of them alike; the least and the median
time of each are kept. Weights are as initialised: time does not depend on their values.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from creinn.evaluation.timing import Call, Skipped, interleaved
from creinn.experiments import inputs, methods
from creinn.experiments.pieces import Workshop
from creinn.experiments.plan import Piece
from creinn.training.loop import choose_device

FITTED_ON = 256


def measure_time(shop: Workshop, piece: Piece) -> None:
    """Time the classifiers of an experiment, and record seconds per call.

    ``"label"`` is the time to the predicted class, ``"uncertainty"`` that to class, aleatoric, epistemic and total
    uncertainty.
    """
    experiment, device = shop.experiment, choose_device(shop.device)
    assert experiment.timing is not None
    images = shop.sources.test.read()
    normalise = inputs.normalisation(experiment, images)
    x = inputs.network_inputs(images, None, normalise)
    models = {}
    for method in experiment.methods:
        model = shop.build(Piece("train", method, 0, {})).to(device).eval()
        first = x[:FITTED_ON].to(device)
        model.before_training(first, images.labels[:FITTED_ON].to(device), 1)
        model.after_training(first, images.labels[:FITTED_ON].to(device))  # methods that are fitted post hoc predict so
        models[method] = model
    results: dict[str, Any] = {method: {} for method in models}
    for size in experiment.timing.batches:
        batch = x[:size].to(device)
        for what, finish in (("label", _label), ("uncertainty", _uncertainty)):
            calls = {method: partial(_call, model, batch, finish) for method, model in models.items()}
            with torch.no_grad():
                outcomes = interleaved(calls, experiment.timing.rounds, device=device)
            for method, found in outcomes.items():
                if isinstance(found, Skipped):
                    raise ValueError(f"{method}: {found.reason}")
                spread = {"least": found.least, "median": found.median}
                results[method].setdefault(str(size), {})[what] = {k: float(f"{v:.4g}") for k, v in spread.items()}
    parameters = {method: methods.count_parameters(model) for method, model in models.items()}
    shop.record(piece, {"parameters": parameters, "seconds_per_call": results})


def _call(model: torch.nn.Module, x: Any, finish: Callable[[Any], None]) -> Call:
    return lambda: finish(model(x))


def _label(prediction: Any) -> None:
    prediction.label  # noqa: B018  (computed when asked for)


def _uncertainty(prediction: Any) -> None:
    _ = prediction.label, prediction.total, prediction.aleatoric, prediction.epistemic
