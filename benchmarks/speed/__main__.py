"""Speed and memory of every contender beside the ordinary network; prints tables, writes them and a record.

python -m benchmarks.speed --models resnet50-imagenet --batches 1,32 --parts inference,training,memory
"""

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from benchmarks.speed import benchmark_markdown, resolve_settings, run_benchmark

from creinn.allocation import keep_freed_memory
from creinn.cli.parsing import parse_options
from creinn.files import write_bytes
from creinn.report.provenance import provenance
from creinn.training.loop import choose_device


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """Measure speed and memory beside the ordinary network; on two quiet cores about twenty minutes.

    Args:
        quick: Small networks and few rounds: a first look, in about a minute.
        models: Networks, for example resnet50,mlp or resnet50-imagenet; all if none are given.
        batches: Rows of an inference call; 1,32,128 if none are given.
        contenders: For example snn,snn-folded,creinn-compiled; all if none are given.
        parts: Of inference, training, memory, scaling; all if none are given.
        rounds: Turns of each contender at most.
        seconds: Time after which a cell, one model and batch, ends; not before three rounds.
        limit: Seconds; a contender whose one call takes longer is left out of the cell, and the table says so.
        training_batch: Rows of a training step.
        threads: Threads of torch; its own choice if none is given.
        device: Where to compute: cpu, cuda, cuda:1, or auto for a GPU if there is one.
        out: File of the record; the tables stand beside it, in a file that ends with .md.
    """

    quick: bool = False
    models: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    contenders: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    rounds: int | None = None
    seconds: float | None = None
    limit: float | None = None
    training_batch: int | None = None
    threads: int | None = None
    device: str = "cpu"
    out: Path = Path("results/benchmarks/speed.json")


def run(options: BenchmarkOptions) -> int:
    """Run the benchmark; record and tables are written after every cell, so that a stop loses little.

    Raises:
        ValueError: If an option is out of range or a name unknown.
        OSError: If the results cannot be written.
    """
    names = ("quick", "models", "batches", "contenders", "parts", "rounds", "seconds", "limit", "training_batch")
    chosen = {name: getattr(options, name) for name in names}
    settings = resolve_settings(**chosen, device=str(choose_device(options.device)))
    if options.out.suffix == ".md":
        raise ValueError(f"--out names the record, a JSON file, but is {options.out}. The tables go beside it.")
    if options.threads is not None and options.threads < 1:
        raise ValueError(f"threads must be at least 1, got {options.threads}.")
    origin = provenance(_command(options))

    def write(record: dict[str, Any], finished: bool) -> str:
        whole = {**origin, "finished": finished, **record}
        text = benchmark_markdown(record)
        if not finished:
            text += "\nThis run is not finished.\n"
        write_bytes(options.out, (json.dumps(whole, indent=2, allow_nan=False) + "\n").encode())
        write_bytes(options.out.with_suffix(".md"), text.encode())
        return text

    def tell(cell: str, record: dict[str, Any]) -> None:
        print(cell, file=sys.stderr, flush=True)
        write(record, finished=False)

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(options.threads or threads)
        print(write(run_benchmark(settings, tell), finished=True))
    finally:
        torch.set_num_threads(threads)
    print(f"{options.out}\n{options.out.with_suffix('.md')}")
    return 0


def _command(options: BenchmarkOptions) -> str:
    """What to type for the same measurement; where it is written does not matter to it."""
    given = []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.name == "out" or value == field.default:
            continue
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        given.append("--quick" if field.name == "quick" else f"--{field.name.replace('_', '-')} {text}")
    return " ".join(["python -m benchmarks.speed", *given])


if __name__ == "__main__":
    keep_freed_memory()
    sys.exit(run(parse_options(BenchmarkOptions, "python -m benchmarks.speed", sys.argv[1:])))
