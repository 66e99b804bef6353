"""The training loop of all classifiers (paper, Section "Training procedure").

The loss of the model is minimized with Adam. After each step, the negative radii of a CreINN are
set to zero. The random numbers depend only on the seed, the epoch and the rank, so the state of the
random number generators is not stored in checkpoints.
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

from creinn.classifier.base import Classifier, evaluating
from creinn.device import choose_device
from creinn.distributed import (
    SyncTimer,
    broadcast_buffers,
    broadcast_object,
    broadcast_state,
    gather,
    rank,
    report_lost_processes,
    single_process,
    use_device,
    world_size,
)
from creinn.training.checkpoint import Checkpoints
from creinn.training.config import TrainConfig
from creinn.training.data import Augment, Batch, Rows, check_settings, set_class_weights
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

    If ``config.directory`` is set, a run that was killed or interrupted by Ctrl-C can be resumed.
    To do this, call ``fit`` again with the same arguments, or with a larger number of epochs. The
    final weights are the same as without the interruption. They are equal bit for bit if the
    machine, the version of torch, the number of threads and the order of the data are the same.

    In a process group, for example one that is started by torchrun, the model is trained by all of
    the processes (see :doc:`/scale`). Call ``fit`` with the same arguments in each process. The
    number of rows per step and process is ``config.batch_size``. The files are written by the
    process with rank 0, which also shows the progress.

    Args:
        model: A classifier with a loss, such as :class:`creinn.CreINN` or
            :class:`creinn.baselines.SNN`.
        train_data: A pair ``(inputs, targets)`` of tensors or memory maps, a triple that also has
            the positive weights ``(N,)`` of the rows in the loss, a :class:`creinn.data.Dataset`,
            or a torch ``Dataset`` of pairs. The inputs can also be an :class:`creinn.Interval`, or
            a dict or tuple of tensors for an ordinary network. The batches of a
            DataLoader and the order of an ``IterableDataset`` are not changed.
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
        FloatingPointError: If the loss or its gradient is not finite. The message contains the name
            of the layer.
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
    """Train the members of an ensemble with :func:`fit`.

    Each member has a different seed and a different directory. The function ``build`` returns an
    untrained classifier. If the training is interrupted by Ctrl-C, the number of members can be
    less than ``count``.
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
        use_device(self.device)
        like = next(p for p in model.to(self.device).parameters() if p.is_floating_point())
        read = partial(Rows, num_classes=model.num_classes, like=like, workers=config.workers)
        self.train_rows = read(train_data, name="train_data")
        self.val_rows = None if val_data is None else read(val_data, name="val_data")
        self.config = config = config.for_rows(self.train_rows.count())
        self.batch_size: int = config.batch_size or 1
        self.total_batch_size = self.batch_size * world_size()
        check_settings(model, self.train_rows, self.val_rows, config)
        set_class_weights(config, model.num_classes, like, self.train_rows, self.val_rows)
        self.steps = self.train_rows.steps(self.batch_size)  # None if the number is not known
        self.forward = Forward(model, config, self.device)

    def train(self, progress: Progress) -> History:
        """Train the model for the remaining epochs."""
        model, config = self.model, self.config
        scaler = torch.amp.GradScaler(
            self.device.type, enabled=config.mixed_precision and self.device.type == "cuda"
        )
        with (
            train_only(model, config.train),
            preserve_random_state(self.device, config.deterministic),
            report_lost_processes(config.directory is not None),
            SyncTimer(self.device) as timer,
        ):
            seed_everything(derived_seed(config.seed, 0))
            with single_process():  # every process reads all data
                batches = self.train_rows.labelled(self.total_batch_size)
                model.before_training(batches, config.epochs)
            trained = [p for p in model.parameters() if p.requires_grad]
            optimizer = torch.optim.Adam(trained, config.learning_rate or 1e-3, fused=True)
            data = self.train_rows, self.val_rows, self.augment
            checkpoints = Checkpoints(config, model, optimizer, scaler, data)
            rows = broadcast_object(checkpoints.resume)
            update = TrainStep(self.forward, optimizer, scaler)
            progress.start(config.epochs, len(rows), self.steps)
            interrupted = False
            try:
                while len(rows) < config.epochs and not is_out_of_patience(rows, config.patience):
                    started, epoch = time.perf_counter(), len(rows) + 1
                    rate = config.learning_rate_at(epoch - 1)
                    optimizer.param_groups[0]["lr"] = rate
                    numbers = self._train_epoch(epoch, update, checkpoints, timer, progress)
                    numbers |= self._validate()
                    seconds = time.perf_counter() - started
                    row = {"epoch": epoch, **numbers, "learning_rate": rate, "seconds": seconds}
                    rows.append(gather(row)[0])
                    broadcast_object(partial(checkpoints.epoch_ended, rows))
            except KeyboardInterrupt:
                interrupted = True
            finally:
                progress.close()
                update.close()
            broadcast_object(partial(checkpoints.ended, interrupted))
            self._finish(interrupted)
        return History(tuple(rows), interrupted)

    def _train_epoch(
        self,
        epoch: int,
        update: TrainStep,
        checkpoints: Checkpoints,
        timer: SyncTimer,
        progress: Progress,
    ) -> Row:
        """Update the weights for each batch, and return the training metrics."""
        progress.start_epoch(epoch)
        sums = EpochSums(self.device)
        for step, batch in enumerate(self._epoch_batches(epoch), 1):
            update(batch, sums)
            if timer.is_due():
                means = sums.means()
                if means["loss"] is None:
                    self._raise_failure(epoch, step, update, checkpoints)
                progress.update(step, means)
        means = sums.means()
        if means["loss"] is None or not update.is_finite():
            self._raise_failure(epoch, step, update, checkpoints)
        progress.update(step, means)
        self.steps = step
        progress.end_epoch(step)
        return means

    def _epoch_batches(self, epoch: int) -> Iterator[Batch]:
        """Yield the batches of an epoch, which are the same in each call."""
        seed = derived_seed(self.config.seed, epoch)
        seed_everything(seed)
        set_train_mode(self.model, self.config.train)
        batches = self.train_rows.shuffled(self.batch_size, seed, self.augment)
        for step, batch in enumerate(batches, 1):
            if step == 1:
                with evaluating(self.model):
                    self.model.check_network(batch.x)
                if rank() > 0:  # only now, because a DataLoader needs the same order on all ranks
                    seed_everything(derived_seed(self.config.seed, epoch, rank()))
            yield batch

    def _raise_failure(
        self, epoch: int, steps: int, update: TrainStep, checkpoints: Checkpoints
    ) -> NoReturn:
        """Repeat the epoch to find the step that was not finite, and raise an error.

        The weights of the model are the ones before this step.
        """
        broadcast_object(checkpoints.restore)
        broadcast_state(self.model)
        update.broadcast_optimizer()
        for step, batch in enumerate(self._epoch_batches(epoch), 1):
            before = copy.deepcopy(self.model.state_dict())
            update(batch, sums := EpochSums(self.device))
            if sums.means()["loss"] is None or not update.is_finite():
                self.model.load_state_dict(before)
                cause = broadcast_object(partial(self._explain, epoch, step, batch))
                raise FloatingPointError(failure_message(epoch, step, self.steps, cause))
            if step == steps:
                break
        cause = "It did not occur when the epoch was repeated."
        raise FloatingPointError(failure_message(epoch, steps, self.steps, cause))

    def _explain(self, epoch: int, failed: int, last: Batch) -> str:
        """Read the batch of all processes in a failed step again, and find the cause."""
        seed = derived_seed(self.config.seed, epoch)
        seed_everything(seed)  # a DataLoader draws its order from torch's generator
        batches = self.train_rows.shuffled(self.total_batch_size, seed, self.augment)
        batch = next(islice(batches, failed - 1, None), last)
        return explain_failure(self.model, self.forward, batch)

    def _validate(self) -> Row:
        """Return the validation metrics."""
        if self.val_rows is None:
            return dict.fromkeys(("val_loss", "val_accuracy", "val_width"))
        broadcast_buffers(self.model)
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
        if not interrupted:
            seed_everything(derived_seed(self.config.seed, self.config.epochs + 1))
            train, *held_out = (
                rows.labelled(rows.evaluation_batch_size(self.batch_size))
                for rows in (self.train_rows, self.val_rows)
                if rows is not None
            )
            self.model.after_training(train, *held_out)
            broadcast_state(self.model)


def _progress(config: TrainConfig, networks: int) -> Progress:
    return Progress(config.progress and rank() == 0, networks)


def _check_model(model: Any) -> None:
    """Check that a model can be trained."""
    name = type(model).__name__
    if not isinstance(model, Classifier):
        raise TypeError(
            f"fit needs a classifier, got {name}. Wrap the network: CreINN(network), SNN(network)."
        )
    if type(model).loss is Classifier.loss:
        raise TypeError(f"{name} has no loss. Fit its members one by one.")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("No parameter of the model requires a gradient: nothing can be trained.")


def derived_seed(seed: int, epoch: int, rank: int = 0) -> int:
    """Return the seed for an epoch and a process.

    The seed is different for different arguments.
    """
    sequence = np.random.SeedSequence([seed, epoch, *[rank] * (rank > 0)])
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1


def seed_everything(seed: int) -> None:
    """Seed torch on all devices, NumPy and Python."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (for transforms that use NumPy)


@contextmanager
def preserve_random_state(device: torch.device, deterministic: bool) -> Iterator[None]:
    """Restore the state of the random number generators on exit.

    The setting of deterministic algorithms is also restored.
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    mode = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.use_deterministic_algorithms(
            mode or deterministic, warn_only=warn_only and not deterministic
        )
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(mode, warn_only=warn_only)
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
