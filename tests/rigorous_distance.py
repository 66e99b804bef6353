"""Models with a distance, and a comparison with members in ball arithmetic."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import flint
import numpy as np
import torch

from creinn import CreINN
from reference_distance import perturbed, radius_of, run_at
from reference_exact import BITS, MEMBERS, draw_inputs, draw_member, misses, run
from rigorous_cases import inputs_of, model_of

PLACES = {
    "perceptron": ("2", "<head>"),
    "one logit": ("2", "4", "<head>"),
    "two classes": ("0", "2", "4", "<head>"),
    "convolutions": ("2", "5", "<head>"),
    "residual": ("3", "<head>"),
    "averages": ("1", "<head>"),
    "relative perceptron": ("<head>",),
}


def with_distance(name: str, kind: str, seed: int, dtype: torch.dtype = torch.float32) -> CreINN:
    """Return a sound model with a distance; usual data are used after an overflow."""
    model, usual = model_of(name, kind, seed, dtype), model_of(name, "usual", seed, dtype)
    for one, its_kind in ((model, kind), (usual, "usual")):
        one.feature_layers = PLACES[name]
        with suppress(ValueError):  # that squares overflow
            one.fit_distance(
                inputs_of(name, its_kind, 60, 99, dtype), torch.arange(60) % one.num_classes
            )
    if not model.distance_radius.fitted:
        model.distance_radius = usual.distance_radius
        model.distance_fitted_on.parts = {}  # accept the distance of another network
    model.distance_radius.scale.fill_(0.01)
    return model


def count_misses(
    model: CreINN, x: Any, forms: Sequence[Any], seed: int
) -> tuple[int, list[int], list[torch.Tensor]]:
    """Return the number of probabilities of members, of those outside the sets, and the widths."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        sets = [form(x) for form in forms]
    count, missed = 0, [0] * len(forms)
    for kind in MEMBERS:
        with flint.ctx.workprec(BITS):
            member = draw_member(model.network, kind, rng)
            outputs, logits = run_at(
                model.network, draw_inputs(x, kind, rng), member, model.feature_layers
            )
            logits = run(model.norm, logits, member)
            for shares in perturbed(logits, radius_of(model.distance_radius, outputs)):
                count += shares.size
                missed = [
                    old + misses(shares, s.lower, s.upper, 0.0, 1.0)
                    for old, s in zip(missed, sets, strict=True)
                ]
    return count, missed, [s.width.amax(1) for s in sets]
