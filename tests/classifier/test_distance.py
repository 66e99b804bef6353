"""Distance-aware radii: statistics against scikit-learn, bounds against sampled members, the choice of the scale."""

import copy
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import ledoit_wolf as sklearn_ledoit_wolf

import reference
from creinn import CredalSet, Interval
from creinn.classifier.creinn import credal_set
from creinn.classifier.distance import (
    LARGEST_RANK,
    LARGEST_SCALE_SEEN,
    SCALES,
    VACUOUS,
    Distance,
    DistanceRadius,
    Observed,
    add_radius,
    area_under_rejection,
    choose_scale,
    fit_radius,
    one_sixth,
)
from creinn.classifier.moments import Products
from creinn.classifier.network import observe
from creinn.evaluation import auarc
from distance_cases import blobs, ordinary


def measured(x: torch.Tensor, y: torch.Tensor, classes: int, rank: int = LARGEST_RANK, dtype=None) -> Distance:
    distance = Distance(classes, rank).to(dtype or x.dtype)
    distance.fit(x, y)
    return distance


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(2, 60), features=st.integers(1, 12), blocks=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_shrinkage_is_that_of_scikit_learn(rows: int, features: int, blocks: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features)) @ rng.normal(size=(features, features))
    products = Products(torch.zeros(features).double(), torch.zeros(1, features).double())
    for block in torch.from_numpy(x).split(-(-rows // blocks)):
        products.add(block, torch.zeros(len(block), dtype=torch.long))
    covariance, share = products.ledoit_wolf()
    expected, expected_share = sklearn_ledoit_wolf(x, assume_centered=True)
    shrunk = (1 - share) * covariance + share * covariance.diagonal().mean() * torch.eye(features, dtype=torch.float64)
    np.testing.assert_allclose(shrunk.numpy(), expected, rtol=1e-9, atol=1e-12)
    if features > 1:
        assert share == pytest.approx(expected_share, abs=1e-9)


@pytest.mark.parametrize("rows", [20, 10_000])  # the second takes several blocks
def test_distances_are_those_to_class_means_under_the_shared_covariance(rows: int) -> None:
    x, y = blobs(rows)
    distance = measured(x.double(), y, 3)
    means = torch.stack([x[y == k].double().mean(0) for k in range(3)])
    residuals = (x.double() - means[y]).numpy()
    precision = torch.from_numpy(np.linalg.inv(sklearn_ledoit_wolf(residuals, assume_centered=True)[0]))
    new = torch.randn(50, 4, generator=torch.Generator().manual_seed(1)).double() * 5
    apart = new[:, None] - means
    expected = torch.einsum("nki,ij,nkj->nk", apart, precision, apart).amin(1)
    torch.testing.assert_close(distance.squared(new), expected)


def test_distance_by_hand() -> None:
    # within classes: deviations +-1 in both axes, so the covariance is the identity; means (0, 0) and (10, 0)
    x = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [11, 1], [11, -1], [9, 1], [9, -1]])
    y = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    distance = Distance(2)
    distance.fit(x, y)
    assert distance.median.item() == pytest.approx(2)  # every training row has 1 + 1
    new = torch.tensor([[0.0, 0.0], [2.0, 0.0], [10.0, 4.0]])
    torch.testing.assert_close(distance.squared(new), torch.tensor([0.0, 4.0, 16.0]))
    radius = DistanceRadius(2, 2)
    places = Interval.point(x), Interval.point(3 * x)  # the second place sees the same distances
    fit_radius(radius, [Observed(places, places[0], y)], None, 0.5, CredalSet)
    torch.testing.assert_close(radius((new, 3 * new)), torch.tensor([0.0, 0.5, 3.5]))
    torch.testing.assert_close(radius((new, 0 * new)), torch.tensor([0.0, 0.0, 1.5]))  # relative distances 8 and 0


def test_radii_are_added_until_nothing_is_known() -> None:
    logits = Interval(torch.tensor([[0.0, 3.0], [0.0, 3.0]]), torch.tensor([[1.0, 3.0], [1.0, 3.0]]))
    wide = add_radius(logits, torch.tensor([2.0, 1e9]))
    torch.testing.assert_close(wide.lower, torch.tensor([[-2.0, 1.0], [-3 - VACUOUS, -VACUOUS]]))
    torch.testing.assert_close(wide.upper, torch.tensor([[3.0, 5.0], [4 + VACUOUS, 6 + VACUOUS]]))
    one = add_radius(Interval.point(torch.tensor([[-5.0], [5.0]])), torch.tensor([1e9, torch.inf]))
    torch.testing.assert_close(one.upper, torch.tensor([[VACUOUS], [10 + VACUOUS]]))
    scores = 30 * torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    for mode in ("paper", "sound"):
        vacuous = credal_set(add_radius(Interval.point(scores), torch.full((200,), 1e9)), mode)
        assert vacuous.lower.max() < 1e-6
        assert vacuous.upper.min() > 1 - 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "name",
    ["more features than rows", "one row each", "an empty class", "one row", "constant", "a dead feature", "two"],
)
def test_poor_data_give_finite_distances(name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(12, 5, generator=generator), torch.arange(12) % 3
    if name == "more features than rows":
        x = torch.randn(12, 60, generator=generator)
    elif name == "one row each":
        x, y = x[:3], y[:3]
    elif name == "an empty class":
        y = 2 * (y // 2)
    elif name == "one row":
        x, y = x[:1], y[:1]
    elif name == "constant":
        x = torch.full((12, 5), 0.1)
    elif name == "a dead feature":
        x[:, 2] = 0
    else:  # exactly singular, and no spread among the products: the estimated share of shrinkage is 0
        x, y = torch.tensor([[1.0, 0, 0], [-1.0, 0, 0]]), torch.tensor([1, 1])
    x = x.to(dtype)
    radius = fitted_to(x, y, 3)
    assert radius.distances[0].median > 0
    near, far = radius((x,)), radius((100 + 100 * x[:1],))
    assert bool(torch.isfinite(near).all())
    assert 1 < far.item() < torch.inf
    assert near.median() <= 1


def test_a_class_without_samples_is_not_a_place_to_be_near_to() -> None:
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    y = 2 * (torch.arange(40) % 2)
    x[:, 0] += 10 * (y - 1)  # two clusters, at -10 and 10; class 1 would lie between them
    middle = torch.zeros(1, 2).double()
    squared = measured(x.double(), y, 3).squared(middle)
    torch.testing.assert_close(squared, measured(x.double(), y // 2, 2).squared(middle))
    assert squared.item() > 50


def fitted_to(x: torch.Tensor, y: torch.Tensor, classes: int) -> DistanceRadius:
    radius = DistanceRadius(1, classes).to(x.dtype)
    fit_radius(radius, [Observed((Interval.point(x),), Interval.point(x), y)], None, 1.0, CredalSet)
    return radius


def test_distances_are_not_lost_far_from_the_origin() -> None:
    x, y = blobs()
    near, far = fitted_to(x, y, 3), fitted_to(x + 3000, y, 3)
    torch.testing.assert_close(far((x + 3000,)), near((x,)), rtol=0.01, atol=0.01)


@pytest.mark.parametrize("rank", [2, LARGEST_RANK])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("far", [1e2, 1e4, 1e5, 1e6])
def test_classes_far_apart_are_not_mistaken_for_each_other(far: float, dtype: torch.dtype, rank: int) -> None:
    """Several classes lie close to each other, ``far`` deviations from the mean of all; against long doubles."""
    generator = torch.Generator().manual_seed(0)
    classes = 3 * torch.randn(5, 6, generator=generator) + torch.tensor([0.0, far, far, far, far])[:, None]
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
    found = copy.deepcopy(distance).to(dtype).squared(new)
    resolution = far * torch.finfo(dtype).eps  # of the features themselves, in deviations
    np.testing.assert_allclose(found.numpy(), expected.min(1).astype(float), rtol=1e-5 + 10 * resolution)


def test_the_largest_radius_makes_any_logits_vacuous() -> None:
    generator = torch.Generator().manual_seed(0)
    for dtype, classes, mode in itertools.product((torch.float32, torch.float64), (1, 2, 5), ("paper", "sound")):
        size = 10 ** (30 * torch.rand(400, 1, generator=generator))
        offset = (
            size * torch.rand(400, 1, generator=generator) * 10 ** torch.randint(0, 7, (400, 1), generator=generator)
        )
        logits = (size * torch.randn(400, classes, generator=generator) + (offset if classes > 1 else 0)).to(dtype)
        for radius in (torch.inf, torch.finfo(dtype).max):
            found = credal_set(Interval.point(logits), mode, torch.full((400,), radius, dtype=dtype))
            assert found.lower.max() < 1e-6
            assert found.upper.min() > 1 - 1e-6


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_directions_beyond_the_rank_have_the_mean_of_their_variances(rank: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 5, generator=generator).double() @ torch.randn(5, 5, generator=generator).double()
    y = torch.arange(400) % 2
    distance = measured(x, y, 2, rank)
    means = torch.stack([x[y == k].mean(0) for k in range(2)])
    covariance = sklearn_ledoit_wolf((x - means[y]).numpy(), assume_centered=True)[0]
    variances, vectors = np.linalg.eigh(covariance)
    variances[: 5 - rank] = variances[: 5 - rank].mean() if rank < 5 else variances[:0]
    precision = torch.from_numpy(np.linalg.inv(vectors * variances @ vectors.T))
    apart = 3 * x[:50, None] - means
    expected = torch.einsum("nki,ij,nkj->nk", apart, precision, apart).amin(1)
    torch.testing.assert_close(distance.squared(3 * x[:50]), expected)


def test_many_features_take_memory_in_proportion() -> None:
    x = torch.randn(50, 600, generator=torch.Generator().manual_seed(0))
    distance = measured(x, torch.arange(50) % 3, 3)
    assert distance.directions.shape == (600, LARGEST_RANK)
    assert bool(torch.isfinite(distance.squared(x)).all())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), width=st.floats(0, 3), rank=st.integers(1, 4))
def test_the_bound_of_a_box_is_at_least_the_distance_of_every_member(seed: int, width: float, rank: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(60, 4, generator=generator).double(), torch.arange(60) % 3
    distance = measured(x * torch.tensor([1.0, 2.0, 5.0, 9.0]) + y[:, None], y, 3, rank)
    lower = torch.randn(5, 4, generator=generator).double()
    box = Interval(lower, lower + width * torch.rand(5, 4, generator=generator).double())
    bound = distance.squared(box)
    for member in reference.members(box, generator, 30):
        assert bool((distance.squared(member) <= bound + 1e-9).all())
    if width == 0:
        torch.testing.assert_close(bound, distance.squared(lower))


def test_features_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="features of the training data are not finite"):
        measured(torch.tensor([[1.0], [torch.inf]]), torch.tensor([0, 1]), 2)
    with pytest.raises(ValueError, match="so large that their squares overflow"):
        measured(1e160 * torch.randn(9, 2).double(), torch.arange(9) % 3, 3)
    x, y = blobs()
    with pytest.raises(ValueError, match="Half of the held-out data lie infinitely far away"):
        measured(x, y, 3).set_median(1e25 * x)
    with pytest.raises(ValueError, match="there are no rows"):
        measured(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), 2)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 40), levels=st.integers(1, 10))
def test_area_is_that_of_the_evaluation(seed: int, rows: int, levels: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    score = torch.randint(levels, (rows,), generator=generator) / 7
    correct = torch.rand(rows, generator=generator) < 0.6
    assert area_under_rejection(score, correct) == pytest.approx(auarc(score, correct))


def test_the_scale_is_the_largest_that_costs_little() -> None:
    x, y = blobs(200)
    noise = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    logits = Interval.point(2 * torch.nn.functional.one_hot(y, 3) + noise)
    observed = Observed(Interval.point(x), logits, y)

    def head(logits: Interval) -> CredalSet:
        return credal_set(logits, "paper")

    correct = logits.lower.argmax(1) == y
    assert 0.5 < correct.float().mean() < 0.99
    assert choose_scale(observed, torch.zeros(200), head) == SCALES[-1]  # nothing changes, whatever the scale
    assert choose_scale(observed, torch.zeros(200), head, 1.0) == 1.0
    harmful = torch.where(correct, 1.0, 0.0)  # the right ones look far away
    chosen = choose_scale(observed, harmful, head)
    assert SCALES[0] <= chosen < 1

    def area(scale: float) -> float:
        prediction = head(Interval(logits.lower - scale * harmful[:, None], logits.lower + scale * harmful[:, None]))
        return auarc(prediction.total, prediction.label == y)

    following = SCALES[SCALES.index(chosen) + 1]
    assert area(chosen) >= area(0) - 0.002 > area(following)
    assert choose_scale(observed, 1e4 * harmful, head) == SCALES[0]  # even the smallest costs too much


def test_without_errors_the_number_of_classes_in_the_sets_limits_the_scale() -> None:
    """Every row is right by 4 in its logit, and half of them look far away."""
    y = torch.arange(60) % 3
    logits = Interval.point(4.0 * torch.nn.functional.one_hot(y, 3))
    excess = (torch.arange(60) < 30).float()

    def head(logits: Interval) -> CredalSet:
        return credal_set(logits, "paper")

    def classes(scale: float) -> float:
        radius = (scale * excess)[:, None]
        return head(Interval(logits.lower - radius, logits.lower + radius)).classes("dominance").sum(1).float().mean()

    chosen = choose_scale(Observed((logits,), logits, y), excess, head)
    assert classes(0.0) == 1
    assert classes(chosen) <= 1.1 < classes(SCALES[SCALES.index(chosen) + 1])


def test_a_sixth_of_each_class() -> None:
    y = torch.tensor([0] * 60 + [1] * 30 + [2] * 6)
    mask = one_sixth(y)
    assert torch.equal(mask, one_sixth(y))
    assert torch.bincount(y[mask]).tolist() == [10, 5, 1]
    assert not mask[:10].all()  # drawn, not the first ones


def test_the_scale_is_chosen_on_held_out_data() -> None:
    x, y = blobs()
    model = ordinary()
    model.fit_distance(x, y)
    seen = model.distance_radius.scale.item()
    assert seen <= LARGEST_SCALE_SEEN
    model.fit_distance(x, y, held_out=blobs(seed=1))
    assert model.distance_radius.scale.item() in torch.tensor(SCALES).tolist()
    (new,), _ = observe(model.network.eval(), blobs(seed=1)[0])
    distance = model.distance_radius.distances[0]
    torch.testing.assert_close(distance.median, distance.squared(new).median())
    model = ordinary(distance=0.7).fit_distance(x, y, held_out=blobs(seed=1))
    assert model.distance_radius.scale.item() == pytest.approx(0.7)
