"""Tests of tracing; the errors contain the place and the reason."""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creinn import nn as inn
from creinn.graph.convert import ConversionError, convert
from creinn.graph.trace import GraphTracer, trace


def module(forward: Callable[..., object], **parts: object) -> nn.Module:
    """Return a network that contains a module with these parts and this forward pass."""

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)
            for name, part in parts.items():
                setattr(self, name, part)

    Inner.forward = forward
    return nn.Sequential(nn.Linear(4, 4), Inner())


def inplace_reuse(self: nn.Module, x: Tensor) -> Tensor:
    y = self.fc(x)
    z = F.relu(y, inplace=True)
    return z + y


def inplace_view(self: nn.Module, x: Tensor) -> Tensor:
    y = self.fc(x)
    z = y.view(-1, 2)
    z += 1
    return z.view(-1, 4) + y


def data_dependent(self: nn.Module, x: Tensor) -> Tensor:
    return self.fc(x) if x.sum() > 0 else x


def mode_dependent(self: nn.Module, x: Tensor) -> Tensor:
    return self.fc(x) if self.training else self.fc(x).relu()


REFUSED = {
    "layer norm": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.LayerNorm(4))),
        r"1\.1: LayerNorm: .*statistics",
    ),
    "attention": (
        lambda: module(lambda s, x: s.attention(x, x, x)[0], attention=nn.MultiheadAttention(4, 1)),
        r"1\.attention: MultiheadAttention: .*activations",
    ),
    "unknown layer": (lambda: nn.Sequential(nn.Bilinear(2, 2, 2)), "0: Bilinear: .*known"),
    "softmax layer": (
        lambda: nn.Sequential(nn.Linear(2, 2), nn.Softmax(1)),
        "1: Softmax: .*CreINN",
    ),
    "softmax": (
        lambda: module(lambda s, x: F.softmax(s.fc(x), 1)),
        r"1 \(Inner\).*'torch\.nn\.functional\.softmax': .*CreINN",
    ),
    "unknown function": (lambda: module(lambda s, x: torch.exp(x)), r"1 \(Inner\).*'.*exp'"),
    "unknown method": (lambda: module(lambda s, x: x.exp()), r"'\.exp\(\)'"),
    "unknown attribute": (lambda: module(lambda s, x: s.fc(x.T)), r"'\.T': .*shape, ndim"),
    "matmul": (lambda: module(lambda s, x: x @ x), "'_operator.matmul'"),
    "alpha": (lambda: module(lambda s, x: torch.add(x, x, alpha=2)), "add .*'alpha'"),
    "dtype": (lambda: module(lambda s, x: x.mean(1, dtype=torch.float64)), "mean .*'dtype'"),
    "reinterpretation": (lambda: module(lambda s, x: x.view(torch.int32)), r"torch\.int32"),
    "quotient": (lambda: module(lambda s, x: s.fc(x) / x), "truediv .*'other'"),
    "reciprocal": (lambda: module(lambda s, x: 1 / x), "truediv .*'input'.* 1"),
    "computed index": (lambda: module(lambda s, x: x[s.fc(x)]), "getitem .*'index'"),
    "indices": (
        lambda: module(lambda s, x: F.max_pool1d(x, 2, return_indices=True)[0]),
        "MaxPool1d|max_pool1d",
    ),
    "decreasing function": (
        lambda: module(lambda s, x: F.leaky_relu(x, -0.1)),
        "LeakyReLU.*negative_slope=-0.1",
    ),
    "decreasing layer": (
        lambda: nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU(-0.1)),
        "1: LeakyReLU: .*negative_slope=-0.1",
    ),
    "data-dependent": (lambda: module(data_dependent), r"1 \(Inner\).*'_operator\.gt'"),
    "condition": (lambda: module(lambda s, x: s.fc(x) if x.sum() else x), "1: Inner: .*traced"),
    "mode-dependent": (lambda: module(mode_dependent), r"mode: output \(output\).* relu"),
    "parameter": (
        lambda: module(lambda s, x: s.fc(x) * s.scale, scale=nn.Parameter(torch.ones(4))),
        r"1 \(Inner\).*'1\.scale'",
    ),
    "functional linear": (
        lambda: module(lambda s, x: F.linear(x, s.fc.weight)),
        r"'1\.fc\.weight'",
    ),
    "constant": (lambda: module(lambda s, x: x + torch.ones(4)), "'_tensor_constant0'"),
    "integer quotient": (lambda: module(lambda s, x: s.fc(x) // 2), "floordiv .*'input'"),
    "subclass": (
        lambda: nn.Sequential(type("Mine", (nn.Linear,), {})(2, 2)),
        r"0: Mine.*'0\.weight'",
    ),
    "in place": (lambda: module(inplace_reuse), r"relu \(relu\) .*in place"),
    "in place on a view": (lambda: module(inplace_view), r"add \(iadd\) .*in place"),
    "tuple": (lambda: module(lambda s, x: (x, s.fc(x))), "a tuple"),
    "two inputs": (lambda: module(lambda s, x, y: x + y), "'y'"),
    "interval": (
        lambda: nn.Sequential(nn.Linear(2, 2), inn.Linear(2, 2)),
        "1: Linear: .*'interval'",
    ),
    "interval layer": (lambda: inn.Linear(2, 2), "Linear: .*'interval'"),
    "no weights": (lambda: nn.Sequential(nn.ReLU()), "Sequential .*weights"),
    "no forward pass": (lambda: nn.ModuleDict({"a": nn.Linear(2, 2)}), "ModuleDict: .*traced"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_errors_contain_the_place_and_the_reason(case: str) -> None:
    build, message = REFUSED[case]
    with pytest.raises(ConversionError, match=message):
        convert(build())


def test_in_place_operation_in_an_interval_network() -> None:
    source = module(inplace_reuse)
    source[0], source[1].fc = inn.Linear(4, 4), inn.Linear(4, 4)
    with pytest.raises(ValueError, match=r"relu \(relu\) .*in place"):
        trace(source, ("interval",))


def test_hooks_and_replaced_forward_raise() -> None:
    source = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    handle = source[0].register_forward_hook(lambda *args: None)
    with pytest.raises(ConversionError, match=r"0: Linear: .*hooks"):
        convert(source)
    handle.remove()
    source[0].forward = lambda x: x
    with pytest.raises(ConversionError, match=r"0: Linear: .*forward"):
        convert(source)
    with pytest.raises(ConversionError, match=r"Linear: .*forward"):
        convert(source[0])


def test_parametrized_weights_raise() -> None:
    source = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
    with pytest.raises(ConversionError, match="0: ParametrizedLinear"):
        convert(source)


def test_tied_parameters_raise() -> None:
    source = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    source[1].weight = source[0].weight
    with pytest.raises(ConversionError, match=r"1\.weight: .*0\.weight"):
        convert(source)


def test_reserved_names_raise() -> None:
    source = nn.Sequential()
    source.add_module("graph", nn.Linear(2, 2))
    with pytest.raises(ConversionError, match="'graph'"):
        convert(source)
    source = nn.Sequential()
    source.add_module('a"b', nn.Linear(2, 2))
    with pytest.raises(ConversionError, match='a"b'):
        convert(source)


@pytest.mark.parametrize("radius", [0.0, -0.1, float("nan"), float("inf")])
def test_invalid_radius(radius: float) -> None:
    with pytest.raises(ValueError, match="radius"):
        convert(nn.Linear(2, 2), radius=radius)


def test_invalid_arguments() -> None:
    with pytest.raises(ValueError, match="'exact'"):
        convert(nn.Linear(2, 2), mode="exact")


def test_sound_norm_without_running_statistics_raises() -> None:
    norm = torch.nn.BatchNorm2d(3, track_running_stats=False)
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 1), norm, torch.nn.ReLU(), norm)
    with pytest.raises(ConversionError, match="1: BatchNorm2d"):
        convert(network, mode="sound")
    convert(network, mode="paper")


class Watched(nn.Module):
    """Network that records ``torch.nn.Module.__call__`` in each forward pass."""

    calls: ClassVar[list[object]] = []

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append((nn.Module.__call__, nn.Module.__getattr__, inn.functional.relu))
        return inn.functional.relu(self.fc(x))


def test_tracing_does_not_change_classes_and_functions() -> None:
    before = nn.Module.__call__, nn.Module.__getattr__, inn.functional.relu
    Watched.calls.clear()
    convert(nn.Sequential(nn.Linear(4, 4), Watched()))
    assert Watched.calls == [before, before]  # once per mode


def test_unpickling_does_not_change_classes(monkeypatch) -> None:
    calls = []
    record = GraphTracer.create_node

    def create_node(self: GraphTracer, *args: object, **kwargs: object) -> object:
        calls.append(nn.Module.__call__)
        return record(self, *args, **kwargs)

    monkeypatch.setattr(GraphTracer, "create_node", create_node)
    network, x = convert(nn.Sequential(nn.Linear(4, 4), Watched())), torch.randn(5, 4)
    restored = pickle.loads(pickle.dumps(network))
    assert set(calls) == {nn.Module.__call__}
    assert torch.equal(restored(x).lower, network(x).lower)


class Staged(nn.Module):
    """Network that calls its layers from a list, from a method and by ``forward``."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))
        self.stages = [self.first, self.second]

    def tail(self, x: Tensor) -> Tensor:
        return self.third.forward(x)

    def forward(self, x: Tensor, scale: float = 2.0) -> Tensor:
        for stage in self.stages:
            x = stage(x) if isinstance(stage, nn.Linear) and stage.in_features == 4 else x
        return self.tail(nn.ReLU()(x)) * scale


def test_layers_in_a_list_and_calls_of_forward() -> None:
    network, x = Staged(), torch.randn(5, 4)
    before = {path: dict(vars(module)) for path, module in network.named_modules()}
    traced = trace(network, ("ordinary",))
    assert list(traced.layers) == ["first", "second", "third"]
    torch.testing.assert_close(traced.module()(x), network(x))
    assert {path: dict(vars(module)) for path, module in network.named_modules()} == before


@pytest.mark.parametrize(
    "forward",
    [
        lambda s, x: s.fc(x) * s.scale.item(),
        lambda s, x: s.scale * s.fc(x),
        lambda s, x: s.fc(x).reshape(-1, s.fc.weight.shape[0]),
    ],
    ids=["number", "left operand", "shape"],
)
def test_parameter_as_a_constant_raises(forward: Callable[..., object]) -> None:
    with pytest.raises(ConversionError, match=r"1\.(scale|fc\.weight)'"):
        convert(module(forward, scale=nn.Parameter(torch.ones(1))))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_torchscript_raises() -> None:
    inner = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    with pytest.raises(ConversionError, match="torchbind"):
        convert(nn.Sequential(nn.Linear(4, 4), inner))


def test_threads_trace_and_run_modules_at_the_same_time() -> None:
    networks = [nn.Sequential(nn.Linear(4, 4), Watched()) for _ in range(8)]
    unrelated, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(3, 4)
    expected, call = unrelated(x), nn.Module.__call__

    def work(index: int) -> None:
        for _ in range(20):
            if index % 4 == 0:
                assert all(torch.equal(unrelated(x), expected) for _ in range(50))
            else:
                convert(networks[index])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert nn.Module.__call__ is call
