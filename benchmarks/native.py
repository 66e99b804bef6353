"""Compare the native product with torch and the folded ordinary network.

The script prints milliseconds per call, their ratios to the folded ordinary
network, bytes of weights, and the share of each kind of layer. It writes the
numbers as JSON after each cell.

    python -m benchmarks.native [--cells resnet50-imagenet:224:1 ...]
        [--rounds 15] [--seconds 10] [--threads 2] [--level AVX2] [--small]

With ``--level AVX2``, restrict torch to AVX2 as well:

    ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2
    MKL_ENABLE_INSTRUCTIONS=AVX2 ...
"""

import argparse
import dataclasses
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.architectures import FULL, SMALL, Architecture
from benchmarks.cells import cell_parser, command_line, plain
from benchmarks.contenders import FOLDED, Contenders
from benchmarks.memory import held_bytes, peak_bytes
from benchmarks.timing import interleaved, ratios
from creinn import compile, native
from creinn.files import write_bytes
from creinn.graph.folded import NativeFull
from creinn.malloc import keep_freed_memory
from creinn.native import kernel
from creinn.native.kernel import LEVELS
from creinn.report.provenance import provenance
from creinn.report.tables import text_table

SIZES = {"imagenet": 224, "cifar": 32}
CELLS = tuple(
    f"{network}-{stem}:{size}:{rows}"
    for rows in (1, 32, 128)
    for network in ("resnet18", "resnet50")
    for stem, size in SIZES.items()
)
BAR = 2.6
_FEW = 8


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = cell_parser(
        __doc__, CELLS, "NETWORK:SIZE:ROWS", 15, 10.0, Path("results/benchmarks/native.json")
    )
    parser.add_argument(
        "--level",
        choices=LEVELS,
        help="instructions of the library; by default the highest of the processor",
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    if options.level:
        kernel.best_level = LEVELS.index(options.level)
    level = LEVELS[kernel.best_level] if native.available else native.reason
    origin = {
        **provenance(command_line("benchmarks.native", arguments)),
        "configuration": plain(options),
        "level": level,
        "limits": {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("ONEDNN_", "ATEN_", "MKL_"))
        },
        "bar": BAR,
    }
    cells: list[dict[str, Any]] = []
    for cell in options.cells:
        name, size, rows = cell.split(":")
        network = (SMALL if options.small else FULL)[name]
        shaped = dataclasses.replace(network, shape=(3, int(size), int(size)))
        cells.append(
            {"cell": cell, "load_average": os.getloadavg()} | measure(shaped, int(rows), options)
        )
        print(table(cells[-1]), flush=True)
        write_bytes(options.out, (json.dumps({**origin, "cells": cells}, indent=2) + "\n").encode())
    return 0


@torch.no_grad()
def measure(architecture: Architecture, rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measure the times and the memory of a network."""
    contenders = Contenders(architecture)
    torch.manual_seed(0)
    x = architecture.inputs(rows)
    model: Any = contenders.model("creinn")
    forms, first = {}, {}
    for name, by_library in (("native", True), ("torch", False)):
        started = time.perf_counter()
        forms[name] = compile(model, x[:1], native=by_library)
        forms[name](x)
        first[name] = time.perf_counter() - started
    calls = {name: (lambda form=form: form(x)) for name, form in forms.items()}
    calls |= {name: contenders.call(name, x) for name in (FOLDED, f"{FOLDED}-channels-last")}
    found = interleaved(calls, options.rounds, seconds=options.seconds)
    few = x[:_FEW]
    for form in forms.values():
        form(few)  # the first call of a size allocates more
    return {
        "calls": {
            name: {**vars(timing), "ratio": ratios(timing, found[FOLDED])}
            for name, timing in found.items()
        },
        "compiled and called once, s": first,
        "held MB": {name: held_bytes(form) / 2**20 for name, form in forms.items()},
        "most alive in a call of few rows, MB": {
            name: peak_bytes(lambda form=form: form(few)) / 2**20 for name, form in forms.items()
        },
        "layers by torch": sum(part.block is not None for part in natives(forms["native"])),
        "shares": shares(forms["native"], x),
    }


def natives(form: torch.nn.Module) -> list[NativeFull]:
    """Return the layers that the library can compute."""
    return [part for part in form.modules() if isinstance(part, NativeFull)]


def shares(form: torch.nn.Module, x: torch.Tensor) -> dict[str, float]:
    """Return the shares of the time by kind of layer."""
    spent: Counter[str] = Counter()
    started: list[float] = []
    hooks = []
    for layer in natives(form):
        window = layer.window
        assert window is not None
        kind = f"{window.kernel[0]} x {window.kernel[1]}" + (
            ", strided" if window.stride != (1, 1) else ""
        )
        hooks.append(
            layer.register_forward_pre_hook(lambda *_: started.append(time.perf_counter()))
        )
        hooks.append(
            layer.register_forward_hook(
                lambda *_, kind=kind: spent.update({kind: time.perf_counter() - started.pop()})  # type: ignore[dict-item]
            )
        )
    begin = time.perf_counter()
    form(x)
    whole = time.perf_counter() - begin
    for hook in hooks:
        hook.remove()
    return {kind: seconds / whole for kind, seconds in spent.items()} | {
        "other": 1 - sum(spent.values()) / whole
    }


def table(cell: dict[str, Any]) -> str:
    """Return milliseconds and ratios of a cell."""
    rows = [
        {"cell": cell["cell"], "form": name, "ms": 1e3 * found["median"]} | found["ratio"]
        for name, found in cell["calls"].items()
    ]
    return text_table(rows, digits=2)


if __name__ == "__main__":
    sys.exit(main())
