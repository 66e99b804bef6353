"""Predictions from several threads: equal to those of one thread, and nothing shared is changed."""

import copy
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from creinn import CreINN, Interval
from creinn import nn as inn
from creinn.baselines import SNN
from thread_cases import run_in_threads

THREADS, CALLS = 8, 200


@pytest.fixture(autouse=True)
def _one_thread():
    """Let torch compute with one thread in each of ours."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.attention(x, x, x)[0].mean(1))


class LSTM(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 6, batch_first=True)
        self.head = torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def mlp(layers, *middle):
    return torch.nn.Sequential(
        layers.Linear(5, 8),
        *middle,
        layers.ReLU(),
        layers.Linear(8, 6),
        layers.ReLU(),
        layers.Linear(6, 3),
    )


def cnn(layers):
    return torch.nn.Sequential(
        *(layers.Conv2d(2, 4, 3, padding=1), layers.BatchNorm2d(4), layers.ReLU()),
        *(layers.Conv2d(4, 4, 3), layers.ReLU()),
        *(layers.AdaptiveAvgPool2d(1), layers.Flatten(), layers.Linear(4, 3)),
    )


def with_distance(network, *shape):
    x = torch.randn(24, *shape)
    return CreINN(network, distance=0.1).fit_distance(x, torch.arange(24) % 3)


MODELS = {
    "interval MLP": (lambda: CreINN(mlp(inn)).eval(), (5,)),
    "interval CNN": (lambda: CreINN(cnn(inn)).eval(), (2, 6, 6)),
    "MLP": (lambda: with_distance(mlp(torch.nn), 5), (5,)),
    "CNN": (lambda: with_distance(cnn(torch.nn), 2, 6, 6), (2, 6, 6)),
    "LayerNorm": (lambda: with_distance(mlp(torch.nn, torch.nn.LayerNorm(8)), 5), (5,)),
    "attention": (lambda: with_distance(Attention(), 3, 4), (3, 4)),
    "LSTM": (lambda: with_distance(LSTM(), 3, 4), (3, 4)),
}


def modes(model):
    return [part.training for part in model.modules()]


def as_new(model):
    """A copy whose first prediction checks and compiles it."""
    new = copy.deepcopy(model)
    new.is_checked = False
    return new


def assert_equal(found, expected):
    assert torch.allclose(found.lower, expected.lower, rtol=1e-5, atol=1e-6)
    assert torch.allclose(found.upper, expected.upper, rtol=1e-5, atol=1e-6)


def test_threads_give_equal_predictions():
    torch.manual_seed(0)
    models = {name: build() for name, (build, _) in MODELS.items()}
    inputs = {name: torch.randn(3, *shape) for name, (_, shape) in MODELS.items()}
    wanted = {name: model.predict(inputs[name]) for name, model in models.items()}
    shared = {name: as_new(model) for name, model in models.items()}
    unrelated = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.ReLU())
    x, before = torch.randn(2, 5), [modes(model) for model in shared.values()]
    unrelated_wanted, call = unrelated(x), torch.nn.Module.__call__
    names = list(MODELS)

    def work(number):
        for step in range(CALLS):
            name = names[(step + (number if step else 0)) % len(names)]  # first all the same
            assert_equal(shared[name].predict(inputs[name]), wanted[name])
            if number == 0:
                assert torch.allclose(unrelated(x), unrelated_wanted)

    run_in_threads(work)
    assert [modes(model) for model in shared.values()] == before
    assert torch.nn.Module.__call__ is call


@pytest.mark.parametrize("name", MODELS)
def test_first_predictions_of_threads(name):
    torch.manual_seed(0)
    build, shape = MODELS[name]
    model, x = build(), torch.randn(3, *shape)
    expected = model.predict(x)
    for _ in range(5):
        new = as_new(model)
        run_in_threads(lambda _, new=new: assert_equal(new.predict(x), expected))
        assert new.is_checked


DROPOUT = {
    "compiled": lambda: with_distance(mlp(torch.nn, torch.nn.Dropout(0.9)), 5),
    "not compiled": lambda: with_distance(
        mlp(torch.nn, torch.nn.LayerNorm(8), torch.nn.Dropout(0.9)), 5
    ),
}


@pytest.mark.parametrize("name", DROPOUT)
@pytest.mark.parametrize("part", ["all", "dropout"])
def test_predict_uses_eval_mode(name, part):
    torch.manual_seed(0)
    model, x = DROPOUT[name]().eval(), torch.randn(6, 5)
    expected = model.predict(x)
    for module in model.modules():
        if part == "all" or isinstance(module, torch.nn.Dropout | inn.Dropout):
            module.training = True
    before, state = modes(model), torch.get_rng_state()
    assert any(before)

    def work(_):
        for _ in range(5):
            assert_equal(model.predict(x), expected)

    run_in_threads(work)
    assert modes(model) == before
    assert torch.equal(torch.get_rng_state(), state)
    if part == "all":
        model.network(x).sum().backward()
        assert model.network[0].weight.grad is not None  # the copies did not take its place


def test_training_mode_prediction_uses_new_weights():
    torch.manual_seed(0)
    model, x = SNN(mlp(torch.nn)).train(), torch.randn(4, 5)
    before = model.predict(x).probabilities
    with torch.no_grad():
        model.network[-1].bias.add_(torch.tensor([5.0, 0.0, 0.0]))
    after = model.predict(x).probabilities
    torch.testing.assert_close(after, model(x).probabilities.detach())
    assert (after - before).abs().max() > 0.1


def test_hooks_are_called_in_training_mode():
    class Recorder:
        calls = 0

        def hook(self, *_):
            self.calls += 1

    model, recorder = SNN(mlp(torch.nn)).train(), Recorder()
    model.network[0].register_forward_hook(recorder.hook)
    model.is_checked = True
    model.predict(torch.zeros(2, 5))
    assert recorder.calls == 1


def test_uncopyable_model_requires_eval_mode():
    model = SNN(mlp(torch.nn))
    model.network.lock = threading.Lock()
    with pytest.raises(RuntimeError, match=r"model\.eval\(\)"):
        model.predict(torch.zeros(2, 5))
    assert len(model.eval().predict(torch.zeros(2, 5))) == 2


def bits(model, x):
    prediction = model.predict(x)
    bounds = torch.stack((prediction.lower, prediction.upper))
    return bounds.view(torch.int32).flatten().tolist()


SAME_BITS = """
import json, sys
sys.path[:0] = sys.argv[1:]
import torch
from test_threads import BITS_OF, bits, new
torch.set_num_threads(1)
print(json.dumps([bits(*new(name)) for name in BITS_OF]))
"""
BITS_OF = ("interval MLP", "interval CNN")


def new(name):
    torch.manual_seed(0)
    build, shape = MODELS[name]
    return build(), torch.randn(3, *shape)


def test_processes_and_threads_give_equal_results():
    command = [sys.executable, "-c", SAME_BITS, *map(str, Path(__file__).parents[:2])]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [json.loads(process.communicate(timeout=200)[0]) for process in processes]
    assert outputs[1] == outputs[0]
    for name, expected in zip(BITS_OF, outputs[0], strict=True):
        found, (model, x) = [], new(name)
        run_in_threads(lambda _, f=found, m=model, x=x: f.append(bits(m, x)), 4)
        assert found == [expected] * 4


ROWS = {
    "interval MLP": lambda: CreINN(mlp(inn)),
    "interval CNN": lambda: CreINN(cnn(inn)),
    "CreINN-D": lambda: with_distance(mlp(torch.nn), 5),
    "SNN": lambda: SNN(mlp(torch.nn)),
    "SNN of images": lambda: SNN(cnn(torch.nn)),
    "one logit": lambda: SNN(torch.nn.Linear(5, 1)),
    "flattened": lambda: SNN(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(72, 3))),
}


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_missing_batch_dimension_raises(name, is_first):
    model = ROWS[name]().eval()
    is_image = "CNN" in name or "images" in name or name == "flattened"
    x = torch.randn(4, 2, 6, 6) if is_image else torch.randn(4, 5)
    if not is_first:
        model.predict(x)
    with pytest.raises(ValueError, match=r"\(N, \.\.\.\)"):
        model.predict(x[0])
    if name.startswith("interval"):
        with pytest.raises(ValueError, match=r"\(N, \.\.\.\)"):
            model.predict(Interval(x[0], x[0] + 1))
    assert len(model.predict(x)) == 4


@pytest.mark.parametrize("is_first", [False, True])
def test_missing_batch_dimension_of_dict_raises(is_first):
    class Tokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(9, 4)
            self.head = torch.nn.Linear(4, 3)

        def forward(self, ids, mask):
            rows, length = ids.shape
            return self.head((self.embedding(ids) * mask.view(rows, length, 1)).mean(1))

    x = {"ids": torch.arange(12).view(3, 4) % 9, "mask": torch.ones(3, 4)}
    model = SNN(Tokens()).eval()
    if not is_first:
        model.predict(x)
    with pytest.raises(ValueError, match=r"\(N, \.\.\.\)"):
        model.predict({name: part[0] for name, part in x.items()})
