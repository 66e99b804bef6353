"""Radii by distance: the formula against its terms, bounds of boxes, poor data, and what is added to logits."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from creinn import CredalSet, Interval
from creinn.classifier.credal import credal_set
from creinn.distance.fitting import FeatureBatch, Quality, fit_radius
from creinn.distance.mahalanobis import Distance
from creinn.distance.radius import VACUOUS, DistanceRadius, add_radius, unit_directions
from distance_cases import blobs


def never(batch: FeatureBatch, radius: torch.Tensor) -> Quality:
    raise AssertionError("The scale is given, so no quality is needed.")


def fitted_to(x: torch.Tensor, y: torch.Tensor, classes: int) -> DistanceRadius:
    radius = DistanceRadius(classes).to(x.dtype)
    fit_radius(
        radius, [FeatureBatch((Interval.point(x),), Interval.point(x), y)], None, 1.0, CredalSet
    )
    return radius


def counted(values: np.ndarray, held_out: np.ndarray) -> np.ndarray:
    """From the median in units of the distance to the 84th percentile, each one of the values."""
    ordered = np.sort(held_out)
    median, upper = (
        ordered[(len(ordered) - 1) // 2],
        ordered[int(np.ceil(0.84 * (len(ordered) - 1)))],
    )
    return (values - median) / (upper - median)


@pytest.mark.parametrize("places", [1, 2, 3])
def test_radius_formula(places: int) -> None:
    (x, y), (new, labels) = blobs(200), blobs(90, seed=1)
    x, new, foreign = x.double(), new.double(), 3 * blobs(40, seed=2)[0].double()
    maps = [lambda x: x, lambda x: x**3, lambda x: torch.cat((x, x.cos()), 1)][:places]
    radius = DistanceRadius(3).double()
    train, held_out = (
        FeatureBatch(
            tuple(Interval.point(one(rows)) for one in maps), Interval.point(rows), classes
        )
        for rows, classes in ((x, y), (new, labels))
    )
    fit_radius(
        radius,
        [train.take(torch.arange(200) < 70), train.take(torch.arange(200) >= 70)],
        [held_out],
        0.5,
        never,
    )
    far, near = [], []
    for one in maps:
        distance = Distance(3).double()
        distance.fit(one(x), y)
        far.append([distance(one(rows))[0].numpy() for rows in (foreign, new)])
    for one in maps[-2:]:
        distance = Distance(3).double()
        unit = [one(rows) / one(rows).norm(dim=1, keepdim=True) for rows in (x, foreign, new)]
        distance.fit(unit[0], y)
        near += [
            [part.numpy() for part in pair]
            for pair in zip(distance(unit[1]), distance(unit[2]), strict=True)
        ]
    sums = [
        [sum(counted(pair[i], pair[1]) for pair in near) for i in (0, 1)],
        [sum(np.maximum(counted(pair[i], pair[1]), 0) for pair in far) for i in (0, 1)],
    ]
    both = [counted(sums[0][i], sums[0][1]) + 0.7 * counted(sums[1][i], sums[1][1]) for i in (0, 1)]
    expected = 0.5 * np.logaddexp(0, counted(both[0], both[1])) ** 4
    found = radius(tuple(one(foreign) for one in maps))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    assert found.median() > 4 * radius(held_out.features).median()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), width=st.floats(0, 3))
def test_directions_contain_all_members(seed: int, width: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    lower = torch.randn(5, 4, generator=generator).double()
    box = Interval(lower, lower + width * torch.rand(5, 4, generator=generator).double())
    whole = unit_directions(box)
    for member in reference.members(box, generator, 30):
        one = unit_directions(member).lower
        torch.testing.assert_close(one.norm(dim=1), torch.ones(5).double())
        torch.testing.assert_close(one * member.norm(dim=1, keepdim=True), member)
        assert bool(((whole.lower <= one + 1e-12) & (one <= whole.upper + 1e-12)).all())
    assert unit_directions(torch.zeros(2, 3)).lower.tolist() == [[0, 0, 0]] * 2


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), width=st.floats(0, 2))
def test_box_radius_is_at_least_radius_of_members(seed: int, width: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, y = blobs(seed=seed)
    radius = fitted_to(x.double(), y, 3)
    lower = 2 * torch.randn(5, 4, generator=generator).double()
    box = Interval(lower, lower + width * torch.rand(5, 4, generator=generator).double())
    bound = radius((box,))
    for member in reference.members(box, generator, 20):
        assert bool((radius((member,)) <= bound * (1 + 1e-9) + 1e-9).all())


def test_load_state_dict_resizes_buffers() -> None:
    x, y = blobs()
    radius, empty = fitted_to(x, y, 3), DistanceRadius(3)
    assert not empty.has_data
    empty.load_state_dict(radius.state_dict())
    assert torch.equal(empty((2 * x,)), radius((2 * x,)))
    with pytest.raises(RuntimeError, match=r"size mismatch for distances\.0\.means"):
        DistanceRadius(4).load_state_dict(radius.state_dict())


def test_overflowing_held_out_data_raise() -> None:
    x, y = blobs()
    radius = fitted_to(x, y, 3)
    with pytest.raises(ValueError, match="overflow"):
        radius.fit_scores((1e25 * x,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "name",
    [
        "more features than rows",
        "one row each",
        "an empty class",
        "one row",
        "constant",
        "a dead feature",
        "two",
    ],
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
    near, far = radius((x,)), radius((100 + 100 * x[:1],))
    assert bool(torch.isfinite(near).all())
    assert 1 < far.item() < torch.inf
    assert near.median() <= 1


def test_radii_widen_to_vacuous_sets() -> None:
    logits = Interval(
        torch.tensor([[0.0, 3.0], [0.0, 3.0]]), torch.tensor([[1.0, 3.0], [1.0, 3.0]])
    )
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


def test_largest_radius_gives_vacuous_sets() -> None:
    generator = torch.Generator().manual_seed(0)
    for dtype, classes, mode in itertools.product(
        (torch.float32, torch.float64), (1, 2, 5), ("paper", "sound")
    ):
        size = 10 ** (30 * torch.rand(400, 1, generator=generator))
        offset = (
            size
            * torch.rand(400, 1, generator=generator)
            * 10 ** torch.randint(0, 7, (400, 1), generator=generator)
        )
        logits = (
            size * torch.randn(400, classes, generator=generator) + (offset if classes > 1 else 0)
        ).to(dtype)
        for radius in (torch.inf, torch.finfo(dtype).max):
            found = credal_set(
                Interval.point(logits), mode, torch.full((400,), radius, dtype=dtype)
            )
            assert found.lower.max() < 1e-6
            assert found.upper.min() > 1 - 1e-6
