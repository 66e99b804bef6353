"""The experiments by name: the paper's settings, and small twins of them for two cores.

Importing this file does not load torch. Where the paper is silent its authors' code decides: batch 128, 150 epochs, the
CIFAR-10 mean and standard deviation also for SVHN. On the X-ray images both are silent about their size and the number
of epochs; 128 x 128 and 50 epochs are ours.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

from creinn.classifier.methods import find_method
from creinn.experiments.definition import TABLE, Arm, Experiment, Images, Network, Shift, Timing, Training

STUDY = (
    *("snn", "snn-norm", "bnn-r", "bnn-r-norm", "bnn-f", "bnn-f-norm", "fsvi", "fsvi-norm", "bnn-l", "bnn-l-norm"),
    *("creinn", "creinn-relative", "creinn-scaled", "creinn-bounds", "creinn-scaled-bounds"),
    *("creinn-radii", "creinn-d"),
    *("deep-ensemble", "deep-ensemble-norm", "bnn-r-ensemble", "bnn-r-norm-ensemble", "bnn-f-ensemble"),
    *("bnn-f-norm-ensemble", "fsvi-ensemble", "fsvi-norm-ensemble", "bnn-l-ensemble", "bnn-l-norm-ensemble"),
    *("creinn-ensemble", "creinn-envelope"),
    *("creinn-relative-ensemble", "creinn-scaled-ensemble", "creinn-bounds-ensemble", "creinn-scaled-bounds-ensemble"),
    *("creinn-scaled-bounds-envelope", "creinn-d-ensemble", "creinn-d-envelope", "creinn-d-deep"),
)
"""Rivals with and without batch norm on the logits, and the forms of CreINN, each alone and as an ensemble."""

LEVELS = {"noise": (0, 0.08, 0.12, 0.16, 0.18, 0.2), "brightness": (0, 0.05, 0.1, 0.15, 0.2, 0.3)}
"""Strengths between which images are shifted."""


def _arm(kind: Literal["noise", "brightness"]) -> Arm:
    narrowest, _, *stronger = (Shift(kind, *ends) for ends in pairwise(LEVELS[kind]))
    return Arm(narrowest, (narrowest, *stronger))


INTERVAL_ARMS = (_arm("noise"), _arm("brightness"))
"""Train on the narrowest range, test on it and on stronger ones (DesignInterval)."""

POINT_ARMS = (Arm(None, tuple(Shift(kind, 0, high) for kind, levels in LEVELS.items() for high in levels[1:])),)  # type: ignore[arg-type]
"""Train on points, test on ever wider ranges (DesignIntervalSig2Interval)."""

_TEMPERED = {name: {"kl_weight": 0.1} for name in ("bnn-r", "bnn-f", "bnn-r-norm", "bnn-f-norm")}
"""A tempered posterior: with many more weights than images the whole KL divergence would outweigh the data."""

_CIFAR = Experiment(
    name="cifar10-svhn",
    title="CIFAR-10, with SVHN as out-of-distribution data",
    paper="cifar10-svhn",
    images=Images(name="cifar10", split="train"),
    test=Images(name="cifar10"),
    ood=(Images(name="svhn"),),
    network=Network(builder="resnet50", width=64, stem="imagenet"),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    options=_TEMPERED,
)
_CHEST = Experiment(
    name="chest-xray",
    title="Chest X-ray, two classes",
    paper="chest-xray",
    images=Images(name="chest-xray", split="train", size=128, channels=1),
    test=Images(name="chest-xray", size=128, channels=1, shuffled=True),
    network=Network(builder="resnet18", width=64, stem="imagenet"),
    training=Training(epochs=50, milestones=(25,)),
    methods=tuple(method for method in TABLE if find_method(method).kind != "bnn-l"),
    logits=1,
    options=_TEMPERED,
)
_TIME = replace(
    _CIFAR,
    name="inference-time",
    title="Inference time relative to the SNN",
    paper="inference-time",
    ood=(),
    arms=(),
    methods=("snn", "creinn", "bnn-r", "bnn-f", "bnn-l", "fsvi"),
    seeds=1,
    timing=Timing(),
)

# Small twins keep the protocol and shrink the scale: a narrow ResNet-8, stratified subsets, few epochs with the
# learning rate falling after the same shares of them, five runs. So that few epochs are enough, steps are taken on
# smaller batches at a higher learning rate, and CIFAR-10 and Fashion-MNIST are not augmented: at that length crops cost
# accuracy. Test subsets keep the proportion of CIFAR-10 to SVHN, and so the base rate of the OOD task.
_SMALL = Training(epochs=10, milestones=(5, 8), batch_size=64, learning_rate=5e-3, augment="none")
_FEW: dict[str, Any] = {"network": Network(builder="resnet8", width=8), "seeds": 5, "snn_seeds": 10}
_CIFAR_SMALL = replace(
    _CIFAR,
    name="cifar10-svhn-small",
    title="CIFAR-10, with SVHN as out-of-distribution data; small",
    images=replace(_CIFAR.images, count=7200),
    test=replace(_CIFAR.test, count=2000),
    ood=(Images(name="svhn", count=5206),),
    training=_SMALL,
    **_FEW,
)
_CHEST_SMALL = replace(
    _CHEST,
    name="chest-xray-small",
    title="Chest X-ray, two classes; small",
    images=replace(_CHEST.images, size=48, count=2400),
    test=replace(_CHEST.test, size=48),
    training=Training(epochs=10, milestones=(5, 8), batch_size=32, learning_rate=5e-3),
    **_FEW,
)
_FASHION_SMALL = Experiment(
    name="fashion-mnist-small",
    title="Fashion-MNIST, with MNIST as out-of-distribution data; small",
    images=Images(name="fashion-mnist", split="train", count=7200),
    test=Images(name="fashion-mnist", count=2000),
    ood=(Images(name="mnist", count=2000),),
    training=replace(_SMALL, epochs=8, milestones=(4, 6)),
    options=_TEMPERED,
    **_FEW,
)
_TIME_SMALL = replace(
    _TIME,
    name="inference-time-small",
    title="Inference time relative to the SNN; small",
    network=Network(builder="resnet8", width=16),
)
_DEMO = Experiment(
    name="demo",
    title="Digits 0 to 7 of scikit-learn, with digits 8 and 9 and photographs as out-of-distribution data",
    images=Images(name="digits", split="train"),
    test=Images(name="digits"),
    ood=(Images(name="held-out digits"), Images(name="photographs", count=354)),  # as many of one as of the other
    training=Training(epochs=40, milestones=(30,), batch_size=32, learning_rate=3e-3, augment="none"),
    methods=("snn", "deep-ensemble", "creinn", "creinn-ensemble", "creinn-d", "creinn-d-ensemble"),
    **_FEW,
    distance_seeds=5,
    draws=1,
    mean=(0.0,),
    std=(1.0,),
    logits=8,
    batch_statistics=False,
)


def _shifted(*bases: Experiment) -> list[Experiment]:
    """Of each base: trained and tested on interval images; then trained on points and tested on intervals."""
    kinds = {
        "interval": (" as intervals of noise and of brightness", INTERVAL_ARMS),
        "points-to-intervals": (": trained on points, tested on intervals", POINT_ARMS),
    }
    common: dict[str, Any] = {"ood": (), "methods": ("creinn", "creinn-ensemble"), "paper": None}
    made = []
    for kind, (what, arms) in kinds.items():
        for base in bases:
            name, title = f"{kind}-{base.name.replace('-svhn', '')}", base.title.split(",")[0] + what
            title += "; small" if name.endswith("-small") else ""
            made.append(replace(base, name=name, title=title, arms=arms, **common))
    return made


def _study(base: Experiment, *ood: Images) -> Experiment:
    """The trainings of a small experiment, those of our own forms and of rivals with a norm, and more OOD sets."""
    methods = tuple(method for method in STUDY if base.logits > 2 or find_method(method).kind != "bnn-l")
    name, title = f"study-{base.name.removesuffix('-small')}", f"Forms of CreINN and its rivals: {base.title}"
    return replace(base, name=name, title=title, methods=methods, ood=base.ood + ood, paper=None)


_ALL = (
    *(_CIFAR, _CHEST, *_shifted(_CIFAR, _CHEST), _TIME),
    *(_CIFAR_SMALL, _CHEST_SMALL, *_shifted(_CIFAR_SMALL, _CHEST_SMALL), _TIME_SMALL, _FASHION_SMALL),
    _study(_FASHION_SMALL, Images(name="cifar10", size=28, channels=1, count=2000)),
    _study(_CIFAR_SMALL),
    _study(_CHEST_SMALL, Images(name="cifar10", size=48, channels=1, count=600)),
    _DEMO,
)

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
"""Every experiment by name."""


def experiment(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        ValueError: If there is none.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"There is no experiment {name!r}. Known are {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]
