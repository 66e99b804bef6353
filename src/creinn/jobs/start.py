"""``creinn train --from``: a trained model as the start, its networks made credal.

In: a saved model, ordinary or CreINN, one network or an ensemble of such. Out: CreINNs around the same networks. A
distance comes on top of a network as it is; for radii an ordinary network becomes its interval twin
(:func:`creinn.convert`). Batch norm on the logits comes along.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from creinn.conversion import convert
from creinn.creinn import CreINN
from creinn.jobs.methods import Form
from creinn.jobs.saved import Saved, parts, read_saved
from creinn.jobs.sources import Source, Training, read_rows
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
        return Training(rows, saved.classes, saved.preprocessing)
    known = saved.preprocessing["target"]
    if target not in (None, known):
        raise ValueError(f"--target is {target!r}, but the model to start from was trained for {known!r}.")
    missing: Sequence[str] = (*saved.preprocessing.get("missing", ()), *source.missing)
    return Training(rows, saved.classes, {**saved.preprocessing, "missing": list(dict.fromkeys(missing))})


def credal(model: SNN | CreINN, form: Form, needs_radii: bool) -> CreINN:
    """A CreINN around the network of a trained model, whose weights it shares where it is not converted.

    Args:
        model: An ordinary model, or a CreINN.
        form: Options of the CreINN: ``distance``, ``mode`` and ``loss``.
        needs_radii: Whether an ordinary network shall become its interval twin.

    Raises:
        ValueError: If the network has no interval twin, or is an interval network of another mode.
    """
    is_interval = isinstance(model, CreINN) and model.is_interval
    if is_interval and form["mode"] != model.mode:
        raise ValueError(f"The model to start from was trained in mode {model.mode!r}: give --mode {model.mode}.")
    if needs_radii and not is_interval:
        layers = (model.network, model.norm) if model.logit_norm else (model.network,)
        ordinary = torch.nn.Sequential(*layers).eval() if len(layers) > 1 else model.network.eval()
        return CreINN(convert(ordinary, mode=form["mode"]), logits=model.logits, logit_norm=False, **form).eval()
    made = CreINN(model.network, logits=model.logits, logit_norm=model.logit_norm, **form)
    made.norm.load_state_dict(model.norm.state_dict())
    return made.eval()
