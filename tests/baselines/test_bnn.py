"""Test the samples, the loss, the KL schedule and the training of the variational classifier."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from creinn.baselines import BNN, SNN, flipout, local_reparameterization
from creinn.baselines.factory import build_classifier
from creinn.classifier.methods import METHODS
from creinn.training import TrainConfig, fit

SETTINGS = {"epochs": 10, "batch_size": 30, "learning_rate": 0.02, "progress": False}


def blobs(rows: int = 120, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % 3
    centres = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0]])
    return centres[y] + 0.5 * torch.randn(rows, 2, generator=generator), y


def definition(layers) -> nn.Module:
    return nn.Sequential(
        layers.Linear(2, 8), layers.BatchNorm1d(8), layers.ReLU(), layers.Linear(8, 3)
    )


@pytest.fixture(
    params=[local_reparameterization, flipout], ids=["local_reparameterization", "flipout"]
)
def model(request) -> BNN:
    torch.manual_seed(0)
    return BNN(definition(request.param), samples=7, prior_std=0.5, kl_weight=0.3, warmup=0.5)


def test_number_of_samples_in_train_and_eval_mode(model):
    x, _ = blobs()
    assert model(x).samples.shape == (1, 120, 3)
    model.eval()
    prediction = model(x)
    assert prediction.samples.shape == (7, 120, 3)
    assert (prediction.samples[0] != prediction.samples[1]).any()


def test_prediction_depends_on_the_seed(model):
    x, _ = blobs()
    torch.manual_seed(5)
    first = model.predict(x)
    torch.manual_seed(5)
    assert torch.equal(model.predict(x).samples, first.samples)
    assert not torch.equal(model.predict(x).samples, first.samples)


def test_loss_is_cross_entropy_plus_weighted_kl_per_example(model):
    x, y = blobs()
    model.before_training([(x, y)], epochs=20)
    for _ in range(4):
        model.after_step()
    prediction = model(x)
    nll = nn.functional.nll_loss(prediction.log_samples[0], y)
    kl = model.network[0].kl(0.5) + model.network[3].kl(0.5)
    assert_close(model.loss(prediction, y), nll + 0.3 * (5 / 10) * kl / 120)
    model.eval()
    assert_close(model.loss(prediction, y), nll)


@pytest.mark.parametrize(
    ("warmup", "expected"),
    [(0.5, [0.005, 0.01, 0.015, 0.02, 0.02, 0.02]), (0.0, [0.02] * 6)],
)
def test_weights_of_the_kl_by_hand(warmup, expected):
    model = BNN(definition(flipout), kl_weight=2.0, warmup=warmup)
    model.before_training([(torch.zeros(50, 2), None)] * 2, epochs=4)
    weights = []
    for _ in range(6):
        weights.append(model.current_kl_weight().item())
        model.after_step()
    assert weights == pytest.approx(expected)


def test_invalid_options_raise():
    network = definition(local_reparameterization)
    for options, message in [
        ({"samples": 0}, "samples"),
        ({"prior_std": 0.0}, "prior_std"),
        ({"kl_weight": -1.0}, "kl_weight"),
        ({"warmup": 1.5}, "warmup"),
    ]:
        with pytest.raises(ValueError, match=message):
            BNN(network, **options)
    with pytest.raises(ValueError, match="Gaussian"):
        BNN(definition(torch.nn))


def test_loss_before_training_raises(model):
    x, y = blobs()
    with pytest.raises(RuntimeError, match="before_training"):
        model.loss(model(x), y)


def test_gradient_of_the_loss_is_unbiased_for_a_linear_model():
    """The mean gradient is close to the gradient of the expected loss, which is computed by quadrature."""
    x, y = torch.tensor([[1.0, -0.5]], dtype=torch.float64), torch.tensor([1])
    for family in (local_reparameterization, flipout):
        torch.manual_seed(0)
        model = BNN(family.Linear(2, 1, bias=False, dtype=torch.float64), kl_weight=0.0, warmup=0.0)
        with torch.no_grad():
            model.network.weight_rho.fill_(0.5)
        model.before_training([(x, y)], epochs=1)
        rows, targets = x.expand(4000, 2), y.expand(4000)
        total = torch.zeros(1, 2, dtype=torch.float64)
        for _ in range(25):
            model.zero_grad()
            model.loss(model(rows), targets).backward()
            total += model.network.weight.grad
        mean = model.network.weight.detach() @ x[0]
        std = (model.network.weight_std.detach().square() @ x[0].square()).sqrt()
        z = torch.linspace(-8, 8, 4001, dtype=torch.float64)
        density = torch.exp(-z.square() / 2)
        slope = -(torch.sigmoid(-(mean + std * z)) * density).sum() / density.sum()
        assert_close(total[0] / 25, slope * x[0], rtol=0.05, atol=0)


@pytest.mark.parametrize("method", ["bnn-r", "bnn-f", "fsvi", "bnn-l"])
def test_train_resume_and_load(method, tmp_path, monkeypatch):
    x, y = blobs()
    test_x, test_y = blobs(seed=1)

    def train(directory: str, interrupt_at: int = -1) -> SNN:
        torch.manual_seed(0)
        model = build_classifier(METHODS[method], definition)
        count, after_step = 0, model.after_step

        def interrupted_step() -> None:
            nonlocal count
            count += 1
            if count == interrupt_at:
                raise KeyboardInterrupt
            after_step()

        monkeypatch.setattr(model, "after_step", interrupted_step)
        fit(model, (x, y), config=TrainConfig(directory=tmp_path / directory, **SETTINGS))
        return model

    model = train("whole")
    torch.manual_seed(1)
    prediction = model.predict(test_x)
    assert (prediction.label == test_y).double().mean() > 0.95
    assert (prediction.epistemic >= -1e-6).all()
    train("parts", interrupt_at=18)
    resumed = train("parts").state_dict()
    assert all(torch.equal(value, resumed[name]) for name, value in model.state_dict().items())
    copy = build_classifier(METHODS[method], definition)
    copy.load_state_dict(resumed)
    torch.manual_seed(1)
    assert_close(copy.predict(test_x).samples, prediction.samples)
