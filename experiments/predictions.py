"""Predictions of an experiment, their storage, ensembles and measures.

Batch norm uses the statistics of the test batch only on request. The published
code of the authors does so. Then a prediction depends on the other images of
the batch.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from creinn.baselines import Predictive
from creinn.classifier.base import Classifier, Inputs, Prediction, evaluating
from creinn.classifier.methods import Combination
from creinn.credal.credal_set import CredalSet
from creinn.data import Dataset
from creinn.evaluation import summary
from experiments.definition import Shift
from experiments.store import Arrays

Predictions = dict[
    str, dict[str, dict[str, Prediction]]
]  # by statistics, "test" or "ood", and name of the set

POINTS = "points"  # name of the test set without shift
GRID = tuple(round(i / 100, 2) for i in range(100))  # rejection rates of recorded curves


def batch_norms(module: torch.nn.Module) -> list[_BatchNorm]:
    """Yield all batch norms of a module."""
    return [part for part in module.modules() if isinstance(part, _BatchNorm)]


@contextmanager
def batch_statistics(module: torch.nn.Module) -> Iterator[None]:
    """Use batch statistics in batch norms, and keep the running statistics.

    Call it after ``eval()``.

    Example:
        >>> norm = torch.nn.BatchNorm1d(1, affine=False).eval()
        >>> with batch_statistics(norm):
        ...     norm(torch.tensor([[1.0], [3.0]])).round(decimals=2)
        tensor([[-1.], [ 1.]])
        >>> norm.running_mean, norm.num_batches_tracked
        (tensor([0.]), tensor(0))
    """
    before = {norm: (norm.training, norm.track_running_stats) for norm in batch_norms(module)}
    try:
        for norm in before:
            norm.training, norm.track_running_stats = True, False
        yield
    finally:
        for norm, (training, tracking) in before.items():
            norm.training, norm.track_running_stats = training, tracking


def predict_by_batch(model: Classifier, x: Inputs, batch_size: int) -> Prediction:
    """Predict with batch statistics; a single last row joins the batch before.

    Raises:
        ValueError: If there are fewer than two rows.
    """
    if len(x) < 2:
        raise ValueError(f"Batch statistics need at least two rows, got {len(x)}.")
    ends = [*range(batch_size, len(x) - 1, batch_size), len(x)]
    device = next(model.parameters()).device
    with evaluating(model), batch_statistics(model), torch.no_grad():
        parts = [
            model(x[start:end].to(device)) for start, end in zip([0, *ends], ends, strict=False)
        ]
    return model.prediction_type.concatenate(parts)


def to_arrays(predictions: Predictions) -> dict[str, npt.NDArray[Any]]:
    """Convert predictions to arrays by ``statistics/group/set/part``."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for kind, groups in predictions.items():
        for group, sets in groups.items():
            for name, prediction in sets.items():
                parts = ("lower", "upper") if isinstance(prediction, CredalSet) else ("samples",)
                arrays |= {
                    f"{kind}/{group}/{name}/{part}": getattr(prediction, part).numpy()
                    for part in parts
                }
    return arrays


def from_arrays(members: Sequence[Arrays], how: Combination = "average") -> Predictions:
    """Build the prediction of an ensemble from its members."""
    average = CredalSet.envelope if how == "envelope" else CredalSet.average
    found: Predictions = {}
    for kind, group, name in dict.fromkeys(
        tuple(key.split("/")[:3]) for key in members[0] if "/" in key
    ):
        keys = [f"{kind}/{group}/{name}/{part}" for part in ("lower", "upper", "samples")]
        lower, upper, samples = (
            [torch.from_numpy(m[key]) for m in members if key in m] for key in keys
        )
        sets, predictives = (
            list(map(CredalSet._wrap, lower, upper)),
            list(map(Predictive, samples)),
        )  # as they were
        pooled: Prediction = average(sets) if sets else Predictive.pool(predictives)
        if how == "wrapper":
            pooled = CredalSet.from_samples(torch.cat(samples))
        found.setdefault(kind, {"test": {}, "ood": {}})[group][name] = pooled
    return found


def measure_all(
    tests: Mapping[str, Any],
    labels: torch.Tensor,
    ood: Mapping[str, Any],
    shifts: Sequence[Shift | None],
) -> dict[str, Any]:
    """Compute all measures of the test and foreign sets.

    Relative increases refer to the first shift of each kind. Foreign sets are
    compared with the first test set.
    """
    bases: dict[str, Any] = {}
    sets: dict[str, Any] = {}
    for (name, prediction), shift in zip(tests.items(), shifts, strict=True):
        sets[name] = measure_test(prediction, labels)
        if shift is not None:
            increases = summary.increase(prediction, bases.setdefault(shift.kind, prediction))
            sets[name]["increase"] = {
                measure: {"mean": None, "excluded": len(labels)}
                if found is None
                else _numbers(found._asdict())
                for measure, found in increases.items()
            }
    inside = next(iter(tests.values()))
    return {
        "sets": sets,
        "ood": {name: measure_ood(inside, outside) for name, outside in ood.items()},
    }


def measure_test(prediction: Any, labels: Any) -> dict[str, Any]:
    """Compute accuracy, scores, rejection curves and mean uncertainties."""
    curves = summary.rejection(prediction, labels)
    at = np.minimum(np.round(np.array(GRID) * len(labels)).astype(int), len(labels) - 1)
    return {
        **_numbers(summary.quality(prediction, labels)),
        "auarc": _numbers({name: curve.area for name, curve in curves.items()}),
        "curves": {
            name: [round(a, 5) for a in curve.accuracy[at].tolist()]
            for name, curve in curves.items()
        },
        "means": _numbers(summary.means(prediction)),
    }


def measure_ood(inside: Any, outside: Any) -> dict[str, Any]:
    """Compute the OOD detection and mean uncertainties of a foreign set."""
    found = {
        name: _numbers(value._asdict())
        for name, value in summary.detection(inside, outside).items()
    }
    return {**found, "means": _numbers(summary.means(outside))}


def describe_examples(prediction: CredalSet, images: Dataset) -> list[dict[str, Any]]:
    """Describe a certain, a middle and an uncertain prediction."""
    order = prediction.total.argsort(stable=True).tolist()
    least, median = order[0], order[len(order) // 2]
    others = [
        index
        for index in prediction.epistemic.argsort(stable=True).tolist()
        if index not in (least, median)
    ]
    chosen = {"least total uncertainty": least, "median total uncertainty": median}
    chosen["greatest epistemic uncertainty"] = (others or order)[-1]
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
    """Encode an image of bytes as JSON."""
    return {
        "shape": list(pixels.shape),
        "bytes": base64.b64encode(pixels.tobytes()).decode("ascii"),
    }


def decode_image(image: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    """Decode an image of bytes from JSON."""
    return np.frombuffer(base64.b64decode(image["bytes"]), np.uint8).reshape(image["shape"])


def _numbers(found: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in found.items()}
