"""The paper's experiments: list them, run them (resumable), report them beside the published numbers."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from creinn.classifier.methods import label
from creinn.cli.parsing import POSITIONAL, options_yaml
from creinn.experiments.catalogue import EXPERIMENTS, experiment
from creinn.experiments.definition import Experiment, few_steps, tailor


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """List the experiments with their size."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Run an experiment: what is not yet recorded in the folder of results. Run it again to go on after a stop.

    Args:
        name: Name of the experiment; see creinn experiment list.
        data: Folder of the data sets.
        out: Folder of the results; experiments that share it share their trained networks.
        jobs: Processes that work at the same time, each with its share of the cores.
        device: Where to compute: cpu, cuda, cuda:1, or auto for a GPU if there is one.
        methods: Methods instead of those of the experiment, for example snn,creinn,bnn-r,bnn-r-ensemble.
        ood: Out-of-distribution sets instead of those of the experiment, for example mnist,cifar10.
        seeds: Runs of each method.
        epochs: Passes over the training images; the learning rate falls after the same shares of them.
        batch_size: Images per step.
        width: Channels of the first stage of the network.
        train_images: Training and validation images that are drawn.
        test_images: Test images that are drawn.
        options: Further arguments of a method's classifier, by method, for example {bnn-r: {kl_weight: 0.1}}.
        steps: Only show that the experiment runs: so many steps of its own size, one run, few test images.
        complete: Insist on whole copies of the published data sets.
        progress: Show a progress bar.
    """

    name: str = field(metadata=POSITIONAL)
    data: Path
    out: Path
    jobs: int = 1
    device: str = "cpu"
    methods: tuple[str, ...] = ()
    ood: tuple[str, ...] = ()
    seeds: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    width: int | None = None
    train_images: int | None = None
    test_images: int | None = None
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    steps: int | None = None
    complete: bool = True
    progress: bool = True


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Write report.md and report.html: tables and figures of the paper, ours beside the published ones.

    Args:
        directory: Folder of the results.
    """

    directory: Path = field(metadata=POSITIONAL)


def list_experiments(options: ListOptions) -> int:
    """Print the experiments."""
    for name, one in EXPERIMENTS.items():
        print(f"{name}\n    {one.title}\n    {_size(one)}")
    return 0


def run(options: RunOptions) -> int:
    """Run an experiment, and say what was done.

    Raises:
        ValueError: If the experiment is unknown, or settings or data do not fit.
        OSError: If data are not found, or results cannot be written.
    """
    chosen = resolve(options)
    from creinn.data.tables.columns import counted
    from creinn.experiments.run import run_experiment
    from creinn.files import write_bytes

    write_bytes(options.out / "work" / f"{options.name}.yaml", options_yaml("experiment run", options).encode())
    outcome = run_experiment(
        chosen,
        options.data,
        options.out,
        jobs=options.jobs,
        device=options.device,
        complete=options.complete,
        progress=options.progress,
    )
    print(f"{chosen.name}: {counted(outcome.total, 'piece')}, {len(outcome.done)} of them done now.")
    for piece, reason in outcome.failed.items():
        print(f"{piece} failed: {reason}", file=sys.stderr)
    if outcome.failed:
        print("Run again to try the pieces that failed; work/failures has the details.", file=sys.stderr)
        return 1
    print(f"For tables and figures: creinn experiment report {options.out}")
    return 0


def report(options: ReportOptions) -> int:
    """Write the report.

    Raises:
        ValueError: If there are no results, or a record is damaged.
        OSError: If the report cannot be written.
    """
    from creinn.experiments.report import write_report

    for path in write_report(options.directory):
        print(path)
    return 0


def resolve(options: RunOptions) -> Experiment:
    """The experiment with all that the options change.

    Raises:
        ValueError: If the experiment is unknown, or a setting does not fit.
    """
    chosen = tailor(
        experiment(options.name),
        methods=options.methods,
        ood=options.ood,
        seeds=options.seeds,
        epochs=options.epochs,
        batch_size=options.batch_size,
        width=options.width,
        train_images=options.train_images,
        test_images=options.test_images,
        options=options.options,
    )
    return chosen if options.steps is None else few_steps(chosen, options.steps)


ACTIONS: dict[str, Callable[[Any], int]] = {"list": list_experiments, "run": run, "report": report}


def _size(one: Experiment) -> str:
    methods = ", ".join(label(method) for method in one.methods)
    network = f"{one.network.builder}, width {one.network.width}"
    if one.timing is not None:
        return f"{network}; {methods}"
    images = one.images.count or "all"
    return f"{network}; {images} training images, {one.training.epochs} epochs, {one.seeds} runs; {methods}"
