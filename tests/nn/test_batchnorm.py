"""Tests of batch norm in paper mode and in sound mode."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from creinn import nn as inn
from creinn.classifier.creinn import CreINN
from creinn.interval import Interval
from creinn.nn.batchnorm import _PositiveRadius
from creinn.numerics import magnitude

DIMS = {1: inn.BatchNorm1d, 2: inn.BatchNorm2d, 3: inn.BatchNorm3d}
SHAPES = [(6, 4), (6, 4, 3), (6, 4, 3, 2), (6, 4, 3, 2, 2)]


def norm_for(shape: tuple[int, ...], **options: object) -> nn.Module:
    return DIMS[max(len(shape) - 2, 1)](shape[1], **options).double()


def random_interval(shape: tuple[int, ...]) -> Interval:
    center, radius = torch.randn(shape, dtype=torch.float64), torch.rand(shape, dtype=torch.float64)
    return Interval(center - radius, center + radius)


def algorithm(
    x: Interval, gamma_c, beta_c, gamma_r, beta_r, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Algorithm 1 of the paper, step by step, on batch statistics."""
    dims = [d for d in range(x.ndim) if d != 1]
    view = (1, -1, *(1,) * (x.ndim - 2))

    def normalize(t: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
        mean = t.mean(dims, keepdim=True)
        variance = ((t - mean) ** 2).mean(dims, keepdim=True)
        return gamma.view(view) * (t - mean) / (variance + eps).sqrt() + beta.view(view)

    center = normalize((x.lower + x.upper) / 2, gamma_c, beta_c)
    radius = normalize((x.upper - x.lower) / 2, gamma_r, beta_r).abs()
    return center - radius, center + radius


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_paper_mode_equals_the_algorithm(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    norm, x = norm_for(shape, eps=1e-3), random_interval(shape)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    parameters = (*norm.weight.detach().view(2, -1), *norm.bias.detach().view(2, -1))
    lower, upper = algorithm(x, parameters[0], parameters[2], parameters[1], parameters[3], 1e-3)
    result = norm(x)
    assert_close(result.lower, lower)
    assert_close(result.upper, upper)


def test_initial_parameters() -> None:
    norm = inn.BatchNorm1d(3)
    assert norm.weight.tolist() == [1.0] * 6
    assert norm.bias.tolist() == [0.0] * 6


@pytest.mark.parametrize("mode", ["paper", "sound"])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_equal_torch(mode: str, momentum: float | None) -> None:
    torch.manual_seed(1)
    norm = inn.BatchNorm2d(4, momentum=momentum, mode=mode).double()
    center, radius = (nn.BatchNorm2d(4, momentum=momentum).double() for _ in range(2))
    for _ in range(3):
        x = random_interval((5, 4, 3, 2))
        norm(x), center(x.center), radius(x.radius)
    expected = (
        torch.cat((center.running_mean, radius.running_mean))
        if mode == "paper"
        else center.running_mean
    )
    assert_close(norm.running_mean, expected)
    expected = (
        torch.cat((center.running_var, radius.running_var))
        if mode == "paper"
        else center.running_var
    )
    assert_close(norm.running_var, expected)
    x = random_interval((5, 4, 3, 2))
    norm.eval(), center.eval(), radius.eval()
    result = norm(x)
    assert_close(result.center, center(x.center))
    if mode == "paper":
        assert_close(result.radius, radius(x.radius).abs())


def test_eval_mode_does_not_depend_on_the_batch() -> None:
    torch.manual_seed(2)
    norm = inn.BatchNorm1d(4).double()
    norm(random_interval((8, 4)))
    norm.eval()
    before = norm.running_mean.clone()
    x = random_interval((8, 4))
    assert_close(norm(x).lower[:1], norm(x[:1]).lower)
    assert torch.equal(norm.running_mean, before)


def test_eval_mode_without_running_statistics() -> None:
    torch.manual_seed(3)
    for mode in ("paper", "scaled"):
        norm = (
            inn.BatchNorm1d(4, track_running_stats=False, affine=False, mode=mode).double().eval()
        )
        result = norm(random_interval((50, 4)))
        assert_close(result.center.mean(0), torch.zeros(4).double(), atol=1e-7, rtol=0)


def test_only_sound_mode_preserves_containment() -> None:
    # The mean of the radii 0 and 2 is 1, so both become 1.
    x = Interval([[0.0], [-2.0]], [[0.0], [2.0]])
    paper = inn.BatchNorm1d(1, eps=0.0, affine=False)
    paper.running_mean.copy_(torch.tensor([0.0, 1.0]))
    result = paper.eval()(x)
    assert result.upper.flatten().tolist() == pytest.approx([1.0, 1.0])
    sound = inn.BatchNorm1d(1, eps=0.0, affine=False, mode="sound").eval()
    assert sound(x).upper.flatten().tolist() == pytest.approx([0.0, 2.0])


def test_sound_mode_by_hand() -> None:
    norm = inn.BatchNorm1d(1, eps=0.0, mode="sound").eval()
    norm.weight.data.fill_(-3.0)
    norm.bias.data.fill_(1.0)
    norm.running_mean.fill_(1.0)
    norm.running_var.fill_(4.0)
    result = norm(Interval([[1.0]], [[3.0]]))  # -3 * ([1, 3] - 1) / 2 + 1
    assert (result.lower.item(), result.upper.item()) == pytest.approx((-2.0, 1.0))


def test_constant_radius_has_a_gradient() -> None:
    norm = inn.BatchNorm1d(2)
    center, radius = torch.randn(5, 2), torch.full((5, 2), 0.3, requires_grad=True)
    norm(Interval(center - radius, center + radius)).width.sum().backward()
    assert norm.bias.grad[2:].abs().min() > 0


def test_bad_arguments_raise() -> None:
    with pytest.raises(ValueError, match="'best'"):
        inn.BatchNorm1d(2, mode="best")
    with pytest.raises(ValueError, match="'x'"):
        inn.BatchNorm1d(2).set_mode("x")
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        inn.BatchNorm2d(3)(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"\(2, 4\)"):
        inn.BatchNorm1d(3)(torch.zeros(2, 4))


def test_sound_mode_without_running_statistics_raises() -> None:
    # Centers 0 and 1 have variance 1/4; the members 0 and 2 of [0, 0] and [0, 2] have variance 1.
    message = "track_running_stats"
    with pytest.raises(ValueError, match=message):
        inn.BatchNorm1d(3, track_running_stats=False, mode="sound")
    norm = inn.BatchNorm1d(3, track_running_stats=False)
    with pytest.raises(ValueError, match=message):
        norm.set_mode("sound")
    assert norm.mode == "paper"
    network = nn.Sequential(inn.Linear(2, 3), norm)
    with pytest.raises(ValueError, match=message):
        CreINN(network, mode="sound")
    CreINN(network, mode="scaled")


def test_one_value_per_channel_raises_in_training():
    norm = inn.BatchNorm2d(3)
    x = Interval(torch.zeros(1, 3, 1, 1), torch.ones(1, 3, 1, 1))
    with pytest.raises(ValueError, match=r"\(1, 3, 1, 1\)"):
        norm(x)
    assert norm.num_batches_tracked == 0
    norm.eval()(x)


def normed(pairs, scale, shift):
    """An affine map of the radii, and their absolute value."""
    center, radius = pairs.unbind(1)
    after = torch.stack((center, radius * scale + shift), 1)
    return _PositiveRadius.apply(after, pairs.detach(), scale, shift)


def test_zero_radius_has_a_gradient():
    pairs = torch.tensor([[[1.0, 1.0, 1.0], [-2.0, 0.0, 3.0]]], requires_grad=True)
    (found,) = torch.autograd.grad(normed(pairs, torch.ones(3), torch.zeros(3)).sum(), pairs)
    assert found.tolist() == [[[1.0, 1.0, 1.0], [-1.0, 1.0, 1.0]]]


@given(st.integers(0, 10_000))
def test_positive_radius_equals_autograd(seed):
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randn(4, 2, 7, dtype=torch.float64, generator=generator).requires_grad_()
    scale, shift = torch.randn(2, 7, dtype=torch.float64, generator=generator)
    weights = torch.randn(4, 2, 7, dtype=torch.float64, generator=generator)
    found = normed(pairs, scale, shift)
    center, radius = pairs.unbind(1)
    expected = torch.stack((center, magnitude(radius * scale + shift)), 1)
    assert_close(found, expected)
    mine, theirs = (torch.autograd.grad((t * weights).sum(), pairs)[0] for t in (found, expected))
    assert_close(mine, theirs)


def test_eval_maps_by_hand():
    norm = inn.BatchNorm1d(1, eps=0.0, mode="paper")
    norm.running_mean.copy_(torch.tensor([6.0, 1.0]))
    norm.running_var.copy_(torch.tensor([4.0, 0.25]))
    norm.weight.data.copy_(torch.tensor([-1.0, -3.0]))
    norm.bias.data.copy_(torch.tensor([1.0, -2.0]))
    scale, shift = norm.eval_maps()  # center: -(c - 6) / 2 + 1; radius: |-3 (r - 1) / 0.5 - 2|
    assert [*scale.flatten().tolist(), *shift.flatten().tolist()] == pytest.approx(
        [-0.5, -6.0, 4.0, 4.0]
    )
    norm.mode = "scaled"
    norm.running_mean[1] = 0.0
    scale, shift = norm.eval_maps()  # radius: 3 r / 0.5 + 2
    assert [*scale.flatten().tolist(), *shift.flatten().tolist()] == pytest.approx(
        [-0.5, 6.0, 4.0, 2.0]
    )
    assert inn.BatchNorm1d(3, track_running_stats=False).eval_maps() is None
