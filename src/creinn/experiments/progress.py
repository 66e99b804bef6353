"""One bar for a whole run, with the time left: read off the files that workers leave, so it works across processes."""

import contextlib
import sys
import threading
from collections.abc import Iterator, Sequence

from tqdm import tqdm

from creinn.experiments.definition import Experiment
from creinn.experiments.names import SINGLE
from creinn.experiments.plan import Piece
from creinn.experiments.store import Store
from creinn.training.runfiles import HISTORY

COSTS = {"snn": 1.0, "bnn-l": 1.0, "fsvi": 1.5, "bnn-r": 2.5, "bnn-f": 3.0, "creinn": 3.5}
"""Time of a training step relative to the SNN, roughly: only the estimate of the time left depends on it."""

PREDICTION = 0.3
"""Time of a prediction relative to a training step, per image; roughly."""

REFRESH_SECONDS, REFRESH_LOG_SECONDS = 1.0, 60.0  # on a terminal, in a log


def training_cost(experiment: Experiment, training: Piece, images: int) -> float:
    """Expected time of a training, in steps of one image through an SNN."""
    return _cost(training) * experiment.training.epochs * images


def prediction_cost(evaluation: Piece, images: int) -> float:
    """Expected time of an evaluation, in the same unit; with running and with batch statistics."""
    samples = 10 if SINGLE[evaluation.method].kind in ("bnn-r", "bnn-f") else 1
    return 2 * PREDICTION * _cost(evaluation) * samples * images


@contextlib.contextmanager
def progress_bar(
    experiment: Experiment, evaluations: Sequence[Piece], store: Store, images: tuple[int, int], shown: bool
) -> Iterator[None]:
    """Show how far the trainings and evaluations are, until the block ends.

    Args:
        experiment: The experiment.
        evaluations: What is to be done.
        store: Where the files are.
        images: Numbers of training and of test images.
        shown: Whether to show anything.
    """
    costs = {
        piece.key: (training_cost(experiment, piece.needs[0], images[0]), prediction_cost(piece, images[1]))
        for piece in evaluations
    }

    def done() -> float:
        total = 0.0
        for piece in evaluations:
            of_training, of_prediction = costs[piece.key]
            if store.has_record(piece) and store.predictions_path(piece).is_file():
                total += of_training + of_prediction
            else:
                total += of_training * _share_trained(store, piece.needs[0], experiment.training.epochs)
        return total

    total = sum(map(sum, costs.values()))
    bar = tqdm(
        total=total,
        initial=min(done(), total),
        disable=not shown,
        smoothing=0,
        desc=experiment.name,
        bar_format="{desc} {percentage:3.0f}% |{bar}| {elapsed} passed, {remaining} left",
    )
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(REFRESH_SECONDS if sys.stderr.isatty() else REFRESH_LOG_SECONDS):
            bar.n = min(done(), total)
            bar.refresh()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        bar.n = min(done(), total)
        bar.close()


def _cost(piece: Piece) -> float:
    single = SINGLE[piece.method]
    return COSTS["snn" if single.options.get("layers") == "ordinary" else single.kind]


def _share_trained(store: Store, training: Piece, epochs: int) -> float:
    if store.weights_path(training).is_file():
        return 1.0
    try:
        return (store.training_folder(training) / HISTORY).read_bytes().count(b"\n") / epochs
    except OSError:
        return 0.0
