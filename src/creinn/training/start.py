"""A trained ordinary model becomes a CreINN around the same network.

A distance comes on top of a network as it is; for radii an ordinary network becomes its interval twin
(:func:`creinn.convert`). Batch norm on the logits comes along.
"""

from collections.abc import Mapping
from typing import Any

import torch

from creinn.classifier.creinn import CreINN
from creinn.graph.convert import convert
from creinn.rivals import SNN


def credal(model: SNN | CreINN, form: Mapping[str, Any], needs_radii: bool) -> CreINN:
    """A CreINN around the network of a trained model, whose weights it shares where it is not converted.

    Args:
        model: An ordinary model, or a CreINN.
        form: Options of the CreINN, among them ``mode``.
        needs_radii: Whether an ordinary network shall become its interval twin.

    Raises:
        ValueError: If the network has no interval twin, or is an interval network of another mode.
    """
    is_interval = isinstance(model, CreINN) and model.is_interval
    if is_interval and form["mode"] != model.mode:
        raise ValueError(f"The model to start from was trained in mode {model.mode!r}: give --mode {model.mode}.")
    if needs_radii and not is_interval:
        layers = (model.network, model.norm) if model.logit_norm else (model.network,)
        ordinary = torch.nn.Sequential(*layers).eval() if len(layers) > 1 else model.network.eval()
        return CreINN(convert(ordinary, mode=form["mode"]), logits=model.logits, logit_norm=False, **form).eval()
    made = CreINN(model.network, logits=model.logits, logit_norm=model.logit_norm, **form)
    made.norm.load_state_dict(model.norm.state_dict())
    return made.eval()
