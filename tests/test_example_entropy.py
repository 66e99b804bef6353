"""Lower entropy of examples/entropy_numpy.py, compared with enumeration and with torch."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given

import credal_cases
import reference_credal
from creinn.credal import entropy

EXAMPLE = Path(__file__).parents[1] / "examples" / "entropy_numpy.py"
lower_entropy = runpy.run_path(str(EXAMPLE))["lower_entropy"]


def test_by_hand():
    # vertices (0, .6, .4), (.2, .4, .4), (.2, .6, .2); the first has the least entropy
    bits, gap = lower_entropy([0.0, 0.4, 0.2], [0.2, 0.6, 0.4])
    assert bits == pytest.approx(0.97095, abs=1e-5)
    assert gap == 0


@pytest.mark.parametrize("family", credal_cases.FAMILIES)
def test_minimum_over_vertices(family):
    for classes in (2, 3, 7):
        lower, upper = (bound.numpy() for bound in credal_cases.FAMILIES[family](10, classes, 0))
        bits, gap = lower_entropy(lower, upper)
        expected = [reference_credal.lower_entropy(*row) for row in zip(lower, upper, strict=True)]
        np.testing.assert_allclose(bits, expected, rtol=0, atol=1e-8)
        assert not gap.any()


@pytest.mark.parametrize("family", ["softmax", "softmax, wide", "boxes", "independent", "lattice"])
def test_many_classes(family):
    lower, upper = credal_cases.FAMILIES[family](10, 40, 0)
    bits, gap = lower_entropy(lower.numpy(), upper.numpy())
    np.testing.assert_allclose(bits, entropy.lower_entropy(lower, upper).numpy(), rtol=0, atol=1e-8)
    assert not gap.any()


@credal_cases.seeded()
@given(credal_cases.credal_bounds())
def test_extreme_sets(bounds):
    lower, upper = (bound.numpy() for bound in bounds)
    assert lower_entropy(lower, upper)[0] == pytest.approx(
        float(entropy.lower_entropy(*bounds)), abs=1e-8
    )


def test_gap_after_short_search_is_valid():
    lower, upper = (bound.numpy() for bound in credal_cases.FAMILIES["concentric"](30, 12, 0))
    least = lower_entropy(lower, upper)[0]
    bits, gap = lower_entropy(lower, upper, nodes=3)
    assert (bits > least + 1e-6).any()
    assert (bits - gap <= least + 1e-8).all()
    assert (bits >= least - 1e-8).all()
    np.testing.assert_allclose(bits[gap == 0], least[gap == 0], rtol=0, atol=1e-8)


def test_single_precision_and_batch_axes():
    torch.manual_seed(0)
    points = torch.randn(2, 5, 30).softmax(-1)
    bits, gap = lower_entropy(points.numpy(), points.numpy())
    np.testing.assert_allclose(bits, entropy.entropy(points).numpy(), rtol=0, atol=1e-5)
    assert bits.shape == gap.shape == (2, 5)
    with pytest.raises(ValueError, match="shape"):
        lower_entropy(np.zeros(3), np.ones(2))


def test_torch_is_not_imported():
    code = f"import runpy, sys; sys.modules['torch'] = None; runpy.run_path({str(EXAMPLE)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
