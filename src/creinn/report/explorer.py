"""A part of a page on which a person explores predictions: a table to sort and filter, and each sample in detail.

In: :class:`Samples`, of one kind of data each. Out: Markup with the data as JSON, and the script that shows them.
Bounds are rounded outwards, so that what is drawn contains what was predicted; ``simplex.js`` computes it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from creinn.credal.credal_set import CredalSet
from creinn.evaluation import summary
from creinn.evaluation.checks import as_numpy, as_scores
from creinn.report.page import data_uri
from creinn.report.theme import render, require

MOST = 1000  # samples on a page; a browser sorts and shows them without delay
MOST_BOUNDS = 100_000  # of the same kind on a page; more classes leave room for fewer samples
MOST_PIXELS = 96  # height and width of an image; larger ones are shrunk
SCALE = 100_000  # probabilities are whole numbers of these parts


@dataclass(frozen=True)
class Samples:
    """Samples of one kind of data, and what a model says of them; further fields are of the same length, or empty.

    ``outside`` says whether they are out of distribution, if that is known. ``widths`` are predictions for inputs that
    are wider or narrower intervals, by what is said of the width; :attr:`prediction` itself is one of them.
    """

    data: str  # what the data are called; several may have one name
    prediction: Any
    names: Sequence[str]  # what each sample is called
    rows: int  # of these data, of which the samples were chosen
    labels: Any = None  # true classes, if they are known
    outside: bool | None = None
    images: Any = ()  # as image_grid takes them
    columns: Sequence[str] = ()
    cells: Sequence[Sequence[str]] = ()  # a row for each sample, with a text for each column
    widths: Mapping[str, Any] = field(default_factory=dict)


def room(num_classes: int, kinds: int = 1) -> int:
    """How many samples of each of several kinds of data a page takes.

    Example:
        >>> room(10), room(10, kinds=2), room(1000)
        (1000, 500, 100)
    """
    return max(1, min(MOST, MOST_BOUNDS // num_classes) // kinds)


def choose_samples(score: Any, most: int = MOST, seed: int = 0) -> npt.NDArray[np.intp]:
    """Numbers of at most ``most`` samples, in order: half of them have the greatest scores, the others are drawn.

    Example:
        >>> choose_samples([0.1, 0.9, 0.2, 0.8], most=4).tolist()
        [0, 1, 2, 3]
        >>> chosen = choose_samples([0.1, 0.9, 0.2, 0.8, 0.3], most=4).tolist()
        >>> len(chosen), 1 in chosen, 3 in chosen
        (4, True, True)
    """
    scores = as_scores(score, "score")
    if len(scores) <= most:
        return np.arange(len(scores))
    order = np.argsort(-scores, kind="stable")
    others = np.random.default_rng(seed).permutation(order[most // 2 :])
    return np.sort(np.concatenate([order[: most // 2], others[: most - most // 2]]))


def explore(
    samples: Sequence[Samples], classes: Sequence[str], unit: str = "bits", rule: str = "maximality"
) -> Markup:
    """The explorer, for a :class:`creinn.report.Section`; uncertainties are in ``unit``, sets of classes by ``rule``.

    Predictions that are no credal sets are shown as distributions, with the predicted class as the only one.

    Raises:
        ValueError: If there are no samples, or lengths differ.
    """
    require(samples, "samples")
    shown: dict[str, tuple[int, int]] = {}
    for one in samples:
        before, _ = shown.get(one.data, (0, 0))
        shown[one.data] = before + len(one.names), one.rows
    is_credal = all(isinstance(one.prediction, CredalSet) for one in samples)
    groups = [_group(one, rule, len(classes)) for one in samples]
    record = {
        "classes": list(classes),
        "unit": unit,
        "scale": SCALE,
        "credal": is_credal,
        "groups": groups,
    }
    compact = partial(json.dumps, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    text = htmlsafe_json_dumps(record, dumps=compact)
    return render(
        "explorer.html",
        data=text,
        shown={name: counts for name, counts in shown.items() if counts[0] < counts[1]},
        classes=len(classes),
        unit=unit,
        rule=rule,
        credal=is_credal,
        pixels=MOST_PIXELS
        if any("image/webp" in uri[:20] for group in groups for uri in group["images"])
        else None,
        widths=any(one.widths for one in samples),
    )


def _group(samples: Samples, rule: str, num_classes: int) -> dict[str, Any]:
    """One kind of data as plain JSON; a step is a width of the inputs, ``own`` that of the data themselves."""
    count, labels = (
        len(samples.names),
        None if samples.labels is None else as_numpy(samples.labels).tolist(),
    )
    lengths = {
        "prediction": samples.prediction,
        "labels": labels,
        "images": samples.images,
        "cells": samples.cells,
    }
    lengths |= {f"widths[{said!r}]": prediction for said, prediction in samples.widths.items()}
    for name, values in lengths.items():
        optional = name in ("labels", "images", "cells") and (values is None or len(values) == 0)
        if not optional and len(values) != count:
            raise ValueError(
                f"{samples.data}: there are {count} names of samples, but {name} has {len(values)}."
            )
    if samples.prediction.probabilities.shape[-1] != num_classes:
        found = samples.prediction.probabilities.shape[-1]
        raise ValueError(
            f"{samples.data}: predictions have {found} classes, but {num_classes} have a name."
        )
    steps = samples.widths or {"": samples.prediction}
    own = [prediction is samples.prediction for prediction in steps.values()]
    if not any(own):
        raise ValueError(
            f"{samples.data}: the prediction is not among those of other widths. Add it in its place."
        )
    return {
        "data": samples.data,
        "outside": samples.outside,
        "names": list(samples.names),
        "truth": labels,
        "images": [data_uri(image, MOST_PIXELS) for image in samples.images],
        "columns": list(samples.columns),
        "cells": [list(row) for row in samples.cells],
        "own": own.index(True),
        "steps": [
            {"said": said, **_numbers(prediction, rule)} for said, prediction in steps.items()
        ],
    }


def _numbers(prediction: Any, rule: str) -> dict[str, Any]:
    """Predictions as columns of plain numbers; of bounds, as parts of :data:`SCALE`."""
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
