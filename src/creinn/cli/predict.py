"""``creinn predict``: write the class, bounds and uncertainties of each input.

The functions :func:`predict_all` and :func:`check_outputs` are also used by ``creinn evaluate``.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import torch
import yaml

from creinn.cli.coverage import gives_classes
from creinn.cli.options import ModelOptions, PredictOptions
from creinn.cli.parsing import options_yaml
from creinn.cli.sources import (
    OPTIONS,
    Rows,
    check_paths,
    counting,
    read_model,
    stream_rows,
    takes_intervals,
)
from creinn.credal.credal_set import CredalSet
from creinn.data.reading import ParquetWriter, is_parquet
from creinn.evaluation.summary import MEASURES
from creinn.files import new_file, write_bytes, writing
from creinn.numerics import pluralize
from creinn.saving import CONFIG, WEIGHTS

BETWEEN = "|"  # the separator of the names in a set of classes
READ, WRITTEN = ("data", "lower", "upper", "ood", "ood_lower", "ood_upper"), ("out", "report")
"""The names of the options that are files."""


def predict(options: PredictOptions) -> int:
    """Predict the data, write the table in parts, and return the exit code."""
    check_outputs("predict", options)
    model = read_model(options.model, options.device)
    count = 0
    with new_table(options.out) as write:
        for rows, prediction in _answers(model, options):
            write(prediction_table(prediction, model.class_names, rows.names, options.rule))
            count += len(prediction)
    write_bytes(options.out.with_suffix(".yaml"), options_yaml("predict", options).encode())
    print(f"wrote {options.out}: {pluralize(count, 'row')}")
    return 0


@contextmanager
def new_table(path: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Open a new CSV or Parquet file, by suffix, and yield a function to append rows."""
    with new_file(path) as file, ExitStack() as stack:
        append = (
            stack.enter_context(ParquetWriter(file)).write
            if is_parquet(path)
            else partial(_append_csv, file)
        )

        def write(table: pd.DataFrame) -> None:
            with writing(path):
                append(table)

        yield write


def _append_csv(file: BinaryIO, table: pd.DataFrame) -> None:
    """Append rows in the format of pandas; this is more than twice as fast."""
    cells = zip(*(_csv_texts(column) for _, column in table.items()), strict=True)
    names = [[_quoted(name) for name in table.columns]] if file.tell() == 0 else []
    file.write("".join(",".join(row) + "\n" for row in chain(names, cells)).encode())


def _csv_texts(column: pd.Series) -> Iterable[str]:
    """Return the cells as text; nine digits are exact for single precision."""
    if column.dtype == np.float32:
        return map("%.9g".__mod__, column.tolist())
    codes, found = pd.factorize(column)
    return np.array([*(_quoted(str(value)) for value in found), ""], dtype=object)[codes].tolist()


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in ',"\r\n') else text


def prediction_table(
    prediction: Any,
    classes: Sequence[str],
    names: dict[str, Sequence[Any]],
    rule: str = "maximality",
) -> pd.DataFrame:
    """Return the predictions as columns after ``names``, which identify the rows.

    A column of ``names`` is renamed if necessary. The columns are ``label``; ``probability_c``,
    ``lower_c`` and ``upper_c`` for each class ``c``; ``AU``, ``EU``, ``TU``; ``set``; and
    ``conformal_set`` if the model is calibrated, which can be empty. The probability of a credal
    set is the intersection probability. Only credal sets have bounds and sets.
    """
    named = np.array(classes, dtype=object)
    columns: dict[str, Any] = {"label": named[prediction.label.numpy()]}
    is_credal = isinstance(prediction, CredalSet)
    bounds = {"probability": prediction.probabilities}
    bounds |= {"lower": prediction.lower, "upper": prediction.upper} if is_credal else {}
    for k, name in enumerate(classes):
        columns |= {f"{bound}_{name}": values[:, k].numpy() for bound, values in bounds.items()}
    columns |= {short: getattr(prediction, name).numpy() for name, short in MEASURES.items()}
    rules = {"set": rule} if is_credal else {}
    rules |= {"conformal_set": "conformal"} if is_credal and gives_classes(prediction) else {}
    for column, by in rules.items():
        found, rows = np.unique(prediction.classes(by).numpy(), axis=0, return_inverse=True)
        columns[column] = np.array([BETWEEN.join(named[row]) for row in found], dtype=object)[
            rows.ravel()
        ]
    for name in names:
        if name in columns:
            raise ValueError(
                f"The column {name!r} cannot be kept: the predictions have a column of that name."
            )
    return pd.DataFrame({**names, **columns})


def predict_all(model: Any, options: ModelOptions, labelled: bool) -> tuple[Any, Any]:
    """Predict all rows in parts; return the predictions and, if labelled, classes."""
    found = [
        (said, rows.labels)
        for rows, said in _answers(model, options, model.class_names if labelled else None)
    ]
    if not found:
        raise ValueError(f"{options.source} has no rows.")
    predictions, labels = zip(*found, strict=True)
    return type(predictions[0]).concatenate(predictions), torch.cat(labels) if labelled else None


def _answers(
    model: Any, options: ModelOptions, classes: Sequence[str] | None = None
) -> Iterator[tuple[Rows, Any]]:
    """Yield the parts of the data with the predictions, and then print the notes."""
    check_paths(options)
    rows = None
    with _seeded():
        for rows in counting(
            stream_rows(options, model.preprocessing, classes, whole=False), options.progress
        ):
            if rows.is_interval and not takes_intervals(model):
                raise ValueError(
                    f"{options.source} contain intervals, but the model does not support them. "
                    "Train a model with --method creinn."
                )
            if len(rows.x):
                yield rows, rows.predict(model, options.batch_size).to("cpu")
    assert rows is not None
    rows.print_notes()


@contextmanager
def _seeded() -> Iterator[None]:
    """Set the seed of methods that use sampling, for reproducible results."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def check_outputs(command: str, options: ModelOptions) -> None:
    """Raise an error if an output would replace an input, the model or other files.

    The check is done before any work. With ``--force`` other files can be replaced. The options are
    written to a file with the suffix ``.yaml`` in the directory of the first output. This file
    contains the names of the files that were written by the command.
    """
    outputs = [path for name in WRITTEN if (path := getattr(options, name, None)) is not None]
    kept = options.out.with_suffix(".yaml")
    if kept in outputs:
        raise ValueError(
            f"{kept} is the file of the options. Choose another suffix for the result."
        )
    inputs = [getattr(options, name, None) for name in READ]
    read = [
        path
        for path in (*inputs, *(options.model / name for name in (CONFIG, WEIGHTS, OPTIONS)))
        if path
    ]
    ours = _written_before(kept, command)
    for path in (*outputs, kept):
        if not path.exists():
            continue
        if path.is_dir():
            raise ValueError(f"{path} is a directory. Give a file.")
        places = [path] if path in ours else [path, *path.absolute().parents]
        if any(
            os.path.samefile(source, place)
            for source in read
            if source.exists()
            for place in places
        ):
            raise ValueError(
                f"{path} is an input of this command, or part of one. Choose another file."
            )
        if path not in ours and not options.force:
            found = f"{path} exists, and creinn {command} did not write it"
            raise ValueError(f"{found}. Choose another file, or replace it with --force.")
        print(f"note: {path} exists and will be replaced")


def _written_before(kept: Path, command: str) -> set[Path]:
    """Return the files in the options of an earlier run, and the file of the options."""
    try:
        text = kept.read_text(encoding="utf-8")
        named = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return set()
    if f"; again: creinn {command} " not in text.partition("\n")[0] or not isinstance(named, dict):
        return set()
    return {kept, *(Path(named[key]) for key in WRITTEN if named.get(key))}
