"""Fine-tune EfficientNet-Lite0 on CIFAR-10 five times, and evaluate CreINN-D and ensembles.

Each network is trained on 45,000 images for one epoch at 96 pixels. 5,000 images are held out. A
CreINN-D is one
network with a distance, which is fitted to 15,000 of the training images. The five networks form
Deep Ensembles, their
credal wrapper and an ensemble of CreINN-D. Features are stored, and an interrupted script
continues.

    pip install "creinn[pretrained]"
    python -m experiments.study.finetuned --data DIR [--work DIR] [--members 5] [--to FILE]
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from creinn.baselines.predictive import Predictive
from creinn.credal.credal_set import CredalSet
from creinn.files import new_file
from creinn.report.provenance import provenance
from experiments.store import write_json
from experiments.study import features
from experiments.study.features import Kept, Sets, Source
from experiments.study.pretrained import HELD_OUT

SIZE, BATCH, RATE = 96, 64, 1e-3
SAVE_EVERY = 100  # steps
SETS = {
    "train": Source("cifar10", "train", 20_000),  # the first of these are held out
    "test": Source("cifar10", "test"),
    "SVHN": Source("svhn", "test", 4000),
    "MNIST": Source("mnist", "test", 2000),
    "Fashion-MNIST": Source("fashion-mnist", "test", 2000),
    "X-ray": Source("chest-xray", "test"),
}


def fine_tune(member: int, data: Path, work: Path) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Train one epoch with AdamW and a single cycle of the learning rate.

    The state is saved every 100 steps, and an interrupted training continues. Returns the network
    and the losses.
    """
    kept = work / f"member-{member}.pt"
    torch.manual_seed(member)
    net: Any = features.network()
    net.fc = torch.nn.Linear(net.fc.in_features, 10)
    net.to(memory_format=torch.channels_last).train()
    pictures, labels = features.read_images(Source("cifar10", "train"), data, SIZE)
    chosen = features.shuffled(len(labels))[HELD_OUT:]
    order = torch.from_numpy(np.random.RandomState(1 + member).permutation(chosen)).split(BATCH)
    optimiser = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=1e-2)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, RATE, total_steps=len(order), pct_start=0.2
    )
    parts = {"net": net, "optimiser": optimiser, "cycle": cycle}
    curve: list[float] = []
    commit = provenance("")["commit"]
    if kept.exists():
        state = torch.load(kept, weights_only=True)
        curve, commit = state["curve"], state["commit"]
        for name, part in parts.items():
            part.load_state_dict(state[name])
    for step in range(len(curve), len(order)):
        torch.manual_seed(1000 * member + step)
        batch = features.prepared(torch.as_tensor(pictures[order[step]]), SIZE)
        batch = torch.where((torch.rand(len(batch), 1, 1, 1) < 0.5), batch, batch.flip(-1))
        optimiser.zero_grad()
        loss = F.cross_entropy(net(batch), torch.as_tensor(labels[order[step]]).long())
        loss.backward()
        optimiser.step()
        cycle.step()
        curve.append(float(loss.detach()))
        if len(curve) % SAVE_EVERY == 0 or len(curve) == len(order):
            state = {name: part.state_dict() for name, part in parts.items()}
            with new_file(kept) as file:
                torch.save({**state, "curve": curve, "commit": commit}, file)
            recent = np.mean(curve[-SAVE_EVERY:])
            print(
                f"network {member}: step {len(curve)} of {len(order)}, loss {recent:.3f}",
                flush=True,
            )
    losses = [round(float(part.mean()), 4) for part in torch.tensor(curve).split(SAVE_EVERY)]
    return net.eval(), {"commit": commit, "losses": losses}


def divided(folder: Path) -> tuple[Sets, Sets]:
    """Read the features of a network: training, held-out, test and foreign rows."""
    train, labels = features.read_features(folder, "train")
    drawn, total = SETS["train"], 50_000
    apart = np.isin(drawn.rows(total), features.shuffled(total)[:HELD_OUT])
    x = {"train": train[~apart], "held-out": train[apart]}
    x |= {name: features.read_features(folder, name)[0] for name in SETS if name != "train"}
    y = {
        "train": labels[~apart],
        "held-out": labels[apart],
        "test": features.read_features(folder, "test")[1],
    }
    return x, {name: torch.from_numpy(of) for name, of in y.items()}


def measure_member(
    folder: Path, head: tuple[Tensor, Tensor]
) -> tuple[dict[str, Sets], dict[str, Any], Tensor]:
    """Compute the predictions of a network with all methods, their numbers and the true classes."""
    x, y = divided(folder)
    kept = Kept(features.read_widths(folder), *head)
    predictions, scale = features.predict(kept, x, y)
    found = features.numbers(predictions, features.plain_scores(kept, x, y["train"]), y["test"])
    found |= {"scale": scale, "conformal": features.conformal_sets(predictions, y["test"])}
    return predictions, found, y["test"]


def ensembles(members: Sequence[Mapping[str, Sets]]) -> dict[str, Sets]:
    """Evaluate Deep Ensembles, their credal wrapper and the ensemble of CreINN-D."""
    found: dict[str, Sets] = {}
    for name in members[0]["network"]:
        pooled = Predictive.pool([member["network"][name] for member in members])
        sets = [member["CreINN-D"][name] for member in members]
        found.setdefault("Deep Ensembles", {})[name] = pooled
        found.setdefault("credal wrapper of Deep Ensembles", {})[name] = CredalSet.from_samples(
            pooled.samples
        )
        found.setdefault("CreINN-D, averaged", {})[name] = CredalSet.average(sets)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--work", type=Path, default=Path("results/study/finetuned"), help="where networks are kept"
    )
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--to", type=Path, default=Path("results/study/finetuned.json"))
    options = parser.parse_args()
    predictions, runs, trainings = [], [], []
    for member in range(options.members):
        net, training = fine_tune(member, options.data, options.work)
        folder = options.work / f"features-{member}"
        folder.mkdir(parents=True, exist_ok=True)
        for name, source in SETS.items():
            features.extract(net, name, source, options.data, folder, SIZE)
        head: Any = net.fc
        one, found, labels = measure_member(folder, (head.weight.detach(), head.bias.detach()))
        predictions.append(one)
        runs.append(found)
        trainings.append(training)
        print(
            f"network {member}:",
            found["quality"]["network"],
            found["auroc"]["CreINN-D, EU"],
            flush=True,
        )
    together = features.numbers(ensembles(predictions), {}, labels)
    mean = {"mean": features.averaged(runs), "quality": features.averaged_quality(runs)}
    record = {
        "trainings": trainings,
        "runs": runs,
        **mean,
        "ensembles": {"members": len(runs), **together},
    }
    write_json(
        options.to, {**provenance("python -m experiments.study.finetuned --data DIR"), **record}
    )


if __name__ == "__main__":
    main()
