"""Command line: ``python -m experiments list | run | report``.

Commands import torch only if they need it. The exit codes are those of
:mod:`creinn.cli.main`.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from creinn.classifier.methods import label
from experiments.catalogue import EXPERIMENTS, experiment
from experiments.definition import Experiment, smoke_test, with_overrides

OVERRIDES = (
    *("methods", "ood", "seeds", "epochs", "batch_size", "width"),
    *("train_images", "test_images", "options", "mixed_precision"),
)
"""Options of ``run`` that change the experiment."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser, run_parser = _parsers()
    try:
        options = parser.parse_args(arguments)
        if getattr(options, "config", None) is not None:
            run_parser.set_defaults(**_read_config(options.config, run_parser))
            options = parser.parse_args(arguments)
        if options.command is run and None in (options.data, options.out):
            run_parser.error("--data and --out are required")
        return options.command(options)
    except SystemExit as stopped:  # --help, or an invalid command line
        return int(stopped.code or 0)
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        print(f"experiments: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("experiments: stopped.", file=sys.stderr)
        return 130


def list_experiments(_: argparse.Namespace) -> int:
    """Print the experiments."""
    for name, one in EXPERIMENTS.items():
        size = f"{one.network.builder}, width {one.network.width}"
        if one.timing is None:
            images = one.images.count or "all"
            size += f"; {images} training images, {one.training.epochs} epochs, {one.seeds} runs"
        print(f"{name}\n    {one.title}\n    {size}; {', '.join(map(label, one.methods))}")
    return 0


def run(options: argparse.Namespace) -> int:
    """Run an experiment and print a summary."""
    chosen = resolve(options)
    from creinn.files import write_bytes
    from experiments.run import RunConfig, run_experiment

    write_bytes(options.out / "work" / f"{options.name}.yaml", _options_yaml(options).encode())
    names = (field.name for field in dataclasses.fields(RunConfig))
    config = RunConfig(**{name: getattr(options, name) for name in names})
    outcome = run_experiment(chosen, options.data, options.out, config)
    print(f"{chosen.name}: {outcome.total} tasks, {len(outcome.done)} completed by this run.")
    for task, reason in outcome.failed.items():
        print(f"{task} failed: {reason}", file=sys.stderr)
    if outcome.failed:
        print("Run again to repeat the failed tasks; see work/failures.", file=sys.stderr)
        return 1
    print(f"For tables and figures: python -m experiments report {options.out}")
    return 0


def report(options: argparse.Namespace) -> int:
    """Write the report."""
    from experiments.report import write_report

    for path in write_report(options.directory):
        print(path)
    return 0


def resolve(options: argparse.Namespace) -> Experiment:
    """Return the experiment with the given options."""
    changes = {name: getattr(options, name) for name in OVERRIDES}
    chosen = with_overrides(experiment(options.name), **changes)
    return chosen if options.steps is None else smoke_test(chosen, options.steps)


def _parsers() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="The experiments of the paper: list, run and report them.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="list the experiments with their sizes")
    listing.set_defaults(command=list_experiments)
    running = commands.add_parser(
        "run",
        help="run an experiment; run it again to continue",
        description="Run all tasks of an experiment that have no record in --out yet.",
        allow_abbrev=False,
    )
    running.set_defaults(command=run)
    running.add_argument("name", help="name of the experiment; see list")
    _add_run_options(running)
    reporting = commands.add_parser(
        "report", help="write report.md and report.html, with the published values beside ours"
    )
    reporting.add_argument("directory", type=Path, help="directory of the results")
    reporting.set_defaults(command=report)
    return parser, running


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("data and results").add_argument
    add("--data", type=Path, help="directory of the data sets")
    add("--out", type=Path, help="directory of the results; experiments share trained networks")
    add("--no-complete", dest="complete", action="store_false", help="accept partial data sets")
    add("--config", type=Path, help="YAML file with any of these options")
    add = parser.add_argument_group("execution").add_argument
    add("--jobs", type=int, default=1, help="processes on this machine")
    add("--backend", choices=("loky", "dask", "ray"), default="loky", help="default: loky")
    add("--address", help="Dask scheduler (tcp://HOST:8786) or Ray cluster (auto, HOST:6379)")
    add("--threads", type=int, help="torch threads per worker")
    add("--device", default="cpu", help="cpu, cuda, cuda:1, or auto")
    add("--no-progress", dest="progress", action="store_false", help="hide the progress bar")
    add = parser.add_argument_group("changes to the experiment").add_argument
    add("--methods", type=_names, default=(), help="for example snn,creinn,bnn-r-ensemble")
    add("--options", type=yaml.safe_load, help="by method: '{bnn-r: {kl_weight: 0.1}}'")
    add("--ood", type=_names, default=(), help="out-of-distribution sets: mnist,cifar10")
    add("--seeds", type=int, help="runs of each method")
    add("--epochs", type=int, help="epochs; milestones keep their relative positions")
    add("--batch-size", type=int, help="images per step")
    add("--width", type=int, help="channels of the first stage of the network")
    add("--train-images", type=int, help="number of training and validation images")
    add("--test-images", type=int, help="number of test images")
    add(
        "--mixed-precision",
        action=argparse.BooleanOptionalAction,
        help="train in bfloat16 on a CPU; use it if the processor has bfloat16 instructions",
    )
    add("--steps", type=int, help="smoke test: this number of training steps, one run")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _read_config(path: Path, parser: argparse.ArgumentParser) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    known = {action.dest for action in parser._actions} - {"help", "config", "name"}
    if not isinstance(found, dict) or (strange := sorted({*found} - known - {"name"})):
        what = strange if isinstance(found, dict) else type(found).__name__
        raise ValueError(f"{path}: unknown options {what}; the options are {sorted(known)}.")
    for name in ("data", "out"):
        if found.get(name) is not None:
            found[name] = Path(found[name])
    for name in ("methods", "ood"):
        found[name] = tuple(found.get(name) or ())
    return {name: value for name, value in found.items() if name in known}


def _options_yaml(options: argparse.Namespace) -> str:
    values = {k: v for k, v in vars(options).items() if k not in ("command", "config")}
    values |= {"data": str(options.data), "out": str(options.out)}
    values |= {"methods": list(options.methods), "ood": list(options.ood)}
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None)
    return f"# again: python -m experiments run {options.name} --config THIS_FILE\n{text}"
