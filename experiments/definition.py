"""Definition of an experiment: data, network, training, methods and seeds.

The module does not import torch. Every field that affects a number is part of
the key of its record; see :mod:`experiments.plan`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from creinn.classifier.methods import METHODS, base_method, find_method, is_deep, label

TABLE = (
    *("snn", "bnn-r", "bnn-f", "fsvi", "bnn-l", "creinn"),
    *(
        "deep-ensemble",
        "bnn-r-ensemble",
        "bnn-f-ensemble",
        "fsvi-ensemble",
        "bnn-l-ensemble",
        "creinn-ensemble",
    ),
)
"""The twelve rows of the paper's table."""


@dataclass(frozen=True, kw_only=True)
class Images:
    """Images of a data set in the form that a network receives."""

    name: str  # name for experiments.datasets.load
    split: Literal["train", "test"] = "test"
    size: int | None = None  # side in pixels; None for no change
    channels: int | None = None  # 1 for grey, 3 for RGB; None for no change
    classes: tuple[int, ...] | None = None  # selected classes, which are renumbered; None for all
    count: int | None = None  # number of images, stratified; None for all
    seed: int = 0  # seed of the draw
    shuffled: bool = False  # whether to shuffle images with the same seed


@dataclass(frozen=True, kw_only=True)
class Network:
    """Architecture: a builder of :mod:`creinn.models` and its arguments."""

    builder: str
    width: int  # channels of the first stage
    stem: Literal["cifar", "imagenet"] | None = None  # None if the builder has no stem


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of the training with Adam; the last weights are used."""

    epochs: int = 150
    batch_size: int = 128
    milestones: tuple[int, ...] = (
        80,
        120,
    )  # epochs after which the learning rate is divided by ten
    learning_rate: float = 1e-3
    augment: Literal["crop-flip", "crop", "none"] = "crop-flip"  # pad by 4, random crop and flip
    validation: float = 1 / 6  # share of the validation data; 5:1 in the paper
    split_seed: int = 0  # seed of the division
    mixed_precision: bool = False  # bfloat16 on a CPU


@dataclass(frozen=True)
class Shift:
    """Range of the strength of noise or brightness, for interval images.

    Example:
        >>> str(Shift("noise", 0, 0.08))
        'noise [0, 0.08]'
    """

    kind: Literal["noise", "brightness"]
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.kind} [{self.low:g}, {self.high:g}]"


@dataclass(frozen=True)
class Condition:
    """A training set and its test sets, where ``None`` means points."""

    train: Shift | None = None
    tests: tuple[Shift | None, ...] = (None,)  # the first of a kind is the base

    @property
    def name(self) -> str:
        """Name in tables."""
        return "points" if self.train is None else self.train.kind


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Numbers of images and calls for the measurement of inference time."""

    batches: tuple[int, ...] = (1, 128)
    rounds: int = 20


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment of the paper or a small form of it."""

    name: str  # name on the command line
    title: str  # one line
    images: Images  # training images
    test: Images  # test images of the same distribution
    network: Network
    paper: str | None = None  # experiment with published numbers for comparison
    ood: tuple[Images, ...] = ()  # out-of-distribution sets
    training: Training = Training()
    conditions: tuple[Condition, ...] = (Condition(),)  # empty without training
    methods: tuple[str, ...] = TABLE  # names of creinn.classifier.methods
    seeds: int = 15  # number of runs of each method
    snn_seeds: int | None = None  # number of SNN runs for Deep Ensembles
    distance_seeds: int | None = None  # number of CreINN-D runs, if not all runs of the SNN
    first_seed: int = 0  # seed of the first run; the others follow
    members: int = 5  # members of an ensemble
    deep_members: int = 10  # members of Deep Ensembles, which have half the parameters
    draws: int = 15  # maximum number of ensembles of a method
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by method
    mean: tuple[float, ...] | None = None  # None for the normalisation of the training images
    std: tuple[float, ...] | None = None
    logits: int = 10  # outputs of the network; 1 for two classes
    batch_statistics: bool = True  # whether to predict with the statistics of the test batch too
    timing: Timing | None = None  # settings of the timing, if any

    def __post_init__(self) -> None:
        if len(set(self.methods)) != len(self.methods) or not self.methods:
            raise ValueError(
                f"Methods must be named once each, and one at least; got {self.methods}."
            )
        has_intervals = any(
            shift is not None
            for condition in self.conditions
            for shift in (condition.train, *condition.tests)
        )
        for method in self.methods:
            if has_intervals and not find_method(method).takes_intervals:
                refused = f"{self.name} has interval inputs, which {label(method)} cannot take"
                raise ValueError(f"{refused}; choose among creinn and creinn-ensemble.")
            if find_method(method).kind == "bnn-l" and self.logits < 3:
                raise ValueError(
                    f"{self.name} has two classes, and BNN-L is for three or more. Leave it out."
                )
        _at_least_one(members=self.members, seeds=self.seeds, draws=self.draws)

    def runs(self, method: str) -> int:
        """Return the number of runs of a single method."""
        snn_runs = max(self.seeds, self.snn_seeds or 0)
        if METHODS[method].kind == "snn":
            return snn_runs
        return self.seeds if METHODS[method].trains else self.distance_seeds or snn_runs

    def ensemble_size(self, method: str) -> int:
        """Return the number of members, at most the number of runs."""
        return min(
            self.deep_members if is_deep(method) else self.members, self.runs(base_method(method))
        )

    def options_of(self, method: str) -> dict[str, Any]:
        """Return the arguments of the classifier of a method."""
        return {**METHODS[method].options, **self.options.get(method, {})}


def with_overrides(
    experiment: Experiment,
    *,
    methods: Sequence[str] = (),
    ood: Sequence[str] = (),
    seeds: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    width: int | None = None,
    train_images: int | None = None,
    test_images: int | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    mixed_precision: bool | None = None,
) -> Experiment:
    """Return the experiment with other values.

    Foreign sets get the shape of the test images, and their size changes in
    proportion. ``seeds`` also applies to ensembles. The learning rate decreases
    after the same shares of the ``epochs``.

    Raises:
        ValueError: If a value is out of range, or if a method is unknown or
            does not fit the experiment.
    """
    _at_least_one(seeds=seeds, epochs=epochs, batch_size=batch_size, width=width)
    _at_least_one(train_images=train_images, test_images=test_images)
    for method in options or ():
        if method not in METHODS:
            raise ValueError(
                f"Options are for single methods, {', '.join(METHODS)}; {method!r} is none of them."
            )
    training, test = experiment.training, experiment.test
    foreign = tuple(_alike(name, experiment) for name in ood) or experiment.ood
    if test_images is not None:
        share = test_images / test.count if test.count else 0
        foreign = tuple(
            replace(images, count=round((images.count or 0) * share) or test_images)
            for images in foreign
        )
    passes = epochs or training.epochs
    milestones = {max(1, round(m * passes / training.epochs)) for m in training.milestones}
    return replace(
        experiment,
        methods=tuple(methods) or experiment.methods,
        options={**experiment.options, **(options or {})},
        images=replace(experiment.images, count=train_images or experiment.images.count),
        test=replace(test, count=test_images or test.count),
        ood=foreign,
        network=replace(experiment.network, width=width or experiment.network.width),
        training=replace(
            training,
            epochs=passes,
            milestones=tuple(sorted(milestones)),
            batch_size=batch_size or training.batch_size,
            mixed_precision=(
                training.mixed_precision if mixed_precision is None else mixed_precision
            ),
        ),
        seeds=seeds or experiment.seeds,
        snn_seeds=None if seeds else experiment.snn_seeds,
        distance_seeds=None if seeds else experiment.distance_seeds,
    )


def smoke_test(experiment: Experiment, steps: int) -> Experiment:
    """Return a version with one run per method and few steps and test images.

    Raises:
        ValueError: If ``steps`` is less than 1.
    """
    _at_least_one(steps=steps)
    rows = round(steps * experiment.training.batch_size / (1 - experiment.training.validation))
    cut = with_overrides(experiment, seeds=1, epochs=1, train_images=rows, test_images=64)
    return replace(cut, timing=cut.timing and replace(cut.timing, rounds=steps))


def _at_least_one(**numbers: int | None) -> None:
    for name, value in numbers.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")


def _alike(name: str, experiment: Experiment) -> Images:
    """Return images with the shape of the test images."""
    test = experiment.test
    size, channels = (28, 1) if "mnist" in test.name else (32, 3)
    count = next((images.count for images in experiment.ood), test.count)
    return Images(
        name=name,
        size=test.size or size,
        channels=test.channels or channels,
        count=count,
        seed=test.seed,
    )
