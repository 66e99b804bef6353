"""The error bounds, each against rational arithmetic: sums in several orders, conversions, ReLU, functions."""

import math
import threading
import warnings
from fractions import Fraction

import flint
import numpy as np
import pytest
import torch
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from creinn import Interval, rounding
from creinn import nn as inn

EXPONENTS = (-149, -130, -60, -3, 0, 3, 40)


def numbers(rng: np.random.Generator, count: int, signed: bool = True) -> torch.Tensor:
    """Float32 numbers of sizes that do not go together, some of them zero or alike but for the sign."""
    values = (
        rng.standard_normal(count)
        * 2.0 ** rng.choice(EXPONENTS, count)
        * rng.choice([0.0, 1.0], count, p=[0.1, 0.9])
    )
    if count > 1 and rng.random() < 0.5:
        values[1] = -values[0] * (1 + 2.0**-23)
    return torch.tensor(values if signed else np.abs(values), dtype=torch.float32)


def exact(tensor: torch.Tensor) -> list[Fraction]:
    return [Fraction(value) for value in tensor.double().flatten().tolist()]


def sums(terms: np.ndarray, rng: np.random.Generator) -> list[float]:
    """A sum in float32: in order, backwards, shuffled, by halves, and with everything subnormal flushed to zero."""
    tiny = np.finfo(np.float32).tiny

    def in_order(values: np.ndarray, flush: bool = False) -> np.float32:
        total = np.float32(0)
        for value in values:
            value = np.float32(0) if flush and abs(value) < tiny else value
            total = np.float32(total + value)
            total = np.float32(0) if flush and abs(total) < tiny else total
        return total

    half = len(terms) // 2
    halves = np.float32(in_order(terms[:half]) + in_order(terms[half:]))
    return [
        float(s)
        for s in (in_order(terms), in_order(terms[::-1]), in_order(rng.permutation(terms)), halves)
    ] + [float(in_order(terms, flush=True))]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_weights_pay_for_sums_in_any_order(seed, count):
    rng = np.random.default_rng(seed)
    center, radius = numbers(rng, count), numbers(rng, count, signed=False)
    bias, bias_radius, x = numbers(rng, 1), numbers(rng, 1, signed=False), numbers(rng, count)
    rows = rounding.rows(
        center.double()[None], radius.double()[None], (bias, bias_radius), torch.float32
    )
    w, v, b, d = (t.flatten().numpy() for t in rows)
    pairs = list(zip(exact(center), exact(radius), exact(x), strict=True))
    middle = sum((c * a for c, _, a in pairs), Fraction(bias.item()))
    reach = sum((r * abs(a) for _, r, a in pairs), Fraction(bias_radius.item()))
    with np.errstate(all="ignore"):
        mids = sums(np.append(w * x.numpy(), b), rng)
        rads = sums(np.append(v * np.abs(x.numpy()), d), rng)
    for mid, rad in zip(mids, rads, strict=True):
        assert Fraction(mid) - Fraction(rad) <= middle - reach
        assert Fraction(mid) + Fraction(rad) >= middle + reach


def test_weights_by_hand():
    # n = 2: k = 42, g = 42 u / (1 - 84 u)
    u, one = 2.0**-24, torch.ones(1, 2, dtype=torch.float64)
    w, v, b, d = rounding.rows(one, 0 * one, (None, None), torch.float32)
    assert w.tolist() == [[1.0, 1.0]]
    assert v[0, 0].item() == pytest.approx(42 * u / (1 - 84 * u), rel=1e-6)
    assert b.item() == 0
    assert d.item() == pytest.approx(8 * 2.0**-62)


def test_sums_that_are_too_long_have_no_bound():
    assert rounding.growth(2**20, torch.float64) < 1
    assert rounding.growth(2**20 + 1, torch.float64) == math.inf
    assert rounding.growth(2**20, torch.float32) == math.inf  # 1/16 and more


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_bounds_and_moments_contain_each_other(seed, nonnegative):
    rng = np.random.default_rng(seed)
    low, high = torch.stack((numbers(rng, 20), numbers(rng, 20))).abs().sort(0).values
    low = low if nonnegative else torch.where(low > high / 2, low, -low)
    with rounding.outwards():
        c, r = rounding.to_moments(low, high, nonnegative)
        below, above = rounding.to_bounds(c, r, nonnegative)
    for lo, hi, mid, rad, down, up in zip(
        *map(exact, (low, high, c, r, below, above)), strict=True
    ):
        assert mid - rad <= lo
        assert mid + rad >= hi
        assert down <= max(mid - rad, 0) if nonnegative else down <= mid - rad
        assert up >= mid + rad
        assert not nonnegative or (mid >= rad and down >= 0)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_relu_contains_the_positive_part(seed):
    rng = np.random.default_rng(seed)
    center, radius = numbers(rng, 20), numbers(rng, 20, signed=False)
    if seed % 2:
        radius = center.abs() * torch.tensor(1 + rng.choice([-1, 0, 1], 20) * 2.0**-23).float()
    slack = rounding.spread(center, radius)
    result = rounding.relu_(torch.stack((center, slack), 0)[None].clone())[0]
    for c, r, mid, rad in zip(*map(exact, (center, radius, *result)), strict=True):
        assert mid - rad <= max(c - r, 0)
        assert mid + rad >= max(c + r, 0)
        assert mid >= rad


def test_relu_keeps_an_overflow():
    moments = torch.tensor([[[-math.inf, math.inf, math.nan], [1.0, 1.0, 1.0]]])
    assert not rounding.relu_(moments)[:, 0].isfinite().any()


@pytest.mark.parametrize("flush", [False, True])
def test_arithmetic_contains_the_real_results(flush):
    rng = np.random.default_rng(0)
    a, b = numbers(rng, 400), numbers(rng, 400)
    torch.set_flush_denormal(flush)
    try:
        with rounding.outwards():
            x, y = Interval._of_point(a), Interval._of_point(b)
            found = {
                "+": x + y,
                "-": x - y,
                "*": x * y,
                "/": x / 3.7,
                "sum": x.sum(),
                "mean": x.mean(),
                "0.1": x + 0.1,
            }
    finally:
        torch.set_flush_denormal(False)
    p, q = exact(a), exact(b)
    expected = {
        "+": [s + t for s, t in zip(p, q, strict=True)],
        "-": [s - t for s, t in zip(p, q, strict=True)],
        "*": [s * t for s, t in zip(p, q, strict=True)],
        "/": [s / Fraction(3.7) for s in p],
        "sum": [sum(p)],
        "mean": [sum(p) / 400],
        "0.1": [s + Fraction(1, 10) for s in p],
    }
    for name, result in found.items():
        for low, value, high in zip(
            exact(result.lower), expected[name], exact(result.upper), strict=True
        ):
            assert low <= value <= high, name
    assert not all(
        map(lambda low, s, t: low <= s + t <= low, exact(a + b), p, q)
    )  # they are rounded, without it


@pytest.mark.parametrize("layer", [inn.AvgPool1d(4), inn.AdaptiveAvgPool1d(5)])
def test_averages_contain_the_real_ones(layer):
    values = numbers(np.random.default_rng(1), 40).view(2, 20)
    with rounding.outwards():
        result = layer(Interval._of_point(values))
    for low, high, window in zip(
        exact(result.lower), exact(result.upper), values.view(10, 4), strict=True
    ):
        assert low <= sum(exact(window)) / 4 <= high


def test_functions_are_bounded_at_every_size():
    x = torch.cat((torch.logspace(-40, 2, 60), -torch.logspace(-40, 2, 60)))
    low, high = rounding.image(torch.tanh, x)
    with flint.ctx.workprec(200):
        for value, down, up in zip(
            x.double().tolist(), low.double().tolist(), high.double().tolist(), strict=True
        ):
            assert down <= arb(value).tanh() <= up


def test_products_in_single_precision_only_where_they_are_sums():
    seen = []

    def product(x, weight, bias):
        seen.append(x.dtype)
        return torch.nn.functional.linear(x, weight, bias)

    x, weight = torch.ones(1, 2), torch.ones(1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about devices that are not there
        with torch.backends.mkldnn.flags(enabled=False):  # NNPACK would take over
            assert rounding.summed(product, x, weight).item() == 2
            with rounding.outwards():
                assert rounding.summed(product, x, weight).dtype == torch.float32
    torch.set_float32_matmul_precision("medium")  # bfloat16, where the processor has it
    try:
        with rounding.outwards():
            rounding.summed(product, x, weight)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen == [torch.float32, torch.float64, torch.float64]


def test_rounding_is_a_matter_of_the_thread():
    found = []
    with rounding.outwards():
        thread = threading.Thread(target=lambda: found.append(rounding.is_outwards()))
        thread.start()
        thread.join()
        with rounding.outwards(False):
            found.append(rounding.is_outwards())
        found.append(rounding.is_outwards())
    assert [*found, rounding.is_outwards()] == [False, False, True, False]
