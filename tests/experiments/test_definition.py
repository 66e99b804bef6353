"""Tests of the definitions of experiments."""

import subprocess
import sys
from dataclasses import replace

import pytest

from creinn.classifier.methods import base_method, find_method, is_ensemble, label
from experiments.catalogue import EXPERIMENTS, experiment
from experiments.definition import smoke_test, with_overrides
from experiments.plan import make_plan

PAPER = [
    "cifar10-svhn",
    "chest-xray",
    "interval-cifar10",
    "interval-chest-xray",
    "points-to-intervals-cifar10",
    "points-to-intervals-chest-xray",
    "inference-time",
]
STUDIES = ["study-fashion-mnist", "study-cifar10-svhn", "study-chest-xray"]
OTHERS = [
    "fashion-mnist-small",
    "cifar10-svhn-resnet20",
    "cifar10-svhn-resnet50",
    "near-fashion-mnist",
    "near-cifar10",
]


def test_experiments_of_the_paper_have_small_versions():
    assert set(EXPERIMENTS) == {*PAPER, *(f"{name}-small" for name in PAPER), *STUDIES, *OTHERS}
    for name in PAPER:
        full, small = EXPERIMENTS[name], EXPERIMENTS[f"{name}-small"]
        assert small.conditions == full.conditions
        assert small.methods == full.methods
        assert [images.name for images in small.ood] == [images.name for images in full.ood]


def test_settings_of_the_paper():
    cifar = EXPERIMENTS["cifar10-svhn"]
    assert (cifar.network.builder, cifar.network.stem, cifar.network.width) == (
        "resnet50",
        "imagenet",
        64,
    )
    training = cifar.training
    assert (training.epochs, training.batch_size, training.milestones) == (150, 128, (80, 120))
    assert (training.learning_rate, training.augment, training.validation) == (
        1e-3,
        "crop-flip",
        1 / 6,
    )
    assert (cifar.seeds, cifar.members, cifar.deep_members) == (15, 5, 10)
    assert (cifar.images.count, cifar.test.count, cifar.ood[0].count) == (None, None, None)
    assert (cifar.mean, cifar.std) == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    chest = EXPERIMENTS["chest-xray"]
    assert (chest.network.builder, chest.training.milestones, chest.logits) == (
        "resnet18",
        (25,),
        1,
    )


def test_shifts_of_the_paper():
    noise, bright = EXPERIMENTS["interval-cifar10"].conditions
    assert (str(noise.train), str(bright.train)) == ("noise [0, 0.08]", "brightness [0, 0.05]")
    assert [(s.low, s.high) for s in noise.tests] == [
        (0, 0.08),
        (0.12, 0.16),
        (0.16, 0.18),
        (0.18, 0.2),
    ]
    assert [(s.low, s.high) for s in bright.tests] == [
        (0, 0.05),
        (0.1, 0.15),
        (0.15, 0.2),
        (0.2, 0.3),
    ]
    (points,) = EXPERIMENTS["points-to-intervals-cifar10"].conditions
    assert points.train is None
    assert [s.high for s in points.tests if s.kind == "noise"] == [0.08, 0.12, 0.16, 0.18, 0.2]
    assert [s.high for s in points.tests if s.kind == "brightness"] == [0.05, 0.1, 0.15, 0.2, 0.3]


def test_small_test_subsets_preserve_base_rate():
    small = EXPERIMENTS["cifar10-svhn-small"]
    rate = small.ood[0].count / (small.ood[0].count + small.test.count)
    assert rate == pytest.approx(26032 / 36032, abs=1e-4)


def test_methods_by_name():
    assert [base_method(m) for m in ("deep-ensemble", "fsvi-ensemble", "bnn-l")] == [
        "snn",
        "fsvi",
        "bnn-l",
    ]
    assert [is_ensemble(m) for m in ("deep-ensemble", "fsvi-ensemble", "bnn-l")] == [
        True,
        True,
        False,
    ]
    assert label("bnn-r-ensemble", 5) == "BNN-R \u00d75"
    assert (base_method("deep-ensemble-norm"), base_method("creinn-d-envelope")) == (
        "snn-norm",
        "creinn-d",
    )
    assert label("fsvi-norm-ensemble", 5) == "FSVI, logit norm \u00d75"
    assert label("deep-ensemble-norm", 10) == "Deep Ensembles (10), logit norm"
    assert (base_method("creinn-d-deep"), label("creinn-d-deep", 10)) == (
        "creinn-d",
        "CreINN-D \u00d710",
    )
    assert (base_method("bnn-r-wrapper"), label("bnn-r-wrapper", 5)) == (
        "bnn-r",
        "BNN-R \u00d75, wrapper",
    )
    assert label("deep-ensemble-wrapper", 10) == "Deep Ensembles (10), wrapper"
    taking = [
        m for m in ("snn", "creinn-scaled-ensemble", "creinn-d") if find_method(m).takes_intervals
    ]
    assert taking == ["creinn-scaled-ensemble"]
    for unknown in (
        "mlp",
        "snn-ensemble",
        "snn-norm-ensemble",
        "bnn-r-envelope",
        "snn-wrapper",
        "creinn-wrapper",
    ):
        with pytest.raises(ValueError, match=f"'{unknown}'"):
            base_method(unknown)


def test_incompatible_methods_raise():
    with pytest.raises(ValueError, match="SNN"):
        replace(EXPERIMENTS["interval-cifar10"], methods=("snn",))
    for method in ("bnn-l", "bnn-l-norm"):
        with pytest.raises(ValueError, match="BNN-L"):
            replace(EXPERIMENTS["chest-xray"], methods=(method,))
    with pytest.raises(ValueError, match="Methods must be named once each"):
        replace(EXPERIMENTS["chest-xray"], methods=())
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        replace(EXPERIMENTS["chest-xray"], seeds=0)


def test_ensemble_size_is_limited_by_runs():
    five = replace(EXPERIMENTS["cifar10-svhn"], seeds=5)
    assert (five.ensemble_size("deep-ensemble"), five.ensemble_size("creinn-ensemble")) == (5, 5)
    ten = replace(five, snn_seeds=10)
    assert (ten.runs("snn"), ten.runs("creinn"), ten.ensemble_size("deep-ensemble")) == (10, 5, 10)
    assert [ten.runs(method) for method in ("snn-norm", "creinn-d", "creinn-radii")] == [10, 10, 5]
    assert [ten.ensemble_size(method) for method in ("creinn-d-ensemble", "creinn-d-deep")] == [
        5,
        10,
    ]
    few = replace(ten, distance_seeds=4)
    assert [few.runs(method) for method in ("snn-norm", "creinn-d", "creinn-radii")] == [10, 4, 5]


def test_unknown_experiment_raises():
    with pytest.raises(ValueError, match="'cifar'"):
        experiment("cifar")


def test_definitions_do_not_import_torch():
    code = "import experiments.command, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_experiment_options_override_variant_options():
    norm = replace(EXPERIMENTS["fashion-mnist-small"], options={"bnn-r-norm": {"samples": 3}})
    assert norm.options_of("bnn-r-norm") == {"logit_norm": True, "samples": 3}
    assert norm.options_of("bnn-r") == {}


@pytest.mark.parametrize("name", STUDIES)
def test_study_shares_small_trainings(name):
    study = EXPERIMENTS[name]
    small = EXPERIMENTS[f"{name.removeprefix('study-')}-small"]
    assert {*small.methods} < {*study.methods}
    assert {"fsvi-norm", "fsvi-norm-ensemble"} < {*study.methods}
    assert (
        ("bnn-l-norm" in study.methods)
        == ("bnn-l-norm-ensemble" in study.methods)
        == (study.logits > 2)
    )
    data = [("train", "1"), ("test", "2"), ("ood", "3")]
    few, many = (
        {task.key for task in make_plan(experiment, data)} for experiment in (small, study)
    )
    assert few < many


CIFAR = EXPERIMENTS["cifar10-svhn-small"]


def test_partial_overrides():
    assert with_overrides(CIFAR) == CIFAR
    changed = with_overrides(
        CIFAR, methods=["snn"], seeds=3, epochs=6, batch_size=32, width=4, train_images=60
    )
    assert (changed.methods, changed.seeds, changed.runs("snn")) == (("snn",), 3, 3)
    assert (changed.training.epochs, changed.training.milestones, changed.training.batch_size) == (
        6,
        (3, 5),
        32,
    )
    assert (changed.network.width, changed.images.count, changed.test) == (4, 60, CIFAR.test)


def test_override_method_options():
    before = with_overrides(
        CIFAR, options={"snn": {"logit_norm": True}, "creinn": {"mode": "sound"}}
    )
    assert with_overrides(before, options={"creinn": {}}).options == {
        **CIFAR.options,
        "snn": {"logit_norm": True},
        "creinn": {},
    }


def test_milestones_are_positive_and_distinct():
    assert with_overrides(CIFAR, epochs=1).training.milestones == (1,)


def test_test_set_sizes_are_proportional():
    changed = with_overrides(CIFAR, test_images=1000)
    assert (changed.test.count, changed.ood[0].count) == (1000, 2603)
    assert with_overrides(EXPERIMENTS["cifar10-svhn"], test_images=50).ood[0].count == 50


def test_ood_images_have_test_shape():
    changed = with_overrides(EXPERIMENTS["fashion-mnist-small"], ood=["mnist", "cifar10"])
    assert [(i.name, i.size, i.channels, i.count) for i in changed.ood] == [
        ("mnist", 28, 1, 2000),
        ("cifar10", 28, 1, 2000),
    ]


def test_smoke_test_preserves_network_and_methods():
    full = EXPERIMENTS["cifar10-svhn"]
    cut = smoke_test(full, 2)
    assert (cut.network, cut.training.batch_size, cut.methods) == (full.network, 128, full.methods)
    assert (cut.training.epochs, cut.seeds, cut.images.count) == (1, 1, 307)  # 307 * 5/6 = 2 * 128
    assert (cut.test.count, cut.ood[0].count) == (64, 64)


def test_invalid_numbers_raise():
    with pytest.raises(ValueError, match="epochs must be at least 1, got 0"):
        with_overrides(CIFAR, epochs=0)
    with pytest.raises(ValueError, match="'deep-ensemble'"):
        with_overrides(CIFAR, options={"deep-ensemble": {}})
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        smoke_test(CIFAR, 0)
