"""Test all accepted forms of inputs, and rows with NaN or infinite values."""

import weakref

import numpy as np
import pytest
import torch

import creinn
from creinn import CreINN, Ensemble, Interval, models
from creinn import nn as inn
from creinn.baselines import SNN
from creinn.classifier.inputs import (
    batches,
    count_rows,
    describe,
    first_rows,
    labelled_batches,
    to_device,
)
from creinn.evaluation import summary

X = torch.arange(24.0).reshape(12, 2)


def network(layers=inn):
    torch.manual_seed(0)
    return models.mlp(2, 3, hidden=(4,), layers=layers)


def test_input_formats_give_equal_predictions():
    model = CreINN(network()).eval()
    expected = model.predict(X).lower
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, X[:, 0]), 5)
    frozen = X.numpy().copy()
    frozen.setflags(write=False)
    for form in (
        X.double(),
        frozen,
        X.double().numpy()[::-1][::-1],
        Interval(X, X),
        [X[:7], X[7:]],
        loader,
    ):
        torch.testing.assert_close(model.predict(form, batch_size=5).lower, expected)
    torch.testing.assert_close(model.double().predict(X).lower, expected.double())


class Items(torch.utils.data.Dataset):
    """Dataset of intervals and classes."""

    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        return Interval(X, X + 1)[index], 0


class Stream(torch.utils.data.IterableDataset):
    """Rows of unknown number."""

    def __init__(self, rows=X):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


class Named(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(X.shape[1], 3)

    def forward(self, x):
        return self.layer(x["a"] - 2 * x["b"])


def test_predict_dataset(tmp_path):
    model = CreINN(network()).eval()
    expected, intervals = model.predict(X).lower, model.predict(Interval(X, X + 1)).lower
    np.save(tmp_path / "x.npy", X.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for form in (Stream(), torch.utils.data.TensorDataset(X, X[:, 0]), mapped):
        torch.testing.assert_close(model.predict(form, batch_size=5).lower, expected)
        assert [len(part) for part in model.predict_batches(form, batch_size=5)] == [5, 5, 2]
    for form in (
        Items(),
        creinn.data.Dataset("rows", Interval(X, X + 1), torch.zeros(12).long(), ("a",)),
    ):
        torch.testing.assert_close(model.predict(form, batch_size=5).lower, intervals)


def test_labelled_data_formats(tmp_path):
    model, y = CreINN(network()), torch.arange(12) % 3
    expected = model.predict(X)
    np.savez(tmp_path / "a.npz", x=X.numpy(), y=y.numpy().astype(np.int32))
    mapped = creinn.data.open_arrays(tmp_path / "a.npz")
    rows = torch.utils.data.TensorDataset(X, y)
    forms = {
        "tensors": (X, y),
        "maps": (mapped["x"], mapped["y"]),
        "intervals": (Interval(X, X), y),
        "rows": rows,
        "stream": Stream(list(rows)),
        "loader": torch.utils.data.DataLoader(rows, 5),
        "loader of a stream": torch.utils.data.DataLoader(Stream(list(rows)), 5),
        "batches": iter([(X[:5], y[:5]), (X[5:], y[5:])]),
    }
    for name, form in forms.items():
        prediction, labels = model.predict_labelled(form, batch_size=5)
        torch.testing.assert_close(prediction.lower, expected.lower, msg=name)
        assert torch.equal(labels, y), name
    shuffled = torch.utils.data.DataLoader(
        rows, 5, shuffle=True, generator=torch.Generator().manual_seed(0)
    )
    prediction, labels = model.predict_labelled(shuffled)
    assert labels.tolist() != y.tolist()
    found, known = (summary.quality(*pair) for pair in ((prediction, labels), (expected, y)))
    assert found == pytest.approx(known, abs=1e-5)
    named = SNN(Named())
    prediction, labels = named.predict_labelled(({"a": X, "b": X}, y), batch_size=5)
    torch.testing.assert_close(
        prediction.probabilities, named.predict({"a": X, "b": X}).probabilities
    )


def test_unlabelled_data_raise():
    model = SNN(network(torch.nn))
    with pytest.raises(TypeError, match="The data must be a pair"):
        model.predict_labelled(X)
    with pytest.raises(TypeError, match="The data must be a pair"):
        model.predict_labelled([X])
    with pytest.raises(ValueError, match="for 3 classes, but target 1 is 3"):
        model.predict_labelled((X, torch.full((12,), 3).index_fill(0, torch.tensor([0]), 0)))
    with pytest.raises(ValueError, match="4 inputs but 3 labels"):
        model.predict_labelled([(X[:4], torch.zeros(3, dtype=torch.long))])
    with pytest.raises(ValueError, match="empty"):
        model.predict_labelled(torch.utils.data.DataLoader(Stream([]), 4))


def test_stream_holds_one_batch():
    model, read = CreINN(network()).train(), []
    stream = model.predict_batches(read.append(at) or X[at : at + 4] for at in range(0, 12, 4))
    assert read == []
    first = next(stream)
    assert read == [0]
    assert isinstance(first, creinn.CredalSet)
    assert model.training
    assert torch.is_grad_enabled()  # while the stream is not yet at its end
    assert model(X).lower.requires_grad
    kept = weakref.ref(first)
    del first
    next(stream)
    assert kept() is None
    assert len(list(stream)) == 1
    with pytest.raises(ValueError, match=r"\(9, 0\)"):
        list(model.predict_batches([X[:8], X[8:].masked_fill(X[8:] == 18, torch.nan)]))


def test_invalid_stream_raises_before_iteration():
    model = CreINN(network(torch.nn), distance=True)
    with pytest.raises(RuntimeError, match="fit_distance"):
        model.predict_batches(X)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        CreINN(network()).predict_batches(X, 0)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (3, TypeError, "got int"),
        ([[1.0, 2.0]], TypeError, "float"),
        ("words", TypeError, "got str"),
        (
            {"a": X, "b": X[:3]},
            ValueError,
            r"same number of rows, but \['a'\] has 12, \['b'\] has 3",
        ),
        ({}, ValueError, "there is none"),
        (torch.tensor(1.0), ValueError, "a number has none"),
        (X[:0], ValueError, "Nothing to predict"),
        (
            (X, X[:, 0]),
            ValueError,
            r"MLP cannot be run on inputs of tuple: \[0\] torch.float32 of shape \(12, 2\)",
        ),
    ],
)
def test_invalid_inputs_raise(x, error, message):
    with pytest.raises(error, match=message):
        SNN(network(torch.nn)).predict(x)


def test_batches_preserve_structure_and_dtype():
    parts = {"ids": torch.arange(5), "numbers": np.ones((5, 2)), "name": "kept"}
    (batch,) = batches([(parts, torch.zeros(5))], 2)
    assert batch["name"] == "kept"
    placed_batch = to_device(batch, torch.device("cpu"), torch.float32)
    assert (placed_batch["ids"].dtype, placed_batch["numbers"].dtype) == (
        torch.int64,
        torch.float32,
    )
    assert describe(placed_batch) == (
        "dict: ['ids'] torch.int64 of shape (5,), ['numbers'] torch.float32 of shape (5, 2), ['name'] str"
    )
    assert len(first_rows(batch, 2)["ids"]) == 5  # a word has no rows, so nothing is cut
    pieces = list(labelled_batches(((X, X), torch.arange(12)), 5, "The data"))
    assert [(len(x[1]), len(y)) for x, y in pieces] == [(5, 5), (5, 5), (2, 2)]
    assert count_rows(pieces[2][0]) == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_missing_values_raise_or_give_vacuous_sets(value):
    x, y = X.clone(), torch.arange(12) % 3
    x[7, 1] = value
    ordinary = CreINN(network(torch.nn), distance=True).fit_distance(X, y)
    for model in (
        CreINN(network()).eval(),
        ordinary,
        Ensemble([ordinary]),
        creinn.compile(ordinary),
    ):
        with pytest.raises(
            ValueError, match=rf"^row 7 of the inputs holds {value} at index \(7, 1\)\."
        ):
            model.predict(x, batch_size=5)
        model.is_checked = False  # a model that has just been loaded looks at these rows
        prediction = model.predict(x, missing="vacuous")
        assert prediction.lower[7].tolist() == [0, 0, 0]
        assert prediction.upper[7].tolist() == [1, 1, 1]
        assert prediction.epistemic[7] == pytest.approx(np.log2(3))
        assert prediction.classes()[7].all()
        rest = torch.arange(12) != 7
        torch.testing.assert_close(prediction.lower[rest], model.predict(X).lower[rest])
    with pytest.raises(ValueError, match="row 7 of the training data holds"):
        ordinary.fit_distance(x, y, batch_size=5)


def test_missing_values_of_baselines_raise():
    x = X.clone()
    x[7, 1] = float("nan")
    baseline = SNN(network(torch.nn))
    with pytest.raises(ValueError, match="row 7 of the inputs holds nan"):
        baseline.predict([x[:5], x[5:]])
    with pytest.raises(ValueError, match="SNN"):
        baseline.predict(x, missing="vacuous")
    with pytest.raises(ValueError, match="'zero'"):
        baseline.predict(X, missing="zero")
    with pytest.raises(ValueError, match=r"\['b'\]"):
        baseline.predict({"a": X[5:9], "b": x[5:9]})
