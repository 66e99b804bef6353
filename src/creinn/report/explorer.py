"""Interactive table of predictions for a page.

The bounds are rounded outwards.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from creinn.credal.credal_set import CredalSet
from creinn.evaluation import summary
from creinn.evaluation.arrays import as_numbers, as_numpy
from creinn.report.page import data_uri
from creinn.report.theme import render, require

MOST = 1000  # samples on a page
MOST_BOUNDS = 100_000  # on a page
MOST_PIXELS = 96  # height and width of an image
SCALE = 100_000  # of probabilities as integers


@dataclass(frozen=True)
class Samples:
    """Samples of a dataset with their predictions.

    Args:
        data: Name of the dataset, which several groups of samples can
            share.
        prediction: Predictions of the model.
        names: Names of the samples.
        rows: Number of rows of the dataset.
        labels: True classes, if known.
        outside: Whether they are out of distribution, if known.
        images: See :func:`creinn.report.image_grid`.
        columns: Column names of a table.
        cells: Texts of the table, with a row for each sample.
        widths: Predictions by input width, including ``prediction``.
    """

    data: str
    prediction: Any
    names: Sequence[str]
    rows: int
    labels: Any = None
    outside: bool | None = None
    images: Any = ()
    columns: Sequence[str] = ()
    cells: Sequence[Sequence[str]] = ()
    widths: Mapping[str, Any] = field(default_factory=dict)


def sample_limit(num_classes: int, kinds: int = 1) -> int:
    """Return the largest number of samples of each of ``kinds`` datasets.

    Example:
        >>> sample_limit(10, kinds=2), sample_limit(1000)
        (500, 100)
    """
    return max(1, min(MOST, MOST_BOUNDS // num_classes) // kinds)


def choose_samples(score: Any, most: int = MOST, seed: int = 0) -> npt.NDArray[np.intp]:
    """Return the sorted indices of at most ``most`` samples.

    Half of the samples have the highest scores, and the others are random.

    Example:
        >>> chosen = choose_samples([0.1, 0.9, 0.2, 0.8, 0.3], most=4)
        >>> len(chosen), 1 in chosen, 3 in chosen
        (4, True, True)
    """
    scores = as_numbers(score, "score", ndim=1)
    if len(scores) <= most:
        return np.arange(len(scores))
    order = np.argsort(-scores, kind="stable")
    others = np.random.default_rng(seed).permutation(order[most // 2 :])
    return np.sort(np.concatenate([order[: most // 2], others[: most - most // 2]]))


def explore(
    samples: Sequence[Samples], classes: Sequence[str], unit: str = "bits", rule: str = "maximality"
) -> Markup:
    """Return the explorer for a :class:`creinn.report.Section`.

    Args:
        samples: Groups of samples.
        classes: Names of the classes.
        unit: Unit of the uncertainties.
        rule: Decision rule of the sets.
    """
    require(samples, "samples")
    counts = Counter[str]()
    for one in samples:
        counts[one.data] += len(one.names)
    is_credal = all(isinstance(one.prediction, CredalSet) for one in samples)
    groups = [_group(one, rule, len(classes)) for one in samples]
    record = {"classes": list(classes), "unit": unit, "scale": SCALE}
    record |= {"credal": is_credal, "groups": groups}
    style: dict[str, Any] = {"separators": (",", ":"), "ensure_ascii": False}
    is_reduced = any("image/webp" in uri[:20] for group in groups for uri in group["images"])
    return render(
        "explorer.html",
        data=htmlsafe_json_dumps(record, allow_nan=False, **style),
        shown={s.data: (counts[s.data], s.rows) for s in samples if counts[s.data] < s.rows},
        classes=len(classes),
        unit=unit,
        rule=rule,
        credal=is_credal,
        pixels=MOST_PIXELS if is_reduced else None,
        widths=any(one.widths for one in samples),
    )


def _group(samples: Samples, rule: str, num_classes: int) -> dict[str, Any]:
    steps = samples.widths or {"": samples.prediction}
    own = [prediction is samples.prediction for prediction in steps.values()]
    if not any(own):
        raise ValueError(f"{samples.data}: widths must contain the prediction.")
    count = len(samples.names)
    lengths = {"labels": samples.labels, "images": samples.images, "cells": samples.cells, **steps}
    for name, values in lengths.items():
        if values is not None and len(values) not in (count, 0):
            found = f"{len(values)} {name or 'predictions'}"
            raise ValueError(f"{samples.data}: {count} names, but {found}.")
    if (found := samples.prediction.probabilities.shape[-1]) != num_classes:
        raise ValueError(f"{samples.data}: {found} classes, but {num_classes} class names.")
    return {
        "data": samples.data,
        "outside": samples.outside,
        "names": list(samples.names),
        "truth": None if samples.labels is None else as_numpy(samples.labels).tolist(),
        "images": [data_uri(image, MOST_PIXELS) for image in samples.images],
        "columns": list(samples.columns),
        "cells": [list(row) for row in samples.cells],
        "own": own.index(True),
        "steps": [{"said": name, **_numbers(found, rule)} for name, found in steps.items()],
    }


def _numbers(prediction: Any, rule: str) -> dict[str, Any]:
    middle = as_numpy(prediction.probabilities) * SCALE
    lower, upper, label = middle, middle, as_numpy(prediction.label)
    kept = np.arange(middle.shape[-1]) == label[:, None]
    if isinstance(prediction, CredalSet):
        lower, upper = (as_numpy(bound) * SCALE for bound in (prediction.lower, prediction.upper))
        kept = as_numpy(prediction.classes(rule))
    scores = summary.uncertainties(prediction)
    return {
        "label": label.tolist(),
        "lower": np.floor(lower).astype(int).tolist(),
        "upper": np.ceil(upper).astype(int).tolist(),
        "middle": middle.round().astype(int).tolist(),
        "kept": [np.flatnonzero(row).tolist() for row in kept],
        **{short: scores[name].round(6).tolist() for name, short in summary.MEASURES.items()},
    }
