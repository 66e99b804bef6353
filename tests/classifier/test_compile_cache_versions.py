"""Test the fingerprints of the structure and the weights."""

import copy

import pytest
import torch

from creinn.classifier.compile_cache import has_versions, structure, versions


def network():
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.ReLU())


def add_in_place(module):
    with torch.no_grad():
        module[0].weight.add_(1)


def replace_parameter(module):
    module[0].weight = torch.nn.Parameter(module[0].weight.detach().clone())


def replace_data(module):
    module[0].weight.data = module[0].weight.detach().clone()


CHANGES = {
    "in-place write": add_in_place,
    "new parameter": replace_parameter,
    "new data": replace_data,
    "buffer": lambda module: module[1].running_mean.zero_(),
    "statistics": lambda module: module(torch.randn(4, 2)),
    "load_state_dict": lambda module: module.load_state_dict(copy.deepcopy(module.state_dict())),
    "to": lambda module: module.to(torch.float64),
    "removed": lambda module: module[0].register_parameter("bias", None),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_weight_change_changes_versions(change):
    module = network()
    before = versions(module)
    assert versions(module) == before
    change(module)
    assert versions(module) != before


def test_appended_layer_changes_structure():
    module = network()
    before = structure(module)
    assert structure(module) == before
    module.append(module[2])
    assert structure(module) != before


def test_layer_type_changes_structure():
    module = network()
    before = structure(module)
    module[2] = torch.nn.Tanh()
    assert structure(module) != before


def test_eval_prediction_does_not_change_state():
    module = network().eval()
    before = structure(module), versions(module)
    module(torch.randn(4, 2))
    assert (structure(module), versions(module)) == before


def test_inference_mode_tensors_have_no_versions():
    with torch.inference_mode():
        module = network()
    assert not has_versions(module)
    assert versions(module) == versions(module)
    assert has_versions(network())
