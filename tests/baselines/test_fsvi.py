"""FSVI: logits against Monte Carlo, function-space KL against closed forms, context points, the norm of logits."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_linear_bn_eval
from torch.testing import assert_close

from creinn.baselines import FSVI
from creinn.baselines import fsvi as module
from creinn.baselines.bayesian_layers import inverse_softplus
from creinn.saving import load, save


def small_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()


def inputs(rows: int = 4, seed: int = 1) -> Tensor:
    return torch.randn(rows, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def set_std(model: FSVI, std: float) -> FSVI:
    with torch.no_grad():
        for rho in model.rho:
            rho.copy_(torch.log(torch.expm1(std * (0.5 + torch.rand_like(rho)))))
    return model


@torch.no_grad()
def test_last_layer_output_is_gaussian():
    model = set_std(FSVI(small_network(), samples=6000), 0.7).eval()
    x = inputs()
    mean, covariance = model.function_distribution(x)
    logits = model(x).log_samples  # up to a constant per row
    difference = logits[..., 1] - logits[..., 0]
    variance = covariance.diagonal(dim1=1, dim2=2).sum(0)
    assert ((difference.mean(0) - (mean[1] - mean[0])).abs() < 5 * (variance / 6000).sqrt()).all()
    assert ((difference.var(0) / variance - 1).abs() < 0.1).all()


def test_kl_by_hand():
    # one point x = 1, logits N(2, 1): from N(0, 4) each (1 + 4) / 8 - 1/2 + ln 2
    head = nn.Linear(1, 2, bias=False).double()
    model = FSVI(head, prior_std=2.0)
    with torch.no_grad():
        head.weight.fill_(2.0)
        model.rho[0].fill_(inverse_softplus(1.0))
    one = torch.ones(1, 1, dtype=torch.float64)
    # but for the jitter
    assert model.function_kl(one).item() == pytest.approx(2 * (0.125 + 0.693147), abs=1e-3)


def test_function_space_kl_of_a_linear_model():
    torch.manual_seed(0)
    head = nn.Linear(3, 2, bias=False).double()
    model = set_std(FSVI(head, prior_std=2.0), 1.0)
    x, variances = inputs(3), F.softplus(model.rho[0]).square()
    jitter = module.JITTER * 4.0
    expected = torch.zeros((), dtype=torch.float64)
    for k in range(2):
        mean = x @ head.weight[k]
        covariance = x @ torch.diag(variances[k]) @ x.T + jitter * torch.eye(3)
        squares = (covariance.trace() + mean.square().sum()) / (4.0 + jitter)
        expected = expected + 0.5 * (squares - 3 + 3 * math.log(4.0 + jitter) - covariance.logdet())
    assert_close(model.function_kl(x), expected)


def test_kl_has_finite_gradients():
    model = FSVI(small_network().float())
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    # there are more points than features, so the matrix is singular without jitter
    x = inputs(40).float()
    model.function_kl(x).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_loss_includes_kl_at_new_context_points():
    torch.manual_seed(0)
    x, y = inputs(50), torch.arange(50) % 2
    model = FSVI(small_network(), kl_weight=0.5, warmup=0.0, context_points=5)
    model.before_training([(x, y)], epochs=10)
    prediction = model(x)
    nll = F.nll_loss(prediction.log_samples[0], y)
    torch.manual_seed(7)
    points = model.draw_context()
    torch.manual_seed(7)
    assert_close(model.loss(prediction, y), nll + 0.5 * model.function_kl(points) / 50)
    assert (points.unsqueeze(1) == x).all(2).any(1).all()  # rows of the training data
    assert not torch.equal(model.draw_context(), points)
    assert_close(model.eval().loss(prediction, y), nll)


def test_context_points_from_another_dataset():
    other = inputs(7, seed=5)
    model = FSVI(small_network(), context=other)
    model.before_training([(inputs(20), torch.zeros(20))], epochs=1)
    assert (model.draw_context().unsqueeze(1) == other).all(2).any(1).all()


def test_context_points_do_not_change_batch_norm_statistics():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    model = FSVI(network).train()
    x = inputs(60).float()
    before = network[1].running_mean.clone()
    model.function_kl(x)
    assert torch.equal(network[1].running_mean, before)
    assert network[1].training


def normed(signs: tuple[float, float] = (1.0, -1.0), bias: bool = True, **options) -> FSVI:
    """A model with a norm of its logits as if trained."""
    network = small_network()
    if not bias:
        network[2] = nn.Linear(5, 2, bias=False).double()
    model = set_std(FSVI(network, logit_norm=True, **options), 0.5)
    with torch.no_grad():
        model.norm.running_mean.copy_(torch.tensor([0.7, -0.4]))
        model.norm.running_var.copy_(torch.tensor([0.3, 2.5]))
        model.norm.weight.copy_(torch.tensor(signs) * torch.tensor([1.5, 0.6]))
        model.norm.bias.copy_(torch.tensor([-0.2, 0.9]))
    return model


@torch.no_grad()
def without_norm(model: FSVI) -> FSVI:
    """Return the model with the norm folded into the means and standard deviations of the last layer."""
    network, head = copy.deepcopy(model.network), model.network[2]
    network[2] = fuse_linear_bn_eval(copy.deepcopy(head).eval(), copy.deepcopy(model.norm).eval())
    scale = model.norm.weight * (model.norm.running_var + model.norm.eps).rsqrt()
    options = {name: value for name, value in model.options().items() if name != "logit_norm"}
    twin = FSVI(network, **options)
    scale = scale.abs()
    stds = [F.softplus(rho) for rho in model.rho]
    stds[-1 - (head.bias is not None)] *= scale.unsqueeze(1)
    stds[-1] *= scale if head.bias is not None else 1.0
    if head.bias is None:
        stds.append(torch.zeros(2))  # the norm's shift is not random
    for rho, std in zip(twin.rho, stds, strict=True):
        rho.copy_(torch.log(torch.expm1(std)))
    return twin.train(model.training)


@pytest.mark.parametrize("bias", [True, False])
def test_batch_norm_equals_folded_weights(bias):
    model = normed(bias=bias)
    twin, x = without_norm(model), inputs()
    for found, expected in zip(
        model.function_distribution(x), twin.function_distribution(x), strict=True
    ):
        assert_close(found, expected)
    assert_close(model.function_kl(x), twin.function_kl(x))


@torch.no_grad()
def test_samples_with_batch_norm_equal_folded_samples():
    model = normed(signs=(1.0, 1.0), samples=5).eval()  # a negative sign would turn the noise round
    twin, x = without_norm(model), inputs()
    torch.manual_seed(3)
    found = model(x).samples
    torch.manual_seed(3)
    assert_close(found, twin(x).samples)
    assert found.shape == (5, 4, 2)


@torch.no_grad()
def test_training_norm_uses_statistics_of_the_noisy_batch():
    model, x = normed().train(), inputs(20)
    seen = []
    model.norm.register_forward_hook(lambda _, given, output: seen.append((given[0], output)))
    prediction = model(x)
    ((before, after),) = seen
    assert (before - model.network(x)).abs().max() > 0.1  # the model already has noise
    assert_close(after, F.batch_norm(before, None, None, model.norm.weight, model.norm.bias, True))
    assert_close(prediction.samples, after.softmax(1).unsqueeze(0))


def test_kl_trains_norm_without_changing_its_statistics():
    model = normed().train()
    before = copy.deepcopy(dict(model.norm.named_buffers()))
    model.function_kl(inputs()).backward()
    assert all(torch.equal(value, before[name]) for name, value in model.norm.named_buffers())
    assert model.norm.training
    for parameter in (model.norm.weight, model.norm.bias):
        assert parameter.grad.isfinite().all()
        assert (parameter.grad != 0).all()


@torch.no_grad()
def test_save_and_load_with_batch_norm(tmp_path):
    model, x = normed().eval(), inputs()
    save(model, tmp_path)
    again = load(tmp_path)
    assert again.options() == model.options()
    assert_close(again.function_distribution(x), model.function_distribution(x))


def test_invalid_options_raise():
    for options, message in [
        ({"context": "test"}, "context 'test'"),
        ({"samples": 0}, "samples"),
        ({"context_points": 0}, "context_points"),
        ({"prior_std": -1.0}, "prior_std"),
    ]:
        with pytest.raises(ValueError, match=message):
            FSVI(small_network(), **options)
    with pytest.raises(RuntimeError, match="before_training"):
        FSVI(small_network()).draw_context()
    with pytest.raises(ValueError, match="Linear"):
        FSVI(nn.Sequential(small_network(), nn.Tanh()))(inputs())
