"""Distances from classes: statistics against scikit-learn, relative ones against two Gaussians, bounds of boxes."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import ledoit_wolf as sklearn_ledoit_wolf

import reference
from creinn import Interval
from creinn.distance.class_statistics import Products
from creinn.distance.mahalanobis import MAX_RANK, Distance
from distance_cases import blobs


def measured(
    x: torch.Tensor, y: torch.Tensor, classes: int, rank: int = MAX_RANK, dtype=None
) -> Distance:
    distance = Distance(classes, rank).to(dtype or x.dtype)
    distance.fit(x, y)
    return distance


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(2, 60),
    features=st.integers(1, 12),
    blocks=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
def test_shrinkage_matches_scikit_learn(rows: int, features: int, blocks: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features)) @ rng.normal(size=(features, features))
    products = Products(torch.zeros(features).double(), torch.zeros(1, features).double())
    for block in torch.from_numpy(x).split(-(-rows // blocks)):
        products.add(block, torch.zeros(len(block), dtype=torch.long))
    covariance, share = products.ledoit_wolf()
    expected, expected_share = sklearn_ledoit_wolf(x, assume_centered=True)
    shrunk = (1 - share) * covariance + share * covariance.diagonal().mean() * torch.eye(
        features, dtype=torch.float64
    )
    np.testing.assert_allclose(shrunk.numpy(), expected, rtol=1e-9, atol=1e-12)
    if features > 1:
        assert share == pytest.approx(expected_share, abs=1e-9)


@pytest.mark.parametrize("rows", [20, 10_000])  # the second takes several blocks
def test_distances_to_class_means(rows: int) -> None:
    x, y = blobs(rows)
    distance = measured(x.double(), y, 3)
    means = torch.stack([x[y == k].double().mean(0) for k in range(3)])
    residuals = (x.double() - means[y]).numpy()
    precision = torch.from_numpy(
        np.linalg.inv(sklearn_ledoit_wolf(residuals, assume_centered=True)[0])
    )
    new = torch.randn(50, 4, generator=torch.Generator().manual_seed(1)).double() * 5
    apart = new[:, None] - means
    expected = torch.einsum("nki,ij,nkj->nk", apart, precision, apart).amin(1)
    torch.testing.assert_close(distance(new)[0], expected)


def test_empty_class_is_ignored() -> None:
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    y = 2 * (torch.arange(40) % 2)
    x[:, 0] += 10 * (
        y - 1
    )  # there are clusters at -10 and 10, and the mean of all rows is between them
    middle = torch.zeros(1, 2).double()
    squared = measured(x.double(), y, 3)(middle)[0]
    torch.testing.assert_close(squared, measured(x.double(), y // 2, 2)(middle)[0])
    assert squared.item() > 50


def test_distance_by_hand() -> None:
    # within classes: deviations +-1 in both axes, so the covariance is the identity; means (0, 0) and (10, 0)
    x = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [11, 1], [11, -1], [9, 1], [9, -1]])
    y = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    distance = measured(x, y, 2)
    new = torch.tensor([[0.0, 0.0], [2.0, 0.0], [10.0, 4.0]])
    squared, relative = distance(new)
    torch.testing.assert_close(squared, torch.tensor([0.0, 4.0, 16.0]))
    # means +-5 about their own mean add a variance of 25 along the first axis; the second one cancels
    torch.testing.assert_close(relative, torch.tensor([0 - 25 / 26, 4 - 9 / 26, 0 - 25 / 26]))


@settings(max_examples=40, deadline=None)
@given(
    classes=st.integers(2, 5),
    features=st.integers(1, 6),
    rank=st.integers(1, 6),
    seed=st.integers(0, 10**6),
)
def test_relative_distances(classes: int, features: int, rank: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = np.arange(40) % classes
    x = (
        rng.normal(size=(40, features)) @ rng.normal(size=(features, features))
        + 3 * rng.normal(size=(classes, 1))[y]
    )
    distance = measured(torch.from_numpy(x), torch.from_numpy(y), classes, rank)
    new = 4 * rng.normal(size=(20, features))
    directions, kept = distance.directions.numpy(), distance.directions.shape[1]
    within = directions * distance.deviations.numpy() ** 2 @ directions.T
    if kept < features:
        within += distance.rest.numpy() ** 2 * (np.eye(features) - directions @ directions.T)
    means = np.stack([x[y == k].mean(0) for k in range(classes)])
    between = (means - x.mean(0))[y].T @ (means - x.mean(0))[y] / len(y)
    apart, whole = new[:, None] - means, new - x.mean(0)
    nearest = np.einsum("nki,ij,nkj->nk", apart, np.linalg.inv(within), apart).min(1)
    background = np.einsum("ni,ij,nj->n", whole, np.linalg.inv(within + between), whole)
    scale = np.abs(nearest).max()
    np.testing.assert_allclose(
        distance(torch.from_numpy(new))[1].numpy(), nearest - background, atol=1e-8 * scale
    )


def test_distances_are_accurate_far_from_origin() -> None:
    x, y = blobs()
    far = measured(x + 3000, y, 3)(x + 3000)
    torch.testing.assert_close(far, measured(x, y, 3)(x), rtol=0.01, atol=0.01)


@pytest.mark.parametrize("rank", [2, MAX_RANK])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("far", [1e2, 1e4, 1e5, 1e6])
def test_distances_of_separated_classes(far: float, dtype: torch.dtype, rank: int) -> None:
    """Several classes lie close to each other, ``far`` deviations from the mean of all; against long doubles."""
    generator = torch.Generator().manual_seed(0)
    classes = (
        3 * torch.randn(5, 6, generator=generator)
        + torch.tensor([0.0, far, far, far, far])[:, None]
    )
    y = torch.arange(500) % 5
    x = (classes[y] + torch.randn(500, 6, generator=generator)).to(dtype)
    new = (classes[y[:100]] + 2 * torch.randn(100, 6, generator=generator)).to(dtype)
    distance = measured(x, y, 5, rank, torch.float64)
    whole = x.numpy().astype(np.longdouble)
    apart = new.numpy()[:, None] - np.stack([whole[y == k].mean(0) for k in range(5)])
    directions = distance.directions.numpy().astype(np.longdouble)
    along = apart @ directions
    expected = ((along / distance.deviations.numpy()) ** 2).sum(2)
    if rank < 6:
        expected += (((apart - along @ directions.T) / distance.rest.numpy()) ** 2).sum(2)
    found = copy.deepcopy(distance).to(dtype)(new)[0]
    resolution = far * torch.finfo(dtype).eps  # of the features themselves, in deviations
    np.testing.assert_allclose(
        found.numpy(), expected.min(1).astype(float), rtol=1e-5 + 10 * resolution
    )


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_variance_outside_of_rank(rank: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = (
        torch.randn(400, 5, generator=generator).double()
        @ torch.randn(5, 5, generator=generator).double()
    )
    y = torch.arange(400) % 2
    distance = measured(x, y, 2, rank)
    means = torch.stack([x[y == k].mean(0) for k in range(2)])
    covariance = sklearn_ledoit_wolf((x - means[y]).numpy(), assume_centered=True)[0]
    variances, vectors = np.linalg.eigh(covariance)
    variances[: 5 - rank] = variances[: 5 - rank].mean() if rank < 5 else variances[:0]
    precision = torch.from_numpy(np.linalg.inv(vectors * variances @ vectors.T))
    apart = 3 * x[:50, None] - means
    expected = torch.einsum("nki,ij,nkj->nk", apart, precision, apart).amin(1)
    torch.testing.assert_close(distance(3 * x[:50])[0], expected)


def test_memory_is_linear_in_features() -> None:
    x = torch.randn(50, 600, generator=torch.Generator().manual_seed(0))
    distance = measured(x, torch.arange(50) % 3, 3)
    assert distance.directions.shape == (600, MAX_RANK)
    assert bool(torch.isfinite(distance(x)[0]).all())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), width=st.floats(0, 3), rank=st.integers(1, 4))
def test_box_bound_is_at_least_distance_of_members(seed: int, width: float, rank: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(60, 4, generator=generator).double(), torch.arange(60) % 3
    distance = measured(x * torch.tensor([1.0, 2.0, 5.0, 9.0]) + y[:, None], y, 3, rank)
    lower = torch.randn(5, 4, generator=generator).double()
    box = Interval(lower, lower + width * torch.rand(5, 4, generator=generator).double())
    bounds = distance(box)
    for member in reference.members(box, generator, 30):
        assert all(
            bool((inner <= outer + 1e-9).all())
            for inner, outer in zip(distance(member), bounds, strict=True)
        )
    if width == 0:
        torch.testing.assert_close(bounds, distance(lower))


def test_non_finite_features_raise() -> None:
    with pytest.raises(ValueError, match="overflow"):
        measured(torch.tensor([[1.0], [torch.inf]]), torch.tensor([0, 1]), 2)
    with pytest.raises(ValueError, match="overflow"):
        measured(1e160 * torch.randn(9, 2).double(), torch.arange(9) % 3, 3)
