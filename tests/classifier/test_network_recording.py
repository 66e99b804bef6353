"""Tests of the recording of module calls, which is separate for each thread."""

import threading
from contextvars import Context

import torch

from creinn.classifier.compile_cache import has_hooks
from creinn.classifier.network import features_and_logits, outputs_and_logits, recording
from creinn.distance.feature_layers import HEAD
from thread_cases import run_in_threads


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def test_features_are_recorded_per_thread():
    module, barrier = network(), threading.Barrier(8)

    def work(number):
        x = torch.full((number + 1, 2), float(number))
        hidden = torch.relu(module[0](x))
        barrier.wait()
        for _ in range(100):
            (found, features), logits = outputs_and_logits(module, x, ("1", HEAD))
            torch.testing.assert_close(found, hidden)
            torch.testing.assert_close(features, hidden)
            torch.testing.assert_close(logits, module[2](hidden))
            for one, other in zip(features_and_logits(module, x), (features, logits), strict=True):
                torch.testing.assert_close(one, other)

    with torch.no_grad():
        run_in_threads(torch.no_grad()(work))


def test_calls_are_recorded_per_thread():
    module, barrier = network(), threading.Barrier(8)

    def work(number):
        x = torch.full((number + 1, 2), float(number))
        barrier.wait()
        for _ in range(50):
            with recording([module[0], module[2]]) as calls:
                module(x)
            assert [call.module for call in calls] == [module[0], module[2]]
            assert calls[0].inputs[0] is x

    run_in_threads(torch.no_grad()(work))
    assert not module[0]._forward_hooks


def test_nested_recordings():
    module = network()
    with recording([module[0]]) as outer, recording([module[0], module[1]]) as inner:
        module(torch.zeros(1, 2))
    assert [len(outer), len(inner)] == [1, 2]


def test_recording_removes_hook():
    module, x = network(), torch.zeros(1, 2)
    with recording([module[0], module[0]]) as calls:
        module(x)
        assert len(module[0]._forward_hooks) == 1
        assert not has_hooks(module[0])
    module(x + 1)
    (call,) = calls
    assert call.inputs[0] is x
    assert not module[0]._forward_hooks


def test_hook_of_another_thread_during_its_removal():
    module = network()
    with recording([module[0]]) as calls:
        module[0]._forward_hooks_with_kwargs.clear()  # the other thread copied the hooks before
        Context().run(module, torch.zeros(1, 2))
    assert not calls


def test_user_hooks_are_called():
    module = network()
    handle = module[0].register_forward_pre_hook(lambda *_: None)
    assert has_hooks(module[0])
    handle.remove()
    assert not has_hooks(module[0])
