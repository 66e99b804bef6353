"""Tests that the sample contains all rows if there are few, and is random otherwise."""

import pytest
import torch

from creinn import Interval
from creinn.distance.class_statistics import Sample


def sampled(rows, largest, size):
    sample = Sample(largest)
    for part in torch.arange(rows).split(size):
        sample.add((part, Interval(part.float(), part + 1.0)))
    assert len(sample) == rows
    return sample.rows()


@pytest.mark.parametrize("size", [1, 7, 40, 100])
def test_few_rows_preserve_order(size):
    numbers, box = sampled(40, 40, size)
    assert numbers.tolist() == list(range(40))
    assert torch.equal(box.upper, numbers + 1.0)
    assert Sample().rows() is None


def test_sample_does_not_depend_on_batches():
    numbers, box = sampled(1000, 60, 1000)
    assert len(set(numbers.tolist())) == 60
    assert numbers.tolist() == sorted(numbers.tolist())
    assert torch.equal(box.lower, numbers.float())
    for size in (1, 59, 61, 333):
        assert torch.equal(sampled(1000, 60, size)[0], numbers)


def test_rows_are_equally_likely():
    """If 4,000 of 20,000 rows are drawn, each of ten parts has 400, up to 4 standard deviations of 17."""
    numbers, _ = sampled(20_000, 4_000, 256)
    counts = torch.bincount(numbers // 2000, minlength=10)
    assert counts.sum() == 4000
    assert (counts - 400).abs().max() < 68
    assert (torch.bincount(numbers % 8, minlength=8) - 500).abs().max() < 75
