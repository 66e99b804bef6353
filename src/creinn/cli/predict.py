"""``creinn predict``: write a table of predictions."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from creinn.cli.options import PredictOptions
from creinn.cli.parsing import check_outputs, options_yaml
from creinn.cli.sources import predict_parts
from creinn.credal.credal_set import CredalSet
from creinn.data.reading import is_parquet, load_pyarrow
from creinn.device import choose_device
from creinn.evaluation import summary
from creinn.files import new_file, write_bytes
from creinn.numerics import pluralize
from creinn.saving import load

SEPARATOR = "|"  # in sets of classes


def predict(options: PredictOptions) -> int:
    """Run ``creinn predict``."""
    check_outputs("predict", options)
    model = load(options.model, choose_device(options.device))
    count = 0
    with new_file(options.out) as file, ExitStack() as stack:
        write: Callable[[pd.DataFrame], None] = partial(_append_csv, file)
        if is_parquet(options.out):
            write = stack.enter_context(closing(ParquetWriter(file))).write
        for data, prediction in predict_parts(model, options):
            write(prediction_table(prediction, model.class_names, data.ids, options.rule))
            count += len(prediction)
    write_bytes(options.out.with_suffix(".yaml"), options_yaml("predict", options).encode())
    print(f"wrote {options.out}: {pluralize(count, 'row')}")
    return 0


def prediction_table(
    prediction: Any,
    classes: Sequence[str],
    names: dict[str, Sequence[Any]],
    rule: str = "maximality",
) -> pd.DataFrame:
    """Return the predictions as columns after those of ``names``.

    The columns are ``label``, ``probability_c`` of each class ``c``,
    ``AU``, ``EU`` and ``TU``. Credal sets also have ``lower_c``,
    ``upper_c`` and ``set``, and calibrated models have ``conformal_set``
    or ``accepted``.
    """
    class_names = np.array(classes, dtype=object)
    columns: dict[str, Any] = {"label": class_names[prediction.label.numpy()]}
    is_credal = isinstance(prediction, CredalSet)
    bounds = {"probability": prediction.probabilities}
    bounds |= {"lower": prediction.lower, "upper": prediction.upper} if is_credal else {}
    for k, name in enumerate(classes):
        columns |= {f"{bound}_{name}": values[:, k].numpy() for bound, values in bounds.items()}
    for name, short in summary.MEASURES.items():
        columns[short] = getattr(prediction, name).numpy()
    rules = {"set": rule} if is_credal else {}
    rules |= {"conformal_set": "conformal"} if summary.has_conformal_sets(prediction) else {}
    for column, by in rules.items():
        sets, rows = np.unique(prediction.classes(by).numpy(), axis=0, return_inverse=True)
        texts = np.array([SEPARATOR.join(class_names[row]) for row in sets], dtype=object)
        columns[column] = texts[rows.ravel()]
    if (accepted := summary.accepted(prediction)) is not None:
        columns["accepted"] = accepted
    if both := names.keys() & columns:
        raise ValueError(f"--keep {', '.join(both)}: the result has this column.")
    return pd.DataFrame({**names, **columns})


class ParquetWriter:
    """Writer of chunks with the types of the first chunk."""

    def __init__(self, file: BinaryIO) -> None:
        self._pa, self._pq = load_pyarrow()
        self._file = file
        self._writer: Any = None

    def write(self, frame: pd.DataFrame) -> None:
        """Append rows."""
        pa = self._pa
        rows = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
        if self._writer is None:
            texts = {pa.null(), pa.large_string()}
            fields = [f.with_type(pa.string()) if f.type in texts else f for f in rows.schema]
            self._writer = self._pq.ParquetWriter(self._file, pa.schema(fields))
        self._writer.write_table(rows.cast(self._writer.schema))

    def close(self) -> None:
        """Complete the file."""
        if self._writer is not None:
            self._writer.close()


def _append_csv(file: BinaryIO, table: pd.DataFrame) -> None:
    table.to_csv(file, mode="wb", index=False, header=file.tell() == 0)
