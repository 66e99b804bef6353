"""Train each baseline on the digits of scikit-learn, with an MLP and a convolutional network.

Prints accuracy, cross-entropy, AUROC of the epistemic uncertainty against uniform noise, the number
of parameters, and
the time of training and prediction.

    python -m experiments.study.baselines_digits [--seeds 3] [--epochs 60] [--methods snn bnn-r ...]
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import mean
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from creinn import models
from creinn.baselines.factory import build_classifier
from creinn.classifier.methods import BASELINES, METHODS
from creinn.report.tables import text_table
from creinn.training import TrainConfig, fit

DIGITS = {
    "accuracy_%": 2,
    "nll": 4,
    "noise_auroc_%": 2,
    "parameters": 0,
    "training_s": 1,
    "prediction_s": 2,
}


def conv_net(layers: Any) -> torch.nn.Module:
    return torch.nn.Sequential(
        layers.Conv2d(1, 16, 3, padding=1, bias=False),
        layers.BatchNorm2d(16),
        layers.ReLU(),
        layers.MaxPool2d(2),
        layers.Conv2d(16, 32, 3, padding=1, bias=False),
        layers.BatchNorm2d(32),
        layers.ReLU(),
        layers.AdaptiveAvgPool2d(2),
        layers.Flatten(),
        layers.Linear(128, 10),
    )


NETWORKS: dict[str, tuple[Callable[..., torch.nn.Module], tuple[int, ...]]] = {
    "mlp": (partial(models.mlp, 64, 10, hidden=(64, 64), batch_norm=False), (64,)),
    "conv": (conv_net, (1, 8, 8)),
}


def run(
    method: str, network: str, seed: int, epochs: int, options: dict[str, Any]
) -> dict[str, float]:
    build, shape = NETWORKS[network]
    x, y = load_digits(return_X_y=True)
    rows = train_test_split(x, y, test_size=0.3, random_state=seed, stratify=y)
    x_train, x_test = (
        torch.tensor(part / 16, dtype=torch.float32).reshape(-1, *shape) for part in rows[:2]
    )
    y_train, y_test = (torch.tensor(part) for part in rows[2:])
    torch.manual_seed(seed)
    model = build_classifier(METHODS[method], build, **options)
    started = time.perf_counter()
    milestones = (epochs * 2 // 3,)
    fit(
        model,
        (x_train, y_train),
        config=TrainConfig(
            epochs=epochs, batch_size=64, milestones=milestones, seed=seed, progress=False
        ),
    )
    trained = time.perf_counter()
    torch.manual_seed(seed)
    prediction, noise = model.predict(x_test), model.predict(torch.rand_like(x_test))
    predicted = time.perf_counter()
    is_noise = torch.cat((torch.zeros(len(x_test)), torch.ones(len(x_test))))
    # An ordinary network has no epistemic uncertainty; its total stands in.
    doubt = torch.cat([p.total if method == "snn" else p.epistemic for p in (prediction, noise)])
    return {
        "accuracy_%": 100 * (prediction.label == y_test).double().mean().item(),
        "nll": torch.nn.functional.nll_loss(
            prediction.probabilities.clamp_min(1e-30).log(), y_test
        ).item(),
        "noise_auroc_%": 100 * roc_auc_score(is_noise, doubt),
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "training_s": trained - started,
        "prediction_s": predicted - trained,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--methods", nargs="+", default=list(BASELINES), choices=BASELINES)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument(
        "--option",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "NUMBER"),
        help="of the classifiers",
    )
    args = parser.parse_args()
    options = {name: float(value) for name, value in args.option}
    for network in args.networks:
        rows = []
        for method in args.methods:
            found = [run(method, network, seed, args.epochs, options) for seed in range(args.seeds)]
            means = {name: mean(one[name] for one in found) for name in DIGITS}
            rows.append({"network": network, "method": method, **means})
        print(text_table(rows, DIGITS), flush=True)


if __name__ == "__main__":
    main()
