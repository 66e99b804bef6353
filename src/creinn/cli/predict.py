"""``creinn predict``: one row per input, with its class, bounds, uncertainties and set of classes.

Also what all commands share that ask a saved model: :func:`ask`, and :func:`check_outputs` before.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml

from creinn.cli.options import DataOptions, ModelOptions, PredictOptions
from creinn.cli.parsing import options_yaml
from creinn.cli.sources import OPTIONS, Rows, check_paths, read_model, read_rows, takes_intervals
from creinn.credal.credal_set import CredalSet
from creinn.data.numerals import counted
from creinn.evaluation.summary import MEASURES
from creinn.files import write_bytes
from creinn.interval import Interval
from creinn.saving import CONFIG, WEIGHTS

BETWEEN = "|"  # between the names in a set of classes
READ, WRITTEN = ("data", "lower", "upper", "ood", "ood_lower", "ood_upper"), ("out", "report")
"""Names of options that are files."""


def predict(options: PredictOptions) -> int:
    """Predict by ``options`` and write a table; returns the exit code."""
    check_outputs("predict", options)
    model = read_model(options.model, options.device)
    rows, prediction = ask(model, options, labelled=False)
    table = prediction_table(prediction, model.class_names, rows.names, options.rule)
    write_bytes(options.out, table.to_csv(index=False, lineterminator="\n").encode())
    write_bytes(options.out.with_suffix(".yaml"), options_yaml("predict", options).encode())
    print(f"wrote {options.out}: {counted(len(table), 'row')}")
    return 0


def prediction_table(
    prediction: Any, classes: Sequence[str], names: dict[str, Sequence[Any]], rule: str = "maximality"
) -> pd.DataFrame:
    """Predictions as columns, after those of ``names``, which say which row is which and are called otherwise.

    They are ``label``; ``probability_c``, of a credal set the intersection probability, and ``lower_c`` and ``upper_c``
    for every class ``c``; ``AU``, ``EU``, ``TU``; and ``set``. Only credal sets have bounds and a set.
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


def ask(model: Any, options: DataOptions, labelled: bool) -> tuple[Rows, Any]:
    """Rows of a user's data, and what a saved model says of them."""
    check_paths(options)
    rows = read_rows(options, model.preprocessing, model.class_names if labelled else None)
    if isinstance(rows.x, Interval) and not takes_intervals(model):
        hold = f"{options.source} hold intervals, but the model takes none"
        raise ValueError(f"{hold}. Train one for them with --method creinn.")
    rows.say()
    with torch.random.fork_rng():
        torch.manual_seed(0)  # methods that predict by sampling shall say the same every time
        return rows, rows.predict(model, rows.x, options.batch_size).to("cpu")


def check_outputs(command: str, options: ModelOptions) -> None:
    """Refuse, before any work, to replace inputs, the model and, but for ``--force``, files of another origin.

    The options are kept beside the first output, with the suffix ``.yaml``; they tell later what this command wrote.
    """
    outputs = [path for name in WRITTEN if (path := getattr(options, name, None)) is not None]
    kept = options.out.with_suffix(".yaml")
    if kept in outputs:
        raise ValueError(f"{kept} is where the options are kept. Give the result another suffix.")
    inputs = [getattr(options, name, None) for name in READ]
    read = [path for path in (*inputs, *(options.model / name for name in (CONFIG, WEIGHTS, OPTIONS))) if path]
    ours = _written_before(kept, command)
    for path in (*outputs, kept):
        if not path.exists():
            continue
        if path.is_dir():
            raise ValueError(f"{path} is a directory. Name a file to write.")
        places = [path] if path in ours else [path, *path.absolute().parents]
        if any(os.path.samefile(source, place) for source in read if source.exists() for place in places):
            raise ValueError(f"{path} is an input of this command, or part of one. Name another file to write.")
        if path not in ours and not options.force:
            found = f"{path} is there already, and creinn {command} did not write it"
            raise ValueError(f"{found}. Name another file, or replace it with --force.")
        print(f"note: {path} is there already and will be replaced")


def _written_before(kept: Path, command: str) -> set[Path]:
    """The files that an earlier run names in its options, and these."""
    try:
        text = kept.read_text(encoding="utf-8")
        named = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return set()
    if f"; again: creinn {command} " not in text.partition("\n")[0] or not isinstance(named, dict):
        return set()
    return {kept, *(Path(named[key]) for key in WRITTEN if named.get(key))}
