"""Data and models for the tests of distance-aware radii."""

import torch

from creinn import CreINN, models


def blobs(
    rows: int = 300, classes: int = 3, features: int = 4, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Classes that overlap a little."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % classes
    means = 2 * torch.randn(classes, features, generator=torch.Generator().manual_seed(99))
    return means[y] + torch.randn(rows, features, generator=generator), y


def ordinary(seed: int = 0, **options: object) -> CreINN:
    """Return a CreINN-D with a small multilayer perceptron."""
    torch.manual_seed(seed)
    return CreINN(models.mlp(4, 3, hidden=(8,), layers=torch.nn), **{"distance": True, **options})
