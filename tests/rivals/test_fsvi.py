"""FSVI: linearisation against Monte Carlo over parameters, function-space KL against closed forms, context points."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal, kl_divergence
from torch.func import functional_call, vmap

from creinn.rivals import FSVI
from creinn.rivals import fsvi as module
from creinn.rivals.function_space import diagonal_kl, full_kl, head_covariance, linearise
from creinn.rivals.head import features_and_logits, folded, last_linear, scale_and_shift, with_ones
from creinn.saving import load, save


def small_network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()


def inputs(rows: int = 4, seed: int = 1) -> Tensor:
    return torch.randn(rows, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def set_std(model: FSVI, std: float) -> FSVI:
    with torch.no_grad():
        for rho in model.rho:
            rho.copy_(torch.log(torch.expm1(std * (0.5 + torch.rand_like(rho)))))
    return model


@torch.no_grad()
def test_linearised_moments_agree_with_monte_carlo_over_parameters():
    """Small variances, so that the network is close to its linearisation."""
    model = set_std(FSVI(small_network(), stochastic="all"), 0.01)
    x = inputs()
    mean, covariance = model.function_distribution(x)
    noisy = {
        name: p + F.softplus(rho) * torch.randn(6000, *p.shape, dtype=p.dtype)
        for (name, p), rho in zip(model.network.named_parameters(), model.rho, strict=True)
    }
    draws = vmap(lambda values: functional_call(model.network, values, (x,)))(noisy)  # (S, M, K)
    scale = covariance.diagonal(dim1=1, dim2=2).sqrt()
    assert ((draws.mean(0).T - mean).abs() < 0.08 * scale).all()
    for k in range(2):
        error = (torch.cov(draws[:, :, k].T) - covariance[k]).abs() / torch.outer(scale[k], scale[k])
        assert error.max() < 0.08


@torch.no_grad()
def test_last_layer_is_gaussian_without_approximation():
    model = set_std(FSVI(small_network(), samples=6000), 0.7).eval()
    x = inputs()
    mean, covariance = model.function_distribution(x)
    logits = model(x).log_samples  # up to a constant per row
    difference = logits[..., 1] - logits[..., 0]
    variance = covariance.diagonal(dim1=1, dim2=2).sum(0)
    assert ((difference.mean(0) - (mean[1] - mean[0])).abs() < 5 * (variance / 6000).sqrt()).all()
    assert ((difference.var(0) / variance - 1).abs() < 0.1).all()


def test_head_covariance_agrees_with_the_general_linearisation():
    network, x = small_network(), inputs()
    head = last_linear(network)
    variances = {"2.weight": torch.rand_like(head.weight), "2.bias": torch.rand_like(head.bias)}
    parameters = {name: dict(network.named_parameters())[name] for name in variances}
    mean, covariance = linearise(network, parameters, variances, x)
    features, logits = features_and_logits(network, head, x)
    columns = torch.cat((variances["2.weight"], variances["2.bias"].unsqueeze(1)), 1)
    torch.testing.assert_close(mean, logits.T)
    torch.testing.assert_close(covariance, head_covariance(with_ones(features), columns))


def random_gaussians() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(2)
    roots = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    covariances = roots @ roots.transpose(-1, -2)
    means = torch.randn(2, 3, 4, dtype=torch.float64)
    return means[0], covariances[0], means[1], covariances[1]


def test_kl_agrees_with_torch_distributions():
    m, s, m0, s0 = random_gaussians()
    expected = kl_divergence(MultivariateNormal(m, s), MultivariateNormal(m0, s0)).sum()
    torch.testing.assert_close(full_kl(m, s, m0, s0), expected)
    v, v0 = (c.diagonal(dim1=1, dim2=2) for c in (s, s0))
    torch.testing.assert_close(
        diagonal_kl(m, v, m0, v0), kl_divergence(Normal(m, v.sqrt()), Normal(m0, v0.sqrt())).sum()
    )
    torch.testing.assert_close(full_kl(m, torch.diag_embed(v), m0, torch.diag_embed(v0)), diagonal_kl(m, v, m0, v0))


def test_kl_by_hand():
    # one point, one output: N(2, 1) from N(0, 4): (1 + 4) / 8 - 1/2 + ln 2
    one = torch.ones(1, 1, dtype=torch.float64)
    assert diagonal_kl(2 * one, one, 0 * one, 4 * one).item() == pytest.approx(0.125 + 0.693147, abs=1e-6)


@pytest.mark.parametrize("stochastic", ["last", "all"])
def test_function_space_kl_of_a_linear_model_is_that_of_its_weights(stochastic, monkeypatch):
    """With as many independent points as weights per output, functions and weights are one to one."""
    monkeypatch.setattr(module, "JITTER", 0.0)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 2).double())
    model = set_std(FSVI(network, stochastic=stochastic, prior="network", prior_std=0.8), 0.5)
    start = [p.clone() for p in network.parameters()]
    with torch.no_grad():
        for p in network.parameters():
            p.add_(torch.randn_like(p))
    stds = [F.softplus(rho) for rho in model.rho]
    weights = zip(network.parameters(), stds, start, strict=True)
    expected = sum(kl_divergence(Normal(p, s), Normal(p0, 0.8)).sum() for p, s, p0 in weights)
    torch.testing.assert_close(model.function_kl(inputs(4)), expected)
    assert model.function_kl(inputs(2)) < expected  # fewer points see less of the difference


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_function_space_kl_from_independent_values_of_a_linear_model(covariance):
    torch.manual_seed(0)
    head = torch.nn.Linear(3, 2, bias=False).double()
    model = set_std(FSVI(head, prior_std=2.0, covariance=covariance), 1.0)
    x, variances = inputs(3), F.softplus(model.rho[0]).square()
    jitter = module.JITTER * 4.0
    expected = torch.zeros((), dtype=torch.float64)
    for k in range(2):
        posterior = x @ torch.diag(variances[k]) @ x.T
        posterior = torch.diag(posterior.diagonal()) if covariance == "diagonal" else posterior
        q = MultivariateNormal(x @ head.weight[k], posterior + jitter * torch.eye(3))
        p = MultivariateNormal(torch.zeros(3, dtype=torch.float64), (4.0 + jitter) * torch.eye(3, dtype=torch.float64))
        expected = expected + kl_divergence(q, p)
    torch.testing.assert_close(model.function_kl(x), expected)


@pytest.mark.parametrize("prior", ["independent", "network"])
@pytest.mark.parametrize("stochastic", ["last", "all"])
def test_kl_has_finite_gradients_in_all_but_the_prior(prior, stochastic):
    model = FSVI(small_network().float(), prior=prior, stochastic=stochastic)
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    x = inputs(40).float()  # more points than features: singular without jitter
    model.function_kl(x).backward()
    for name, parameter in model.named_parameters():
        if name.startswith("prior_network"):
            assert parameter.grad is None
        else:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().sum() > 0, name


def test_loss_adds_the_kl_at_fresh_context_points():
    torch.manual_seed(0)
    x, y = inputs(50), torch.arange(50) % 2
    model = FSVI(small_network(), kl_weight=0.5, warmup=0.0, context_points=5)
    model.before_training(x, y, steps=10)
    prediction = model(x)
    nll = F.nll_loss(prediction.log_samples[0], y)
    torch.manual_seed(7)
    points = model.draw_context()
    torch.manual_seed(7)
    torch.testing.assert_close(model.loss(prediction, y), nll + 0.5 * model.function_kl(points) / 50)
    assert (points.unsqueeze(1) == x).all(2).any(1).all()  # rows of the training data
    assert not torch.equal(model.draw_context(), points)
    torch.testing.assert_close(model.eval().loss(prediction, y), nll)


def test_noise_context_fills_the_range_of_each_channel():
    torch.manual_seed(0)
    top = torch.tensor([1.0, 10.0])
    x = torch.randint(2, (100, 2, 4, 4)) * top.reshape(2, 1, 1)  # only the ends of the range
    model = FSVI(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(32, 3)), context="noise", context_points=64)
    model.before_training(x, torch.zeros(100), steps=1)
    points = model.draw_context()
    assert points.shape == (64, 2, 4, 4)
    assert ((points > 0) & (points < top.reshape(2, 1, 1))).all()
    torch.testing.assert_close(points.mean((0, 2, 3)), top / 2, rtol=0.1, atol=0)
    torch.testing.assert_close(points.std((0, 2, 3)), top / 12**0.5, rtol=0.1, atol=0)


def test_context_of_another_data_set():
    other = inputs(7, seed=5)
    model = FSVI(small_network(), context=other)
    model.before_training(inputs(20), torch.zeros(20), steps=1)
    assert (model.draw_context().unsqueeze(1) == other).all(2).any(1).all()


def test_batch_norm_statistics_are_left_alone_and_those_of_the_prior_network_set():
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.ReLU(), torch.nn.Linear(5, 3)
    )
    model = FSVI(network, prior="network").train()
    x = inputs(60).float()
    model.before_training(x, torch.zeros(60), steps=1)
    torch.testing.assert_close(model.prior_network[1].running_mean, network[0](x).mean(0))
    assert model.prior_network[1].momentum == network[1].momentum
    before = network[1].running_mean.clone()
    model.function_kl(x)
    assert torch.equal(network[1].running_mean, before)
    assert network[1].training


def normed(stochastic: str, signs: tuple[float, float] = (1.0, -1.0), bias: bool = True, **options) -> FSVI:
    """A model with a norm of its logits as if trained."""
    network = small_network()
    if not bias:
        network[2] = torch.nn.Linear(5, 2, bias=False).double()
    model = set_std(FSVI(network, stochastic=stochastic, logit_norm=True, **options), 0.5)
    with torch.no_grad():
        model.norm.running_mean.copy_(torch.tensor([0.7, -0.4]))
        model.norm.running_var.copy_(torch.tensor([0.3, 2.5]))
        model.norm.weight.copy_(torch.tensor(signs) * torch.tensor([1.5, 0.6]))
        model.norm.bias.copy_(torch.tensor([-0.2, 0.9]))
    return model


@torch.no_grad()
def without_norm(model: FSVI) -> FSVI:
    """The same functions without a norm: means and standard deviations of the last layer have it folded in."""
    network, head = copy.deepcopy(model.network), last_linear(model.network)
    weight, bias = folded(head, model.norm)
    network[2] = torch.nn.Linear(5, 2).double()
    network[2].weight.copy_(weight)
    network[2].bias.copy_(bias)
    options = {name: value for name, value in model.options().items() if name != "logit_norm"}
    twin = FSVI(network, **options)
    scale = scale_and_shift(model.norm)[0].abs()
    stds = [F.softplus(rho) for rho in model.rho]
    stds[-1 - (head.bias is not None)] *= scale.unsqueeze(1)
    stds[-1] *= scale if head.bias is not None else 1.0
    if head.bias is None:
        stds.append(torch.zeros(2))  # the norm's shift is not random
    for rho, std in zip(twin.rho, stds, strict=True):
        rho.copy_(torch.log(torch.expm1(std)))
    return twin.train(model.training)


def test_a_norm_as_an_affine_map_is_the_norm_in_eval_mode():
    model, x = normed("last"), inputs()
    scale, shift = scale_and_shift(model.norm)
    weight, bias = folded(last_linear(model.network), model.norm)
    expected = model.norm.eval()(model.network(x))
    torch.testing.assert_close(scale * model.network(x) + shift, expected)
    torch.testing.assert_close(F.linear(model.network[:2](x), weight, bias), expected)
    head = torch.nn.Linear(3, 2)
    assert folded(head, torch.nn.Identity()) == (head.weight, head.bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("stochastic", ["last", "all"])
def test_a_normed_network_is_the_one_with_its_norm_folded_in(stochastic, bias):
    model = normed(stochastic, bias=bias)
    twin, x = without_norm(model), inputs()
    for found, expected in zip(model.function_distribution(x), twin.function_distribution(x), strict=True):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(model.function_kl(x), twin.function_kl(x))


@torch.no_grad()
@pytest.mark.parametrize("stochastic", ["last", "all"])
def test_samples_of_a_normed_network_are_those_of_the_folded_one(stochastic):
    model = normed(stochastic, signs=(1.0, 1.0), samples=5).eval()  # a negative sign would turn the noise round
    twin, x = without_norm(model), inputs()
    torch.manual_seed(3)
    found = model(x).samples
    torch.manual_seed(3)
    torch.testing.assert_close(found, twin(x).samples)
    assert found.shape == (5, 4, 2)


@torch.no_grad()
@pytest.mark.parametrize("stochastic", ["last", "all"])
def test_in_training_the_norm_takes_the_batch_behind_the_noise(stochastic):
    model, x = normed(stochastic).train(), inputs(20)
    seen = []
    model.norm.register_forward_hook(lambda _, given, output: seen.append((given[0], output)))
    prediction = model(x)
    ((before, after),) = seen
    assert (before - model.network(x)).abs().max() > 0.1  # the noise is there already
    torch.testing.assert_close(after, F.batch_norm(before, None, None, model.norm.weight, model.norm.bias, True))
    torch.testing.assert_close(prediction.samples, after.softmax(1).unsqueeze(0))


@pytest.mark.parametrize("stochastic", ["last", "all"])
def test_the_kl_trains_the_norm_and_leaves_its_statistics_alone(stochastic):
    model = normed(stochastic, prior="network").train()
    before = copy.deepcopy(dict(model.norm.named_buffers()))
    model.function_kl(inputs()).backward()
    assert all(torch.equal(value, before[name]) for name, value in model.norm.named_buffers())
    assert model.norm.training
    for parameter in (model.norm.weight, model.norm.bias):
        assert parameter.grad.isfinite().all()
        assert (parameter.grad != 0).all()


def test_the_prior_network_has_no_norm_on_its_logits():
    model = normed("last", prior="network")
    twin, x = without_norm(model), inputs()
    twin.prior_network = model.prior_network
    torch.testing.assert_close(model.function_kl(x), twin.function_kl(x))


@torch.no_grad()
@pytest.mark.parametrize("stochastic", ["last", "all"])
def test_a_normed_model_is_saved_and_loaded(stochastic, tmp_path):
    model, x = normed(stochastic).eval(), inputs()
    save(model, tmp_path)
    again = load(tmp_path)
    assert again.options() == model.options()
    torch.testing.assert_close(again.function_distribution(x), model.function_distribution(x))


def test_options_are_checked():
    for options, message in [
        ({"stochastic": "first"}, "Unknown stochastic 'first'; choose one of 'last', 'all'"),
        ({"context": "test"}, "Unknown context 'test'"),
        ({"prior": "flat"}, "Unknown prior 'flat'"),
        ({"covariance": "block"}, "Unknown covariance 'block'"),
        ({"samples": 0}, "must be at least 1, got 0 and 32"),
        ({"prior_std": -1.0}, "prior_std must be > 0, got -1.0"),
    ]:
        with pytest.raises(ValueError, match=message):
            FSVI(small_network(), **options)
    with pytest.raises(RuntimeError, match="Context points come from the training data"):
        FSVI(small_network()).draw_context()
    with pytest.raises(ValueError, match="End the network in a Linear layer"):
        FSVI(torch.nn.Sequential(small_network(), torch.nn.Tanh()))(inputs())
