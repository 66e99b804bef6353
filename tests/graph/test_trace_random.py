"""Tests of random networks of all supported layers and functions."""

import copy
import operator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import graph_cases
import reference
from creinn import convert, interval
from creinn.graph.fold import fold
from creinn.graph.trace import _StrictTracer
from creinn.interval import Interval
from creinn.nn import functional as functions
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.nn.registry import LAYERS, family_of
from graph_cases import COUNT, SHAPE, Network, Step

steps = st.builds(
    Step,
    st.integers(0, COUNT - 1),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(graph_cases.CONSTANTS),
)
RELU, CONVOLUTION = 1, len(graph_cases.FUNCTIONS)


def randomise(network: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Return an ordinary network with running statistics."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in network.double().state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator, dtype=tensor.dtype) - 0.4)
    for layer in network.modules():
        if getattr(layer, "running_var", None) is not None:
            layer.running_var.abs_().add_(0.3)
    return network.eval()


def inputs(seed: int) -> list[Interval]:
    """Return a point, intervals of any sign and intervals ``>= 0``."""
    generator = torch.Generator().manual_seed(seed)
    x, width = (torch.rand(SHAPE, generator=generator, dtype=torch.float64) for _ in range(2))
    return [
        Interval._of_point(x - 0.5),
        Interval(x - 0.5, x - 0.5 + width / 5),
        Interval(x, x + width / 5),
    ]


def assert_close(got: Interval, expected: Interval) -> None:
    scale = torch.maximum(expected.lower.abs(), expected.upper.abs()).max().item()
    torch.testing.assert_close(got.lower, expected.lower, rtol=1e-8, atol=1e-8 * scale)
    torch.testing.assert_close(got.upper, expected.upper, rtol=1e-8, atol=1e-8 * scale)


def with_layers_of(twin: torch.nn.Module, network: Network) -> Network:
    """Return the network with interval layers instead of ordinary layers."""
    own = copy.deepcopy(network)
    for path, layer in network.named_modules():
        if family_of(layer) == "ordinary":
            parent, _, name = path.rpartition(".")
            setattr(own.get_submodule(parent), name, twin.get_submodule(path))
    return own


@torch.no_grad()
def check(network: Network, mode: str, family: str, seed: int) -> None:
    """Compare the converted, the folded and the original network, and test the members."""
    randomise(network, seed)
    twin = convert(network, 0.1, mode, family)
    if mode != "sound":
        for norm in twin.modules():
            if isinstance(norm, IntervalBatchNorm) and norm.affine:
                norm.bias[norm.num_features :] = -0.1
    folded, own = fold(twin), with_layers_of(twin, network)
    for x in inputs(seed):
        bounds, compiled = twin(x), folded(x)
        assert_close(own(x), bounds)
        assert_close(compiled, bounds)
        if mode == "sound":
            for output in reference.member_outputs(
                twin, network, x, torch.Generator().manual_seed(seed), 4
            ):
                reference.assert_contains(bounds, output)
                reference.assert_contains(compiled, output)


@given(
    st.lists(steps, min_size=1, max_size=6),
    st.sampled_from(["sound", "sound", "paper", "scaled"]),
    st.sampled_from(["interval", "interval", "relative"]),
    st.integers(0, 99),
)
@settings(max_examples=20)
def test_random_networks(drawn, mode, family, seed):
    check(Network([*drawn, Step(CONVOLUTION, 0, 0, 0.0)]), mode, family, seed)


@pytest.mark.parametrize("kind", range(COUNT))
def test_every_step_between_a_relu_and_a_layer(kind):
    parts = [Step(RELU, 0, 0, 0.0), Step(kind, 0, 0, -0.3), Step(CONVOLUTION + 1, 0, 0, 0.0)]
    check(Network(parts), "sound", "interval" if kind % 4 else "relative", kind)


def test_all_traced_operations_are_drawn():
    network = Network(
        [Step(kind, 0, 0, constant) for kind in range(COUNT) for constant in (0.5, 1)]
    )
    graph = _StrictTracer(network.eval(), ("ordinary",)).trace(network)
    used = {node.meta["target"] for node in graph.nodes}
    ours = {*functions.FUNCTIONS.values(), interval.cat, interval.stack}
    renamed = {F.sigmoid, F.tanh, operator.ifloordiv}  # which are recorded under another name
    assert set(functions.TARGETS) - ours - renamed - used == set()
    assert set(functions.TENSOR_METHODS) - used == set()
    assert set(LAYERS) - {type(module).__name__ for module in network.modules()} == set()
