"""``creinn experiment``: the paper's experiments, listed, run and reported; and ``creinn demo``, a small one.

What computes is imported where it is called, so that the list comes without torch.
"""

import json
import sys
from importlib.util import find_spec

from creinn.classifier.methods import label
from creinn.cli.options import DemoOptions, ListOptions, ReportOptions, RunOptions
from creinn.cli.parsing import command_line, options_yaml
from creinn.experiments.catalogue import EXPERIMENTS, experiment
from creinn.experiments.definition import Experiment, few_steps, tailor

CHANGES = (
    "methods",
    "ood",
    "seeds",
    "epochs",
    "batch_size",
    "width",
    "train_images",
    "test_images",
    "options",
)
"""Options of ``creinn experiment run`` that change the experiment."""


def demo(options: DemoOptions) -> int:
    """Run the demo, print its table, write ``report.html``, ``results.json`` and ``demo.yaml``."""
    for name in ("PIL", "plotly"):
        if find_spec(name) is None:
            needs = f"The demo needs {name}, which is not installed"
            raise ImportError(f"{needs}. Install it with: pip install creinn[report]")
    from creinn.experiments.demo import demo_experiment, run_demo, write_demo_page
    from creinn.files import write_bytes
    from creinn.report.provenance import provenance
    from creinn.report.tables import text_table

    chosen = demo_experiment(options.members, options.epochs, options.seed)
    write_bytes(
        options.out / "demo.yaml", options_yaml("demo", options).encode()
    )  # fails before the work if at all
    result = run_demo(chosen, options.jobs, options.progress)
    print(text_table(result.table()))
    origin = provenance(command_line("demo", options, leave_out=("out", "progress")))
    record = {
        **origin,
        "settings": dict(result.settings),
        "images": dict(result.sizes),
        "parameters": dict(result.parameters),
        "runs": {model: list(map(dict, runs)) for model, runs in result.runs.items()},
        "seconds": round(result.seconds, 1),
    }
    write_bytes(
        options.out / "results.json",
        (json.dumps(record, indent=2, allow_nan=False) + "\n").encode(),
    )
    page = write_demo_page(options.out / "report.html", result, origin)
    print(f"\n{result.seconds:.0f} s. The report: {page}")
    return 0


def list_experiments(options: ListOptions) -> int:
    """Print the experiments."""
    for name, one in EXPERIMENTS.items():
        size = f"{one.network.builder}, width {one.network.width}"
        if one.timing is None:
            images = one.images.count or "all"
            size += f"; {images} training images, {one.training.epochs} epochs, {one.seeds} runs"
        print(f"{name}\n    {one.title}\n    {size}; {', '.join(map(label, one.methods))}")
    return 0


def run(options: RunOptions) -> int:
    """Run an experiment, and say what was done."""
    chosen = resolve(options)
    from creinn.data.numerals import counted
    from creinn.experiments.run import run_experiment
    from creinn.files import write_bytes

    write_bytes(
        options.out / "work" / f"{options.name}.yaml",
        options_yaml("experiment run", options).encode(),
    )
    passed_on = ("jobs", "backend", "address", "threads", "device", "complete", "progress")
    how = {name: getattr(options, name) for name in passed_on}
    outcome = run_experiment(chosen, options.data, options.out, **how)
    print(
        f"{chosen.name}: {counted(outcome.total, 'piece')}, {len(outcome.done)} of them done now."
    )
    for piece, reason in outcome.failed.items():
        print(f"{piece} failed: {reason}", file=sys.stderr)
    if outcome.failed:
        print(
            "Run again to try the pieces that failed; work/failures has the details.",
            file=sys.stderr,
        )
        return 1
    print(f"For tables and figures: creinn experiment report {options.out}")
    return 0


def report(options: ReportOptions) -> int:
    """Write the report."""
    from creinn.experiments.report import write_report

    for path in write_report(options.directory):
        print(path)
    return 0


def resolve(options: RunOptions) -> Experiment:
    """The experiment with all that the options change."""
    chosen = tailor(experiment(options.name), **{name: getattr(options, name) for name in CHANGES})
    return chosen if options.steps is None else few_steps(chosen, options.steps)
