"""Tests of batch norm in scaled mode, of a change of the mode, and of frozen centers."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from creinn import nn as inn
from creinn.interval import Interval

DIMS = {1: inn.BatchNorm1d, 2: inn.BatchNorm2d, 3: inn.BatchNorm3d}
SHAPES = [(6, 4), (6, 4, 3), (6, 4, 3, 2), (6, 4, 3, 2, 2)]


def norm_for(shape, **options):
    return DIMS[max(len(shape) - 2, 1)](shape[1], **({"mode": "scaled"} | options)).double()


def random_interval(shape, seed=0):
    g = torch.Generator().manual_seed(seed)
    center = torch.randn(shape, generator=g).double()
    radius = torch.rand(shape, generator=g).double()
    return Interval(center - radius, center + radius)


def randomise(norm, seed=0):
    g = torch.Generator().manual_seed(seed)
    for name, tensor in norm.state_dict().items():
        if tensor.is_floating_point():
            drawn = torch.rand(tensor.shape, generator=g).double() + 0.5
            sign = torch.where(torch.rand(tensor.shape, generator=g) < 0.5, -1.0, 1.0)
            tensor.copy_(drawn if name == "running_var" else drawn * sign)
    if norm.mode == "scaled" and norm.running_mean is not None:
        norm.running_mean[norm.num_features :] = 0
    return norm


def slow_radius(radius, square, norm):
    """Channel by channel."""
    out = torch.empty_like(radius)
    count = norm.num_features
    for k in range(count):
        gamma = norm.weight[count + k].abs().item() if norm.affine else 1.0
        beta = norm.bias[count + k].abs().item() if norm.affine else 0.0
        out[:, k] = gamma * radius[:, k] / (square[k].item() + norm.eps) ** 0.5 + beta
    return out


def mean_square(radius):
    return torch.stack([radius[:, k].pow(2).mean() for k in range(radius.shape[1])])


def test_by_hand():
    # radii 1 and 7 have the mean square 25; centers 0 and 2 become -1 and 1
    norm = inn.BatchNorm1d(1, eps=1e-12, mode="scaled").double()
    norm.bias.data[1] = -0.5
    result = norm(
        Interval(torch.tensor([[-1.0], [-5.0]]).double(), torch.tensor([[1.0], [9.0]]).double())
    )
    assert result.center.flatten().tolist() == pytest.approx([-1, 1])
    assert result.radius.flatten().tolist() == pytest.approx([0.3 / 5 + 0.5, 0.3 * 7 / 5 + 0.5])
    assert norm.running_var[1].item() == pytest.approx(0.9 + 0.1 * 25)


@pytest.mark.parametrize(
    "options", [{}, {"affine": False}, {"track_running_stats": False}, {"eps": 1e-3}], ids=str
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_output_equals_the_formula(shape, options):
    norm, x = randomise(norm_for(shape, **options)), random_interval(shape)
    for training in (True, False):
        norm.train(training)
        by_batch = training or norm.running_var is None
        square = mean_square(x.radius) if by_batch else norm.running_var[4:].clone()
        mean, var = (None, None) if by_batch else (norm.running_mean[:4], norm.running_var[:4])
        weight, bias = (norm.weight[:4], norm.bias[:4]) if norm.affine else (None, None)
        center = torch.nn.functional.batch_norm(
            x.center, mean, var, weight, bias, by_batch, 0, norm.eps
        )
        result = norm(x)
        assert_close(result.center, center)
        assert_close(result.radius, slow_radius(x.radius, square, norm))
        assert (result.lower <= result.upper).all()


@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
def test_running_statistics(momentum):
    norm = inn.BatchNorm2d(4, momentum=momentum, mode="scaled").double()
    ordinary = torch.nn.BatchNorm2d(4, momentum=momentum).double()
    expected = torch.ones(4).double()
    for seed in range(4):
        x = random_interval((5, 4, 3, 2), seed)
        share = 1 / (seed + 1) if momentum is None else momentum
        expected = (1 - share) * expected + share * mean_square(x.radius)
        norm(x), ordinary(x.center)
    assert_close(norm.running_mean, torch.cat((ordinary.running_mean, torch.zeros(4).double())))
    assert_close(norm.running_var, torch.cat((ordinary.running_var, expected)))
    assert norm.num_batches_tracked == 4
    before = copy.deepcopy(norm.state_dict())
    norm.eval()(x)
    assert_close(norm.state_dict(), before)


def test_layout_equals_paper_mode():
    scaled, paper = inn.BatchNorm1d(3, mode="scaled"), inn.BatchNorm1d(3)
    assert {k: v.shape for k, v in scaled.state_dict().items()} == {
        k: v.shape for k, v in paper.state_dict().items()
    }
    assert scaled.weight.tolist() == pytest.approx([1.0] * 3 + [0.3] * 3)
    assert scaled.bias.tolist() == [0.0] * 6
    scaled.weight.data.zero_()
    scaled.reset_parameters()
    assert scaled.weight.tolist() == pytest.approx([1.0] * 3 + [0.3] * 3)
    assert "mode='scaled'" in repr(scaled)


@settings(max_examples=50, derandomize=True, database=None, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.floats(1e-6, 1e3))
def test_order_of_radii_is_kept(seed, training, size):
    norm = randomise(norm_for((8, 4)), seed).train(training)
    x = random_interval((8, 4), seed)
    radius = x.radius * size
    result = norm(Interval(x.center - radius, x.center + radius)).radius
    assert_close(result.sort(0).values, result.gather(0, radius.argsort(0)))


def test_paper_mode_changes_the_order_of_radii():
    # radii 0, 2, 5, mean 7/3: 2 becomes the least
    x = Interval([[0.0], [-2.0], [-5.0]], [[0.0], [2.0], [5.0]])
    assert inn.BatchNorm1d(1)(x).radius.argmin() == 1
    assert inn.BatchNorm1d(1, mode="scaled")(x).radius.argsort(0).flatten().tolist() == [0, 1, 2]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_points_and_constant_radii(training, dtype):
    norm = inn.BatchNorm1d(2, mode="scaled").to(dtype).train(training)
    norm.bias.data[2:] = torch.tensor([0.0, -0.25])
    center = torch.randn(5, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert norm(center).radius.tolist() == [[0.0, 0.25]] * 5
    radius = torch.zeros(5, 2, dtype=dtype, requires_grad=True)
    norm(Interval._of_parts(center - radius, center + radius)).width.sum().backward()
    assert torch.isfinite(radius.grad).all()
    assert (radius.grad > 0).all()
    assert norm.bias.grad[2] > 0
    constant = inn.BatchNorm1d(2, mode="scaled").to(dtype)(Interval(center - 0.5, center + 0.5))
    assert_close(constant.radius, torch.full((5, 2), 0.3, dtype=dtype), rtol=1e-4, atol=0)


def test_zero_scale_and_shift_have_a_gradient():
    norm = norm_for((6, 4))
    norm.weight.data[4:] = 0
    norm(random_interval((6, 4))).width.sum().backward()
    assert norm.weight.grad[4:].abs().min() > 0
    assert norm.bias.grad[4:].abs().min() > 0


@pytest.mark.parametrize("training", [True, False])
def test_gradients(training):
    norm = randomise(norm_for((3, 2), track_running_stats=not training), 1).train(training)
    g = torch.Generator().manual_seed(3)
    center = torch.randn(3, 2, generator=g).double()
    radius = torch.rand(3, 2, generator=g).double() + 0.1

    def bounds(c, r, weight, bias):
        parameters = {"weight": weight, "bias": bias}
        result = torch.func.functional_call(norm, parameters, (Interval._of_parts(c - r, c + r),))
        return result.lower, result.upper

    arguments = [
        t.detach().clone().requires_grad_() for t in (center, radius, norm.weight, norm.bias)
    ]
    assert torch.autograd.gradcheck(bounds, arguments)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_does_not_overflow(dtype):
    norm = inn.BatchNorm1d(1, mode="scaled")
    radius = torch.tensor([[300.0], [2000.0]], dtype=dtype)
    result = norm(Interval._of_parts(-radius, radius))
    assert_close(result.radius.float(), 0.3 * radius.float() / 1430.0, rtol=2e-2, atol=0)
    assert torch.isfinite(norm.running_var).all()


def test_meta_device():
    norm = inn.BatchNorm2d(3, mode="scaled", device="meta")
    x = Interval._of_parts(*torch.empty(2, 4, 3, 5, 5, device="meta"))
    assert norm(x).shape == (4, 3, 5, 5)
    assert norm.eval()(x).shape == (4, 3, 5, 5)
    norm.set_mode("paper")
    norm.set_mode("scaled")


@pytest.mark.parametrize("options", [{}, {"affine": False}], ids=str)
@pytest.mark.parametrize(
    ("old", "new"), [("sound", "scaled"), ("sound", "paper"), ("scaled", "paper")]
)
def test_set_mode_keeps_the_output_in_eval_mode(old, new, options):
    norm = randomise(norm_for((7, 3), mode=old, **options)).eval()
    x = random_interval((7, 3))
    before, expected = copy.deepcopy(norm.state_dict()), norm(x)
    norm.set_mode(new)
    assert norm.mode == new
    assert_close(norm(x).lower, expected.lower)
    assert_close(norm(x).upper, expected.upper)
    assert all(v.shape in ((), (6,)) for v in norm.state_dict().values())
    norm.set_mode("sound")
    assert all(
        torch.equal(v, before[k][:3] if v.ndim else before[k]) for k, v in norm.state_dict().items()
    )


def test_set_mode_from_paper_to_scaled():
    paper = norm_for((4000, 3), mode="paper", momentum=None)
    paper.weight.data[3:] = torch.tensor([0.5, -2.0, 1.0])
    paper.bias.data[3:] = torch.tensor([1.5, 1.0, 0.0])
    x = random_interval((4000, 3))
    paper(x)
    expected = mean_square(paper.eval()(x).radius)
    paper.set_mode("scaled")
    assert_close(paper.running_var[3:], mean_square(x.radius), rtol=1e-3, atol=0)
    assert_close(mean_square(paper(x).radius), expected, rtol=1e-3, atol=0)
    assert paper.running_mean[3:].tolist() == [0, 0, 0]
    assert paper.bias[3:].tolist() == [0, 0, 0]


def test_set_mode_of_a_new_layer():
    norm = inn.BatchNorm1d(3)
    for mode in ("scaled", "paper", "scaled"):
        norm.set_mode(mode)
        assert_close(norm.state_dict(), inn.BatchNorm1d(3, mode=mode).state_dict())
    norm.requires_grad_(False)
    norm.set_mode("paper")
    assert not norm.weight.requires_grad
    norm(torch.randn(4, 3))
    norm.set_mode("scaled")  # the statistics have changed, so the scale of 1 is kept
    assert norm.weight.tolist() == [1.0] * 6


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"momentum": None}], ids=str)
@pytest.mark.parametrize("mode", ["paper", "scaled", "sound"])
def test_frozen_center(mode, options):
    norm, x = randomise(norm_for((9, 4, 3), mode=mode, **options)), random_interval((9, 4, 3))
    free = copy.deepcopy(norm)
    before = copy.deepcopy(norm.state_dict())
    norm.center_frozen = True
    expected = copy.deepcopy(norm).eval()(x)
    result, trained = norm(x), free(x)
    assert_close(result.center, expected.center)
    assert_close(result.radius, (expected if mode == "sound" else trained).radius)
    for name, tensor in norm.state_dict().items():
        if tensor.ndim:
            assert torch.equal(tensor[:4], before[name][:4])
            assert_close(tensor[4:], free.state_dict()[name][4:])
    if norm.affine:
        parameters = (norm.weight, norm.bias)
        if mode != "sound":
            (result.lower.square().sum() + result.upper.sum()).backward()
            for p in parameters:
                assert (p.grad[:4] == 0).all()
                assert (p.grad[4:] != 0).any()
        else:
            assert not result.requires_grad


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("mode", ["paper", "scaled", "sound"])
def test_gradients_of_a_layer_that_is_used_twice(mode, frozen):
    norm, x = norm_for((9, 4), mode=mode), random_interval((9, 4))
    norm.center_frozen = frozen
    lower = x.lower.requires_grad_()
    norm(norm(Interval._of_parts(lower, x.upper))).width.square().sum().backward()
    assert torch.isfinite(lower.grad).all()
    assert (lower.grad != 0).any()
