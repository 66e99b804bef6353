"""Experiments cut to size: only what is given changes."""

import pytest

from creinn.experiments import EXPERIMENTS, few_steps, tailor

CIFAR = EXPERIMENTS["cifar10-svhn-small"]


def test_only_what_is_given_changes():
    assert tailor(CIFAR) == CIFAR
    changed = tailor(CIFAR, methods=["snn"], seeds=3, epochs=6, batch_size=32, width=4, train_images=60)
    assert (changed.methods, changed.seeds, changed.runs("snn")) == (("snn",), 3, 3)
    assert (changed.training.epochs, changed.training.milestones, changed.training.batch_size) == (6, (3, 5), 32)
    assert (changed.network.width, changed.images.count, changed.test) == (4, 60, CIFAR.test)


def test_options_of_one_method_replace_its_own():
    before = tailor(CIFAR, options={"snn": {"logit_norm": True}, "creinn": {"mode": "sound"}})
    assert tailor(before, options={"creinn": {}}).options == {
        **CIFAR.options,
        "snn": {"logit_norm": True},
        "creinn": {},
    }


def test_milestones_stay_apart_from_zero_and_from_each_other():
    assert tailor(CIFAR, epochs=1).training.milestones == (1,)


def test_test_sets_shrink_in_proportion():
    changed = tailor(CIFAR, test_images=1000)
    assert (changed.test.count, changed.ood[0].count) == (1000, 2603)
    assert tailor(EXPERIMENTS["cifar10-svhn"], test_images=50).ood[0].count == 50


def test_other_ood_sets_get_the_shape_of_the_test_images():
    changed = tailor(EXPERIMENTS["fashion-mnist-small"], ood=["mnist", "cifar10"])
    assert [(i.name, i.size, i.channels, i.count) for i in changed.ood] == [
        ("mnist", 28, 1, 2000),
        ("cifar10", 28, 1, 2000),
    ]


def test_few_steps_keep_network_batch_and_methods():
    full = EXPERIMENTS["cifar10-svhn"]
    cut = few_steps(full, 2)
    assert (cut.network, cut.training.batch_size, cut.methods) == (full.network, 128, full.methods)
    assert (cut.training.epochs, cut.seeds, cut.images.count) == (1, 1, 307)  # 307 * 5/6 = 2 * 128
    assert (cut.test.count, cut.ood[0].count) == (64, 64)


def test_numbers_out_of_range_are_named():
    with pytest.raises(ValueError, match="epochs must be at least 1, got 0"):
        tailor(CIFAR, epochs=0)
    with pytest.raises(ValueError, match=r"Options are for single methods, snn, .*; 'deep-ensemble' is none of them"):
        tailor(CIFAR, options={"deep-ensemble": {}})
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        few_steps(CIFAR, 0)
