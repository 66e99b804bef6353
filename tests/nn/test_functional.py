"""Tests of the functions for intervals and for tensors."""

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from creinn import nn as inn
from creinn.interval import Interval
from creinn.nn.functional import FUNCTIONS, TARGETS, TENSOR_METHODS

CASES = {
    "relu": (F.relu, ()),
    "relu6": (F.relu6, ()),
    "leaky_relu": (F.leaky_relu, (0.2,)),
    "elu": (F.elu, (0.5,)),
    "selu": (F.selu, ()),
    "softplus": (F.softplus, (2.0, 10.0)),
    "sigmoid": (torch.sigmoid, ()),
    "tanh": (torch.tanh, ()),
    "hardtanh": (F.hardtanh, (-0.5, 0.25)),
    "gelu": (F.gelu, ()),
    "silu": (F.silu, ()),
    "mish": (F.mish, ()),
    "hardswish": (F.hardswish, ()),
    "dropout": (F.dropout, (0.5, False)),
    "max_pool1d": (lambda x, *a: F.max_pool1d(x[0], *a), (2,)),
    "max_pool2d": (F.max_pool2d, (2, 1, 1)),
    "avg_pool1d": (lambda x, *a: F.avg_pool1d(x[0], *a), (2,)),
    "avg_pool2d": (F.avg_pool2d, (2, 1, 1, False, False, 3)),
    "adaptive_avg_pool1d": (lambda x, *a: F.adaptive_avg_pool1d(x[0], *a), (2,)),
    "adaptive_avg_pool2d": (F.adaptive_avg_pool2d, (2,)),
    "adaptive_max_pool1d": (lambda x, *a: F.adaptive_max_pool1d(x[0], *a), (2,)),
    "adaptive_max_pool2d": (F.adaptive_max_pool2d, (2,)),
    "flatten": (torch.flatten, (1,)),
    "reshape": (torch.Tensor.reshape, (2, -1)),
    "unsqueeze": (torch.unsqueeze, (1,)),
    "squeeze": (torch.squeeze, (0,)),
    "permute": (torch.Tensor.permute, (0, 2, 3, 1)),
    "transpose": (torch.transpose, (1, 2)),
    "contiguous": (torch.Tensor.contiguous, ()),
    "pad": (F.pad, ((1, 2), "constant", -1.0)),
    "cat": (lambda x: torch.cat([x, x], 1), ()),
    "stack": (lambda x: torch.stack([x, x], 1), ()),
    "getitem": (operator.getitem, ((slice(None), 0, Ellipsis),)),
    "size": (torch.Tensor.size, (1,)),
    "ndim": (torch.Tensor.dim, ()),
    "add": (torch.add, (2.5,)),
    "sub": (torch.sub, (2.5,)),
    "mul": (torch.mul, (-2.5,)),
    "truediv": (torch.div, (-2.5,)),
    "neg": (torch.neg, ()),
    "mean": (torch.mean, ((2, 3), True)),
    "sum": (torch.sum, ((2, 3),)),
}


def call(name: str, x: object, arguments: tuple[object, ...]) -> object:
    if name.endswith("pool1d"):
        x = x[0]
    return (
        FUNCTIONS[name]([x, x], 1) if name in ("cat", "stack") else FUNCTIONS[name](x, *arguments)
    )


@pytest.mark.parametrize("name", sorted(CASES))
def test_functions_on_tensors_and_intervals(name: str) -> None:
    torch.manual_seed(0)
    reference, arguments = CASES[name]
    lower = 2 * torch.randn(2, 3, 5, 5, dtype=torch.float64)
    upper = lower + torch.rand_like(lower)
    expected = reference(lower, *arguments)
    result = call(name, lower, arguments)
    interval = call(name, Interval(lower, upper), arguments)
    if isinstance(expected, int):
        assert result == expected == interval
        return
    assert isinstance(result, torch.Tensor)
    assert_close(result, expected)
    assert isinstance(interval, Interval)
    for _ in range(20):
        member = reference(lower + torch.rand_like(lower) * (upper - lower), *arguments)
        assert bool((interval.lower <= member + 1e-12).all())
        assert bool((member <= interval.upper + 1e-12).all())


@pytest.mark.parametrize("name", sorted(CASES))
def test_torch_functions_on_intervals(name: str) -> None:
    torch.manual_seed(0)
    reference, arguments = CASES[name]
    lower = 2 * torch.randn(2, 3, 5, 5, dtype=torch.float64)
    x = Interval(lower, lower + torch.rand_like(lower))
    is_method = type(reference) is type(torch.Tensor.reshape)  # it exists only for tensors
    result = getattr(x, reference.__name__)(*arguments) if is_method else reference(x, *arguments)
    at_bounds = reference(x.lower, *arguments), reference(x.upper, *arguments)
    if isinstance(result, int):
        assert at_bounds == (result, result)
        return
    assert isinstance(result, Interval)
    assert_close(result.upper, torch.maximum(*at_bounds))
    if name in ("gelu", "silu", "mish", "hardswish"):  # the smallest value is between the bounds
        assert bool((result.lower <= torch.minimum(*at_bounds)).all())
    else:
        assert_close(result.lower, torch.minimum(*at_bounds))


def test_unknown_functions_raise() -> None:
    x = Interval([[-1.0]], [[2.0]])
    with pytest.raises(TypeError, match="'softmax'"):
        F.softmax(x, 1)
    with pytest.raises(TypeError, match="'linear'"):
        nn.Linear(1, 1)(x)
    with pytest.raises(TypeError, match="alpha"):
        torch.add(x, x, alpha=2)


def test_operators_with_a_tensor_on_the_left() -> None:
    t, x = torch.tensor([1.0, -2.0]), Interval([0.0, 1.0], [2.0, 3.0])
    for result, lower, upper in (
        (t + x, [1.0, -1.0], [3.0, 1.0]),
        (t - x, [-1.0, -5.0], [1.0, -3.0]),
        (t * x, [0.0, -6.0], [2.0, -2.0]),
    ):
        assert result.lower.tolist() == lower
        assert result.upper.tolist() == upper
    with pytest.raises(TypeError, match="unsupported operand"):
        t / x
    with pytest.raises(TypeError, match="in place"):
        t.add_(x)
    t += x
    assert isinstance(t, Interval)


@pytest.mark.parametrize(
    "change", [torch.relu_, lambda x: F.relu(x, inplace=True), lambda x: x.relu_()]
)
def test_inplace_functions_change_no_tensor(
    change: Callable[[Interval], Interval],
) -> None:
    x = Interval([-1.0], [2.0])
    before, lower = x.clone(), x.lower
    assert change(x) is x
    assert (x.lower.item(), x.upper.item(), x.nonnegative) == (0.0, 2.0, True)
    assert before.lower.item() == lower.item() == -1.0


class Own(nn.Module):
    """A network whose forward pass is written for tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = inn.Conv2d(2, 3, 3, padding=1), inn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.conv(x), inplace=True), 2)
        x = torch.cat([x, 1 - x], 1).mean((2, 3))
        x = nn.GELU()(self.fc(x.view(x.shape[0], -1))).sigmoid()
        return torch.ones(4) + torch.flatten(x, 1)


def test_vmap_export_and_compile() -> None:
    torch.manual_seed(0)
    network, x = Own(), Interval(-torch.rand(3, 2, 4, 4), torch.rand(3, 2, 4, 4))
    with torch.no_grad():
        expected = network(x)
        forms = (
            lambda x: torch.func.vmap(lambda row: network(row.unsqueeze(0)).squeeze(0))(x),
            torch.export.export(network, (x,)).module(),
        )
        for form in forms:
            assert_close(form(x).lower, expected.lower)
            assert_close(form(x).upper, expected.upper)
        # torch.compile does not support the check of shapes
        network.conv = inn.Identity()
        network.fc = inn.Identity()
        compiled, expected = torch.compile(network, backend="eager", fullgraph=True)(x), network(x)
        assert_close(compiled.lower, expected.lower)
        assert_close(compiled.upper, expected.upper)


def test_every_function_has_a_case() -> None:
    assert set(CASES) == set(FUNCTIONS) - {"floordiv"}
    assert set(TARGETS.values()) | set(TENSOR_METHODS.values()) <= set(FUNCTIONS)


def test_floordiv_by_hand() -> None:
    assert FUNCTIONS["floordiv"](7, 2) == 3


def test_nonnegative_flag_after_padding() -> None:
    x = F.relu(torch.tensor([[1.0, 2.0]]))
    interval = FUNCTIONS["relu"](Interval(x, x + 1))
    assert interval.nonnegative
    assert FUNCTIONS["pad"](interval, (1, 1)).nonnegative
    assert not FUNCTIONS["pad"](interval, (1, 1), value=-1.0).nonnegative


def test_tensors_among_intervals_are_points() -> None:
    x, y = torch.tensor([[1.0]]), Interval([[0.0]], [[2.0]])
    assert FUNCTIONS["add"](x, y).upper.item() == 3
    assert FUNCTIONS["sub"](1, y).lower.item() == -1
    assert FUNCTIONS["cat"]([x, y], 1).lower.tolist() == [[1.0, 0.0]]


def test_functional_dropout_uses_one_mask() -> None:
    torch.manual_seed(0)
    y = FUNCTIONS["dropout"](Interval(torch.ones(1, 1000), 2 * torch.ones(1, 1000)), 0.5)
    assert set(y.lower.unique().tolist()) == {0.0, 2.0}
    assert_close(y.upper, 2 * y.lower)
