"""What records hold, all as plain JSON: where a result comes from, its numbers, radii, examples and images."""

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from creinn.data import Dataset
from creinn.evaluation import summary
from creinn.experiments.definition import Shift
from creinn.experiments.plan import VERSIONS, Piece
from creinn.nn.parameters import IntervalParameters

POINTS = "points"
"""Name of the test set that is not shifted."""

GRID = tuple(round(i / 100, 2) for i in range(100))
"""Rejection rates at which accuracy-rejection curves are recorded."""

TILES = 16
"""Most kernels of the first layer whose radii are recorded."""


def record_of(piece: Piece, origin: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, Any]:
    """What was found, together with all it rests on.

    Args:
        piece: The piece that was done.
        origin: Versions, commit, system and the like.
        results: What was found.
    """
    head = {
        "kind": piece.kind,
        "method": piece.method,
        "number": piece.number,
        "key": piece.key,
        "version": VERSIONS[piece.kind],
        "settings": piece.settings,
        "needs": [needed.key for needed in piece.needs],
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    return {**head, **origin, **results}


def set_name(shift: Shift | None) -> str:
    """Name of a test set in records."""
    return POINTS if shift is None else str(shift)


def measure_all(
    tests: Mapping[str, Any], labels: torch.Tensor, ood: Mapping[str, Any], shifts: Sequence[Shift | None]
) -> dict[str, Any]:
    """All numbers of a prediction.

    Args:
        tests: Predictions of the test images by the name of the shift, :data:`POINTS` for none; in the order of
            ``shifts``.
        labels: Their classes.
        ood: Predictions of out-of-distribution sets, by name; they are told from the first of ``tests``.
        shifts: The shifts of ``tests``; uncertainties increase over the first shift of each kind.
    """
    bases: dict[str, Any] = {}
    sets: dict[str, Any] = {}
    for (name, prediction), shift in zip(tests.items(), shifts, strict=True):
        sets[name] = measure_test(prediction, labels)
        if shift is not None:
            increases = summary.increase(prediction, bases.setdefault(shift.kind, prediction))
            sets[name]["increase"] = {
                measure: {"mean": None, "excluded": len(labels)} if found is None else _numbers(found._asdict())
                for measure, found in increases.items()
            }
    inside = next(iter(tests.values()))
    return {"sets": sets, "ood": {name: measure_ood(inside, outside) for name, outside in ood.items()}}


def measure_test(prediction: Any, labels: Any) -> dict[str, Any]:
    """Accuracy and scores, AUARC and accuracy-rejection curve by each measure, mean uncertainties."""
    curves = summary.rejection(prediction, labels)
    at = np.minimum(np.round(np.array(GRID) * len(labels)).astype(int), len(labels) - 1)
    return {
        **_numbers(summary.quality(prediction, labels)),
        "auarc": _numbers({name: curve.area for name, curve in curves.items()}),
        "curves": {name: [round(a, 5) for a in curve.accuracy[at].tolist()] for name, curve in curves.items()},
        "means": _numbers(summary.means(prediction)),
    }


def measure_ood(inside: Any, outside: Any) -> dict[str, Any]:
    """AUROC, AUPRC and base rate by each measure, and mean uncertainties of the outside set."""
    found = {name: _numbers(value._asdict()) for name, value in summary.detection(inside, outside).items()}
    return {**found, "means": _numbers(summary.means(outside))}


def describe_radii(model: torch.nn.Module) -> dict[str, Any] | None:
    """Of an interval network: radii of the first convolution as a matrix of tiles, and the share of all that are zero.

    ``None`` for a network without radii. The tiles are the kernels of the first outputs for the first input channel.
    """
    layers = [(name, part) for name, part in model.named_modules() if isinstance(part, IntervalParameters)]
    convolutions = [(name, part) for name, part in layers if part.weight_radius.ndim == 4]
    if not convolutions:
        return None
    name, first = convolutions[0]
    kernels = first.weight_radius.detach().cpu()[:TILES, 0]
    count, height, width = kernels.shape
    rows = next(r for r in range(int(count**0.5), 0, -1) if count % r == 0)
    tiles = kernels.reshape(rows, count // rows, height, width).permute(0, 2, 1, 3).reshape(rows * height, -1)
    radii = torch.cat([part.weight_radius.detach().cpu().flatten() for _, part in layers]).double()
    return {
        "layer": name,
        "shape": list(first.weight_radius.shape),
        "matrix": [[rounded(value) for value in row] for row in tiles.tolist()],
        "zero_share": rounded((radii == 0).double().mean()),
        "mean": rounded(radii.mean()),
    }


def describe_examples(prediction: Any, images: Dataset) -> list[dict[str, Any]]:
    """Of credal sets: the surest one, a middling one and the one of most epistemic uncertainty, with their images."""
    order = prediction.total.argsort(stable=True).tolist()
    least, median = order[0], order[len(order) // 2]
    others = [index for index in prediction.epistemic.argsort(stable=True).tolist() if index not in (least, median)]
    chosen = {
        "least total uncertainty": least,
        "median total uncertainty": median,
        "greatest epistemic uncertainty": (others or order)[-1],
    }
    return [
        {
            "what": what,
            "index": index,
            "label": images.classes[int(images.labels[index])],
            "image": encode_image(np.asarray(images.inputs[index])),
            "lower": prediction.lower[index].tolist(),
            "upper": prediction.upper[index].tolist(),
        }
        for what, index in chosen.items()
    ]


def encode_image(pixels: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """An image of bytes as plain JSON."""
    return {"shape": list(pixels.shape), "bytes": base64.b64encode(pixels.tobytes()).decode("ascii")}


def decode_image(image: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    """An image of bytes from plain JSON."""
    return np.frombuffer(base64.b64decode(image["bytes"]), np.uint8).reshape(image["shape"])


def rounded(value: Any) -> float | None:
    """A number with seven digits; ``None`` stays."""
    return None if value is None else float(f"{float(value):.7g}")


def _numbers(found: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in found.items()}
