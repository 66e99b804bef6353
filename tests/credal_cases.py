"""Named, seeded credal sets: by hand, adversarial, and random families; and hypothesis strategies."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from creinn import CreINN, models
from creinn import nn as inn
from creinn.credal.credal_set import CredalSet
from creinn.credal.probability import interval_softmax, reachable

Bounds = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class CredalCase:
    """One set of probability intervals, float64."""

    name: str
    lower: list[float]
    upper: list[float]

    def bounds(self) -> Bounds:
        return torch.tensor(self.lower, dtype=torch.float64), torch.tensor(
            self.upper, dtype=torch.float64
        )


TINY = 5e-324  # smallest positive float64, denormal
CASES = [
    CredalCase("by hand", [0.0, 0.4, 0.2], [0.2, 0.6, 0.4]),
    CredalCase("two classes", [0.2, 0.3], [0.7, 0.8]),
    CredalCase("two classes, fixed", [0.25, 0.75], [0.25, 0.75]),
    CredalCase("vacuous", [0.0] * 5, [1.0] * 5),
    CredalCase("vacuous, two classes", [0.0] * 2, [1.0] * 2),
    CredalCase("one-hot", [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]),
    CredalCase("one-hot inside", [0.0, 0.5, 0.0], [0.5, 1.0, 0.5]),
    CredalCase("uniform point", [0.125] * 8, [0.125] * 8),
    CredalCase("thirds", [1 / 3] * 3, [1 / 3] * 3),
    CredalCase("point", [0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]),
    CredalCase("level at a bound", [0.25, 0.0, 0.0, 0.25], [0.6, 0.6, 0.6, 0.25]),
    CredalCase("all alike", [0.1] * 7, [0.2] * 7),
    CredalCase("ties in lower", [0.1] * 5, [0.2, 0.25, 0.3, 0.35, 0.4]),
    CredalCase("ties in upper", [0.05, 0.1, 0.12, 0.15, 0.2], [0.4] * 5),
    CredalCase("ordered alike", [0.0, 0.05, 0.1, 0.15], [0.2, 0.35, 0.4, 0.5]),
    CredalCase("nested", [0.2 - 0.03 * k for k in range(5)], [0.2 + 0.03 * k for k in range(5)]),
    CredalCase("two nested pairs", [0.1, 0.2, 0.1, 0.2], [0.4, 0.3, 0.4, 0.3]),
    CredalCase("some fixed", [0.1, 0.0, 0.3, 0.0, 0.05], [0.1, 0.4, 0.3, 0.6, 0.05]),
    CredalCase("one free pair", [0.3, 0.1, 0.2, 0.2], [0.5, 0.3, 0.2, 0.2]),
    CredalCase("not reachable", [0.1, 0.2, 0.3], [0.4, 0.5, 0.9]),
    CredalCase("not reachable below", [0.0, 0.0, 0.0], [0.2, 0.3, 0.9]),
    CredalCase("denormal", [TINY, 0.0, 0.3], [1e-310, TINY, 1.0]),
    CredalCase("denormal widths", [0.5, TINY, 0.5], [0.5, 1e-320, 0.5]),
    CredalCase("tiny", [1e-12, 1e-9, 0.4], [1e-10, 1e-5, 1.0]),
    CredalCase("hardly open", [0.2, 0.3, 0.5 - 1e-15], [0.2, 0.3 + 1e-15, 0.5]),
    CredalCase("saturated", [1 - 1e-12, 0.0, 1e-15], [1.0, 1e-12, 1e-13]),
    CredalCase("powers", [2.0**-k / 4 for k in range(1, 9)], [2.0**-k * 1.5 for k in range(1, 9)]),
    CredalCase("reversed", [0.02 * k for k in range(8)], [0.3 - 0.02 * k for k in range(8)]),
]


def softmax_sets(count: int, classes: int, seed: int, width: float) -> Bounds:
    """What a network with interval logits produces."""
    generator = torch.Generator().manual_seed(seed)
    center = 2 * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    radius = width * torch.rand(count, classes, generator=generator, dtype=torch.float64)
    return reachable(*interval_softmax(center - radius, center + radius))


def boxes(count: int, classes: int, seed: int, share: float) -> Bounds:
    """Return random distributions with random relative margins."""
    generator = torch.Generator().manual_seed(seed)
    point = -torch.rand(count, classes, generator=generator, dtype=torch.float64).log()
    point = point / point.sum(-1, keepdim=True)
    down, up = torch.rand(2, count, classes, generator=generator, dtype=torch.float64)
    return reachable(point * (1 - share * down), (point * (1 + 3 * share * up)).clamp_max(1))


def random_sets(count: int = 20, classes: int = 5, seed: int = 0) -> CredalSet:
    return CredalSet(*boxes(count, classes, seed, share=1.0))


def independent(count: int, classes: int, seed: int) -> Bounds:
    """Return two sorted uniform numbers for each class if there is a distribution between them."""
    generator = torch.Generator().manual_seed(seed)
    ends = (
        torch.rand(8 * count + 64, classes, 2, generator=generator, dtype=torch.float64)
        * 2
        / classes
    )
    lower, upper = ends.amin(-1), ends.amax(-1)
    fits = (lower.sum(-1) <= 1) & (upper.sum(-1) >= 1) & (upper.amax(-1) <= 1)
    return reachable(lower[fits][:count], upper[fits][:count])


def concentric(count: int, classes: int, seed: int) -> Bounds:
    """Return intervals around 1/K in which the orders of the bounds differ. These are hard cases."""
    generator = torch.Generator().manual_seed(seed)
    radius = torch.rand(count, classes, generator=generator, dtype=torch.float64) / classes
    return reachable(1 / classes - radius, 1 / classes + radius)


def lattice(count: int, classes: int, seed: int) -> Bounds:
    """Return bounds on a grid of 1/16, with many ties and many widths of zero."""
    generator = np.random.default_rng(seed)
    point = generator.multinomial(16, np.full(classes, 1 / classes), size=count)
    lower = np.maximum(point - generator.integers(0, 4, point.shape), 0) / 16
    upper = np.minimum(point + generator.integers(0, 4, point.shape), 16) / 16
    return torch.from_numpy(lower), torch.from_numpy(upper)


FAMILIES: dict[str, Callable[[int, int, int], Bounds]] = {
    "softmax, narrow": lambda n, k, seed: softmax_sets(n, k, seed, 0.1),
    "softmax": lambda n, k, seed: softmax_sets(n, k, seed, 1.0),
    "softmax, wide": lambda n, k, seed: softmax_sets(n, k, seed, 4.0),
    "boxes, narrow": lambda n, k, seed: boxes(n, k, seed, 0.1),
    "boxes": lambda n, k, seed: boxes(n, k, seed, 1.0),
    "independent": independent,
    "concentric": concentric,
    "lattice": lattice,
}


def equal_slopes(count: int, classes: int, seed: int) -> Bounds:
    """Subset sum: all chords of -q log q have the slope of its tangent at 1/K."""
    generator = torch.Generator().manual_seed(seed)
    lower = (
        0.1 + 0.8 * torch.rand(count, classes, generator=generator, dtype=torch.float64)
    ) / classes

    def excess(q: Tensor) -> Tensor:
        return -q * (q * classes).log() + q

    low, high = torch.full_like(lower, 1 / classes), torch.full_like(lower, np.e / classes)
    for _ in range(60):
        middle = (low + high) / 2
        above = excess(middle) > excess(lower)
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return lower, high


def scaled_network(count: int, classes: int, seed: int) -> Bounds:
    """What an untrained network in scaled mode produces: wide intervals, hardly any two ordered alike."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = CreINN(
            models.mlp(20, hidden=(64, 64), num_classes=classes, layers=inn), mode="scaled"
        ).eval()
        with torch.no_grad():
            found = model(torch.randn(count, 20))
    return found.lower.double(), found.upper.double()


HARD = {"equal slopes": equal_slopes, "scaled network": scaled_network, "concentric": concentric}


def seeded(examples: int = 100) -> settings:
    """Decorator for property tests: the same examples in every run, no time limit for one of them."""
    return settings(max_examples=examples, derandomize=True, database=None, deadline=None)


_margins = st.one_of(st.sampled_from([0.0, 1.0, 0.5, 1e-12, 5e-324]), st.floats(0, 1))
_weights = st.one_of(st.sampled_from([0.0, 1.0, 2.0, 1e-12, 5e-324]), st.floats(0, 1))


@st.composite
def credal_bounds(draw: st.DrawFn, most_classes: int = 6) -> Bounds:
    """One set around a random distribution; zeros, ties, denormals and vacuous intervals are likely."""
    classes = draw(st.integers(2, most_classes))
    weights = np.array(draw(st.lists(_weights, min_size=classes, max_size=classes)))
    weights = weights if weights.sum() > 1e-3 else np.ones(classes)
    point = weights / weights.sum()
    down, up = (
        np.array(draw(st.lists(_margins, min_size=classes, max_size=classes))) for _ in range(2)
    )
    return torch.from_numpy(point * (1 - down)), torch.from_numpy(
        np.minimum(point + (1 - point) * up, 1.0)
    )


@st.composite
def distributions(draw: st.DrawFn, most: int = 8) -> np.ndarray:
    """Up to ``most`` rows of sixteenths, exact in binary: many ties within and between rows, and zeros."""
    classes = draw(st.integers(2, 5))
    cuts = st.lists(st.integers(0, 16), min_size=classes - 1, max_size=classes - 1).map(sorted)
    return np.array(
        [np.diff([0, *row, 16]) / 16 for row in draw(st.lists(cuts, min_size=1, max_size=most))]
    )
