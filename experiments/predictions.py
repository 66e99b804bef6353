"""Predictions of an experiment: made, kept as arrays, combined to ensembles, and measured for the records.

Batch norm by the statistics of the test batch is never the default. The authors' code normalises test data so, and then
an out-of-distribution batch normalises itself: a prediction depends on which images share its batch.
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
]  # by statistics, then "test" or "ood", then name of the set

POINTS = "points"  # name of the test set that is not shifted
GRID = tuple(round(i / 100, 2) for i in range(100))  # rejection rates at which curves are recorded


def batch_norms(module: torch.nn.Module) -> list[_BatchNorm]:
    """All batch norms, ordinary or interval, in ``module``."""
    return [part for part in module.modules() if isinstance(part, _BatchNorm)]


@contextmanager
def batch_statistics(module: torch.nn.Module) -> Iterator[None]:
    """Let each batch norm in ``module`` use the mean and variance of its batch; running statistics are left alone.

    Call it after ``eval()``, which would undo it.

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
    """Predict with the statistics of successive batches; a last batch of one row, without variance, joins the other.

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
    """Arrays by ``statistics/group/set/part``; the parts are both bounds of a credal set, or samples."""
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
    """An ensemble from the arrays of its members: bounds averaged or enveloped; samples pooled, or wrapped."""
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
    """All numbers of the predictions ``tests`` of test images, in the order of ``shifts``, and of ``ood`` sets by name.

    Uncertainties increase over the first shift of each kind; OOD sets are told from the first test set.
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
    """Accuracy and scores, AUARC and accuracy-rejection curve by each measure, mean uncertainties."""
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
    """AUROC, AUPRC and base rate by each measure, and mean uncertainties of the outside set."""
    found = {
        name: _numbers(value._asdict())
        for name, value in summary.detection(inside, outside).items()
    }
    return {**found, "means": _numbers(summary.means(outside))}


def describe_examples(prediction: CredalSet, images: Dataset) -> list[dict[str, Any]]:
    """The surest set, a middling one and the one of most epistemic uncertainty, with their images."""
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
    """An image of bytes as plain JSON."""
    return {
        "shape": list(pixels.shape),
        "bytes": base64.b64encode(pixels.tobytes()).decode("ascii"),
    }


def decode_image(image: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    """An image of bytes from plain JSON."""
    return np.frombuffer(base64.b64decode(image["bytes"]), np.uint8).reshape(image["shape"])


def _numbers(found: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in found.items()}
