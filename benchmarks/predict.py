"""Compare ``model.predict`` with compiled, plain and ordinary networks.

The script prints milliseconds per call, their ratios to the compiled form and
to the ordinary network, the time of the first calls, and the memory of the
cache. It writes the numbers as JSON.

    python -m benchmarks.predict [--cells resnet50-imagenet:1 ...]
        [--rounds 20] [--seconds 60] [--threads 2] [--small] [--out FILE]
"""

import argparse
import itertools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.architectures import FULL, SMALL, Architecture
from benchmarks.cells import cell_parser, command_line, plain
from benchmarks.contenders import Contenders
from benchmarks.timing import interleaved, ratios, seconds_of
from creinn.classifier import compile_cache
from creinn.files import write_bytes
from creinn.report.provenance import provenance
from creinn.report.tables import text_table

CELLS = (
    "resnet50-imagenet:1",
    "resnet18-imagenet:1",
    "resnet18-imagenet:32",
    "resnet18-cifar:32",
    "mlp:1",
)


ORDINARY = "ordinary network, predict"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = cell_parser(
        __doc__, CELLS, "NETWORK:ROWS", 20, 60.0, Path("results/benchmarks/predict.json")
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    rows = []
    for cell in options.cells:
        name, count = cell.split(":")
        rows.append(
            {"cell": cell} | measure((SMALL if options.small else FULL)[name], int(count), options)
        )
    calls = [
        {
            "cell": row["cell"],
            "call": name,
            **{f"{kind} ms": 1e3 * found[kind] for kind in ("median", "least")},
        }
        | {
            "to compiled": found["to_compiled"]["median"],
            "to ordinary": found["to_ordinary"]["median"],
            "by processor": found["to_ordinary"]["processor"],
        }
        for row in rows
        for name, found in row["calls"].items()
    ]
    once = [{name: value for name, value in row.items() if name != "calls"} for row in rows]
    print(text_table(calls), text_table(once), sep="\n\n")
    result = {
        **provenance(command_line("benchmarks.predict", arguments)),
        "configuration": plain(options),
        "load_average": os.getloadavg(),
    }
    write_bytes(options.out, (json.dumps({**result, "cells": rows}, indent=2) + "\n").encode())
    return 0


def measure(architecture: Architecture, rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measure the times of all forms, and the bytes of weights and cache."""
    contenders = Contenders(architecture)
    torch.manual_seed(0)
    x = architecture.inputs(rows)
    model: Any = contenders.model("creinn")
    plain: Any = Contenders(architecture).model("creinn")
    plain.uses_compile_cache = False
    ordinary, compiled = contenders.model("snn"), contenders.model("creinn-compiled")
    distant = contenders.model("creinn-d")
    plain.predict(x)  # asks the network once what it gives
    seconds = {
        "plain call": seconds_of(lambda: plain.predict(x))[0],
        "first call": seconds_of(lambda: model.predict(x))[0],
        "second call": seconds_of(lambda: model.predict(x))[0],
    }
    form = compile_cache._ENTRIES[model].compiled
    found = interleaved(
        {
            ORDINARY: lambda: ordinary.predict(x),
            "CreINN-D, predict": lambda: distant.predict(x),
            "plain, predict": lambda: plain.predict(x),
            "predict": lambda: model.predict(x),
            "compiled, predict": lambda: compiled.predict(x),
            "compiled, called": lambda: compiled(x),
        },
        options.rounds,
        seconds=options.seconds,
    )
    reference = found["compiled, predict"]
    calls = {
        name: vars(timing)
        | {"to_compiled": ratios(timing, reference)}
        | {"to_ordinary": ratios(timing, found[ORDINARY])}
        for name, timing in found.items()
    }
    megabytes = {"weights MB": _megabytes(model), "kept MB": _megabytes(form)}
    return {"calls": calls, **{f"{name}, s": value for name, value in seconds.items()}, **megabytes}


def _megabytes(model: torch.nn.Module) -> float:
    return (
        sum(tensor.nbytes for tensor in itertools.chain(model.parameters(), model.buffers()))
        / 2**20
    )


if __name__ == "__main__":
    sys.exit(main())
