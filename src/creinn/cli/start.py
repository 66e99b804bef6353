"""``creinn train --from``: a trained model as the start, its networks made credal.

In: a saved model, ordinary or CreINN, one network or an ensemble of such; new rows. Out: both, ready to make CreINNs
of (:func:`creinn.training.start.credal`).
"""

from pathlib import Path

from creinn.classifier.creinn import CreINN
from creinn.cli.saved import Saved, parts, read_saved
from creinn.cli.sources import Source, Training, read_rows
from creinn.rivals import SNN


def read_start(directory: Path, device: str) -> Saved:
    """The model to start from, with its context.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is no saved model, or of a kind that nothing can start from.
    """
    saved = read_saved(directory, device)
    kinds = {type(member) for member in parts(saved.model)}
    if not kinds <= {SNN, CreINN}:
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(
            f"{directory} holds a model of kind {found}, which nothing can start from; the methods creinn-d, creinn, "
            f"snn and deep-ensemble give models that can."
        )
    return saved


def read_again(source: Source, saved: Saved, target: str | None) -> Training:
    """Rows to learn from, prepared as for a saved model.

    Raises:
        ValueError: If the data are not as they must be, or the model was trained for another target.
    """
    rows = read_rows(source, saved.preprocessing, saved.classes)
    if saved.preprocessing["kind"] == "images":
        return Training(rows, saved.classes, {**saved.preprocessing, "size": list(rows.x.shape[2:])})
    known = saved.preprocessing["target"]
    if target not in (None, known):
        raise ValueError(f"--target is {target!r}, but the model to start from was trained for {known!r}.")
    marks = source.reading.missing or saved.preprocessing["marks"]
    return Training(rows, saved.classes, {**saved.preprocessing, "marks": list(marks)})
