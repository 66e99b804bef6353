"""Test the detection of changes of the structure, the options and the weights."""

import copy

import numpy as np
import pytest
import torch

from creinn.classifier import compile_cache
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


class OtherLinear(torch.nn.Linear):
    pass


def rename_child(layers):
    layers._modules["last"] = layers._modules.pop("2")


def move_parameter(layers):
    bias, weight = layers[0]._parameters.pop("bias"), layers[1]._parameters.pop("weight")
    layers[1]._parameters.update(bias=bias, weight=weight)  # in the same order


NOT_COMPILED = {
    "training mode": lambda layers: setattr(layers[0], "training", True),
    "forward": lambda layers: setattr(layers[0], "forward", abs),
    "compiled": lambda layers: layers[0].compile(backend="eager"),
}
STATE_CHANGES = {
    **NOT_COMPILED,
    "shared layer": lambda layers: layers.__setitem__(2, layers[1]),
    "renamed child": rename_child,
    "moved parameter": move_parameter,
    "type": lambda layers: setattr(layers[0], "__class__", OtherLinear),
    "new option": lambda layers: setattr(layers[0], "new", 1),
    "no option": lambda layers: delattr(layers[0], "rate"),
    "option becomes plain": lambda layers: setattr(layers[0], "table", (2, 3)),
    "option becomes array": lambda layers: setattr(layers[0], "rate", np.ones(2)),
    "option becomes tensor": lambda layers: setattr(layers[0], "rate", torch.ones(2)),
    "part of option becomes plain": lambda layers: setattr(layers[0], "pair", (1, 2)),
}


def look_up(module):
    return compile_cache.compiled_form(module, None, lambda *_: torch.nn.Identity())


@pytest.mark.parametrize("name", STATE_CHANGES)
def test_state_change_invalidates(name):
    first, second = torch.nn.Linear(5, 5), torch.nn.Linear(5, 5, bias=False)
    first.rate, first.table, first.pair = 0.5, np.ones(3), (1, [2])
    layers = torch.nn.Sequential(first, second, first).eval()
    before = look_up(layers)
    assert look_up(layers) is before
    STATE_CHANGES[name](layers)
    after = look_up(layers)
    assert after is not before
    assert (after is None) == (name in NOT_COMPILED)
    assert look_up(layers) is after


def test_new_child_without_tensors_invalidates():
    module = torch.nn.Module().eval()
    module.register_module("child", None)
    before = look_up(module)
    module.child = torch.nn.ReLU().eval()
    assert look_up(module) is not before


def test_recorder_does_not_invalidate():
    def hook(*_):
        pass

    hook.is_recorder = True
    layer = torch.nn.Linear(5, 3).eval()
    before = look_up(layer)
    layer.register_forward_hook(hook)
    assert look_up(layer) is before
