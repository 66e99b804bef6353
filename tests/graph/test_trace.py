"""Tracing, by way of conversion: each refusal names the place and the reason."""

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
from creinn.graph.trace import graph_module, trace
from creinn.graph.tracer import GraphTracer


def module(forward: Callable[..., object], **parts: object) -> nn.Module:
    """A module with these parts and this forward pass, inside another one."""

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
        r"Cannot convert 1\.1: LayerNorm: it normalises with statistics of the sample itself",
    ),
    "attention": (
        lambda: module(lambda s, x: s.attention(x, x, x)[0], attention=nn.MultiheadAttention(4, 1)),
        r"1\.attention: MultiheadAttention: it multiplies activations by a softmax of activations",
    ),
    "unknown layer": (
        lambda: nn.Sequential(nn.Bilinear(2, 2, 2)),
        "0: Bilinear: it is not among the known ones",
    ),
    "softmax layer": (
        lambda: nn.Sequential(nn.Linear(2, 2), nn.Softmax(1)),
        "1: Softmax: CreINN applies Interval SoftMax",
    ),
    "softmax": (
        lambda: module(lambda s, x: F.softmax(s.fc(x), 1)),
        r"1 \(Inner\).*unknown function 'torch\.nn\.functional\.softmax': CreINN applies Interval SoftMax itself",
    ),
    "unknown function": (
        lambda: module(lambda s, x: torch.exp(x)),
        r"1 \(Inner\).*unknown function '.*exp'",
    ),
    "unknown method": (lambda: module(lambda s, x: x.exp()), r"unknown method '\.exp\(\)'"),
    "unknown attribute": (
        lambda: module(lambda s, x: s.fc(x.T)),
        r"unknown attribute '\.T': only shape, ndim",
    ),
    "matmul": (lambda: module(lambda s, x: x @ x), "unknown function '_operator.matmul'"),
    "alpha": (
        lambda: module(lambda s, x: torch.add(x, x, alpha=2)),
        "add cannot be called like this.*'alpha'",
    ),
    "dtype": (
        lambda: module(lambda s, x: x.mean(1, dtype=torch.float64)),
        "mean cannot be called like this.*'dtype'",
    ),
    "reinterpretation": (
        lambda: module(lambda s, x: x.view(torch.int32)),
        r"reshape does not take torch\.int32",
    ),
    "quotient": (
        lambda: module(lambda s, x: s.fc(x) / x),
        "truediv needs a constant as 'other', but the network computes",
    ),
    "reciprocal": (
        lambda: module(lambda s, x: 1 / x),
        "truediv needs a value that the network computes as 'input', got 1",
    ),
    "computed index": (
        lambda: module(lambda s, x: x[s.fc(x)]),
        "getitem needs a constant as 'index'",
    ),
    "indices": (
        lambda: module(lambda s, x: F.max_pool1d(x, 2, return_indices=True)[0]),
        "MaxPool1d cannot return indices|unknown function",
    ),
    "falling function": (
        lambda: module(lambda s, x: F.leaky_relu(x, -0.1)),
        "LeakyReLU with negative_slope=-0.1 is not mono",
    ),
    "falling layer": (
        lambda: nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU(-0.1)),
        "Cannot convert 1: LeakyReLU: .*not mono",
    ),
    "data-dependent": (
        lambda: module(data_dependent),
        r"1 \(Inner\), line .*'_operator\.gt'",
    ),
    "condition": (
        lambda: module(lambda s, x: s.fc(x) if x.sum() else x),
        "1: Inner: its forward pass cannot be traced: symbolically traced variables cannot be used as inputs",
    ),
    "mode-dependent": (
        lambda: module(mode_dependent),
        r"depends on the mode: output \(output\) in training, relu",
    ),
    "parameter": (
        lambda: module(lambda s, x: s.fc(x) * s.scale, scale=nn.Parameter(torch.ones(4))),
        r"1 \(Inner\).*the tensor '1\.scale' is used directly",
    ),
    "functional linear": (
        lambda: module(lambda s, x: F.linear(x, s.fc.weight)),
        r"the tensor '1\.fc\.weight' is used directly",
    ),
    "constant": (
        lambda: module(lambda s, x: x + torch.ones(4)),
        "the tensor '_tensor_constant0' is used directly",
    ),
    "whole quotient": (
        lambda: module(lambda s, x: s.fc(x) // 2),
        "floordiv needs a constant as 'input', but the network computes it from its input",
    ),
    "subclass": (
        lambda: nn.Sequential(type("Mine", (nn.Linear,), {})(2, 2)),
        r"0 \(Mine\).*the tensor '0\.weight' is used",
    ),
    "in place": (
        lambda: module(inplace_reuse),
        r"relu \(relu\) changes its input in place, and that is used again later",
    ),
    "in place on a view": (
        lambda: module(inplace_view),
        r"add \(iadd\) changes its input in place",
    ),
    "tuple": (
        lambda: module(lambda s, x: (x, s.fc(x))),
        "must return one tensor of logits, but returns a tuple",
    ),
    "two inputs": (
        lambda: module(lambda s, x, y: x + y),
        "missing 1 required positional argument: 'y'",
    ),
    "interval": (
        lambda: nn.Sequential(nn.Linear(2, 2), inn.Linear(2, 2)),
        "1: Linear: it is a layer of the family 'interval' already; only ordinary layers belong here",
    ),
    "interval layer": (
        lambda: inn.Linear(2, 2),
        "Cannot convert Linear: it is a layer of the family 'interval' already",
    ),
    "no weights": (lambda: nn.Sequential(nn.ReLU()), "Sequential has no layer with weights"),
    "no forward pass": (
        lambda: nn.ModuleDict({"a": nn.Linear(2, 2)}),
        "ModuleDict: its forward pass cannot be traced",
    ),
    "complex": (
        lambda: nn.Linear(2, 2, dtype=torch.complex64),
        "layer.weight: its dtype is torch.complex64",
    ),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_refusals_name_the_place_and_the_reason(case: str) -> None:
    build, message = REFUSED[case]
    with pytest.raises(ConversionError, match=message):
        convert(build())


def test_interval_networks_that_read_again_what_they_changed_are_refused() -> None:
    source = module(inplace_reuse)
    source[0], source[1].fc = inn.Linear(4, 4), inn.Linear(4, 4)
    with pytest.raises(ValueError, match=r"relu \(relu\) changes its input in place"):
        trace(source, ("interval",))


def test_hooks_and_patched_forward_passes_are_refused() -> None:
    source = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    handle = source[0].register_forward_hook(lambda *args: None)
    with pytest.raises(
        ConversionError, match="0: Linear: it has forward hooks, which would be lost"
    ):
        convert(source)
    handle.remove()
    source[0].forward = lambda x: x
    with pytest.raises(
        ConversionError, match="0: Linear: it has a forward of its own, set on the object"
    ):
        convert(source)
    with pytest.raises(ConversionError, match="Linear: it has a forward of its own"):
        convert(source[0])


def test_parametrized_weights_are_refused() -> None:
    source = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
    with pytest.raises(ConversionError, match="0: ParametrizedLinear: it has parametrized weights"):
        convert(source)


def test_tied_parameters_are_refused() -> None:
    source = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    source[1].weight = source[0].weight
    with pytest.raises(
        ConversionError, match=r"1\.weight: it is the same parameter as 0\.weight of another layer"
    ):
        convert(source)


def test_names_that_a_graph_cannot_hold_are_refused() -> None:
    source = nn.Sequential()
    source.add_module("graph", nn.Linear(2, 2))
    with pytest.raises(ConversionError, match="'graph'"):
        convert(source)
    source = nn.Sequential()
    source.add_module('a"b', nn.Linear(2, 2))
    with pytest.raises(ConversionError, match='a"b'):
        convert(source)


@pytest.mark.parametrize("radius", [0.0, -0.1, float("nan"), float("inf")])
def test_bad_radii(radius: float) -> None:
    with pytest.raises(ValueError, match="radius must be a positive number, got"):
        convert(nn.Linear(2, 2), radius=radius)


def test_other_bad_arguments() -> None:
    with pytest.raises(ValueError, match="Unknown mode 'exact'"):
        convert(nn.Linear(2, 2), mode="exact")
    with pytest.raises(TypeError, match=r"Expected a torch\.nn\.Module, got str"):
        convert("resnet18")


def test_sound_norms_without_running_statistics_are_refused() -> None:
    norm = torch.nn.BatchNorm2d(3, track_running_stats=False)
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 1), norm, torch.nn.ReLU(), norm)
    message = r"Cannot convert 1: BatchNorm2d: BatchNorm2d\(3\) with track_running_stats=False cannot be sound"
    with pytest.raises(ConversionError, match=message):
        convert(network, mode="sound")
    convert(network, mode="paper")


class Watched(nn.Module):
    """Notes which ``torch.nn.Module.__call__`` there is while its forward pass runs."""

    calls: ClassVar[list[object]] = []

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append((nn.Module.__call__, nn.Module.__getattr__, inn.functional.relu))
        return inn.functional.relu(self.fc(x))


def test_tracing_changes_no_class_and_no_function() -> None:
    before = nn.Module.__call__, nn.Module.__getattr__, inn.functional.relu
    Watched.calls.clear()
    convert(nn.Sequential(nn.Linear(4, 4), Watched()))
    assert Watched.calls == [before, before]  # once per mode


def test_a_graph_is_unpickled_without_a_change_of_any_class(monkeypatch) -> None:
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
    """Calls its layers through a plain list, a method and ``forward``."""

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


def test_layers_in_lists_and_direct_calls_of_forward_are_traced() -> None:
    network, x = Staged(), torch.randn(5, 4)
    before = {path: dict(vars(module)) for path, module in network.named_modules()}
    traced = trace(network, ("ordinary",))
    assert list(traced.layers) == ["first", "second", "third"]
    torch.testing.assert_close(graph_module(traced)(x), network(x))
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
def test_parameters_cannot_become_constants_of_a_graph(forward: Callable[..., object]) -> None:
    with pytest.raises(ConversionError, match=r"1\.(scale|fc\.weight)' is used directly"):
        convert(module(forward, scale=nn.Parameter(torch.ones(1))))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_torchscript_is_refused() -> None:
    inner = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    with pytest.raises(ConversionError, match="TorchScript"):
        convert(nn.Sequential(nn.Linear(4, 4), inner))


def test_threads_trace_and_run_modules_at_once() -> None:
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
