"""Networks that people would use: EfficientNet-Lite0 fine-tuned on CIFAR-10, five times, and what becomes of them.

Each network sees 45,000 images once (96 px, flips), as in ordinary transfer learning; 5,000 are held out. One of them
with a distance is a CreINN-D, five make Deep Ensembles, their credal wrapper and CreINN-D ×5. Features are kept on
disk; every step goes on where it was stopped.

    pip install "creinn[pretrained]"
    python -m benchmarks.finetuned --data DIR [--work DIR] [--members 5]
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from benchmarks.pretrained import HELD_OUT, images, network, prepared

from creinn.files import new_file
from creinn.report.provenance import provenance

SIZE, BATCH, RATE = 96, 64, 1e-3
SAVE_EVERY = 100  # steps


def fine_tune(member: int, data: Path, work: Path) -> torch.nn.Module:
    """One epoch of AdamW with a single cycle of the learning rate; every 100 steps all is kept, and gone on with."""
    kept = work / f"member-{member}.pt"
    torch.manual_seed(member)
    net = network()
    net._fc = torch.nn.Linear(net._fc.in_features, 10)
    net.to(memory_format=torch.channels_last).train()
    pictures, labels = images("train", data)
    chosen = np.random.RandomState(0).permutation(len(labels))[HELD_OUT:]
    order = torch.from_numpy(np.random.RandomState(1 + member).permutation(chosen)).split(BATCH)
    optimiser = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=1e-2)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=len(order), pct_start=0.2)
    parts = {"net": net, "optimiser": optimiser, "cycle": cycle}
    curve: list[float] = []
    if kept.exists():
        state = torch.load(kept, weights_only=True)
        curve = state["curve"]
        for name, part in parts.items():
            part.load_state_dict(state[name])
    for step in range(len(curve), len(order)):
        torch.manual_seed(1000 * member + step)
        batch = prepared(torch.as_tensor(pictures[order[step]]), SIZE)
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
                torch.save({**state, "curve": curve, "commit": provenance("")["commit"]}, file)
            print(
                f"network {member}: step {len(curve)} of {len(order)}, loss {np.mean(curve[-SAVE_EVERY:]):.3f}",
                flush=True,
            )
    return net.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("results/study/finetuned"), help="where networks are kept")
    parser.add_argument("--members", type=int, default=5)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    for member in range(options.members):
        fine_tune(member, options.data, options.work)


if __name__ == "__main__":
    main()
