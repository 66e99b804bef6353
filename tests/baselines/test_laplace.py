"""BNN-L: the curvature against a dense one and laplace-torch, the bridge against closed forms, the prior precision."""

import copy
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Dirichlet
from torch.nn.utils.fusion import fuse_linear_bn_eval
from torch.testing import assert_close

from creinn.baselines import DirichletPredictive, LaplaceBNN, Predictive
from creinn.baselines.laplace import MAX_CONCENTRATION, PRIOR_PRECISIONS, Kronecker, laplace_bridge
from creinn.saving import load, save

REFERENCE = json.loads((Path(__file__).parent / "fixtures" / "laplace_reference.json").read_text())
CASE = REFERENCE["case"]


def tensor(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def fitted() -> LaplaceBNN:
    head = nn.Linear(4, 3, bias=False, dtype=torch.float64)
    head.load_state_dict({"weight": tensor(CASE["weight"])})
    model = LaplaceBNN(head, prior_precision=REFERENCE["prior_precision"]).double().eval()
    model.after_training([(tensor(REFERENCE["x"]), torch.tensor(REFERENCE["y"]))])
    return model


@torch.no_grad()
def test_logits_match_laplace_torch(fitted):
    mean, covariance = fitted.logit_distribution(tensor(REFERENCE["test"]))
    assert_close(mean, tensor(CASE["mean"]))
    assert_close(covariance, tensor(CASE["covariance"]))


@torch.no_grad()
@pytest.mark.parametrize("normalise", [False, True])
def test_bridge_matches_laplace_torch(fitted, normalise):
    fitted.normalise = normalise
    probabilities = fitted(tensor(REFERENCE["test"])).probabilities
    assert_close(probabilities, tensor(CASE["bridge_norm" if normalise else "bridge"]))


def test_marginal_likelihood_matches_laplace_torch(fitted):
    for precision, expected in CASE["log_marginal_likelihood"].items():
        assert fitted.log_marginal_likelihood(tensor(float(precision))).item() == pytest.approx(
            expected, abs=1e-6
        )


def test_curvature_matches_dense_matrix():
    torch.manual_seed(0)
    features = torch.randn(30, 4, dtype=torch.float64)
    p = torch.randn(30, 3, dtype=torch.float64).softmax(1)
    curvature = Kronecker(3, 4).double()
    curvature.fit([(features[:11], p[:11]), (features[11:], p[11:])])
    outputs = sum(torch.diag(q) - torch.outer(q, q) for q in p)
    dense = torch.kron(outputs, features.T @ features / len(p))
    assert_close(
        curvature.eigenvalues.flatten().sort()[0], torch.linalg.eigvalsh(dense).clamp_min(0)
    )
    posterior = torch.linalg.inv(dense + 0.3 * torch.eye(12, dtype=torch.float64))
    rows = torch.randn(5, 4, dtype=torch.float64)
    expected = torch.stack([(j := torch.kron(torch.eye(3), row)) @ posterior @ j.T for row in rows])
    assert_close(curvature.covariance(rows, tensor(0.3)), expected)


def test_curvature_of_one_row_is_hessian_of_cross_entropy():
    torch.manual_seed(0)
    x, y = torch.randn(1, 2, dtype=torch.float64), torch.tensor([2])
    head = nn.Linear(2, 3, bias=False, dtype=torch.float64)
    model = LaplaceBNN(head, prior_precision=1.0).double()
    model.after_training([(x, y)])

    def loss(weight: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(x @ weight.T, y, reduction="sum")

    hessian = torch.autograd.functional.hessian(loss, head.weight.detach()).reshape(6, 6)
    found = model.curvature
    vectors = torch.kron(found.output_vectors, found.input_vectors)
    values = found.eigenvalues.flatten()
    assert_close((vectors * values) @ vectors.T, hessian)


def test_bridge_by_hand():
    # means (ln 2, 0, -ln 2) sum to zero already; variances 1 become 1 - 1/3 when the sum is fixed
    mean = tensor([[2.0, 1.0, 0.5]]).log()
    alpha = laplace_bridge(mean, torch.eye(3, dtype=torch.float64).unsqueeze(0), normalise=False)
    # sum of exp(-mu) is 3.5: (1/3 + {2, 1, 1/2} * 3.5 / 9) / (2/3)
    assert_close(alpha, tensor([[1.6666667, 1.0833333, 0.7916667]]), rtol=1e-6, atol=0)


def test_bridge_inverts_dirichlet_moments_in_softmax_basis():
    """The bridge is defined by mean and variance of the Gaussian that matches a Dirichlet in the softmax basis."""
    alpha = tensor([[0.7, 2.0, 5.0, 1.3]])
    mean = alpha.log() - alpha.log().mean(1, keepdim=True)
    inverse, classes = 1 / alpha, 4
    covariance = (
        torch.diag_embed(inverse)
        - (inverse.unsqueeze(1) + inverse.unsqueeze(2)) / classes
        + inverse.mean() / classes
    )
    # The covariance is singular along the vector of ones. A variance in this direction does not change the result.
    covariance = covariance + 2.5
    assert_close(laplace_bridge(mean + 3.0, covariance, normalise=False), alpha)


@pytest.mark.parametrize("normalise", [False, True])
def test_bridge_is_finite_and_preserves_order(normalise):
    mean = torch.tensor([[300.0, 0.0, -300.0], [1e-3, 0.0, 0.0], [90.0, 89.0, -50.0]])
    for scale in (1e-6, 1.0, 1e6):
        alpha = laplace_bridge(mean, scale * torch.eye(3).expand(3, 3, 3), normalise)
        assert alpha.isfinite().all()
        assert (alpha > 0).all()
        assert (alpha.sum(1) <= 1.001 * MAX_CONCENTRATION).all()
        assert alpha.argmax(1).tolist() == [0, 0, 0]
        assert DirichletPredictive(alpha).samples.isfinite().all()


def slow_bridge(mean, covariance, normalise):
    """The formulas as they stand, in long doubles."""
    mean, covariance = mean.numpy().astype(np.longdouble), covariance.numpy().astype(np.longdouble)
    rows = covariance.sum(-1)
    total = rows.sum()
    mean, variance = mean - rows * mean.sum() / total, covariance.diagonal() - rows**2 / total
    if normalise:
        scale = variance.mean() / math.sqrt(len(mean) / 2)
        mean, variance = mean / np.sqrt(scale), variance / scale
    alpha = (1 - 2 / len(mean) + np.exp(mean) / len(mean) ** 2 * np.exp(-mean).sum()) / variance
    return (alpha * min(1, MAX_CONCENTRATION / alpha.sum())).astype(float)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("classes", [3, 10])
def test_bridge_matches_slow_implementation(classes, normalise):
    generator = torch.Generator().manual_seed(classes)
    for _ in range(100):
        root = torch.randn(classes, classes, generator=generator, dtype=torch.float64)
        mean = torch.randn(classes, generator=generator, dtype=torch.float64)
        covariance = 10 ** (6 * torch.rand((), generator=generator) - 3) * root @ root.T
        found = laplace_bridge(mean[None], covariance[None], normalise)[0]
        assert_close(found, tensor(slow_bridge(mean, covariance, normalise)), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bridge_of_constant_logits(dtype, normalise):
    mean = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    found = laplace_bridge(mean, torch.zeros(50, 4, 4, dtype=dtype), normalise)
    limit = laplace_bridge(
        mean.double(), 1e-25 * torch.eye(4, dtype=torch.float64).expand(50, 4, 4), normalise
    )
    assert_close(
        found.double() / MAX_CONCENTRATION, limit / MAX_CONCENTRATION, rtol=1e-4, atol=1e-9
    )
    # the result is finite if the sum or one of the logits is known
    centring = (torch.eye(4) - 1 / 4).to(dtype).expand(50, 4, 4)
    known = laplace_bridge(mean, centring, normalise)
    assert_close(known, laplace_bridge(mean, centring + 1.0, normalise), rtol=1e-4, atol=1e-6)
    one = laplace_bridge(
        mean, torch.diag(torch.tensor([0.0, 1.0, 1.0, 1.0])).to(dtype).expand(50, 4, 4), normalise
    )
    assert bool((one.isfinite() & (one > 0)).all())


def test_dead_features_give_finite_predictions():
    """Features of zeros into a layer without bias: the logits are 0 and do not vary."""
    x, y = problem()
    model = LaplaceBNN(nn.Linear(4, 3, bias=False)).eval()
    model.after_training([(x, y)])
    prediction = model.predict(torch.zeros(2, 4))
    assert_close(prediction.probabilities, torch.full((2, 3), 1 / 3))
    assert bool(prediction.epistemic.isfinite().all())


def test_dirichlet_closed_forms_match_sampling():
    torch.manual_seed(0)
    alpha = tensor([[0.3, 1.0, 2.0], [10.0, 10.0, 30.0], [1e-3, 1e-3, 5.0]])
    exact, sampled = DirichletPredictive(alpha), Predictive(Dirichlet(alpha).sample((40000,)))
    for name in ("probabilities", "total", "aleatoric", "epistemic"):
        assert_close(getattr(exact, name), getattr(sampled, name), atol=0.01, rtol=0)
    assert exact.samples.shape == (10, 3, 3)


def test_index_cast_and_concatenate_dirichlet_predictions():
    torch.manual_seed(0)
    p = DirichletPredictive(torch.rand(6, 3) + 0.5, samples=4)
    joined = DirichletPredictive.concatenate([p[:2], p[2:].to(torch.float32)])
    assert isinstance(joined, DirichletPredictive)
    assert torch.equal(joined.concentration, p.concentration)
    assert torch.equal(joined.samples, p.samples)
    assert p.to(torch.float64).total.dtype == torch.float64


def problem(rows: int = 300) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(0))
    return x, (
        x[:, :3] + 0.5 * torch.randn(rows, 3, generator=torch.Generator().manual_seed(1))
    ).argmax(1)


def body() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def test_prediction_before_fit_is_ordinary():
    x, y = problem()
    model = LaplaceBNN(body()).eval()
    assert_close(model.predict(x).probabilities, model.network(x).softmax(1).detach())
    model.after_training([(x, y)])
    assert isinstance(model.predict(x, batch_size=100), DirichletPredictive)
    assert not isinstance(model.train()(x), DirichletPredictive)


def test_prior_precision_maximises_the_marginal_likelihood():
    x, y = problem()
    model = LaplaceBNN(body()).double()
    model.after_training([(x.double(), y)])
    best = model.log_marginal_likelihood(model.precision)
    assert all(best >= model.log_marginal_likelihood(value) for value in PRIOR_PRECISIONS)
    assert PRIOR_PRECISIONS[0] < model.precision < PRIOR_PRECISIONS[-1]


def test_uncertainty_grows_away_from_data():
    x, y = problem()
    model = LaplaceBNN(nn.Linear(4, 3), normalise=False)
    model.after_training([(x, y)])
    directions = x[:50] / x[:50].norm(dim=1, keepdim=True)
    _, near = model.logit_distribution(directions)
    _, far = model.logit_distribution(10 * directions)
    assert (far.diagonal(dim1=1, dim2=2) > near.diagonal(dim1=1, dim2=2)).all()


def test_fit_does_not_change_batch_norm():
    x, y = problem()
    network = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    model = LaplaceBNN(network).train()
    before = network[1].running_mean.clone()
    model.after_training([(x, y)])
    assert torch.equal(network[1].running_mean, before)
    assert model.training


def trained_with_norm(bias: bool = True, steps: int = 30) -> LaplaceBNN:
    """Return a fitted model after a short training, with a negative scale in its norm."""
    x, y = problem()
    network = body()
    network[2] = nn.Linear(6, 3, bias=bias)
    model = LaplaceBNN(network, logit_norm=True).double().train()
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    with torch.no_grad():
        model.norm.weight[1] = -1.0
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(model(x.double()), y).backward()
        optimizer.step()
    model.after_training([(x.double(), y)])
    return model


@torch.no_grad()
def without_norm(model: LaplaceBNN) -> LaplaceBNN:
    """Return a model with the norm folded into the last layer."""
    network = copy.deepcopy(model.network)
    network[2] = fuse_linear_bn_eval(network[2].eval(), copy.deepcopy(model.norm).eval())
    return LaplaceBNN(network).double()


@pytest.mark.parametrize("bias", [True, False])
def test_batch_norm_equals_folded_weights(bias):
    x, y = problem()
    x = x.double()
    model = trained_with_norm(bias)
    twin = without_norm(model)
    twin.after_training([(x, y)])
    assert_close(
        model.predict(x).concentration, twin.predict(x).concentration, rtol=1e-5, atol=1e-5
    )
    assert_close(model.log_likelihood, twin.log_likelihood)
    assert model.precision == twin.precision
    for value in PRIOR_PRECISIONS[::10]:
        assert_close(model.log_marginal_likelihood(value), twin.log_marginal_likelihood(value))


def test_normed_marginal_likelihood_by_hand():
    # for each of three logits the folded weight is 2 * 3 and the folded bias 2 * (0.5 - 1); a single row of feature 0
    # bends the biases alone: p = 1/3 each, so diag(p) - p p^T has eigenvalues 1/3, 1/3, 0
    model = LaplaceBNN(nn.Linear(1, 3), prior_precision=1.0, logit_norm=True).double()
    with torch.no_grad():
        model.network.weight.fill_(3.0)
        model.network.bias.fill_(0.5)
        model.norm.weight.fill_(2.0)
        model.norm.running_mean.fill_(1.0)
        model.norm.eps = 0.0
    model.after_training([(torch.zeros(1, 1), torch.tensor([0]))])
    expected = -tensor(3.0).log() - 0.5 * (3 * (36 + 1) + 2 * tensor(4 / 3).log())
    assert_close(model.log_marginal_likelihood(tensor(1.0)), expected)


def test_fit_does_not_change_head_and_norm():
    x, y = problem()
    model = trained_with_norm().train()
    parts = nn.ModuleList((model.network, model.norm))
    before = copy.deepcopy(parts.state_dict())
    model.after_training([(x.double(), y)])
    assert all(torch.equal(value, before[name]) for name, value in parts.state_dict().items())
    assert model.norm.training


def test_prediction_with_batch_norm_before_fit_is_ordinary():
    x, _ = problem()
    model = trained_with_norm().eval()
    model.fitted.fill_(False)
    expected = model.norm(model.network(x.double())).softmax(1)
    assert_close(model(x.double()).probabilities, expected)


@pytest.mark.parametrize("bias", [True, False])
def test_save_and_load_with_batch_norm(bias, tmp_path):
    x, _ = problem()
    model = trained_with_norm(bias=bias)
    save(model, tmp_path)
    again = load(tmp_path)
    assert again.options() == model.options()
    assert_close(again.predict(x.double()).concentration, model.predict(x.double()).concentration)


def test_invalid_inputs_raise():
    for network in (nn.Linear(3, 1), nn.Linear(3, 2)):
        with pytest.raises(ValueError, match=r"3 logits, got [12]"):
            LaplaceBNN(network)
    head = nn.Linear(3, 3)
    for options, message in [
        ({"prior_precision": "guess"}, "'guess'"),
        ({"prior_precision": 0.0}, "prior_precision"),
        ({"samples": 0}, "samples"),
    ]:
        with pytest.raises(ValueError, match=message):
            LaplaceBNN(head, **options)
    with pytest.raises(ValueError, match="linear"):
        LaplaceBNN(nn.Conv1d(3, 3, 1))
    with pytest.raises(ValueError, match="Linear"):
        LaplaceBNN(nn.Sequential(head, nn.Tanh())).after_training(
            [(torch.zeros(2, 3), torch.tensor([0, 1]))]
        )
