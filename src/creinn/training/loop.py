"""The training loop, one page for every classifier of this package (Section "Training procedure").

Adam on the model's loss, with the radii of a CreINN projected onto ``>= 0`` after each step.
"""

import math
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from creinn.classifier.base import Classifier, Prediction, evaluating
from creinn.credal.credal_set import CredalSet
from creinn.nn import BatchNorm1d
from creinn.numerics import weight_per_row
from creinn.ranks import all_sum, alone, from_first, gather, rank, world
from creinn.training.checkpoint import History, Row, RunFiles, is_out_of_patience
from creinn.training.config import TrainConfig
from creinn.training.data import Augment, Batch, Rows
from creinn.training.diagnose import Guard, explain_failure
from creinn.training.distributed import (
    Pace,
    check_backend,
    norms_over_ranks,
    replicated,
    telling_lost_ranks,
)
from creinn.training.progress import Progress
from creinn.training.start import (
    derived_seed,
    finding_idle,
    own_randomness,
    seed_everything,
    start_training,
    training_only,
)

AnyClassifier = TypeVar("AnyClassifier", bound=Classifier)


def fit(
    model: Classifier,
    train_data: Any,
    val_data: Any = None,
    config: TrainConfig | None = None,
    augment: Augment | None = None,
) -> History:
    """Train ``model`` in place; it ends in eval mode, on the device of the configuration.

    With ``config.directory`` a run that was killed or interrupted by Ctrl-C at any moment goes on from its last
    checkpoint when ``fit`` is called with the same arguments, or more epochs, again, and ends with the weights that it
    would have had anyway: bit for bit on the same machine, with the same torch, number of threads and order of data.

    Inside a process group of torch, as torchrun starts it, the ranks train together. Each calls ``fit`` with the same
    arguments and takes its share of every batch, which has ``config.batch_size`` rows *per rank*; batch norms see the
    whole batch. So two ranks with batches of 32 take the steps of one with 64, up to rounding, unless these depend on
    more than gradients of a mean over rows: dropout, augmentation and sampled weights draw other numbers on each rank,
    ``loss="bounds"`` chooses the hardest rows of each, and a last batch with fewer rows than ranks joins the one before
    it. Only rank 0 writes files and shows progress. All ranks end with the same model. Such a run can go on on another
    number of ranks, if the batches of all together are as large as before; it is then the same up to rounding only.

    Args:
        model: A classifier with a loss, such as :class:`creinn.CreINN` or :class:`creinn.baselines.SNN`.
        train_data: A pair ``(inputs, targets)`` of tensors, a :class:`creinn.data.Dataset`, or a torch ``Dataset`` of
            pairs. Inputs may be an :class:`creinn.Interval`; those of an ordinary network a dict or tuple of tensors.
            Of ``(inputs, targets, weights)`` the weights ``(N,)``, positive, are those of the rows in the loss.
            Memory maps are read batch by batch. A DataLoader gives its own batches in its own order, whatever
            ``batch_size`` says; ``seed`` decides on that order only as far as the loader has no generator of its own.
            An ``IterableDataset`` gives its order, and ``batch_size`` of its rows at a time.
        val_data: The same, for the validation columns of the history, for ``patience`` and the best checkpoint.
        config: Settings; by default those of :class:`TrainConfig`.
        augment: ``augment(x, generator)`` changes a batch of inputs, both bounds of an interval alike, with all its
            randomness taken from ``generator``.

    Returns:
        The history. After Ctrl-C its ``interrupted`` is true, and the model has the weights of that moment.

    Raises:
        TypeError: If the model has no loss, or data are of the wrong kind.
        ValueError: If data or settings do not fit (``train="radii"`` needs radii), the network gives no logits, or the
            directory holds the checkpoint of another run.
        FloatingPointError: If the loss or its gradient is NaN or infinite; the message says where it began.
        OSError: If a checkpoint cannot be written; the one before it is intact. Also, as ``ConnectionError``, if
            another rank is lost.
    """
    config = TrainConfig() if config is None else config
    return _fit(model, train_data, val_data, config, augment, _progress(config, 1))


def _fit(
    model: Classifier,
    train_data: Any,
    val_data: Any,
    config: TrainConfig,
    augment: Augment | None,
    progress: Progress,
) -> History:
    _check_model(model)
    device = choose_device(config.device)
    check_backend(device)
    like = next(p for p in model.to(device).parameters() if p.is_floating_point())
    train = Rows(train_data, model.num_classes, like, "train_data", config.workers)
    val = (
        None
        if val_data is None
        else Rows(val_data, model.num_classes, like, "val_data", config.workers)
    )
    _check_plan(model, train, val, config)
    _set_class_weights(config, model.num_classes, like, train, val)
    batch_size = config.batch_size * world()
    steps = train.steps(batch_size)  # None: not known before the first epoch ends
    half = torch.autocast(device.type, torch.bfloat16 if device.type == "cpu" else torch.float16)
    scaler = torch.amp.GradScaler(
        device.type, enabled=config.mixed_precision and device.type == "cuda"
    )
    forward = _Forward(model, half if config.mixed_precision else nullcontext())

    def validate() -> Row:
        if val is None:
            return dict.fromkeys(("val_loss", "val_accuracy", "val_width"))
        sums = _no_sums(device)
        with evaluating(model), torch.no_grad():
            for batch in val.in_order(config.batch_size):
                sums += _sums(batch, *forward(batch))
        return _means(all_sum(sums), "val_")

    def explain(epoch: int, failed: int, last: Batch) -> str:
        seed = derived_seed(config.seed, epoch)
        seed_everything(seed)  # a DataLoader takes its order from torch's generator
        return explain_failure(
            model,
            forward,
            next(islice(train.shuffled(batch_size, seed, augment), failed - 1, None), last),
        )

    def look(epoch: int, step: int, batch: Batch, guard: Guard, sums: Tensor) -> None:
        """Stop if a step failed; show the others."""
        if (failed := guard.failed_step()) is not None:
            cause = from_first(partial(explain, epoch, failed, batch))
            where = f"epoch {epoch}, step {failed}" + ("" if steps is None else f" of {steps}")
            raise FloatingPointError(
                f"The loss or its gradient is NaN or infinite at {where}. {cause} The model still has the weights "
                "from before that step. A smaller learning rate or smaller radii may help."
            )
        progress.update(step, _shown(model, _means(sums)))

    def finish() -> None:
        from_first(lambda: files.ended(interrupted))
        _take_first(model)  # which has the best weights
        model.eval()
        if not interrupted:
            seed_everything(derived_seed(config.seed, config.epochs + 1))
            held_out = None if val is None else val.labelled(config.batch_size)
            model.after_training(train.labelled(config.batch_size), held_out)
            _take_first(model)

    with (
        training_only(model, config.train),
        own_randomness(device, config.deterministic),
        telling_lost_ranks(config.directory is not None),
        Pace(device) as pace,
    ):
        seed_everything(derived_seed(config.seed, 0))
        with alone():  # every rank looks at all data
            model.before_training(train.labelled(batch_size), config.epochs)
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(trained, config.learning_rate, fused=True)
        files = RunFiles(config, model, optimizer, scaler, (train, val, augment))
        rows = from_first(files.resume)
        network = replicated(forward, optimizer, scaler)
        interrupted = False
        progress.start(config.epochs, len(rows), steps)
        try:
            for epoch in range(len(rows) + 1, config.epochs + 1):
                if is_out_of_patience(rows, config.patience):
                    break
                started = time.perf_counter()
                rate, seed = config.learning_rate_at(epoch - 1), derived_seed(config.seed, epoch)
                for group in optimizer.param_groups:
                    group["lr"] = rate
                seed_everything(seed)
                guard, sums = Guard(optimizer, device), _no_sums(device)
                start_training(model, config.train)
                progress.start_epoch(epoch)
                for step, batch in enumerate(train.shuffled(batch_size, seed, augment), 1):
                    if step == 1:
                        model.check_network(batch.x)
                        idle: list[Parameter] = []
                        if (
                            rank() > 0
                        ):  # only now: a DataLoader has taken its order, which is that of all ranks
                            seed_everything(derived_seed(config.seed, epoch, rank()))
                    with norms_over_ranks():
                        with finding_idle(model, idle) if step == 1 else nullcontext():
                            prediction, loss = network(batch)
                        own = _sums(batch, prediction, loss)
                        total = all_sum(own)
                        if (
                            world() > 1
                        ):  # so that the mean of the ranks' gradients is that of the whole batch
                            loss = loss * (world() * own[0] / total[0]).to(loss.dtype)
                        optimizer.zero_grad()
                        scaler.scale(loss).backward()
                    for bias in idle:  # of which rounding is all that there would be
                        bias.grad = torch.zeros_like(bias)
                    sums += total
                    # Under a scaler infinite gradients are part of the method: it skips those steps itself.
                    watched = (
                        []
                        if scaler.is_enabled()
                        else [p.grad for p in model.parameters() if p.grad is not None]
                    )
                    guard.watch(step, total[1], watched)
                    scaler.step(optimizer)
                    scaler.update()
                    model.after_step()
                    if pace.is_due():
                        look(epoch, step, batch, guard, sums)
                look(epoch, step, batch, guard, sums)
                progress.end_epoch(steps := step)
                numbers = _means(sums) | validate()
                seconds = time.perf_counter() - started
                row = {"epoch": epoch, **numbers, "learning_rate": rate, "seconds": seconds}
                rows.append(gather(row)[0])
                from_first(lambda: files.epoch_ended(rows))
        except KeyboardInterrupt:
            interrupted = True
        finally:
            progress.close()
        finish()
    return History(tuple(rows), interrupted)


def fit_members(
    build: Callable[[], AnyClassifier],
    count: int,
    train_data: Any,
    val_data: Any,
    config: TrainConfig,
    augment: Augment | None = None,
) -> tuple[list[AnyClassifier], list[History]]:
    """Train members of an ensemble as :func:`fit` does, each with a seed and a folder of its own.

    ``build`` makes an untrained classifier, with torch seeded. Fewer than ``count`` if the last is ``interrupted``.
    """
    members: list[AnyClassifier] = []
    histories: list[History] = []
    progress = _progress(config, count)
    while len(members) < count and not (histories and histories[-1].interrupted):
        seed = derived_seed(config.seed, len(members))
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            members.append(build())
        folder = (
            None
            if config.directory is None
            else Path(config.directory) / f"member-{len(histories)}"
        )
        own = replace(config, seed=seed, directory=folder)
        histories.append(_fit(members[-1], train_data, val_data, own, augment, progress))
    return members, histories


def _progress(config: TrainConfig, networks: int) -> Progress:
    return Progress(config.progress and rank() == 0, networks)


def _take_first(model: torch.nn.Module) -> None:
    """Give all ranks the weights and buffers of rank 0."""
    if world() > 1:
        model.load_state_dict(from_first(model.state_dict))


def choose_device(name: str) -> torch.device:
    """The torch device of that name, if it can be used; ``"auto"`` is a GPU if there is one. Each rank has its own."""
    if name == "auto":
        name = (
            "cuda"
            if torch.cuda.is_available()
            else "mps"
            if torch.backends.mps.is_available()
            else "cpu"
        )
    if name == "cuda" and world() > 1:
        name = f"cuda:{os.environ.get('LOCAL_RANK', rank() % torch.cuda.device_count())}"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"The device {name!r} cannot be used: {reason} Choose 'cpu' or 'auto'."
        ) from error
    return device


class _Forward(torch.nn.Module):
    """Prediction and loss of a batch, as one module, which is what ranks have replicas of."""

    def __init__(self, model: Classifier, precision: AbstractContextManager[Any]) -> None:
        super().__init__()
        self.model, self._precision = model, precision

    def forward(self, batch: Batch) -> tuple[Prediction, Tensor]:
        with self._precision:
            prediction = self.model(batch.x)
            return prediction, self.model.loss(prediction, batch.y, batch.weight)


@torch.no_grad()
def _sums(batch: Batch, prediction: Prediction, loss: Tensor) -> Tensor:
    """Sums over a batch, on the device so that no step waits for a number: weights, losses, hits, widths and rows.

    The mean of the loss is weighted by ``batch.weight``.
    """
    like = _no_sums(loss.device)[0]
    rows = torch.full_like(like, len(batch.y))
    mass = rows if batch.weight is None else weight_per_row(batch.weight, batch.y).sum()
    correct = (prediction.label == batch.y).sum()
    width = (
        rows * prediction.width.mean()
        if isinstance(prediction, CredalSet)
        else torch.full_like(like, math.nan)
    )
    return torch.stack([x.to(like) for x in (mass, loss * mass, correct, width, rows)])


def _no_sums(device: torch.device) -> Tensor:
    return torch.zeros(
        5, dtype=torch.float32 if device.type == "mps" else torch.float64, device=device
    )


def _means(sums: Tensor, prefix: str = "") -> Row:
    """Means over all rows so far; waits for the device. What is not finite or does not apply is ``None``."""
    mass, loss, correct, width, rows = sums.tolist()
    values = {"loss": loss / mass, "accuracy": correct / rows, "width": width / rows}
    return {
        prefix + name: value if math.isfinite(value) else None for name, value in values.items()
    }


def _set_class_weights(
    config: TrainConfig, num_classes: int, like: Tensor, train: Rows, val: Rows | None
) -> None:
    if config.class_weight is None:
        return
    if train.row_weights is not None:
        raise ValueError(
            "Weights are given of rows and of classes. Multiply those of the rows, and drop class_weight."
        )
    if config.class_weight == "balanced":
        counts = train.class_counts().double()
        weights = (counts.sum() / (num_classes * counts.clamp_min(1))).to(like)
    elif len(config.class_weight) != num_classes:
        raise ValueError(
            f"class_weight has {len(config.class_weight)} weights for {num_classes} classes."
        )
    else:
        weights = like.new_tensor(config.class_weight)
    for rows in (train, val):
        if rows is not None:
            rows.class_weights = weights


def _check_model(model: Any) -> None:
    if not isinstance(model, Classifier):
        raise TypeError(
            f"fit needs a classifier, got {type(model).__name__}. Wrap the network: CreINN(network), SNN(network)."
        )
    if type(model).loss is Classifier.loss:
        raise TypeError(
            f"{type(model).__name__} has no loss of its own. Fit its members one by one."
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError(
            "No parameter of the model requires a gradient: there is nothing to train."
        )


def _check_plan(model: Classifier, train: Rows, val: Rows | None, config: TrainConfig) -> None:
    if val is None and config.patience is not None:
        raise ValueError("patience needs val_data: early stopping goes by the validation loss.")
    if val is None and config.keep == "best":
        raise ValueError(
            "keep='best' needs val_data: the best weights are those of the least validation loss."
        )
    norms = (torch.nn.BatchNorm1d, BatchNorm1d)
    count = train.count()
    if count is not None and count < world():
        raise ValueError(
            f"train_data has {count} rows for {world()} ranks; each needs one at least."
        )
    smallest = None if count is None else min(count, config.batch_size * world())
    if smallest == 1 and any(isinstance(part, norms) for part in model.modules()):
        found = "train_data has a single row" if count == 1 else "batch_size is 1"
        raise ValueError(f"Batch norm needs batches of at least two rows, but {found}.")


def _shown(model: Classifier, means: Row) -> Row:
    """The numbers to show: those of a CreINN-D have no width during training."""
    hidden = set() if getattr(model, "is_interval", False) else {"width"}
    return {name: value for name, value in means.items() if name not in hidden}
