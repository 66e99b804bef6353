"""Convert a fine-tuned network to an interval network and evaluate it on SVHN.

The first network of ``finetuned`` is converted with full and with relative radii by
``creinn.convert``. It is evaluated
without training, after training of the radii, and after training of all weights, with running
statistics and with the
statistics of the test batch. The network trains at a few images per second on one core, so the
number of images is
small.

    pip install "creinn[pretrained]"
    python -m experiments.study.converted --data DIR --work DIR [--images 1000] [--tests 500]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import creinn
from creinn import CreINN, TrainConfig
from creinn.evaluation import summary
from creinn.report.provenance import provenance
from experiments.plan import STATISTICS_BATCH
from experiments.predictions import predict_by_batch
from experiments.store import write_json
from experiments.study import features
from experiments.study.features import Source
from experiments.study.finetuned import SIZE, fine_tune

FORMS = [
    (family, trained)
    for family in ("interval", "relative")
    for trained in ("nothing", "radii", "all")
]
BATCH = 32
RATE = {"radii": 1e-3, "all": 1e-4}  # learning rate of Adam for trained weights


def plain_layers(net: Any) -> Any:
    """Build the same network from layers of torch, without stochastic depth."""
    for path, layer in list(net.named_modules()):
        if hasattr(layer, "static_padding"):
            shape = layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride
            convolution = torch.nn.Conv2d(*shape, groups=layer.groups, bias=layer.bias is not None)
            convolution.load_state_dict(layer.state_dict())
            is_padded = isinstance(layer.static_padding, torch.nn.ZeroPad2d)
            parts = (
                torch.nn.Sequential(layer.static_padding, convolution) if is_padded else convolution
            )
            parent, _, name = path.rpartition(".")
            setattr(net.get_submodule(parent), name, parts)
    net._global_params = net._global_params._replace(drop_connect_rate=None)
    return net


def measured(model: CreINN, test: Tensor, labels: Tensor, foreign: Tensor) -> dict[str, Any]:
    """Compute quality, AUARC and AUROC with running and with batch statistics."""
    found = {}
    for name in ("running", "batch"):
        sets = []
        for x in (test, foreign):
            by_batch = name == "batch"
            sets.append(
                predict_by_batch(model, x, STATISTICS_BATCH)
                if by_batch
                else model.predict(x, BATCH)
            )
        inside, outside = sets
        found[name] = {
            **summary.quality(inside, labels),
            "width": float(inside.width.mean()),
            "auarc": {key: curve.area for key, curve in summary.rejection(inside, labels).items()},
            "auroc": {
                key: float(of.auroc) for key, of in summary.detection(inside, outside).items()
            },
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--work", type=Path, default=Path("results/study/finetuned"), help="where networks are kept"
    )
    parser.add_argument("--images", type=int, default=1000, help="that are learnt from")
    parser.add_argument("--tests", type=int, default=500, help="of each kind")
    parser.add_argument("--to", type=Path, default=Path("results/study/converted.json"))
    options = parser.parse_args()
    sets = {
        name: features.read_images(source, options.data, SIZE)
        for name, source in {
            "train": Source("cifar10", "train"),
            "test": Source("cifar10", "test", options.tests),
            "SVHN": Source("svhn", "test", options.tests),
        }.items()
    }
    learnt = features.shuffled(50_000)[-options.images :]  # without held-out images
    x, y = (torch.as_tensor(part[learnt]) for part in sets["train"])
    train = features.prepared(x, SIZE).contiguous(), y.long()
    test, foreign = (
        features.prepared(torch.as_tensor(sets[name][0]), SIZE).contiguous()
        for name in ("test", "SVHN")
    )
    labels = torch.as_tensor(sets["test"][1]).long()
    net, training = fine_tune(0, options.data, options.work)
    net = plain_layers(net).to(memory_format=torch.contiguous_format)
    with torch.inference_mode():
        right = torch.cat([net(part).argmax(1) for part in test.split(BATCH)]) == labels
    rows = []
    for family, trained in FORMS:
        kept = options.work / f"converted-{family}-{trained}-{options.images}-{options.tests}.json"
        if not kept.exists():
            model = CreINN(creinn.convert(net, layers=family), logit_norm=False)
            curve: list[Any] = []
            if trained != "nothing":
                config = TrainConfig(
                    epochs=1,
                    batch_size=BATCH,
                    learning_rate=RATE[trained],
                    train=trained,
                    progress=False,
                )
                curve = list(creinn.fit(model, train, config=config).rows)
            write_json(
                kept,
                {
                    "radii": family,
                    "trained": trained,
                    "curve": curve,
                    **measured(model, test, labels, foreign),
                },
            )
        rows.append(json.loads(kept.read_text()))
        print(rows[-1], flush=True)
    about = {"images": options.images, "tests": options.tests, "training": training}
    record = {**about, "network": {"accuracy": float(right.double().mean())}, "rows": rows}
    write_json(
        options.to, {**provenance("python -m experiments.study.converted --data DIR"), **record}
    )


if __name__ == "__main__":
    main()
