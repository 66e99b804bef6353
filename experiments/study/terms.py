"""Compare other ways to combine the terms of the distance, and other scales.

The networks are a frozen network (five splits, with the features of ``pretrained``) and three small
networks that are
trained on eight classes of CIFAR-10. A way to combine the terms gives one number per row. Its score
is the AUROC of
classes that were left out (near) and of Fashion-MNIST (far). The score of a scale is the AUROC of
the total
uncertainty on both, together with its cost on test images. No other foreign data set is used.

    python -m experiments.study.pretrained --data DIR
    python -m experiments.study.terms --data DIR [--work DIR] [--to results/study/terms.json]
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from creinn import CreINN
from creinn.classifier.network import outputs_and_logits
from creinn.distance.feature_layers import HEAD, pooled
from creinn.distance.radius import FAR_WEIGHT, NUM_NEAR_LAYERS, _median_and_spread
from creinn.evaluation import auarc, ood_detection, summary
from creinn.report.provenance import provenance
from experiments.catalogue import EXPERIMENTS
from experiments.definition import Images, with_overrides
from experiments.plan import make_plan
from experiments.preparation import divide, network_inputs, prepare_all
from experiments.run import run_experiment
from experiments.store import Store, write_json
from experiments.study import features
from experiments.study.features import Kept, Sets
from experiments.study.pretrained import SPLITS, best_head, divided
from experiments.tasks import RunContext

FAR = "Fashion-MNIST"
DECAY = 3e-3  # weight decay of the head, as found by experiments.study.pretrained
SCALES = (0.0, 0.003, 0.01, 0.03, 0.1)
NETWORKS = 3  # small networks
QUANTILES = (
    0.02,
    0.16,
    0.5,
    0.75,
    0.9,
    0.95,
)  # share of held-out rows; the tail is exponential


def frozen(work: Path) -> Iterator[tuple[CreINN, Sets, Tensor]]:
    """Yield a model for each split, the rows of all sets and the classes of the test rows."""
    widths = features.read_widths(work)
    for split in SPLITS:
        x, y = divided(split, work, (FAR,))
        _, weight, bias = best_head(x, y, 10 - len(split), widths[HEAD], DECAY)
        yield features.with_distance(Kept(widths, weight, bias), x, y), x, y["test"]


def small(data: Path, work: Path) -> Iterator[tuple[CreINN, Sets, Tensor]]:
    """Yield the same for small networks, which are trained if they do not exist."""
    experiment = with_overrides(
        EXPERIMENTS["near-cifar10"], methods=("snn-norm", "creinn-d"), seeds=NETWORKS
    )
    foreign = *experiment.ood, Images(name="fashion-mnist", size=32, channels=3, count=2000)
    experiment = replace(experiment, ood=foreign)
    run_experiment(experiment, data, work)
    store = Store(work.absolute())
    sources = prepare_all(experiment, data, store.out / "work" / "data")
    context = RunContext(experiment, sources, store, "python -m experiments.study.terms")
    _, held_out = divide(sources.train.read(), experiment.training)
    images = {"held-out": held_out, "test": sources.test.read()}
    images |= dict(zip(("near", FAR), (source.read() for source in sources.ood), strict=True))
    for task in make_plan(experiment, sources.identities):
        if task.kind == "train" and task.method == "creinn-d":
            model, normalise = context.trained(task)
            x = {name: network_inputs(of, None, normalise) for name, of in images.items()}
            model.eval().predict(x["test"][:2])  # finds the feature layers
            yield model, x, torch.as_tensor(images["test"].labels)


@torch.no_grad()
def terms_of(model: Any, rows: Tensor) -> Tensor:
    """Compute all terms of the distance in units of their spread."""
    outputs = [
        outputs_and_logits(model.network, part, model.feature_layers)[0]
        for part in rows.split(1000)
    ]
    places = [torch.cat([pooled(output) for output in of]) for of in zip(*outputs, strict=True)]
    radius = model.distance_radius
    return (radius._terms(places) - radius.medians) / radius.spreads


def ways_of(z: Sets) -> dict[str, Sets]:
    """Compute the combinations of the terms for each row of each set."""
    count = 2 * NUM_NEAR_LAYERS

    def in_units(values: Sets) -> Sets:
        median, spread = _median_and_spread(values["held-out"])
        return {name: (of - median) / spread for name, of in values.items()}

    def rarity(values: Sets) -> Sets:
        """Compute the negative logarithm of the share of held-out rows with a larger value."""
        ordered = values["held-out"].double().sort().values
        knots = torch.stack([ordered[round(q * (len(ordered) - 1))] for q in QUANTILES])
        slope = 1 / (ordered[ordered > knots[-1]] - knots[-1]).mean()
        shares = [-np.log(1 - q) for q in QUANTILES]
        return {
            name: torch.as_tensor(np.interp(of.double(), knots, shares))
            + slope * (of.double() - knots[-1]).relu()
            for name, of in values.items()
        }

    def joined(one: Sets, other: Sets, how: Any) -> Sets:
        return {name: how(one[name], other[name]) for name in one}

    near = in_units({name: of[:, -count:].sum(1) for name, of in z.items()})
    far = in_units({name: of[:, :-count].relu().sum(1) for name, of in z.items()})
    ways = {"as it is": joined(near, far, lambda n, f: n + FAR_WEIGHT * f), "near term alone": near}
    ways["far term alone"] = far
    for start in (1, 2, 3):
        late = {name: (of[:, :-count] - start).relu().sum(1) for name, of in z.items()}
        ways[f"far terms from {start} spreads on"] = joined(near, late, lambda n, f: n + 0.3 * f)
    for power in (2, 4):
        ways[f"norm {power} of both"] = joined(
            near,
            far,
            lambda n, f, p=power: (n.relu() ** p + (FAR_WEIGHT * f).relu() ** p) ** (1 / p),
        )
    ways["soft maximum of both"] = joined(
        near, far, lambda n, f: torch.logaddexp(n, FAR_WEIGHT * f)
    )
    columns = [
        rarity({name: of[:, i] for name, of in z.items()}) for i in range(z["test"].shape[1])
    ]
    rare = {name: torch.stack([column[name] for column in columns], 1) for name in z}
    near = rarity({name: of[:, -count:].sum(1) for name, of in rare.items()})
    far = rarity({name: of[:, :-count].sum(1) for name, of in rare.items()})
    ways["sums of log p-values"] = joined(near, far, lambda n, f: n + FAR_WEIGHT * f)
    return ways


def areas(scores: Sets) -> dict[str, float]:
    """Compute the AUROC of both foreign sets."""
    return {
        name: float(ood_detection(scores["test"], scores[name]).auroc) for name in ("near", FAR)
    }


def by_scale(model: Any, x: Sets, labels: Tensor) -> Iterator[tuple[str, dict[str, float]]]:
    """Compute the AUROC of total uncertainty and the cost on test images for each scale."""
    model.uses_compile_cache = False
    chosen = float(model.distance_radius.scale)
    for scale in SCALES:
        model.distance_radius.scale.fill_(scale)
        found = {name: model.predict(x[name]) for name in ("test", "near", FAR)}
        test = found["test"]
        yield (
            f"{scale:g}",
            {
                **{
                    f"TU, {name}": area
                    for name, area in areas({name: of.total for name, of in found.items()}).items()
                },
                "AUARC (TU)": float(auarc(test.total, (test.label == labels).numpy())),
                "log loss": summary.quality(test, labels)["log_loss"],
                "classes in a set": float(test.classes("dominance").sum(-1).double().mean()),
                "chosen": chosen,
            },
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--work", type=Path, default=Path("results/study/work"), help="where features are kept"
    )
    parser.add_argument("--to", type=Path, default=Path("results/study/terms.json"))
    options = parser.parse_args()
    record: dict[str, Any] = {}
    for kind, models in (
        ("frozen", frozen(options.work)),
        ("small", small(options.data, options.work / "small")),
    ):
        runs: dict[str, dict[str, dict[str, list[float]]]] = {"ways": {}, "scales": {}}
        for model, x, labels in models:
            asked = {name: terms_of(model, x[name]) for name in ("held-out", "test", "near", FAR)}
            rows = {"ways": [(way, areas(of)) for way, of in ways_of(asked).items()]}
            rows["scales"] = list(by_scale(model, x, labels))
            for part, found in rows.items():
                for name, columns in found:
                    for column, value in columns.items():
                        runs[part].setdefault(name, {}).setdefault(column, []).append(value)
        record[kind] = {
            p: {name: features.spreads(columns) for name, columns in of.items()}
            for p, of in runs.items()
        }
        for name, columns in (*record[kind]["ways"].items(), *record[kind]["scales"].items()):
            print(
                f"{kind:7s} {name:28s}",
                *(f"{c} {of['mean']:.4f}" for c, of in columns.items()),
                flush=True,
            )
    write_json(options.to, {**provenance("python -m experiments.study.terms --data DIR"), **record})


if __name__ == "__main__":
    main()
