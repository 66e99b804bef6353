"""Tests of the classifiers of the benchmarks."""

import pytest
import torch

from benchmarks.architectures import SMALL
from benchmarks.contenders import Contenders, fold_batch_norm, new_classifier, training_step


@pytest.mark.parametrize("architecture", ["mlp", "resnet18-cifar"])
def test_equivalent_contenders_agree(architecture):
    contenders = Contenders(SMALL[architecture])
    torch.manual_seed(0)
    x = contenders.architecture.inputs(6)
    with torch.no_grad():
        for name in ("snn-folded", "snn-folded-channels-last"):
            found, expected = (contenders.call(n, x)().samples for n in (name, "snn"))
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
        found, expected = (contenders.call(n, x)() for n in ("creinn-compiled", "creinn"))
    torch.testing.assert_close(found.lower, expected.lower, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(found.upper, expected.upper, atol=2e-5, rtol=1e-4)
    with pytest.raises(ValueError, match="snm"):
        contenders.call("snm", x)


@pytest.mark.parametrize("name", ["snn", "creinn"])
def test_a_training_step_changes_parameters(name):
    torch.manual_seed(0)
    architecture = SMALL["mlp"]
    model = new_classifier(name, architecture)
    before = [parameter.clone() for parameter in model.parameters()]
    step = training_step(model, architecture.inputs(6), architecture.targets(6))
    step()
    step()
    changed = [(old != new).any() for old, new in zip(before, model.parameters(), strict=True)]
    assert sum(changed) > len(changed) / 2


def test_norm_with_shared_input_is_not_folded():
    class Forked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)

        def forward(self, x):
            y = self.layer(x)
            return y + self.norm(y)

    network = Forked().eval()
    network.norm.running_mean.fill_(1.0)
    x = torch.randn(5, 3)
    torch.testing.assert_close(fold_batch_norm(network)(x), network(x))
