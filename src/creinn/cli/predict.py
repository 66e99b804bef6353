"""``creinn predict``: one row per input, with its class, bounds, uncertainties and set of classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from creinn.cli.options import PredictOptions
from creinn.cli.parsing import options_yaml
from creinn.cli.saved import ask, check_outputs, read_model
from creinn.cli.sources import Source
from creinn.credal.credal_set import CredalSet
from creinn.data.numerals import counted
from creinn.evaluation.summary import MEASURES
from creinn.files import write_bytes

BETWEEN = "|"  # between the names in a set of classes


def predict(options: PredictOptions) -> int:
    """Predict by ``options`` and write a table; returns the exit code."""
    check_outputs("predict", options)
    model = read_model(options.model, options.device)
    rows, prediction = ask(model, Source.of(options), labelled=False, batch_size=options.batch_size)
    table = prediction_table(prediction, model.class_names, rows.names, options.rule)
    write_bytes(options.out, table.to_csv(index=False, lineterminator="\n").encode())
    write_bytes(options.out.with_suffix(".yaml"), options_yaml("predict", options).encode())
    print(f"wrote {options.out}: {counted(len(table), 'row')}")
    return 0


def prediction_table(
    prediction: Any, classes: Sequence[str], names: dict[str, Sequence[Any]], rule: str = "maximality"
) -> pd.DataFrame:
    """Predictions as columns, after those of ``names``, which say which row is which.

    They are ``label``; ``probability_c``, of a credal set the intersection probability, and ``lower_c`` and ``upper_c``
    for every class ``c``; ``AU``, ``EU``, ``TU``; and ``set``, names of classes that ``rule`` keeps with ``|`` between.
    Predictions that are no :class:`creinn.CredalSet` have no bounds and no set.

    Raises:
        ValueError: If a column of ``names`` is called as one of the others.
    """
    named = np.array(classes, dtype=object)
    columns: dict[str, Any] = {"label": named[prediction.label.numpy()]}
    is_credal = isinstance(prediction, CredalSet)
    bounds = {"probability": prediction.probabilities}
    bounds |= {"lower": prediction.lower, "upper": prediction.upper} if is_credal else {}
    for k, name in enumerate(classes):
        columns |= {f"{bound}_{name}": values[:, k].numpy() for bound, values in bounds.items()}
    columns |= {short: getattr(prediction, name).numpy() for name, short in MEASURES.items()}
    if is_credal:
        columns["set"] = [BETWEEN.join(named[row]) for row in prediction.classes(rule).numpy()]
    for name in names:
        if name in columns:
            raise ValueError(f"The column {name!r} cannot be kept: the predictions have a column of that name.")
    return pd.DataFrame({**names, **columns})
