"""The training loop of all classifiers (paper, Section "Training procedure").

Adam minimizes the loss. After each step, the negative radii of a CreINN
are set to zero. The random numbers depend only on the seed, the epoch and
the rank, so checkpoints contain no generators.
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
    """Train ``model`` in place; it ends in eval mode on the device of the settings.

    With ``config.directory``, the same call, or one with more epochs,
    resumes a run that was killed or interrupted by Ctrl-C. The final
    weights are the same as without the interruption, bit for bit with the
    same machine, version of torch, number of threads and order of the
    data.

    In a process group, for example of torchrun, call ``fit`` with the same
    arguments in each process; see :doc:`/scale`.

    Args:
        model: Classifier with a loss, such as :class:`creinn.CreINN`.
        train_data: A pair ``(inputs, targets)`` of tensors or memory maps,
            a triple with positive row weights ``(N,)``, a
            :class:`creinn.data.Dataset`, a torch ``Dataset`` of pairs, or
            a DataLoader. Inputs can also be a :class:`creinn.Interval`, or
            a dict or tuple of tensors for an ordinary network. Targets are
            classes ``(N,)`` or distributions ``(N, K)``.
        val_data: Validation data of the same kinds, for the history,
            ``patience`` and ``keep``.
        config: Settings; by default ``TrainConfig()``.
        augment: Function ``augment(x, generator)`` that changes a batch of
            inputs, with random numbers of ``generator`` only.

    Returns:
        The history. After a Ctrl-C, ``interrupted`` is True and the model
        has the weights of the last step.

    Raises:
        TypeError: If the model has no loss, or the type of the data is not
            supported.
        ValueError: If the data or settings are not valid for the model, or
            the directory contains another run.
        FloatingPointError: If the loss or its gradient is not finite. The
            message names the layer.
        OSError: If a checkpoint cannot be written; the previous one is not
            changed.
        ConnectionError: If the connection to another process is lost.
    """
    run = _Run(model, train_data, val_data, config or TrainConfig(), augment)
    return run.train(Progress(run.config.progress and rank() == 0))


def fit_members(
    build: Callable[[], AnyClassifier],
    count: int,
    train_data: Any,
    val_data: Any,
    config: TrainConfig,
    augment: Augment | None = None,
) -> tuple[list[AnyClassifier], list[History]]:
    """Train the members of an ensemble, each with its own seed and directory.

    ``build`` returns an untrained classifier. A Ctrl-C leaves fewer than
    ``count`` members.
    """
    members: list[AnyClassifier] = []
    histories: list[History] = []
    progress = Progress(config.progress and rank() == 0, count)
    for number in range(count):
        seed = derived_seed(config.seed, number)
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            members.append(build())
        folder = config.directory and Path(config.directory) / f"member-{number}"
        own = replace(config, seed=seed, directory=folder)
        histories.append(_Run(members[-1], train_data, val_data, own, augment).train(progress))
        if histories[-1].interrupted:
            break
    return members, histories


class _Run:
    """A training run."""

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
        self.train_rows = train = read(train_data, name="train_data")
        self.val_rows = None if val_data is None else read(val_data, name="val_data")
        self.config = config = config.for_rows(train.count())
        self.batch_size: int = config.batch_size or 1
        self.total_batch_size = self.batch_size * world_size()
        _check_settings(model, train, self.val_rows, self.batch_size, config)
        if config.class_weight is not None:
            weights = _class_weights(config.class_weight, model.num_classes, train).to(like)
            for rows in filter(None, (train, self.val_rows)):
                rows.class_weights = weights
        self.steps = train.steps(self.batch_size)  # None if not known
        self.forward = Forward(model, config, self.device)

    def train(self, progress: Progress) -> History:
        """Train for the remaining epochs."""
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
                    self.step.optimizer.param_groups[0]["lr"] = rate
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
        model, config = self.model, self.config
        self._seed(0)
        with single_process():  # every process reads all data
            batches = self.train_rows.labelled(self.total_batch_size)
            model.before_training(batches, config.epochs)
        set_train_mode(model, config.train)
        self.step = TrainStep(self.forward, config, self.device)
        data = self.train_rows, self.val_rows, self.augment
        self.checkpoints = Checkpoints(config, model, self.step, data)

    def _seed(self, epoch: int, rank: int = 0) -> int:
        """Seed torch, NumPy and Python for an epoch, and return the seed."""
        seed = derived_seed(self.config.seed, epoch, rank)
        if self.device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # faster than for all devices
        else:
            torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002  (for transforms that use NumPy)
        return seed

    def _train_epoch(self, epoch: int) -> Row:
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
        """Yield the same batches of an epoch in each call."""
        batches = self.train_rows.shuffled(self.batch_size, self._seed(epoch), self.augment)
        for step, batch in enumerate(batches):
            if step == 0 and not self.model.is_checked:
                with evaluating(self.model):
                    self.model.check_network(batch.x)
            if step == 0 and rank() > 0:  # a DataLoader needs the same order on all ranks
                self._seed(epoch, rank())
            yield batch

    def _validate(self) -> Row:
        if self.val_rows is None:
            return dict.fromkeys(("val_loss", "val_accuracy", "val_width"))
        broadcast_state(self.model)  # statistics of batch norm
        sums = EpochSums(self.device)
        size = self.val_rows.evaluation_batch_size(self.batch_size)
        with evaluating(self.model), torch.no_grad():
            for batch in self.val_rows.in_order(size):
                sums.add(batch.y, batch.weight, *self.forward(batch))
        return sums.means("val_")

    def _finish(self, interrupted: bool) -> None:
        """Fit what depends on the weights, after copying those of rank 0."""
        broadcast_state(self.model)
        self.model.eval()
        if interrupted:
            return
        self._seed(self.config.epochs + 1)
        data = [rows for rows in (self.train_rows, self.val_rows) if rows is not None]
        sizes = [rows.evaluation_batch_size(self.batch_size) for rows in data]
        self.model.after_training(*map(Rows.labelled, data, sizes))
        broadcast_state(self.model)

    def _raise_failure(self, epoch: int, steps: int) -> NoReturn:
        """Repeat the epoch up to the failed step, and raise an error that explains it."""
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
        """Find the cause of a failed step in the joint batch of all processes."""
        batches = self.train_rows.shuffled(self.total_batch_size, self._seed(epoch), self.augment)
        batch = next(islice(batches, failed - 1, None), last)
        return explain_failure(self.model, self.forward, batch)


def _check_model(model: Any) -> None:
    name = type(model).__name__
    if not isinstance(model, Classifier):
        raise TypeError(f"fit needs a classifier such as CreINN(network), got {name}.")
    if type(model).loss is Classifier.loss:
        raise TypeError(f"{name} has no loss. Fit its members one by one.")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("The model has no parameters that require a gradient.")


def _check_settings(
    model: Classifier, train: Rows, val: Rows | None, batch_size: int, config: TrainConfig
) -> None:
    if val is None and (config.patience is not None or config.keep == "best"):
        name = "keep='best'" if config.patience is None else "patience"
        raise ValueError(f"{name} needs val_data, for the validation loss.")
    if train.row_weights is not None and config.class_weight is not None:
        raise ValueError("class_weight cannot be used if the rows have weights. Multiply them.")
    count, processes = train.count(), world_size()
    if count is None:
        return
    found = f"train_data has {count} rows for {processes} processes"
    if count < processes:
        raise ValueError(f"{found}; each needs at least one.")
    if count == processes or batch_size == 1:
        found = found if count == processes else "batch_size is 1"
        norms = (torch.nn.BatchNorm1d, IntervalBatchNorm)
        if any(isinstance(layer, norms) for layer in model.modules()):
            raise ValueError(f"Batch norm needs at least two rows per batch, but {found}.")


def _class_weights(class_weight: Any, num_classes: int, train: Rows) -> Tensor:
    if class_weight == "balanced":
        counts = train.class_counts().double()
        return counts.sum() / (num_classes * counts.clamp_min(1))
    if (found := len(class_weight)) != num_classes:
        raise ValueError(f"class_weight has {found} weights for {num_classes} classes.")
    return torch.tensor(class_weight)


def derived_seed(seed: int, epoch: int, rank: int = 0) -> int:
    """Return a seed for each epoch and process."""
    sequence = np.random.SeedSequence([seed, epoch, *[rank] * (rank > 0)])
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1


@contextmanager
def preserve_random_state(device: torch.device, deterministic: bool) -> Iterator[None]:
    """Restore the random generators and the choice of algorithms on exit."""
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
