"""Layers with Gaussian weights: moments against analytic values and sampled weights, KL against torch.distributions."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.testing import assert_close

from creinn.baselines import flipout, local_reparameterization
from creinn.baselines.bayesian_layers import INITIAL_STD, GaussianWeights, inverse_softplus
from creinn.baselines.bnn import BNN
from creinn.numerics import safe_sqrt

FAMILIES = {"local_reparameterization": local_reparameterization, "flipout": flipout}
LAYERS = {
    "linear": (lambda family: family.Linear(5, 4), (5,)),
    "linear-no-bias": (lambda family: family.Linear(5, 4, bias=False), (5,)),
    "conv1d": (lambda family: family.Conv1d(2, 3, 3, padding=1), (2, 6)),
    "conv2d": (
        lambda family: family.Conv2d(4, 6, 3, stride=2, padding=1, groups=2, bias=False),
        (4, 5, 5),
    ),
    "conv2d-reflect": (
        lambda family: family.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"),
        (2, 4, 4),
    ),
    "conv3d": (lambda family: family.Conv3d(2, 2, 2, dilation=2), (2, 3, 3, 3)),
}


@pytest.fixture(params=FAMILIES)
def family(request):
    return FAMILIES[request.param]


@pytest.fixture(params=LAYERS)
def layer_and_input(request, family) -> tuple[GaussianWeights, Tensor]:
    torch.manual_seed(0)
    build, shape = LAYERS[request.param]
    layer = build(family).double()
    with torch.no_grad():  # standard deviations that matter, and differ
        layer.weight_rho.uniform_(-1.5, 0.5)
        if layer.bias_rho is not None:
            layer.bias_rho.uniform_(-1.5, 0.5)
    return layer, torch.randn(1, *shape, dtype=torch.float64)


def analytic_moments(layer: GaussianWeights, x: Tensor) -> tuple[Tensor, Tensor]:
    bias_variance = None if layer.bias is None else F.softplus(layer.bias_rho).square()
    variance = layer.affine(x.square(), F.softplus(layer.weight_rho).square(), bias_variance)
    return layer.affine(x, layer.weight, layer.bias), variance


def assert_moments(samples: Tensor, mean: Tensor, variance: Tensor) -> None:
    """Check that the mean and the variance of the samples are within 5 standard errors."""
    count = len(samples)
    assert ((samples.mean(0) - mean).abs() < 5 * (variance / count).sqrt()).all()
    assert ((samples.var(0) / variance - 1).abs() < 5 * (2 / count) ** 0.5).all()


@torch.no_grad()
def test_pre_activation_mean_and_variance(layer_and_input):
    layer, x = layer_and_input
    calls = [layer(x.expand(20, *x.shape[1:])) for _ in range(200)]
    mean, variance = analytic_moments(layer, x)
    # Rows of one flipout call share the size of the perturbation, so that only calls are independent draws of it.
    per_call = torch.stack([call[0] for call in calls])
    assert_moments(per_call, mean[0], variance[0])
    rows = torch.cat(calls)
    assert ((rows.mean(0) - mean[0]).abs() < 5 * (variance[0] / len(rows)).sqrt()).all()


@torch.no_grad()
def test_analytic_moments_match_sampled_weights(layer_and_input):
    layer, x = layer_and_input
    outputs = []
    for _ in range(4000):
        weight = layer.weight + F.softplus(layer.weight_rho) * torch.randn_like(layer.weight)
        bias = None
        if layer.bias is not None:
            bias = layer.bias + F.softplus(layer.bias_rho) * torch.randn_like(layer.bias)
        outputs.append(layer.affine(x, weight, bias)[0])
    mean, variance = analytic_moments(layer, x)
    assert_moments(torch.stack(outputs), mean[0], variance[0])


def test_pre_activation_by_hand():
    # weights N(3, 2^2) and N(4, 1), bias N(1, 1), input (1, -2): mean 3 - 8 + 1, variance 4 + 4 + 1
    for family in FAMILIES.values():
        layer = family.Linear(2, 1).double()
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([[3.0, 4.0]]))
            layer.weight_rho.copy_(torch.tensor([[inverse_softplus(2.0), inverse_softplus(1.0)]]))
            layer.bias.fill_(1.0)
            layer.bias_rho.fill_(inverse_softplus(1.0))
            torch.manual_seed(0)
            y = torch.cat(
                [layer(torch.tensor([[1.0, -2.0]], dtype=torch.float64)) for _ in range(5000)]
            )
        assert y.mean().item() == pytest.approx(-4, abs=0.2)
        assert y.var().item() == pytest.approx(9, rel=0.1)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["linear", "conv2d", "conv3d"])
def test_flipout_decorrelates_the_examples_of_a_batch(kind):
    torch.manual_seed(0)
    build, shape = LAYERS[kind]
    layer = build(flipout).double()
    layer.weight_rho.fill_(0.0)
    # the outputs of equal rows are equal if the weights are shared
    x = torch.randn(1, *shape, dtype=torch.float64).expand(8, *shape)
    y = torch.stack([layer(x).flatten(1) for _ in range(2000)])  # (calls, rows, outputs)
    y = (y - y.mean(0)) / y.std(0)
    correlation = torch.einsum("cio,cjo->oij", y, y) / len(y)
    off = correlation - torch.eye(8)
    # rows share the sizes of the perturbation, so the second moment of a product is up to 3
    assert off.abs().max() < 5 * (3 / 2000) ** 0.5
    shared = torch.stack(
        [
            layer.affine(x, layer.weight + layer.weight_std * torch.randn_like(layer.weight), None)
            for _ in range(50)
        ]
    )
    assert_close(shared[:, 0], shared[:, 1])  # what flipout avoids


@torch.no_grad()
def test_flipout_draws_one_sign_per_channel():
    """The output is linear in the perturbation, so two equal patches have the same output in one call."""
    torch.manual_seed(0)
    layer = flipout.Conv2d(3, 4, 1)
    layer.weight_rho.fill_(0.0)
    x = torch.randn(5, 3, 1, 1).expand(5, 3, 4, 4)
    y = layer(x)
    assert_close(y, y[:, :, :1, :1].expand_as(y))
    assert not torch.allclose(y, layer(x))


@torch.no_grad()
def test_local_reparameterisation_samples_each_row_and_call():
    torch.manual_seed(0)
    layer = local_reparameterization.Linear(3, 2)
    layer.weight_rho.fill_(0.0)
    y = torch.stack([layer(torch.ones(6, 3)).flatten() for _ in range(2000)])
    correlation = torch.corrcoef(y.T) - torch.eye(12)
    assert correlation.abs().max() < 5 / 2000**0.5


def test_eval_mode_samples_depend_on_the_seed(layer_and_input):
    layer, x = layer_and_input
    layer.eval()
    torch.manual_seed(3)
    first, second = layer(x), layer(x)
    torch.manual_seed(3)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)


def test_dtypes_and_unbatched_inputs(family):
    assert family.Conv2d(2, 3, 3)(torch.randn(2, 5, 5)).shape == (3, 3, 3)
    assert family.Linear(2, 3)(torch.randn(4, 5, 2)).shape == (4, 5, 3)
    assert (
        family.Linear(2, 3, dtype=torch.float64)(torch.randn(2, dtype=torch.float64)).dtype
        == torch.float64
    )


def test_gradients_are_finite_at_zero_variance():
    layer = local_reparameterization.Conv2d(2, 3, 3, padding=1, bias=False)
    x = torch.zeros(2, 2, 4, 4, requires_grad=True)
    layer(x).square().sum().backward()
    for gradient in (x.grad, layer.weight.grad, layer.weight_rho.grad):
        assert gradient.isfinite().all()


def test_reparameterised_gradients_reach_means_and_standard_deviations(layer_and_input):
    layer, x = layer_and_input
    layer(x).square().sum().backward()
    assert layer.weight.grad.abs().sum() > 0
    assert layer.weight_rho.grad.abs().sum() > 0


def test_kl_matches_torch_distributions(layer_and_input):
    layer, _ = layer_and_input
    prior = Normal(torch.tensor(0.0, dtype=torch.float64), 0.7)
    expected = kl_divergence(Normal(layer.weight, F.softplus(layer.weight_rho)), prior).sum()
    if layer.bias is not None:
        expected = (
            expected + kl_divergence(Normal(layer.bias, F.softplus(layer.bias_rho)), prior).sum()
        )
    assert_close(layer.kl(0.7), expected)


def test_kl_of_a_network_sums_its_layers(family):
    network = nn.Sequential(
        family.Conv1d(1, 2, 3), family.BatchNorm1d(2), family.Flatten(), family.Linear(4, 3)
    )
    assert_close(BNN(network).kl(), network[0].kl(1.0) + network[3].kl(1.0))


def test_kl_by_hand(family):
    layer = family.Linear(1, 1, bias=False)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.weight_rho.fill_(inverse_softplus(2.0))
    assert layer.kl(2.0).item() == pytest.approx(0.125)  # (1 + 4) / (2 * 4) - 1/2 - log(2 / 2)


def test_initial_standard_deviation_scales_with_fan_in(family):
    layer = family.Conv2d(4, 8, 5)
    assert_close(layer.weight_std, torch.full_like(layer.weight, INITIAL_STD / 10))
    ordinary = nn.Conv2d(4, 8, 5)
    assert layer.weight.std().item() == pytest.approx(ordinary.weight.std().item(), rel=0.1)


def test_family_falls_back_to_torch_names(family):
    assert family.ReLU is nn.ReLU
    assert family.BatchNorm2d is nn.BatchNorm2d
    assert family.AdaptiveAvgPool2d is nn.AdaptiveAvgPool2d
    assert family.Linear is not nn.Linear
    with pytest.raises(AttributeError, match="NoSuchLayer"):
        family.NoSuchLayer  # noqa: B018


def test_ordinary_state_dict_loads_into_means(family):
    ordinary, layer = nn.Linear(3, 2), family.Linear(3, 2)
    layer.load_state_dict(ordinary.state_dict(), strict=False)
    assert torch.equal(layer.weight, ordinary.weight)


@pytest.mark.parametrize("std", [1e-6, 0.01, 1.0, 30.0])
def test_inverse_softplus(std):
    assert F.softplus(
        torch.tensor(inverse_softplus(std), dtype=torch.float64)
    ).item() == pytest.approx(std)


def test_safe_sqrt():
    x = torch.tensor([-1e-9, 0.0, 4.0], requires_grad=True)
    y = safe_sqrt(x)
    y.sum().backward()
    assert y.tolist() == [0.0, 0.0, 2.0]
    assert x.grad.tolist() == [0.0, 0.0, 0.25]
