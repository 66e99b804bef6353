"""An experiment with other settings: fewer seeds or epochs, other methods, smaller data; or a few steps of everything.

Importing this file does not load torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from creinn.classifier.methods import METHODS
from creinn.experiments.definition import Experiment, Images

STEPS_TEST_IMAGES = 64


def tailor(
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
) -> Experiment:
    """Change what is given; the rest stays.

    Args:
        experiment: Where to start from.
        methods: Methods instead of its own.
        ood: Names of out-of-distribution sets instead of its own; brought to the shape of its test images.
        seeds: Runs of each method, also of those that fill ensembles.
        epochs: Passes over the training images; the learning rate falls after the same shares of them.
        batch_size: Images per step.
        width: Channels of the first stage of the network.
        train_images: Training and validation images that are drawn.
        test_images: Test images that are drawn; out-of-distribution sets shrink in proportion.
        options: Further arguments of classifiers, by single method; in place of the experiment's own for that method.

    Raises:
        ValueError: If a value is out of range, or a method unknown or not fit for the experiment.
    """
    numbers = {"seeds": seeds, "epochs": epochs, "batch_size": batch_size, "width": width}
    numbers |= {"train_images": train_images, "test_images": test_images}
    for name, value in numbers.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    if options:
        for method in options:
            if method not in METHODS:
                raise ValueError(f"Options are for single methods, {', '.join(METHODS)}; {method!r} is none of them.")
        experiment = replace(experiment, options={**experiment.options, **options})
    if methods:
        experiment = replace(experiment, methods=tuple(methods))
    if ood:
        experiment = replace(experiment, ood=tuple(_alike(name, experiment) for name in ood))
    if seeds is not None:
        experiment = replace(experiment, seeds=seeds, snn_seeds=None)
    training = experiment.training
    if epochs is not None:
        milestones = {max(1, round(m * epochs / training.epochs)) for m in training.milestones}
        training = replace(training, epochs=epochs, milestones=tuple(sorted(milestones)))
    if batch_size is not None:
        training = replace(training, batch_size=batch_size)
    experiment = replace(experiment, training=training)
    if width is not None:
        experiment = replace(experiment, network=replace(experiment.network, width=width))
    if train_images is not None:
        experiment = replace(experiment, images=replace(experiment.images, count=train_images))
    return experiment if test_images is None else _fewer_tests(experiment, test_images)


def few_steps(experiment: Experiment, steps: int) -> Experiment:
    """The experiment cut down to ``steps`` steps of its own size for one run of each method, and few test images.

    Network, batch size and methods are as they were, so that this shows whether they run.

    Raises:
        ValueError: If ``steps`` is less than 1.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}.")
    training = replace(experiment.training, epochs=1, milestones=())
    rows = round(steps * training.batch_size / (1 - training.validation))
    return replace(
        experiment,
        images=replace(experiment.images, count=rows),
        test=replace(experiment.test, count=STEPS_TEST_IMAGES),
        ood=tuple(replace(images, count=STEPS_TEST_IMAGES) for images in experiment.ood),
        training=training,
        seeds=1,
        snn_seeds=None,
        timing=None if experiment.timing is None else replace(experiment.timing, rounds=steps),
    )


def _alike(name: str, experiment: Experiment) -> Images:
    """A set in the shape of the experiment's test images; of known sizes where those are left as they are."""
    test = experiment.test
    size = test.size or (28 if "mnist" in test.name else 32)
    channels = test.channels or (1 if "mnist" in test.name else 3)
    count = next((images.count for images in experiment.ood), test.count)
    return Images(name=name, split="test", size=size, channels=channels, count=count, seed=test.seed)


def _fewer_tests(experiment: Experiment, count: int) -> Experiment:
    before = experiment.test.count

    def share(images: Images) -> int | None:
        return round(images.count * count / before) if before and images.count else count

    return replace(
        experiment,
        test=replace(experiment.test, count=count),
        ood=tuple(replace(images, count=share(images)) for images in experiment.ood),
    )
