"""Compare rigorous bounds with exact members of small networks, and their cost.

Members at the corners and inside of the weight intervals are evaluated in ball
arithmetic with 400 bits (python-flint). A probability or logit is missed if it
is not proved to lie within the bounds. The networks contain linear layers,
convolutions, batch norm, residual sums, pooling and all activations. Their
weights and inputs are typical, without radii, cancelling, tiny, subnormal, huge
or mixed. The same members are counted for mode "sound", and for models with a
distance, where logits also move by up to the real radius.

    python -m benchmarks.rigorous [--outputs 1000000] [--rows 40]
        [--seconds 20] [--threads 1] [--out results/benchmarks/rigorous.json]
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the oracle

import creinn
from benchmarks.architectures import FULL
from benchmarks.timing import interleaved, ratios
from creinn import CreINN, models
from creinn import nn as inn
from creinn.files import write_bytes
from creinn.report.provenance import provenance
from creinn.report.tables import text_table
from rigorous_cases import KINDS, NETWORKS, count_misses, inputs_of, model_of, rigorous
from rigorous_distance import PLACES, with_distance
from rigorous_distance import count_misses as count_misses_with_distance

DTYPES = {"float32": torch.float32, "float64": torch.float64}
WIDTHS = (0.0, 1e-6, 1e-2)  # of inputs, relative
WIDE = ("mlp", "resnet8", "resnet20")
TIMED = (("mlp", 1), ("mlp", 256), ("resnet8", 16), ("resnet20", 32))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--outputs", type=int, default=1_000_000, help="probabilities of members, at least"
    )
    parser.add_argument("--rows", type=int, default=40, help="inputs of each network")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="after which no round of times begins"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/rigorous.json"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    times = [timed(name, rows, options.seconds) for name, rows in TIMED]
    print(
        text_table([{k: v for k, v in row.items() if not isinstance(v, dict)} for row in times]),
        flush=True,
    )
    widths = [width_of(name, options.rows) for name in WIDE]
    print(text_table(widths), flush=True)
    counts = list(counted(options.outputs, options.rows))
    far = list(counted_with_distance(options.outputs, options.rows))
    totals, far_totals = (
        {name: sum(row[name] for row in of) for name in _numbers(of[0])} for of in (counts, far)
    )
    by_kind, far_by_kind = ([_total(of, "kind", kind) for kind in KINDS] for of in (counts, far))
    print(text_table(by_kind), totals, text_table(far_by_kind), far_totals, sep="\n\n")
    command = "python -m benchmarks.rigorous " + shlex.join(
        sys.argv[1:] if arguments is None else arguments
    )
    configuration = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(options).items()
    }
    result = {
        **provenance(command.strip()),
        "configuration": configuration,
        "load_average": os.getloadavg(),
    }
    by_network = [_total(counts, "network", name) for name in NETWORKS]
    found = {
        "totals": totals,
        "by_kind": by_kind,
        "by_network": by_network,
        "times": times,
        "widths": widths,
    }
    found["with a distance"] = {"totals": far_totals, "by_kind": far_by_kind}
    write_bytes(options.out, (json.dumps({**result, **found}, indent=2) + "\n").encode())
    missed = [
        of[name]
        for of in (totals, far_totals)
        for name in of
        if "missed" in name and "sound" not in name
    ]
    return int(sum(missed) > 0)


def counted(outputs: int, rows: int) -> Iterator[dict[str, Any]]:
    """Count missed numbers until there are enough outputs."""
    done, seed = 0, 0
    while done < outputs:
        for name in NETWORKS:
            for kind in KINDS:
                dtype = "float64" if (seed + len(name)) % 3 == 0 else "float32"
                model, width = model_of(name, kind, seed, DTYPES[dtype]), WIDTHS[seed % 3]
                x = inputs_of(name, kind, rows, seed, DTYPES[dtype], width)
                forms = (rigorous(model), model, creinn.compile(model))
                found = count_misses(model, x, seed, forms)
                done, seed = done + found.probabilities, seed + 1
                yield {
                    "network": name, "kind": kind, "dtype": dtype, "width": width, "probabilities": found.probabilities,
                    "logits": found.logits, "missed": found.missed[0], "logits missed": found.logits_missed,
                    "sound missed": found.missed[1], "sound missed, compiled": found.missed[2], "rows": len(x),
                    "vacuous rows": found.vacuous[0],
                    "narrow rows": int((found.widths[0] < 1e-2).sum()),
                }  # fmt: skip
        print(f"{done} probabilities", flush=True)


def counted_with_distance(outputs: int, rows: int) -> Iterator[dict[str, Any]]:
    """Count the same for models with a distance."""
    done, seed = 0, 0
    while done < outputs:
        for name in PLACES:
            for kind in KINDS:
                dtype, width = "float64" if seed % 2 else "float32", WIDTHS[seed % 3]
                model = with_distance(name, kind, seed, DTYPES[dtype])
                x = inputs_of(name, kind, rows, seed, DTYPES[dtype], width)
                count, missed, _ = count_misses_with_distance(
                    model, x, (rigorous(model), model), seed
                )
                done, seed = done + count, seed + 1
                names = "missed", "sound missed"
                yield {
                    "network": name,
                    "kind": kind,
                    "probabilities": count,
                    **dict(zip(names, missed, strict=True)),
                }
        print(f"{done} probabilities with a distance", flush=True)


def _numbers(row: dict[str, Any]) -> list[str]:
    return [name for name in row if isinstance(row[name], int)]


def _total(counts: Sequence[dict[str, Any]], by: str, value: str) -> dict[str, Any]:
    rows = [row for row in counts if row[by] == value]
    return {by: value} | {name: sum(row[name] for row in rows) for name in _numbers(rows[0])}


def timed(name: str, rows: int, seconds: float) -> dict[str, Any]:
    """Measure the rigorous, the sound and the compiled sound form."""
    torch.manual_seed(0)
    network = FULL[name].build(inn) if name in FULL else models.BUILDERS[name](num_classes=10)
    x = torch.rand(rows, *(FULL[name].shape if name in FULL else (3, 32, 32)))
    sound = CreINN(inn.scale_radii_(network, 1e-2), mode="sound").eval()
    forms: dict[str, Any] = {
        "sound": sound,
        "sound, compiled": creinn.compile(sound, x, torch.channels_last),
        "rigorous": rigorous(sound),
    }
    calls = {key: (lambda form=form: form(x)) for key, form in forms.items()}
    with torch.no_grad():
        found = interleaved(calls, 100, seconds=seconds)
    plain = ratios(found["rigorous"], found["sound"])
    compiled = ratios(found["rigorous"], found["sound, compiled"])
    return {
        "network": name, "rows": rows,
        "to sound, processor": plain["processor"],
        "to sound compiled, processor": compiled["processor"],
        "seconds": {key: asdict(timing) for key, timing in found.items()},
        "ratios": {"sound": plain, "compiled": compiled},
    }  # fmt: skip


@torch.no_grad()
def width_of(name: str, rows: int) -> dict[str, Any]:
    """Compute the mean widths of sets that rounding alone causes."""
    torch.manual_seed(0)
    network = (
        models.mlp(784, 10, hidden=(512, 512))
        if name == "mlp"
        else models.BUILDERS[name](num_classes=10)
    )
    shape = (784,) if name == "mlp" else (3, 32, 32)
    for _ in range(20):
        network(torch.rand(16, *shape))
    model = CreINN(inn.scale_radii_(network, 1e-16), mode="sound").eval()
    x, found = torch.rand(rows, *shape), {"network": name}
    for dtype in DTYPES.values():
        form = rigorous(model.to(dtype))
        found[str(dtype).removeprefix("torch.")] = float(form(x.to(dtype)).width.mean())
    return found | {"sound, float64": float(model(x.double()).width.mean())}


if __name__ == "__main__":
    sys.exit(main())
