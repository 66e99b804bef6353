"""The scale of distance-aware radii: chosen on data of the training distribution."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from creinn import CredalSet, Interval
from creinn.classifier.creinn import credal_set
from creinn.classifier.distance import (
    LARGEST_SCALE_SEEN,
    SCALES,
    Observed,
    area_under_rejection,
    choose_scale,
    one_sixth,
    squared_distance,
)
from creinn.classifier.network import observe
from creinn.evaluation import auarc
from distance_cases import blobs, ordinary


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
    torch.testing.assert_close(distance.median, squared_distance(new, distance.statistics).median())
    model = ordinary(distance=0.7).fit_distance(x, y, held_out=blobs(seed=1))
    assert model.distance_radius.scale.item() == pytest.approx(0.7)
