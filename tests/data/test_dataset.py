"""Dataset: scaled images, stratified draws and splits, and inconsistent data."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from creinn.data import Dataset, split, subset
from creinn.interval import Interval


def toy(counts, channels=3, size=4):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    images = (
        torch.arange(len(labels))
        .reshape(-1, 1, 1, 1)
        .expand(-1, channels, size, size)
        .to(torch.uint8)
    )
    return Dataset("toy", images, labels, tuple(map(str, range(len(counts)))), "train")


def numbers(data):
    """Which samples these are: the toy images hold their own number."""
    return data.inputs[:, 0, 0, 0].tolist()


some_counts = st.lists(st.integers(0, 20), min_size=1, max_size=5).filter(
    lambda c: 3 <= sum(c) <= 255
)


def test_dataset_in_data_loader():
    data = toy([3, 2])
    images, labels = next(iter(DataLoader(data, batch_size=5)))
    assert torch.equal(images, data.inputs)
    assert torch.equal(labels, data.labels)
    assert len(data) == 5
    assert data.counts == (3, 2)


def test_scaled_by_hand():
    data = Dataset(
        "a",
        torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 1, 1, 3),
        torch.tensor([0]),
        ("x",),
    )
    torch.testing.assert_close(
        data.scaled(torch.float64).flatten(), torch.tensor([0, 0.2, 1], dtype=torch.float64)
    )
    assert data.scaled().dtype == torch.float32


def test_interval_inputs():
    box = Interval(torch.zeros(3, 2), torch.ones(3, 2))
    data = Dataset("boxes", box, torch.tensor([0, 1, 1]), ("a", "b"))
    part = data.take(torch.tensor([2, 0]))
    assert isinstance(part.inputs, Interval)
    assert part.labels.tolist() == [1, 0]
    assert subset(data, 2, seed=0).inputs.shape == (2, 2)
    with pytest.raises(
        TypeError,
        match=r"boxes are torch\.float32",
    ):
        data.scaled()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(some_counts, st.data())
def test_subset_is_stratified_and_ordered(counts, draw):
    data = toy(counts)
    n = draw.draw(st.integers(1, len(data)))
    part = subset(data, n, seed=7)
    chosen = numbers(part)
    assert len(chosen) == n
    assert chosen == sorted(set(chosen))
    assert part.labels.tolist() == [int(data.labels[i]) for i in chosen]
    for have, whole in zip(part.counts, counts, strict=True):
        assert abs(have - whole * n / len(data)) < 1
    assert numbers(subset(data, n, seed=7)) == chosen


def test_subset_by_hand():
    # 10 of 100 in shares 60, 25, 15: 6, 2.5, 1.5; equal remainders, so the earlier class has the tenth.
    assert subset(toy([60, 25, 15]), 10, seed=0).counts == (6, 3, 1)


def test_seeds_draw_different_samples():
    data = toy([20, 20])
    draws = [tuple(numbers(subset(data, 10, seed))) for seed in range(30)]
    assert len(set(draws)) > 25
    assert {i for draw in draws for i in draw} == set(range(40))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(some_counts, st.sampled_from([(0.5, 0.5), (5 / 6, 1 / 6), (0.4, 0.3, 0.3)]))
def test_split_is_a_partition(counts, fractions):
    data = toy(counts)
    if len(data) < 6:
        return
    parts = split(data, fractions, seed=3)
    assert sorted(i for part in parts for i in numbers(part)) == list(range(len(data)))
    for part, fraction in zip(parts, fractions, strict=True):
        assert abs(len(part) - fraction * len(data)) <= 1
        for have, whole in zip(part.counts, counts, strict=True):
            assert abs(have - fraction * whole) < 2.5
    assert [numbers(part) for part in split(data, fractions, seed=3)] == [
        numbers(part) for part in parts
    ]
    assert all(part.split == "train" for part in parts)


def test_single_fraction_gives_two_parts():
    train, val = split(toy([60, 60]), 5 / 6, seed=0)
    assert (train.counts, val.counts) == ((50, 50), (10, 10))
    assert numbers(split(toy([60, 60]), 5 / 6, seed=1)[1]) != numbers(val)


def test_invalid_sample_sizes_raise():
    data = toy([3, 2])
    with pytest.raises(ValueError, match="6 samples"):
        subset(data, 6, seed=0)
    with pytest.raises(ValueError, match="0 samples"):
        subset(data, 0, seed=0)
    with pytest.raises(ValueError, match=r"\(0\.5, 0\.6\)"):
        split(data, (0.5, 0.6), seed=0)
    with pytest.raises(ValueError, match="Fractions"):
        split(data, 1.0, seed=0)
    with pytest.raises(ValueError, match="part 1"):
        split(data, 0.99, seed=0)


@pytest.mark.parametrize(
    ("inputs", "labels", "error", "message"),
    [
        (
            torch.zeros(2, 3, 4, dtype=torch.uint8),
            [0, 1],
            ValueError,
            r"\(2, 3, 4\)",
        ),
        (
            torch.zeros(2, 3, dtype=torch.int32),
            [0, 1],
            TypeError,
            r"torch\.int32",
        ),
        (torch.zeros(2, 3), [0.0, 1.0], TypeError, r"torch\.float32"),
        (torch.zeros(2, 3), [0], ValueError, r"\(2, 3\) and labels \(1,\)"),
        (
            torch.zeros(2, 3),
            [0, 2],
            ValueError,
            "label 1 is 2",
        ),
        (torch.zeros(2, 3), [-1, 0], ValueError, "label 0 is -1"),
    ],
)
def test_inconsistent_data_raise(inputs, labels, error, message):
    with pytest.raises(error, match=message):
        Dataset("bad", inputs, torch.tensor(labels), ("a", "b"))


def test_libraries_for_tables_are_not_imported():
    code = "import sys, creinn.training; from creinn import CreINN, fit, data; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pandas", "sklearn", "scipy.optimize"} & set(done.stdout.split())
