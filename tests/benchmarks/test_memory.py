"""Tests of the memory counters."""

import torch

from benchmarks.memory import held_bytes, peak_bytes, saved_bytes

KILO = 4 * 250  # bytes of 250 numbers


def numbers(**options):
    return torch.ones(250, **options)


def test_peak_of_live_tensors():
    x = numbers()

    def one_after_the_other():
        for _ in range(5):
            x + 1

    def all_at_once():
        return [x + i for i in range(5)]

    assert peak_bytes(one_after_the_other) == KILO
    assert peak_bytes(all_at_once) == 5 * KILO


def test_views_and_older_tensors_are_not_counted():
    x = numbers()
    assert peak_bytes(lambda: x.view(10, 25).t()[2:].mul_(2)) == 0
    assert peak_bytes(lambda: (x + 1).view(10, 25).t().add_(1)) == KILO


def test_peak_of_training_step():
    w = numbers(requires_grad=True)
    y = peak_bytes(lambda: (2 * w).exp().sum().backward())
    assert w.grad is not None
    assert 2 * KILO < y < 4 * KILO


def test_saved_bytes_count_shared_memory_once():
    w, x = numbers(requires_grad=True), numbers()
    assert saved_bytes(lambda: (w * x).sum(), [w, x]) == 0
    assert saved_bytes(lambda: (w * x).sum(), [w]) == KILO  # x

    def twice():
        y = w.exp()  # kept by exp and, as a factor, by both products
        return (y * w).sum() + (y.view(10, 25) * 2).exp().sum()

    assert saved_bytes(twice, [w]) == 2 * KILO


def test_saved_bytes_scale_with_batch_size():
    network = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    x = torch.ones(8, 3)
    kept = [saved_bytes(lambda n=n: network(x[:n]), [*network.parameters(), x]) for n in (4, 8)]
    assert kept == [4 * 5 * 4, 8 * 5 * 4]  # the ReLU's result, which the second layer keeps too


def test_held_bytes_count_shared_parameters_once():
    norm = torch.nn.BatchNorm1d(10)
    twice = torch.nn.ModuleList([norm, torch.nn.BatchNorm1d(10)])
    twice[1].weight = norm.weight
    assert held_bytes(norm) == 4 * 40 + 8  # and the number of batches, an int64
    assert held_bytes(twice) == 4 * 70 + 16
