"""``creinn demo``: train the classifiers of the demo and write its report."""

import json
from importlib.util import find_spec

from creinn.cli.options import DemoOptions
from creinn.cli.parsing import command_line, options_yaml


def demo(options: DemoOptions) -> int:
    """Run the demo, print its table, write ``report.html``, ``results.json`` and ``demo.yaml``."""
    for name in ("PIL", "plotly"):
        if find_spec(name) is None:
            raise ImportError(
                f"The demo requires {name}. Install it with: pip install creinn[report]"
            )
    from creinn.demo.page import write_demo_page
    from creinn.demo.training import DemoConfig, run_demo
    from creinn.files import write_bytes
    from creinn.report.provenance import provenance
    from creinn.report.tables import text_table

    names = ("members", "epochs", "seed", "jobs", "progress")
    config = DemoConfig(**{name: getattr(options, name) for name in names})
    # The first file is written before the training, so a bad directory is found early.
    write_bytes(options.out / "demo.yaml", options_yaml("demo", options).encode())
    result = run_demo(config)
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
    text = json.dumps(record, indent=2, allow_nan=False) + "\n"
    write_bytes(options.out / "results.json", text.encode())
    page = write_demo_page(options.out / "report.html", result, origin)
    print(f"\n{result.seconds:.0f} s. The report: {page}")
    return 0
