"""What an experiment is: data, network, training, methods, seeds, and what is tested; plain dataclasses.

Importing this file does not load torch. Every field that decides a number is part of the key under which the number is
recorded, see :mod:`creinn.experiments.plan`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from creinn.classifier.methods import METHODS, base_method, find_method, is_deep, label

CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)

TABLE = (
    *("snn", "bnn-r", "bnn-f", "fsvi", "bnn-l", "creinn"),
    *("deep-ensemble", "bnn-r-ensemble", "bnn-f-ensemble", "fsvi-ensemble", "bnn-l-ensemble", "creinn-ensemble"),
)
"""The twelve rows of the paper's table."""


@dataclass(frozen=True, kw_only=True)
class Images:
    """Images of a known data set, as they are given to a network.

    Args:
        name: As :func:`creinn.data.load` knows it.
        split: ``"train"`` or ``"test"``.
        size: Side in pixels; ``None`` leaves it.
        channels: 1 for grey, 3 for RGB; ``None`` leaves them.
        count: How many are drawn, each class in proportion; ``None`` takes all.
        seed: Of the draw.
        shuffled: Whether to shuffle, by the same seed, images that come sorted by class.
    """

    name: str
    split: Literal["train", "test"] = "test"
    size: int | None = None
    channels: int | None = None
    count: int | None = None
    seed: int = 0
    shuffled: bool = False


@dataclass(frozen=True, kw_only=True)
class Network:
    """Architecture: a builder of :mod:`creinn.models` and its arguments.

    Args:
        builder: Name of the builder.
        width: Channels of the first stage.
        stem: ``"imagenet"`` or ``"cifar"``; ``None`` where the builder has no choice.
    """

    builder: str
    width: int
    stem: Literal["cifar", "imagenet"] | None = None


@dataclass(frozen=True, kw_only=True)
class Training:
    """How one network is trained; the optimiser is Adam, the weights kept are the last ones.

    Args:
        epochs: Passes over the training part.
        batch_size: Images per step.
        milestones: Finished epochs at which the learning rate falls to a tenth.
        learning_rate: At the start.
        augment: Zero-pad 4, cut out a random window and flip (``"crop-flip"``), without flip (``"crop"``), or nothing.
        validation: Share of the training images kept apart for the validation curves; 1/6 is the paper's 5:1.
        split_seed: Seed of that division.
    """

    epochs: int = 150
    batch_size: int = 128
    milestones: tuple[int, ...] = (80, 120)
    learning_rate: float = 1e-3
    augment: Literal["crop-flip", "crop", "none"] = "crop-flip"
    validation: float = 1 / 6
    split_seed: int = 0


@dataclass(frozen=True)
class Shift:
    """A range of strengths of noise or brightness that turns images into interval images.

    Args:
        kind: ``"noise"`` or ``"brightness"``.
        low: Least strength.
        high: Greatest strength.

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
class Arm:
    """One training set, and the test sets its networks meet.

    Args:
        train: Shift of the training images; ``None`` trains on points.
        tests: Shifts of the test images; ``None`` tests on points. The relative increase of a shift is taken against
            the first one of its kind.
    """

    train: Shift | None = None
    tests: tuple[Shift | None, ...] = (None,)

    @property
    def name(self) -> str:
        """What distinguishes the arm in tables and file names."""
        return "points" if self.train is None else self.train.kind


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How inference is timed.

    Args:
        batches: Numbers of images per call.
        rounds: Calls per method and batch; methods take turns in each round.
    """

    batches: tuple[int, ...] = (1, 128)
    rounds: int = 20


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment of the paper, or a small twin of one.

    Args:
        name: Name on the command line.
        title: What it is about, in a line.
        paper: Name of the experiment whose published numbers stand beside ours, if any.
        images: Training images.
        test: Test images of the same distribution.
        ood: Out-of-distribution sets.
        network: Architecture.
        training: How each network is trained.
        arms: Training and test sets; empty where nothing is trained.
        methods: Names of methods, see :mod:`creinn.classifier.methods`; the twelve rows of the paper's by default.
        seeds: Number of runs of each method.
        snn_seeds: Number of SNN runs, if more are trained to fill the Deep Ensembles.
        members: Members of an ensemble.
        deep_members: Members of Deep Ensembles; twice as many give about equal parameter counts.
        draws: Most ensembles drawn from the runs of a method.
        options: Further arguments of a method's classifier, by method.
        mean: Normalisation: mean per channel; ``None`` takes that of the training images.
        std: Normalisation: standard deviation per channel; ``None`` takes that of the training images.
        logits: Outputs of the network; 1 for two classes.
        timing: How inference is timed, if that is the experiment.
    """

    name: str
    title: str
    images: Images
    test: Images
    network: Network
    paper: str | None = None
    ood: tuple[Images, ...] = ()
    training: Training = Training()
    arms: tuple[Arm, ...] = (Arm(),)
    methods: tuple[str, ...] = TABLE
    seeds: int = 15
    snn_seeds: int | None = None
    members: int = 5
    deep_members: int = 10
    draws: int = 15
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    logits: int = 10
    timing: Timing | None = None

    def __post_init__(self) -> None:
        if len(set(self.methods)) != len(self.methods) or not self.methods:
            raise ValueError(f"Methods must be named once each, and one at least; got {self.methods}.")
        for method in self.methods:
            if not self.takes_points and not find_method(method).takes_intervals:
                raise ValueError(
                    f"{self.name} has interval inputs, which {label(method)} cannot take; choose among creinn and "
                    f"creinn-ensemble."
                )
            if find_method(method).kind == "bnn-l" and self.logits < 3:
                raise ValueError(f"{self.name} has two classes, and BNN-L is for three or more. Leave it out.")
        for name, value, least in (("seeds", self.seeds, 1), ("members", self.members, 1), ("draws", self.draws, 1)):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}.")

    @property
    def takes_points(self) -> bool:
        """Whether all inputs are points, which every method can take."""
        return all(shift is None for arm in self.arms for shift in (arm.train, *arm.tests))

    def runs(self, method: str) -> int:
        """Number of runs of a single method; what is not trained comes upon all runs of the SNN."""
        as_many = METHODS[method].kind == "snn" or not METHODS[method].trains
        return max(self.seeds, self.snn_seeds or 0) if as_many else self.seeds

    def ensemble_size(self, method: str) -> int:
        """Number of members of an ensemble method; never more than there are runs to draw from."""
        return min(self.deep_members if is_deep(method) else self.members, self.runs(base_method(method)))

    def options_of(self, method: str) -> dict[str, Any]:
        """Arguments of a single method's classifier: its own, and over them the experiment's."""
        return {**METHODS[method].options, **self.options.get(method, {})}
