"""Test that the sums over batches are equal to the sums over all rows, and that rows can be removed."""

import pytest
import torch

from creinn.distance.class_statistics import ClassSums, Products, products_of_means
from distance_cases import blobs


def both_passes(x, y, sizes, out=0):
    """Sums and products over batches of these sizes, then without the first ``out`` rows."""
    sums = ClassSums(4)
    for part, label in zip(x.split(sizes), y.split(sizes), strict=True):
        sums.add(part, label)
    sums.add(x[:out], y[:out], sign=-1)
    products = Products(sums.origin, sums.means())
    for part, label in zip(x.split(sizes), y.split(sizes), strict=True):
        products.add(part, label)
    products.add(x[:out], y[:out], sign=-1)
    return sums, products


@pytest.mark.parametrize("far", [0.0, 1e6])
@pytest.mark.parametrize("out", [0, 50])
@pytest.mark.parametrize("sizes", [300, [1, 99, 200]])
def test_sums_over_batches_equal_sums_over_rows(sizes, out, far):
    x, y = blobs()
    x = x.double() + far
    sums, products = both_passes(x, y, sizes, out)
    x, y = x[out:], y[out:]
    means = torch.stack([x[y == k].mean(0) for k in range(3)])
    torch.testing.assert_close(sums.origin, x.mean(0))
    torch.testing.assert_close(sums.origin + sums.means()[:3], means)
    residuals = x - means[y]
    assert sums.rows == int(products.rows) == 300 - out
    torch.testing.assert_close(sums.mean_square, x.square().mean())
    torch.testing.assert_close(products.products, residuals.mT @ residuals, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(
        products.fourth, residuals.square().sum(1).square().sum(), rtol=1e-7, atol=1e-7
    )


def test_empty_class_has_mean_of_largest():
    x = torch.tensor([[1.0], [3.0], [7.0]])
    sums, _ = both_passes(x, torch.tensor([0, 0, 2]), 3)
    assert (sums.origin + sums.means()).flatten().tolist() == pytest.approx([2, 2, 7, 2])


def test_rows_equal_to_class_means():
    y = torch.arange(30) % 3
    x = torch.tensor([[0.0, 1.0], [5.0, -1.0], [2.0, 2.0]]).double()[y]
    sums, products = both_passes(x, y, 7)
    assert products.products.abs().max() < 1e-20
    about = Products(sums.origin, torch.zeros(4, 2).double())
    about.add(x, y)
    found = products_of_means(sums)
    torch.testing.assert_close(found.products, about.products)
    torch.testing.assert_close(found.fourth, about.fourth)
    assert found.rows == 30
