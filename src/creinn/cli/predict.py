"""``creinn predict``: one row per input, with its class, bounds, uncertainties and set of classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

from creinn.cli.options.predict import PredictOptions
from creinn.cli.outputs import check_outputs
from creinn.cli.parsing import options_yaml
from creinn.cli.saved import read_saved
from creinn.cli.sources import Source, reading_of
from creinn.credal.credal_set import CredalSet
from creinn.data.tables.columns import counted
from creinn.evaluation.summary import MEASURES
from creinn.files import write_bytes

BETWEEN = "|"  # between the names in a set of classes


def predict(options: PredictOptions) -> int:
    """Predict by ``options`` and write a table; returns the exit code.

    Raises:
        ValueError: If the model or the data are not as they must be.
        OSError: If a file cannot be read or written.
    """
    inputs = (options.data, options.lower, options.upper)
    check_outputs("predict", [options.out], inputs, options.model, options.force)
    saved = read_saved(options.model, options.device)
    source = Source(*inputs, reading_of(options), keep=options.keep, size=options.size, strict=options.strict)
    rows, prediction = saved.ask(source, labelled=False, batch_size=options.batch_size)
    table = prediction_table(prediction, saved.classes, rows.names, options.rule)
    write_bytes(options.out, table.to_csv(index=False, lineterminator="\n").encode())
    write_bytes(options.out.with_suffix(".yaml"), options_yaml("predict", options).encode())
    print(f"wrote {options.out}: {counted(len(table), 'row')}")
    return 0


def prediction_table(
    prediction: Any, classes: Sequence[str], names: dict[str, Sequence[Any]], rule: str = "maximality"
) -> pd.DataFrame:
    """Predictions as columns.

    Args:
        prediction: A :class:`creinn.CredalSet`, or a :class:`creinn.rivals.Predictive`, which has no bounds and no set.
        classes: Names of the classes.
        names: Columns that say which row is which.
        rule: Which classes are ruled out; see :meth:`creinn.CredalSet.classes`.

    Returns:
        Those columns; ``label``; ``probability_c``, of a credal set the intersection probability, and ``lower_c`` and
        ``upper_c`` for every class ``c``; ``AU``, ``EU``, ``TU``; and ``set``, names of classes with ``|`` between.

    Raises:
        ValueError: If a column of ``names`` is called as one of the others.
    """
    named = np.array(classes, dtype=object)
    columns: dict[str, Any] = {"label": named[_numpy(prediction.label)]}
    is_credal = isinstance(prediction, CredalSet)
    bounds = {"probability": prediction.probabilities}
    bounds |= {"lower": prediction.lower, "upper": prediction.upper} if is_credal else {}
    for k, name in enumerate(classes):
        columns |= {f"{bound}_{name}": _numpy(values)[:, k] for bound, values in bounds.items()}
    columns |= {short: _numpy(getattr(prediction, name)) for name, short in MEASURES.items()}
    if is_credal:
        columns["set"] = [BETWEEN.join(named[row]) for row in _numpy(prediction.classes(rule))]
    for name in names:
        if name in columns:
            raise ValueError(f"The column {name!r} cannot be kept: the predictions have a column of that name.")
    return pd.DataFrame({**names, **columns})


def _numpy(values: Tensor) -> npt.NDArray[Any]:
    return values.detach().cpu().numpy()
