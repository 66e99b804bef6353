"""Batches: every row once and never alone, in all forms of data alike."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from creinn.data.dataset import Dataset
from creinn.interval import Interval
from creinn.training.data import Rows, shuffled_batches


class Squares(torch.utils.data.Dataset):
    """Row i has the values i and i * i and the class i % 3."""

    def __len__(self):
        return 7

    def __getitem__(self, index):
        return torch.tensor([index, index**2], dtype=torch.float32), index % 3


def rows(data, classes=3):
    return Rows(data, classes, torch.zeros(()), "train_data")


@given(st.integers(1, 300), st.integers(1, 40))
def test_epoch_contains_each_row_once(n, size):
    order = shuffled_batches(n, size, 0)
    assert sorted(torch.cat(order).tolist()) == list(range(n))
    assert all(len(batch) in (size, size + 1) for batch in order[:-1])
    assert len(order[-1]) > 1 or size == 1 or n == 1


def test_order_depends_on_generator():
    first, again, other = (shuffled_batches(50, 8, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.cat(first), torch.cat(again))
    assert not torch.equal(torch.cat(first), torch.cat(other))


def test_data_formats_give_equal_batches(tmp_path):
    x = torch.stack([Squares()[i][0] for i in range(7)])
    y = torch.tensor([i % 3 for i in range(7)])
    forms = [
        (x, y),
        [x, y],
        (x.double().numpy(), y.numpy().astype(np.int32)),
        (x.tolist(), y.tolist()),
        TensorDataset(x, y),
        Dataset("squares", x, y, ("a", "b", "c")),
        (np.memmap(tmp_path / "x", np.float32, "w+", shape=(7, 2)), y),
        Squares(),
    ]
    forms[-2][0][:] = x.numpy()
    order = shuffled_batches(7, 3, 0)
    for form in forms:
        for index, batch in zip(order, rows(form).shuffled(3, seed=0), strict=True):
            assert torch.equal(batch.rows, index)
            assert torch.equal(batch.x, x[index])
            assert batch.x.dtype == torch.float32
            assert torch.equal(batch.y, y[index])
            assert batch.y.dtype == torch.int64
        assert [batch.y.tolist() for batch in rows(form).in_order(3)] == [[0, 1, 2], [0, 1, 2], [0]]
    assert rows(TensorDataset(x, y)).in_memory is not None
    assert rows(Squares()).in_memory is None


def test_stream_preserves_batches_and_order():
    loader = DataLoader(Squares(), batch_size=2)
    for batches in (rows(loader).in_order(5), rows(loader).shuffled(5, seed=0)):
        found = [
            (batch.rows.tolist(), batch.x[:, 0].tolist(), batch.y.tolist()) for batch in batches
        ]
        assert found == [
            ([0, 1], [0, 1], [0, 1]),
            ([2, 3], [2, 3], [2, 0]),
            ([4, 5, 6], [4, 5, 6], [1, 2, 0]),
        ]
    assert (
        rows(loader).class_counts().tolist() == rows(Squares()).class_counts().tolist() == [3, 2, 2]
    )


def test_intervals_are_preserved():
    x = Interval(torch.zeros(4, 2), torch.arange(8.0).reshape(4, 2))
    first, second = rows((x, torch.zeros(4, dtype=torch.long))).in_order(3)
    assert isinstance(first.x, Interval)
    assert (first.x.upper[1].tolist(), second.x.upper.tolist()) == ([2, 3], [[6, 7]])


def test_distributions_are_targets():
    shares = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5], [0.0, 1.0, 0.0]])
    found = rows((torch.zeros(3, 2), shares.double()))
    (batch,) = found.in_order(3)
    assert (batch.y.dtype, batch.y.tolist()) == (torch.float32, shares.tolist())
    assert found.class_counts().tolist() == [0.75, 1.75, 0.5]
    with pytest.raises(ValueError, match="votes"):
        rows((torch.zeros(3, 2), 2 * shares))
    with pytest.raises(ValueError, match="3, 2"):
        rows((torch.zeros(3, 2), shares[:, :2]))


def test_digest_depends_on_data():
    x, y = (
        torch.rand(6, 2, generator=torch.Generator().manual_seed(0)),
        torch.tensor([0, 1, 2, 0, 1, 2]),
    )
    other = x.clone()
    other[5, 1] += 1e-3
    digests = [
        rows(d).digest()
        for d in ((x, y), (x.clone(), y), (other, y), (x, y.flip(0)), (Interval(x, x + 1), y))
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4
    assert rows(Squares()).digest() == "7 rows of a Squares"


X, Y = torch.zeros(4, 2), torch.tensor([0, 1, 2, 0])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y[:3]), "train_data has 4 inputs but 3 targets"),
        ((X[:0], Y[:0]), "train_data is empty"),
        (
            (torch.tensor([[0.0, 1.0], [2.0, float("nan")]]), Y[:2]),
            r"row 1 of the inputs of train_data holds nan",
        ),
        ((torch.full((1, 1), float("inf")), Y[:1]), "of train_data holds inf"),
        ((X, torch.tensor([0, 1, 3, 0])), r"must lie in 0 \.\. 2 for 3 classes, but target 2 is 3"),
        ((X, torch.tensor([0, -1, 2, 0])), "but target 1 is -1"),
        ((X, Y[:, None]), r"targets of train_data must have shape \(N,\), got \(4, 1\)"),
        (
            (X[0], Y[:2]),
            r"inputs of train_data must have shape \(N, \.\.\.\), got \(2,\)",
        ),
    ],
)
def test_inconsistent_data_raise(data, message):
    with pytest.raises(ValueError, match=message):
        rows(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y.float()), "float32"),
        (
            X,
            "DataLoader, got Tensor",
        ),
        ((X, Y, Y, Y), "got tuple"),
        (iter([]), "got list_iterator"),
    ],
)
def test_wrong_types_raise(data, message):
    with pytest.raises(TypeError, match=message):
        rows(data)


def test_dataset_inputs_are_checked_lazily():
    class Bad(Squares):
        def __getitem__(self, index):
            return torch.tensor([index, torch.nan if index == 5 else 0.0]), 0

    with pytest.raises(ValueError, match="row 5"):
        list(rows(Bad()).in_order(3))


def test_dataset_targets_are_checked_lazily():
    with pytest.raises(ValueError, match="but target 2 is 2"):
        list(rows(Squares(), classes=2).in_order(3))
    with pytest.raises(TypeError, match="pairs"):
        list(
            rows(
                type("Bare", (Squares,), {"__getitem__": lambda self, i: torch.zeros(2)})()
            ).in_order(3)
        )
