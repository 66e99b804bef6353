"""The training loop of all classifiers (paper, Section "Training procedure").

The loss of the model is minimized with Adam. After each step, the negative radii of a CreINN are
set to zero. The random numbers depend only on the seed, the epoch and the rank, so checkpoints do
not contain the state of the generators.
"""

import copy
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch
from torch import Tensor

from creinn.classifier.base import Classifier, evaluating
from creinn.device import choose_device
from creinn.distributed import (
    SyncTimer,
    broadcast_object,
    broadcast_state,
    gather,
    rank,
    report_lost_processes,
    single_process,
    world_size,
)
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.training.checkpoint import Checkpoints
from creinn.training.config import TrainConfig
from creinn.training.data import Augment, Batch, Rows
from creinn.training.diagnose import explain_failure, failure_message
from creinn.training.history import EpochSums, History, Row, is_out_of_patience
from creinn.training.progress import Progress
from creinn.training.step import Forward, TrainStep, set_train_mode, train_only

AnyClassifier = TypeVar("AnyClassifier", bound=Classifier)


def fit(
    model: Classifier,
    train_data: Any,
    val_data: Any = None,
    config: TrainConfig | None = None,
    augment: Augment | None = None,
) -> History:
    """Train ``model`` in place.

    After training, the model is in eval mode and on the device of the configuration.

    If ``config.directory`` is set, a run that was killed or interrupted by Ctrl-C is resumed by a
    call with the same arguments, or with more epochs. The final weights are the same as without the
    interruption, bit for bit if the machine, the version of torch, the number of threads and the
    order of the data are the same.

    In a process group, for example of torchrun, call ``fit`` with the same arguments in each
    process (see :doc:`/scale`). Each process uses ``config.batch_size`` rows per step. The process
    with rank 0 writes the files and shows the progress.

    Args:
        model: A classifier with a loss, such as :class:`creinn.CreINN` or
            :class:`creinn.baselines.SNN`.
        train_data: A pair ``(inputs, targets)`` of tensors or memory maps, a triple with positive
            weights ``(N,)`` of the rows, a :class:`creinn.data.Dataset`, a torch ``Dataset`` of
            pairs, or a DataLoader, whose batches are not changed. Inputs can also be an
            :class:`creinn.Interval`, or a dict or tuple of tensors for an ordinary network. Targets
            are classes ``(N,)`` or label distributions ``(N, K)``.
        val_data: Validation data of the same kinds, for the history, ``patience`` and ``keep``.
        config: Settings; the default is ``TrainConfig()``.
        augment: A function ``augment(x, generator)`` that returns a changed batch of inputs. All
            of the random numbers must be sampled with ``generator``.

    Returns:
        The history. If the training is interrupted by Ctrl-C, ``interrupted`` is True and the model
        has the weights of the last step.

    Raises:
        TypeError: If the model has no loss, or the type of the data is not supported.
        ValueError: If the data or the settings are not valid for the model, or if the directory
            contains the checkpoints of a different run.
        FloatingPointError: If the loss or its gradient is not finite. The message names the layer.
        OSError: If a checkpoint cannot be written. The previous checkpoint is not changed.
        ConnectionError: If the connection to another process is lost.
    """
    config = TrainConfig() if config is None else config
    return _Run(model, train_data, val_data, config, augment).train(_progress(config, 1))


def fit_members(
    build: Callable[[], AnyClassifier],
    count: int,
    train_data: Any,
    val_data: Any,
    config: TrainConfig,
    augment: Augment | None = None,
) -> tuple[list[AnyClassifier], list[History]]:
    """Train the members of an ensemble, each with its own seed and directory.

    The function ``build`` returns an untrained classifier. If the training is interrupted by
    Ctrl-C, there can be less than ``count`` members.
    """
    members: list[AnyClassifier] = []
    histories: list[History] = []
    progress = _progress(config, count)
    while len(members) < count and not (histories and histories[-1].interrupted):
        seed = derived_seed(config.seed, len(members))
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            members.append(build())
        folder = config.directory and Path(config.directory) / f"member-{len(histories)}"
        own = replace(config, seed=seed, directory=folder)
        histories.append(_Run(members[-1], train_data, val_data, own, augment).train(progress))
    return members, histories


class _Run:
    """A training run, with the model, the data and the settings."""

    step: TrainStep
    checkpoints: Checkpoints
    timer: SyncTimer
    progress: Progress
    is_checked = False  # whether the network returns logits for the first batch

    def __init__(
        self,
        model: Classifier,
        train_data: Any,
        val_data: Any,
        config: TrainConfig,
        augment: Augment | None,
    ) -> None:
        _check_model(model)
        self.model, self.augment = model, augment
        self.device = choose_device(config.device)
        like = next(p for p in model.to(self.device).parameters() if p.is_floating_point())
        read = partial(Rows, num_classes=model.num_classes, like=like, workers=config.workers)
        self.train_rows = read(train_data, name="train_data")
        self.val_rows = None if val_data is None else read(val_data, name="val_data")
        self.config = config = config.for_rows(self.train_rows.count())
        self.batch_size: int = config.batch_size or 1
        self.total_batch_size = self.batch_size * world_size()
        _check_settings(model, self.train_rows, self.val_rows, self.batch_size, config)
        if config.class_weight is not None:
            weights = _class_weights(config.class_weight, model.num_classes, self.train_rows)
            for rows in filter(None, (self.train_rows, self.val_rows)):
                rows.class_weights = weights.to(like)
        self.steps = self.train_rows.steps(self.batch_size)  # None if the number is not known
        self.forward = Forward(model, config, self.device)

    def train(self, progress: Progress) -> History:
        """Train the model for the remaining epochs."""
        model, config, interrupted = self.model, self.config, False
        with (
            train_only(model, config.train),
            preserve_random_state(self.device, config.deterministic),
            report_lost_processes(config.directory is not None),
            SyncTimer(self.device) as self.timer,
        ):
            self._prepare()
            rows = broadcast_object(self.checkpoints.resume)
            self.step.start()
            self.progress = progress
            progress.start(config.epochs, len(rows), self.steps)
            try:
                while len(rows) < config.epochs and not is_out_of_patience(rows, config.patience):
                    started, epoch = time.perf_counter(), len(rows) + 1
                    rate = config.learning_rate_at(epoch - 1)
                    self.step.set_learning_rate(rate)
                    metrics = self._train_epoch(epoch) | self._validate()
                    seconds = time.perf_counter() - started
                    row = {"epoch": epoch, **metrics, "learning_rate": rate, "seconds": seconds}
                    rows.append(gather(row)[0])
                    broadcast_object(partial(self.checkpoints.epoch_ended, rows))
            except KeyboardInterrupt:
                interrupted = True
            finally:
                progress.close()
                self.step.close()
            broadcast_object(partial(self.checkpoints.ended, interrupted))
            self._finish(interrupted)
        return History(tuple(rows), interrupted)

    def _prepare(self) -> None:
        """Prepare the model, the optimizer and the checkpoints."""
        model, config = self.model, self.config
        self._seed(0)
        with single_process():  # every process reads all data
            batches = self.train_rows.labelled(self.total_batch_size)
            model.before_training(batches, config.epochs)
        set_train_mode(model, config.train)
        self.step = TrainStep(self.forward, config, self.device)
        data = self.train_rows, self.val_rows, self.augment
        optimizer, scaler = self.step.optimizer, self.step.scaler
        self.checkpoints = Checkpoints(config, model, optimizer, scaler, data)

    def _seed(self, epoch: int, rank: int = 0) -> int:
        """Seed all generators for an epoch, and return the seed."""
        seed = derived_seed(self.config.seed, epoch, rank)
        seed_everything(seed, self.device)
        return seed

    def _train_epoch(self, epoch: int) -> Row:
        """Update the weights for each batch, and return the training metrics."""
        self.progress.start_epoch(epoch)
        sums = EpochSums(self.device)
        for step, batch in enumerate(self._epoch_batches(epoch), 1):
            self.step(batch, sums)
            if self.timer.is_due():
                means = sums.means()
                if means["loss"] is None:
                    self._raise_failure(epoch, step)
                self.progress.update(step, means)
        means = sums.means()
        if means["loss"] is None or not self.step.is_finite():
            self._raise_failure(epoch, step)
        self.progress.update(step, means)
        self.progress.end_epoch(step)
        self.steps = step
        return means

    def _epoch_batches(self, epoch: int) -> Iterator[Batch]:
        """Yield the batches of an epoch, which are the same in each call."""
        batches = self.train_rows.shuffled(self.batch_size, self._seed(epoch), self.augment)
        for step, batch in enumerate(batches):
            if step == 0 and not self.is_checked:
                with evaluating(self.model):
                    self.model.check_network(batch.x)
                self.is_checked = True
            if step == 0 and rank() > 0:  # a DataLoader needs the same order on all ranks
                self._seed(epoch, rank())
            yield batch

    def _validate(self) -> Row:
        """Return the validation metrics."""
        if self.val_rows is None:
            return dict.fromkeys(("val_loss", "val_accuracy", "val_width"))
        broadcast_state(self.model)  # the statistics of batch norm
        sums = EpochSums(self.device)
        size = self.val_rows.evaluation_batch_size(self.batch_size)
        with evaluating(self.model), torch.no_grad():
            for batch in self.val_rows.in_order(size):
                sums.add(batch.y, batch.weight, *self.forward(batch))
        return sums.means("val_")

    def _finish(self, interrupted: bool) -> None:
        """Copy the weights of rank 0 to all processes, and call ``after_training``."""
        broadcast_state(self.model)
        self.model.eval()
        if interrupted:
            return
        self._seed(self.config.epochs + 1)
        data = filter(None, (self.train_rows, self.val_rows))
        sizes = ((rows, rows.evaluation_batch_size(self.batch_size)) for rows in data)
        self.model.after_training(*(rows.labelled(size) for rows, size in sizes))
        broadcast_state(self.model)

    def _raise_failure(self, epoch: int, steps: int) -> NoReturn:
        """Repeat the epoch to find the step that was not finite, and raise an error.

        The weights of the model are the ones before this step.
        """
        broadcast_object(self.checkpoints.restore)
        self.step.broadcast()
        cause = "It did not occur when the epoch was repeated."
        for step, batch in enumerate(islice(self._epoch_batches(epoch), steps), 1):
            before = copy.deepcopy(self.model.state_dict())
            self.step(batch, sums := EpochSums(self.device))
            if sums.means()["loss"] is None or not self.step.is_finite():
                self.model.load_state_dict(before)
                cause = broadcast_object(partial(self._explain, epoch, step, batch))
                break
        raise FloatingPointError(failure_message(epoch, step, self.steps, cause))

    def _explain(self, epoch: int, failed: int, last: Batch) -> str:
        """Read the batch of all processes in a failed step again, and find the cause."""
        batches = self.train_rows.shuffled(self.total_batch_size, self._seed(epoch), self.augment)
        batch = next(islice(batches, failed - 1, None), last)
        return explain_failure(self.model, self.forward, batch)


def _progress(config: TrainConfig, networks: int) -> Progress:
    return Progress(config.progress and rank() == 0, networks)


def _check_model(model: Any) -> None:
    """Check that a model can be trained."""
    name = type(model).__name__
    if not isinstance(model, Classifier):
        advice = "Wrap the network: CreINN(network), SNN(network)"
        raise TypeError(f"fit needs a classifier, got {name}. {advice}.")
    if type(model).loss is Classifier.loss:
        raise TypeError(f"{name} has no loss. Fit its members one by one.")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("No parameter of the model requires a gradient: nothing can be trained.")


def _check_settings(
    model: Classifier, train: Rows, val: Rows | None, batch_size: int, config: TrainConfig
) -> None:
    """Check that the settings match the data and the model."""
    if val is None and config.patience is not None:
        raise ValueError("patience needs val_data: early stopping uses the validation loss.")
    if val is None and config.keep == "best":
        raise ValueError("keep='best' needs val_data: it uses the validation loss.")
    if train.row_weights is not None and config.class_weight is not None:
        advice = "Multiply the row weights and drop class_weight"
        raise ValueError(f"Both rows and classes have weights. {advice}.")
    count, processes = train.count(), world_size()
    if count is None:
        return
    found = f"train_data has {count} rows for {processes} processes"
    if count < processes:
        raise ValueError(f"{found}; each needs at least one.")
    norms = (torch.nn.BatchNorm1d, IntervalBatchNorm)
    has_norm = any(isinstance(layer, norms) for layer in model.modules())
    if has_norm and min(-(-count // processes), batch_size) == 1:
        found = found if count <= processes else "batch_size is 1"
        raise ValueError(f"Batch norm needs batches of at least two rows, but {found}.")


def _class_weights(class_weight: Any, num_classes: int, train: Rows) -> Tensor:
    """Return the weights of the classes in the loss."""
    if class_weight == "balanced":
        counts = train.class_counts().double()
        return counts.sum() / (num_classes * counts.clamp_min(1))
    if len(class_weight) != num_classes:
        found = f"{len(class_weight)} weights for {num_classes} classes"
        raise ValueError(f"class_weight has {found}.")
    return torch.tensor(class_weight)


def derived_seed(seed: int, epoch: int, rank: int = 0) -> int:
    """Return a different seed for each epoch and process."""
    sequence = np.random.SeedSequence([seed, epoch, *[rank] * (rank > 0)])
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1


def seed_everything(seed: int, device: torch.device) -> None:
    """Seed torch, NumPy and Python."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)  # faster than a seed for all devices
    else:
        torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (for transforms that use NumPy)


@contextmanager
def preserve_random_state(device: torch.device, deterministic: bool) -> Iterator[None]:
    """Restore the random number generators and the choice of algorithms on exit."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    mode = torch.get_deterministic_debug_mode()
    if deterministic:
        torch.use_deterministic_algorithms(True)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(mode)
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
