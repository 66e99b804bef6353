"""Tests of layers that use the C++ library, and of the conditions for its use."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from creinn import CreINN, native
from creinn import nn as inn
from creinn.graph.compile import compile
from creinn.graph.fold import fold
from creinn.graph.folded import FoldedFull, NativeFull, sum_moments
from creinn.interval import Interval
from creinn.models import resnet8
from creinn.nn import functional as functions

needs_library = pytest.mark.skipif(not native.available, reason=native.reason)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def randomise(network):
    """Draw random weights and statistics."""
    for layer in network.modules():
        for parameter in layer.parameters(recurse=False):
            torch.nn.init.normal_(parameter, std=0.3)
        if getattr(layer, "running_var", None) is not None:
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
    return inn.project_(network).eval()


def inputs(*shape):
    x, w = torch.randn(shape), torch.rand(shape)
    return [Interval._of_point(x), Interval(x - w, x + w), Interval(x.abs(), x.abs() + w)]


def assert_same(got, expected, tolerance=1e-4):
    assert got.shape == expected.shape
    for a, b in ((got.lower, expected.lower), (got.upper, expected.upper)):
        torch.testing.assert_close(a.double(), b, rtol=tolerance, atol=tolerance)


def natives(network):
    return [layer for layer in network.modules() if isinstance(layer, NativeFull)]


SEQUENCES = {
    "no bias": (
        inn.Conv1d(3, 4, 2, bias=False),
        inn.BatchNorm1d(4, mode="sound"),
        (5, 3, 6),
    ),
    "no norm": (inn.Conv1d(3, 4, 3, padding=1, stride=2), inn.ReLU(), (5, 3, 7)),
    "groups": (inn.Conv2d(4, 6, 3, groups=2), inn.BatchNorm2d(6), inn.ReLU(), (3, 4, 5, 6)),
    "same": (
        inn.Conv2d(4, 6, (3, 5), padding="same"),
        inn.BatchNorm2d(6, mode="sound"),
        (3, 4, 5, 6),
    ),
    "one pixel": (inn.Conv2d(4, 6, 3, padding=1), inn.BatchNorm2d(6), inn.ReLU(), (3, 4, 1, 1)),
    "dilated": (inn.Conv2d(4, 6, 3, padding=2, dilation=2, bias=False), (3, 4, 5, 6)),
}
STAYING = {
    "linear": (inn.Linear(3, 4), inn.BatchNorm1d(4), inn.ReLU(), (5, 3)),
    "tokens": (inn.Linear(3, 4), inn.ReLU(), (5, 4, 3)),
    "circular": (
        inn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"),
        inn.BatchNorm2d(6),
        (3, 4, 5, 6),
    ),
    "volume": (inn.Conv3d(2, 3, 2, stride=2), inn.ReLU(), (2, 2, 5, 6, 4)),
    "one side longer": (inn.Conv2d(4, 6, 2, padding="same"), (3, 4, 5, 6)),
}


@needs_library
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("name", [*SEQUENCES, *STAYING])
@torch.no_grad()
def test_layers_on_all_kinds_of_inputs(name):
    *layers, shape = copy.deepcopy((SEQUENCES | STAYING)[name])
    network = randomise(torch.nn.Sequential(inn.ReLU(), *layers))
    folded, exact = fold(network, native=True), copy.deepcopy(network).double()
    assert bool(natives(folded)) == (name in SEQUENCES)
    for x in inputs(*shape):
        assert_same(folded(x), exact(x.to(torch.float64)))


class Residual(torch.nn.Module):
    """Network with sums of layers and numbers, with and without a ReLU."""

    def __init__(self):
        super().__init__()
        self.stem = inn.Conv2d(3, 6, 3, padding=1)
        self.first, self.second, self.third = (inn.Conv2d(6, 6, 3, padding=1) for _ in range(3))
        self.norm = inn.BatchNorm2d(6)

    def forward(self, x):
        x = functions.relu(self.stem(x))
        y = functions.relu(self.norm(self.first(x)) + x)
        z = functions.relu(self.second(y) + self.third(x))
        return self.third(z) + y + 0.5


@needs_library
@torch.no_grad()
def test_sums_are_computed_by_layers():
    network = randomise(Residual())
    folded, exact = fold(network, native=True), copy.deepcopy(network).double()
    sums = [node for node in folded.graph.nodes if node.target is sum_moments]
    joined = [node for node in folded.graph.nodes if "residual" in node.kwargs]
    assert (len(sums), len(joined)) == (1, 3)
    for x in inputs(2, 3, 7, 5):
        assert_same(folded(x), exact(x.to(torch.float64)), 1e-3)


@needs_library
@torch.no_grad()
def test_residual_that_is_broadcast():
    layer = randomise(torch.nn.Sequential(inn.ReLU(), inn.Conv2d(3, 4, 1)))
    folded = natives(fold(layer, native=True))[0]
    x, shift = inputs(2, 3, 5, 5)[2], Interval(torch.zeros(1, 4, 1, 1), torch.ones(1, 4, 1, 1))
    wanted = functions.relu(layer.double()(x.to(torch.float64)) + shift.to(torch.float64))
    assert_same(folded(x, shift, relu=True), wanted)


@pytest.mark.parametrize("mode", ["paper", "sound"])
@pytest.mark.parametrize("choice", [pytest.param(True, marks=needs_library), False])
@torch.no_grad()
def test_compiled_networks(mode, choice):
    model = CreINN(resnet8(4, width=4), mode=mode)
    model.train()(torch.randn(16, 3, 16, 16))
    inn.scale_radii_(model, 0.1)
    x, exact = torch.randn(3, 3, 16, 16), copy.deepcopy(model.eval()).double()
    for memory_format in (torch.contiguous_format, torch.channels_last):
        compiled = compile(model, x, memory_format, native=choice)
        for batch in (x, Interval(x - 0.01, x + 0.01)):
            got, wanted = compiled(batch), exact(batch.to(torch.float64))
            torch.testing.assert_close(got.lower.double(), wanted.lower, rtol=0, atol=1e-4)
            torch.testing.assert_close(got.upper.double(), wanted.upper, rtol=0, atol=1e-4)


@torch.no_grad()
def test_compilation_without_the_library(monkeypatch):
    monkeypatch.setattr(native, "available", False)
    model, x = CreINN(resnet8(3, width=2)).eval(), torch.randn(2, 3, 8, 8)
    compiled = compile(model, x)
    assert not natives(compiled)
    torch.testing.assert_close(compiled(x).lower, model(x).lower, rtol=0, atol=1e-5)
    assert not natives(compile(model, x, native=False))


RULE = {
    "several pixels": (inn.Conv2d(3, 4, 3), (2, 3, 6, 6), True),
    "one output pixel": (inn.Conv2d(3, 4, 3), (2, 3, 3, 3), False),
    "one pixel": (inn.Conv2d(3, 4, 3, padding=1), (2, 3, 1, 1), False),
    "signal": (inn.Conv1d(3, 4, 3), (2, 3, 6), True),
    "linear": (inn.Linear(3, 4), (2, 3), False),
}


@needs_library
@pytest.mark.skipif(not native.is_vectorized, reason="this processor has no AVX2")
@pytest.mark.parametrize("name", RULE)
@torch.no_grad()
def test_conditions_for_the_library(name, monkeypatch):
    layer, shape, is_native = RULE[name]
    folded = fold(torch.nn.Sequential(inn.ReLU(), layer).eval(), native=True)
    calls, product = [], native.product

    def counted(*arguments, **options):
        calls.append(0)
        return product(*arguments, **options)

    monkeypatch.setattr(native, "product", counted)
    for x in inputs(*shape)[1:]:
        folded(x)
    assert len(calls) == (2 if is_native else 0)


@torch.no_grad()
def test_processor_without_vector_instructions(monkeypatch):
    monkeypatch.setattr(native, "is_vectorized", False)
    network = torch.nn.Sequential(inn.ReLU(), inn.Conv2d(3, 4, 3)).eval()
    assert not natives(fold(network, native=True))


@needs_library
@torch.no_grad()
def test_memory_of_the_weights():
    network = torch.nn.Sequential(inn.ReLU(), inn.Conv2d(8, 8, 3), inn.ReLU()).eval()
    folded = [fold(network, native=by_library) for by_library in (True, False)]
    x, held = inputs(2, 8, 6, 6)[2], []
    for form in folded:
        form(x)
        layer = next(part for part in form.modules() if isinstance(part, FoldedFull))
        layer.general = None
        held.append(sum(t.numel() for t in (*layer.parameters(), *layer.buffers()) if t.ndim != 2))
    assert held[0] < 0.55 * held[1]


@needs_library
@pytest.mark.parametrize("mode", ["paper", "sound"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@torch.no_grad()
def test_layers_on_inputs_return_bounds(mode, memory_format):
    network = randomise(
        torch.nn.Sequential(inn.Conv2d(3, 4, 3), inn.BatchNorm2d(4, mode=mode), inn.ReLU())
    )
    folded, exact = fold(network, native=True), copy.deepcopy(network).double()
    for x in inputs(2, 3, 6, 5):
        x = x.map_monotone(lambda t: t.contiguous(memory_format=memory_format))
        y = folded(x)
        assert_same(y, exact(x.to(torch.float64)))
        assert not (x.is_point and y.has_center_radius)
        assert y.nonnegative


@needs_library
@torch.no_grad()
def test_export_raises():
    model, x = CreINN(resnet8(3, width=2)).eval(), torch.randn(2, 3, 8, 8)
    with pytest.raises(RuntimeError, match="native=False"):
        torch.export.export(compile(model, x), (x,))


@needs_library
@torch.no_grad()
def test_narrow_weights_use_torch():
    network = torch.nn.Sequential(inn.ReLU(), inn.Conv2d(8, 8, 3))
    assert natives(fold(network, native=True))
    inn.scale_radii_(network, 1e-4)
    assert not natives(fold(network, native=True))


@needs_library
@torch.no_grad()
def test_float64_uses_torch():
    network = randomise(
        torch.nn.Sequential(
            inn.ReLU(), inn.Conv2d(3, 4, 3, groups=1), inn.BatchNorm2d(4), inn.ReLU()
        )
    )
    folded = fold(network, native=True).double()
    x = inputs(2, 3, 6, 6)[2].to(torch.float64)
    assert_same(folded(x), network.double()(x), 1e-5)
    assert natives(folded)[0].block is not None


@needs_library
@torch.no_grad()
def test_threads():
    model, batches = (
        CreINN(resnet8(3, width=4)).eval(),
        [torch.randn(rows, 3, 12, 12) for rows in (1, 2, 5, 9)] * 3,
    )
    compiled = compile(model)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(compiled, batches))
    for got, x in zip(found, batches, strict=True):
        torch.testing.assert_close(got.lower, model(x).lower, rtol=0, atol=1e-5)
