"""``creinn demo``: train and compare six classifiers on embedded data, print one table, write a report."""

import json
from dataclasses import dataclass
from pathlib import Path

from creinn.cli.parsing import command_line, options_yaml


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Compare CreINNs and their ensembles with ordinary networks on handwritten digits; takes one or two minutes.

    Args:
        out: Folder for report.html and results.json; demo.yaml in it holds all options that were used.
        members: Members of the CreINN ensembles; the Deep Ensemble has twice as many.
        epochs: Passes over the training images.
        seed: Decides everything random.
        jobs: Networks that are trained at the same time; the result does not depend on it.
        progress: Whether to show a progress bar.
    """

    out: Path = Path("demo")
    members: int = 5
    epochs: int = 40
    seed: int = 0
    jobs: int = 2
    progress: bool = True


def run(options: DemoOptions) -> int:
    """Run the study, print its table, write ``report.html``, ``results.json`` and ``demo.yaml``.

    Raises:
        ImportError: If an optional dependency is missing.
        ValueError: If an option is out of range.
        OSError: If the results cannot be written.
    """
    _check_dependencies()
    from creinn.experiments.demo import demo_experiment, run_demo, write_demo_page
    from creinn.files import write_bytes
    from creinn.report.provenance import provenance
    from creinn.report.tables import text_table

    experiment = demo_experiment(options.members, options.epochs, options.seed)
    out = Path(options.out)
    write_bytes(out / "demo.yaml", options_yaml("demo", options).encode())  # fails before the work if it must fail
    result = run_demo(experiment, options.jobs, options.progress)
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
    write_bytes(out / "results.json", (json.dumps(record, indent=2, allow_nan=False) + "\n").encode())
    page = write_demo_page(out / "report.html", result, origin)
    print(f"\n{result.seconds:.0f} s. The report: {page}")
    return 0


def _check_dependencies() -> None:
    """Ask for what is missing before any work is done."""
    try:
        import PIL
        import plotly
    except ImportError as error:
        raise ImportError(
            f"The demo needs {error.name}, which is not installed. Install it with: pip install creinn[report]"
        ) from error
    del PIL, plotly
