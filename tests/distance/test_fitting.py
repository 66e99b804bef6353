"""Fitting radii: the choice of the scale, the rows that it is chosen on, and the units."""

import pytest
import torch

from creinn import CredalSet, Interval
from creinn.classifier.credal import credal_set, prediction_quality
from creinn.credal.loss import cross_entropy
from creinn.distance import fitting
from creinn.distance.fitting import (
    MAX_SCALE_ON_TRAINING_DATA,
    SCALES,
    FeatureBatch,
    Quality,
    choose_scale,
    cross_fitted_excess,
    stratified_mask,
)
from creinn.evaluation import auarc
from distance_cases import blobs, ordinary


def evaluate(batch: FeatureBatch, radius: torch.Tensor) -> Quality:
    return prediction_quality(batch, radius, "paper")


def test_scale_is_largest_with_small_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = blobs(200)
    noise = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    logits = Interval.point(2 * torch.nn.functional.one_hot(y, 3) + noise)
    observed = FeatureBatch(Interval.point(x), logits, y)

    def head(logits: Interval) -> CredalSet:
        return credal_set(logits, "paper")

    correct = logits.lower.argmax(1) == y
    assert 0.5 < correct.float().mean() < 0.99
    assert (
        choose_scale(observed, torch.zeros(200), evaluate) == SCALES[-1]
    )  # nothing changes, whatever the scale
    assert choose_scale(observed, torch.zeros(200), evaluate, 1.0) == 1.0
    harmful = torch.where(correct, 1.0, 0.0)  # the right ones look far away
    chosen = choose_scale(observed, harmful, evaluate)
    assert SCALES[0] <= chosen < 1

    def area(scale: float) -> float:
        prediction = head(
            Interval(
                logits.lower - scale * harmful[:, None], logits.lower + scale * harmful[:, None]
            )
        )
        return auarc(prediction.total, prediction.label == y)

    monkeypatch.setattr(fitting, "ALLOWED_LOSS", 1e9)
    monkeypatch.setattr(fitting, "ALLOWED_GROWTH", (1e9, 0))
    chosen = choose_scale(observed, harmful, evaluate)
    least = area(0) - max(0.001, 0.01 * (1 - area(0)))
    assert area(chosen) >= least > area(SCALES[SCALES.index(chosen) + 1])
    assert (
        choose_scale(observed, 1e4 * harmful, evaluate) == SCALES[0]
    )  # even the smallest costs too much


def test_scale_is_limited_by_sets_and_log_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row is right by 4 in its logit, and half of them look far away."""
    y = torch.arange(60) % 3
    logits = Interval.point(4.0 * torch.nn.functional.one_hot(y, 3))
    excess = 10 * (torch.arange(60) < 30).float()

    def head(logits: Interval) -> CredalSet:
        return credal_set(logits, "paper")

    def classes(scale: float) -> float:
        radius = (scale * excess)[:, None]
        return (
            head(Interval(logits.lower - radius, logits.lower + radius))
            .classes()
            .sum(1)
            .float()
            .mean()
        )

    def loss(scale: float) -> float:
        radius = (scale * excess)[:, None]
        return float(cross_entropy(head(Interval(logits.lower - radius, logits.lower + radius)), y))

    observed = FeatureBatch((logits,), logits, y)
    chosen = choose_scale(observed, excess, evaluate)
    assert loss(chosen) <= 1.05 * loss(0.0) < loss(SCALES[SCALES.index(chosen) + 1])
    monkeypatch.setattr(fitting, "ALLOWED_LOSS", 1e9)
    chosen = choose_scale(observed, excess, evaluate)
    assert classes(0.0) == 1
    assert classes(chosen) <= 1.1 < classes(SCALES[SCALES.index(chosen) + 1])


def test_errors_allow_larger_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "ALLOWED_LOSS", 1e9)
    monkeypatch.setattr(fitting, "ALLOWED_FALL", (1.0, 0.0))
    y, excess = torch.arange(60) % 3, torch.linspace(0, 20, 60)
    logits = Interval.point(4.0 * torch.nn.functional.one_hot(y, 3))

    def chosen(labels: torch.Tensor) -> float:
        return choose_scale(FeatureBatch((logits,), logits, labels), excess, evaluate)

    assert chosen(torch.where(excess < 10, y, (y + 1) % 3)) > 1.2 * chosen(y)


def test_held_out_fraction_per_class() -> None:
    y = torch.tensor([0] * 60 + [1] * 30 + [2] * 6)
    mask = stratified_mask(y, 6)
    assert torch.equal(mask, stratified_mask(y, 6))
    assert torch.bincount(y[mask]).tolist() == [10, 5, 1]
    assert not mask[:10].all()  # drawn, not the first ones


def test_scale_units_are_from_other_rows() -> None:
    x, y = blobs()
    model = ordinary().fit_distance(x, y)
    observed = next(iter(model._feature_batches(blobs(20, seed=1), 256, "the rows")))
    radius, found = model.distance_radius, cross_fitted_excess(model.distance_radius, observed)
    one = stratified_mask(observed.labels, 2)
    assert int(one.sum()) == 10
    radius.fit_scores(observed.take(one).features)
    torch.testing.assert_close(found[~one], radius.excess(observed.take(~one).features))
    radius.fit_scores(observed.features)
    assert (
        found.mean() > radius.excess(observed.features).mean()
    )  # few rows look usual in units of their own
    single = observed.take(torch.arange(20) == 0)
    assert cross_fitted_excess(radius, single).shape == (1,)


def test_scale_is_chosen_on_held_out_data() -> None:
    x, y = blobs()
    model = ordinary()
    model.fit_distance(x, y)
    seen = model.distance_radius.scale.item()
    assert seen <= MAX_SCALE_ON_TRAINING_DATA
    model.fit_distance(x, y, held_out=blobs(seed=1))
    assert model.distance_radius.scale.item() in torch.tensor(SCALES).tolist()
    medians = model.distance_radius.medians.clone()
    model.fit_distance(x, y, held_out=(3 * x, y))
    assert bool(
        (model.distance_radius.medians > medians)[0]
    )  # units are those of the held-out data
    model = ordinary(distance=0.7).fit_distance(x, y, held_out=blobs(seed=1))
    assert model.distance_radius.scale.item() == pytest.approx(0.7)
