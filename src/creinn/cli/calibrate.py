"""Calibration at the end of ``creinn train``."""

from functools import partial
from typing import Any

import torch

from creinn.cli.options import TrainOptions
from creinn.cli.sources import predict_rows
from creinn.credal.abstention import NoThresholdError, rows_needed_without_error
from creinn.credal.conformal import rows_needed
from creinn.data.dataset import Dataset
from creinn.evaluation import summary
from creinn.numerics import check_share, pluralize

SIXTH = 1 / 6  # of the rows


def calibration_split(data: Dataset, options: TrainOptions) -> tuple[Dataset, Dataset]:
    """Split off a random sixth for calibration."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(options.seed))
    count, needed = round(len(order) * SIXTH), dict[str, int]()
    if options.coverage is not None:
        coverage = check_share("coverage", options.coverage)
        needed[f"--coverage {coverage:g}"] = rows_needed(coverage)
    if options.max_error is not None:
        rate = check_share("max_error", options.max_error)
        confidence = check_share("confidence", options.confidence)
        needed[f"--max-error {rate:g}"] = rows_needed_without_error(rate, confidence)
    for name, rows in needed.items():
        if count < rows:
            found = f"a sixth of {pluralize(len(order), 'row')} is {count}"
            raise ValueError(
                f"{name} needs {rows} rows, but {found}. Use more data or another value."
            )
    return data.take(order[count:].sort().values), data.take(order[:count].sort().values)


def calibrate(model: Any, data: Dataset, options: TrainOptions) -> NoThresholdError | None:
    """Calibrate the model, and return an error of ``--max-error``."""
    prediction, coverage, rate = predict_rows(model, data), options.coverage, options.max_error
    fit = partial(model.calibrate_predictions, prediction, data.labels)
    failure = None
    try:
        fit(coverage, max_error=rate, confidence=options.confidence)
    except NoThresholdError as error:
        failure = error
        if coverage is not None:
            fit(coverage)
    print(f"calibrated on {pluralize(len(prediction), 'row')}")
    if coverage is not None:
        calibrated = prediction.with_conformal(model.calibration.conformal)
        size = summary.set_size(calibrated, "conformal")
        print(f"sets of classes for a coverage of {coverage:g}: mean size {size:.2f}")
    if rate is not None and failure is None:
        accepted = prediction.with_abstention(model.calibration.abstention).accepted
        share = accepted.double().mean()
        print(f"accepted for an error rate of at most {rate:g}: {share:.1%} of these rows")
    print("note: this is guaranteed for data like these, not for other data")
    return failure
