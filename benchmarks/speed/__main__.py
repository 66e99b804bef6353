"""Speed and memory of every contender beside the ordinary network; prints tables, writes them and a record.

python -m benchmarks.speed --models resnet50-imagenet --batches 1,32 --parts inference,training,memory
"""

import dataclasses
import json
import re
import sys
from typing import Any

import torch
from benchmarks.speed import Settings, benchmark_markdown, run_benchmark

from creinn.cli.parsing import command_line, parse_options
from creinn.files import write_bytes
from creinn.report.provenance import provenance
from creinn.malloc import keep_freed_memory
from creinn.device import choose_device


def run(options: Settings) -> int:
    """Run the benchmark; record and tables are written after every cell, so that a stop loses little.

    Raises:
        ValueError: If an option is out of range or a name unknown.
        OSError: If the results cannot be written.
    """
    settings = dataclasses.replace(options.complete(), device=str(choose_device(options.device)))
    given = command_line("speed", options, leave_out=["out"]).removeprefix("creinn speed")
    origin = provenance(f"python -m benchmarks.speed{given}")

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


if __name__ == "__main__":
    keep_freed_memory()
    helps = dict(re.findall(r"^ {8}(\w+): (.*)", Settings.__doc__ or "", re.MULTILINE))
    sys.exit(run(parse_options(Settings, "python -m benchmarks.speed", sys.argv[1:], helps)))
