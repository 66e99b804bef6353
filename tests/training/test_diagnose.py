"""Diagnosis: widths, radii and gradients are the model's own, which is left as it was."""

import pytest
import torch

from creinn import nn as inn
from creinn.baselines.snn import SNN
from creinn.classifier.credal import Ensemble
from creinn.classifier.creinn import CreINN
from creinn.interval import Interval
from creinn.training.diagnose import diagnose

G = torch.Generator().manual_seed(0)
X, Y = torch.rand(30, 4, generator=G), torch.randint(3, (30,), generator=G)


def creinn(dropout=0.0):
    torch.manual_seed(0)
    relu = inn.ReLU()
    layers = (
        inn.Linear(4, 8),
        relu,
        inn.Dropout(dropout),
        inn.Linear(8, 8),
        relu,
        inn.Linear(8, 3),
    )
    return CreINN(torch.nn.Sequential(*layers))


def by_path(diagnosis):
    return {layer.path: layer for layer in diagnosis.layers}


def test_widths_match_layers():
    model = creinn().eval()
    found = by_path(diagnose(model, X, Y))
    assert list(found) == [
        "network.0",
        "network.1",
        "network.2",
        "network.3",
        "network.1#2",
        "network.5",
        "norm",
    ]
    width = model.network[0](X).width
    assert found["network.0"].mean_width == pytest.approx(width.mean().item(), rel=1e-6)
    assert found["network.0"].max_width == pytest.approx(width.max().item(), rel=1e-6)
    assert found["network.1"].kind == "ReLU"
    assert (found["network.1"].zero_radii, found["network.1"].no_gradient) == (None, None)
    assert all(layer.inverted == layer.nonfinite == 0 for layer in found.values())


def test_width_by_hand():
    # One input in [1, 2], weight [1, 3], bias [0, 0]: output in [1, 6], of width 5.
    layer = inn.Linear(1, 1)
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.weight_radius.fill_(1.0)
    model = CreINN(torch.nn.Sequential(layer), logit_norm=False)
    (row,) = (r for r in diagnose(model, Interval([[1.0]], [[2.0]])).layers if r.kind == "Linear")
    assert row.mean_width == row.max_width == 5
    assert row.zero_radii == 0.5  # the bias's


def test_loss_and_prediction_match_model():
    model = creinn()
    found = diagnose(model, X, Y)
    prediction = model(X)
    assert found.loss == pytest.approx(model.loss(prediction, Y).item(), rel=1e-5)
    assert found.prediction_width == pytest.approx(
        (prediction.upper - prediction.lower).mean().item(), rel=1e-5
    )


def test_zero_and_dead_radii_are_counted():
    model = creinn()
    with torch.no_grad():
        model.network[0].weight_radius[:4] = 0  # 16 of 32, and 8 of 8 of the bias
        model.network[3].weight_radius.requires_grad_(False)
        model.network[3].bias_radius.requires_grad_(False)
    x = X.clone()
    x[:, 2] = 0  # a quarter of the radii of the first weight meets nothing but zeros
    found = diagnose(model, x, Y)
    layers = by_path(found)
    assert layers["network.0"].zero_radii == pytest.approx((16 + 8) / 40)
    assert layers["network.0"].no_gradient >= 8 / 40
    assert layers["network.3"].no_gradient == 1
    assert layers["network.5"].no_gradient < 1
    assert found.verdict == "Dead radii: no gradient in network.3."


def test_gradients_match_loss():
    model = creinn()
    share = by_path(diagnose(model, X, Y))["network.0"].no_gradient
    model.loss(model(X), Y).backward()
    gradients = torch.cat([r.grad.flatten() for r in model.network[0].radii().values()])
    assert share == pytest.approx((gradients == 0).double().mean().item())


def test_diagnosis_does_not_change_model():
    model = creinn(dropout=0.5)
    model.network[5].eval()
    model.loss(model(X), Y).backward()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    modes = [module.training for module in model.modules()]
    hooks = [len(module._forward_hooks) for module in model.modules()]
    state = torch.get_rng_state()
    diagnose(model, X)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(torch.equal(gradients[name], p.grad) for name, p in model.named_parameters())
    assert [module.training for module in model.modules()] == modes
    assert [len(module._forward_hooks) for module in model.modules()] == hooks


def test_no_grad_and_float64():
    with torch.no_grad():
        found = diagnose(creinn().double(), Interval(X, X + 0.1), Y)
    assert found.verdict == "All bounds are valid, and every layer with radii has live ones."


def test_verdict():
    model = creinn()
    with torch.no_grad():
        model.network[3].weight.fill_(3e38)
    found = diagnose(model, X, Y)
    assert (
        "NaN or infinite bounds, first in network.3: in eval mode such rows get the vacuous set."
        in found.verdict
    )
    assert by_path(found)["network.3"].nonfinite > 0
    model = creinn().eval()
    for layer in model.network:
        for radius in layer.radii().values() if hasattr(layer, "radii") else ():
            torch.nn.init.zeros_(radius)
    found = diagnose(model, X, Y)
    assert "Every radius is zero in network.0, network.3, network.5." in found.verdict
    assert "The predicted intervals are no wider than rounding." in found.verdict


class Inverted(torch.nn.Module):
    """Gives what no layer of the package may give."""

    def forward(self, x):
        return Interval._of_parts(x.upper, x.lower)


def test_inverted_bounds_are_reported():
    torch.manual_seed(0)
    model = CreINN(torch.nn.Sequential(inn.Linear(4, 8), Inverted(), inn.Linear(8, 3)))
    found = diagnose(model, X, Y)
    assert by_path(found)["network.1"].inverted == 30 * 8
    assert found.verdict.startswith("Inverted bounds in network.1.")


def test_table_is_aligned():
    lines = str(diagnose(creinn(), X, Y)).splitlines()
    assert lines[0].split("  ")[0] == "layer"
    ends = {line.rstrip()[-1] for line in lines[1:8]}
    assert ends == {"0"}
    assert len({len(line) for line in lines[1:8]}) == 1
    assert "20.0%" in lines[1]  # 8 bias radii of 40 are zero
    assert lines[-1] == "All bounds are valid, and every layer with radii has live ones."


def test_models_without_intervals_or_loss_raise():
    with pytest.raises(TypeError, match="SNN"):
        diagnose(SNN(torch.nn.Linear(4, 3)), X, Y)
    with pytest.raises(TypeError, match="Ensemble"):
        diagnose(Ensemble([creinn()]), X, Y)
    with pytest.raises(TypeError, match="Linear"):
        diagnose(inn.Linear(4, 3), X, Y)
