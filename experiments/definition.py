"""What an experiment is: data, network, training, methods, seeds, and what is tested; and how to change one.

Importing this file does not load torch. Every field that decides a number is part of the key under which the number is
recorded, see :mod:`experiments.plan`.
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
    """Images of a known data set, as they are given to a network."""

    name: str  # a name of experiments.datasets.load
    split: Literal["train", "test"] = "test"
    size: int | None = None  # side in pixels; None leaves it
    channels: int | None = None  # 1 for grey, 3 for RGB; None leaves them
    classes: tuple[int, ...] | None = (
        None  # which are taken, and numbered anew in their order; None takes all
    )
    count: int | None = None  # how many are drawn, each class in proportion; None takes all
    seed: int = 0  # of the draw
    shuffled: bool = False  # whether to shuffle, by the same seed, images that come sorted by class


@dataclass(frozen=True, kw_only=True)
class Network:
    """Architecture: a builder of :mod:`creinn.models` and its arguments."""

    builder: str
    width: int  # channels of the first stage
    stem: Literal["cifar", "imagenet"] | None = None  # None where the builder has no choice


@dataclass(frozen=True, kw_only=True)
class Training:
    """How one network is trained; the optimiser is Adam, the weights kept are the last ones."""

    epochs: int = 150
    batch_size: int = 128
    milestones: tuple[int, ...] = (
        80,
        120,
    )  # finished epochs at which the learning rate falls to a tenth
    learning_rate: float = 1e-3
    augment: Literal["crop-flip", "crop", "none"] = (
        "crop-flip"  # zero-pad 4, cut out a random window, and flip
    )
    validation: float = 1 / 6  # share kept apart for the validation curves; the paper's 5:1
    split_seed: int = 0  # of that division
    mixed_precision: bool = False  # bfloat16 on a CPU


@dataclass(frozen=True)
class Shift:
    """A range of strengths of noise or brightness that turns images into interval images.

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
    """One training set, and the test sets its networks meet; ``None`` stands for points."""

    train: Shift | None = None
    tests: tuple[Shift | None, ...] = (
        None,
    )  # uncertainty increases relative to the first shift of each kind

    @property
    def name(self) -> str:
        """What distinguishes the condition in tables and file names."""
        return "points" if self.train is None else self.train.kind


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How inference is timed: images per call, and calls per method and batch, in which methods take turns."""

    batches: tuple[int, ...] = (1, 128)
    rounds: int = 20


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment of the paper, or a small twin of one."""

    name: str  # on the command line
    title: str  # what it is about, in a line
    images: Images  # for training
    test: Images  # of the same distribution
    network: Network
    paper: str | None = None  # name of the experiment whose published numbers stand beside ours
    ood: tuple[Images, ...] = ()  # out-of-distribution sets
    training: Training = Training()
    conditions: tuple[Condition, ...] = (
        Condition(),
    )  # training and test sets; empty where nothing is trained
    methods: tuple[str, ...] = TABLE  # see creinn.classifier.methods
    seeds: int = 15  # number of runs of each method
    snn_seeds: int | None = (
        None  # number of SNN runs, if more are trained to fill the Deep Ensembles
    )
    distance_seeds: int | None = None  # number of CreINN-D runs, if not upon all runs of the SNN
    first_seed: int = 0  # of the first run; the others follow
    members: int = 5  # of an ensemble
    deep_members: int = 10  # of Deep Ensembles; twice as many give about equal parameter counts
    draws: int = 15  # most ensembles drawn from the runs of a method
    options: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict
    )  # of a method's classifier, by method
    mean: tuple[float, ...] | None = (
        None  # normalisation per channel; None takes that of the training images
    )
    std: tuple[float, ...] | None = None
    logits: int = 10  # outputs of the network; 1 for two classes
    batch_statistics: bool = (
        True  # whether to predict with those of the test batch too, as the authors' code does
    )
    timing: Timing | None = None  # how inference is timed, if that is the experiment

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
        """Number of runs of a single method; what is not trained comes upon runs of the SNN."""
        snn_runs = max(self.seeds, self.snn_seeds or 0)
        if METHODS[method].kind == "snn":
            return snn_runs
        return self.seeds if METHODS[method].trains else self.distance_seeds or snn_runs

    def ensemble_size(self, method: str) -> int:
        """Number of members of an ensemble method; never more than there are runs to draw from."""
        return min(
            self.deep_members if is_deep(method) else self.members, self.runs(base_method(method))
        )

    def options_of(self, method: str) -> dict[str, Any]:
        """Arguments of a single method's classifier: its own, and over them the experiment's."""
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
    """Change what is given; the rest stays.

    Foreign sets get the shape of the test images, and shrink in proportion to these. ``seeds`` are also those of the
    runs that fill ensembles. The learning rate falls after the same shares of the ``epochs``. ``options`` of a single
    method stand in place of the experiment's own for it.

    Raises:
        ValueError: If a value is out of range, or a method unknown or not fit for the experiment.
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
    """One run of each method, of ``steps`` steps of their own size and with few test images: shows whether they run.

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
    """A set in the shape of the experiment's test images; of known sizes where those are left as they are."""
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
