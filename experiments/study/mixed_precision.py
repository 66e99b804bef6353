"""Compare loss and time of one epoch of training in float32 and in bfloat16.

python -m experiments.study.mixed_precision --data DIR --out FILE
"""

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path

from creinn.files import write_bytes
from creinn.report.provenance import provenance
from experiments.catalogue import experiment
from experiments.definition import with_overrides
from experiments.run import RunConfig, run_experiment


def compare(data: Path, images: int, methods: list[str]) -> list[dict]:
    rows = []
    for mixed in (False, True):
        chosen = with_overrides(
            experiment("cifar10-svhn-resnet50"),
            methods=methods,
            epochs=1,
            train_images=images,
            test_images=64,
        )
        chosen = replace(chosen, training=replace(chosen.training, mixed_precision=mixed))
        with tempfile.TemporaryDirectory() as out:
            run_experiment(chosen, data, out, RunConfig(progress=False))
            for path in sorted((Path(out) / "work" / "records").glob("train-*.json")):
                record = json.loads(path.read_text())
                rows.append(
                    {"method": record["method"], "mixed_precision": mixed, **record["history"][-1]}
                )
                print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/study/mixed_precision.json"))
    parser.add_argument("--images", type=int, default=6000)
    parser.add_argument("--methods", nargs="+", default=["snn", "creinn"])
    options = parser.parse_args()
    record = {
        **provenance(f"python -m experiments.study.mixed_precision --images {options.images}"),
        "rows": compare(options.data, options.images, options.methods),
    }
    write_bytes(options.out, (json.dumps(record, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
