"""What every classifier shares, interval network or baseline: a forward pass, its loss, batched prediction.

Each gives a :class:`Prediction`, so that training, evaluation and reports treat every method alike.
"""

import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias

import torch
from torch import Tensor

import creinn
from creinn.classifier.inputs import (
    as_classes,
    batches,
    count_rows,
    describe,
    find_not_finite,
    first_rows,
    labelled_batches,
    nan_to_zero,
    rows_not_finite,
    to_device,
)
from creinn.classifier.network import check_network, is_single_row
from creinn.classifier.recording import LOCK
from creinn.classifier.state import in_eval_mode, is_training

Inputs: TypeAlias = Any
"""A tensor or an :class:`Interval`; for an ordinary network also a dict or tuple of tensors: see ``inputs.py``."""
Labelled: TypeAlias = Iterable[tuple[Inputs, Tensor]]
"""Batches of inputs and classes; what is no iterator can be gone over again."""
Missing = Literal["refuse", "vacuous"]


class Prediction(Protocol):
    """What a classifier says of a batch of rows; a credal one is a :class:`creinn.CredalSet`, which has bounds too."""

    @property
    def label(self) -> Tensor:
        """Predicted class of each row."""

    @property
    def probabilities(self) -> Tensor:
        """One distribution per row, ``(N, K)``."""

    @property
    def total(self) -> Tensor:
        """Total uncertainty of each row."""

    @property
    def aleatoric(self) -> Tensor:
        """Its aleatoric part."""

    @property
    def epistemic(self) -> Tensor:
        """Its epistemic part."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> "Prediction": ...

    def to(self, *args: Any, **kwargs: Any) -> "Prediction":
        """Move or cast, as ``Tensor.to``."""

    @classmethod
    def concatenate(cls, predictions: Sequence[Any], /) -> "Prediction":
        """Join predictions of successive batches."""


class Classifier(torch.nn.Module):
    """Base of all classifiers: ``model(x)`` gives a prediction of type :attr:`prediction_type`."""

    prediction_type: type[Prediction]
    num_classes: int
    class_names: Sequence[str | int] | None = None
    """Names of the classes, in order: kept by :func:`creinn.save`."""
    preprocessing: Any = None
    """What must be done to inputs first, as plain JSON: kept by :func:`creinn.save`, for the caller to do."""
    network: Any  # of all but ensembles
    members: Any  # of ensembles
    num_logits: int
    is_checked = False  # as far as is known; see check_network

    def loss(self, prediction: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Training loss of a prediction, averaged over the batch; ``weight`` of classes ``(K,)`` or rows ``(N, 1)``."""
        raise NotImplementedError(f"{type(self).__name__} defines no loss.")

    def batch_loss(self, x: Inputs, target: Tensor, weight: Tensor | None) -> tuple[Any, Tensor]:
        """Return the prediction, or logits, and the loss of a batch in training."""
        prediction = self(x)
        return prediction, self.loss(prediction, target, weight)

    def before_training(self, data: Labelled, epochs: int) -> None:
        """Look at the training data before the first epoch; of batches in the order of the rows, not of training."""

    def after_training(self, data: Labelled, held_out: Labelled | None = None) -> None:
        """Finish on the training data after the last step, as post-hoc methods do; ``held_out``: validation batches.

        Each rank of a process group is given a share of both.
        """

    def after_step(self) -> None:
        """What to restore after each optimiser step, such as constraints on parameters."""

    def predict(
        self, x: Inputs | Iterable[Any], batch_size: int = 256, missing: Missing = "refuse"
    ) -> Prediction:
        """All predictions of :meth:`predict_batches` as one, on the model's device.

        Raises:
            ValueError: If there is nothing to predict.
        """
        parts = list(self.predict_batches(x, batch_size, missing))
        if not parts:
            raise ValueError("Nothing to predict: the data are empty.")
        return self.prediction_type.concatenate(parts)

    def predict_batches(
        self, x: Inputs | Iterable[Any], batch_size: int = 256, missing: Missing = "refuse"
    ) -> Iterator[Prediction]:
        """Predict batch by batch, in eval mode and without gradients; no prediction is kept once it is given out.

        Several threads may predict with one model at the same time. The mode of the model is not changed: a model in
        training mode is copied for each batch, and the copy, which shares its weights, is put into eval mode.

        Args:
            x: Inputs ``(N, ...)``: a tensor, an array or an :class:`Interval`, or a dict or tuple of these; a torch
                ``Dataset``; or an iterable of batches such as a DataLoader. Of items or batches that are tuples or
                lists, the first entry is taken.
            batch_size: Rows that are predicted at once, unless ``x`` gives batches.
            missing: What becomes of rows that hold NaN or an infinite number: ``"refuse"``, or ``"vacuous"``, the set
                of all distributions, which only credal classifiers have.

        Raises:
            TypeError: If ``x`` is something else.
            ValueError: If a row lacks values, the network gives no logits, or ``x`` has no batch dimension.
            RuntimeError: If the model is in training mode and cannot be copied.

        Example:
            >>> from creinn.baselines import SNN
            >>> model = SNN(torch.nn.Linear(2, 3))
            >>> [len(prediction) for prediction in model.predict_batches(torch.zeros(10, 2), batch_size=4)]
            [4, 4, 2]
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        if missing not in ("refuse", "vacuous"):
            raise ValueError(f"Unknown missing {missing!r}; choose 'refuse' or 'vacuous'.")
        return self._predict_batches(batches(x, batch_size), missing)

    def predict_labelled(
        self, data: Any, batch_size: int = 256, missing: Missing = "refuse"
    ) -> tuple[Any, Tensor]:
        """Predictions of labelled rows, and their classes in the same order: what :mod:`creinn.evaluation` asks for.

        Args:
            data: A pair of inputs and classes, memory maps among them; a torch ``Dataset`` of pairs, map-style or
                iterable; or batches of pairs such as a DataLoader gives, in whatever order. Read once.
            batch_size: As in :meth:`predict_batches`.
            missing: The same.

        Raises:
            TypeError: If the data are something else, or classes no integers.
            ValueError: If there is nothing to predict, or a label is no class; or as :meth:`predict_batches` does.

        Example:
            >>> from creinn.evaluation import summary
            >>> from creinn.baselines import SNN
            >>> loader = torch.utils.data.DataLoader([(torch.zeros(2), 0), (torch.ones(2), 1)], batch_size=2)
            >>> found = summary.quality(*SNN(torch.nn.Linear(2, 3)).predict_labelled(loader))
            >>> list(found)
            ['accuracy', 'log_loss', 'brier', 'expected_calibration_error']
        """
        labels: list[Tensor] = []

        def inputs() -> Iterator[tuple[Inputs]]:
            for x, y in labelled_batches(data, batch_size, "the data"):
                labels.append(as_classes(y, self.num_classes, "the data", count_rows(x)))
                yield (x,)

        prediction = self.predict(inputs(), batch_size, missing)
        return prediction, torch.cat([y.to(prediction.label.device) for y in labels])

    def _predict_batches(self, inputs: Iterable[Inputs], missing: Missing) -> Iterator[Prediction]:
        rows = 0
        for batch in inputs:
            prediction = self._predict_batch(batch, missing, rows)
            rows += len(prediction)
            yield prediction

    def _predict_batch(self, batch: Inputs, missing: Missing, first: int) -> Prediction:
        """Predict one batch whose row 0 has the number ``first``."""
        like = next(parameter for parameter in self.parameters() if parameter.is_floating_point())
        with torch.no_grad():
            batch = to_device(batch, like.device, like.dtype)
            where = find_not_finite(batch, first=first)
            if where and missing == "refuse":
                raise ValueError(
                    f"{where}. Impute or drop it, or ask a credal model for missing='vacuous'."
                )
            filled = nan_to_zero(batch) if where else batch
            prediction = self._predict_rows(filled)
            return self._vacuous(prediction, rows_not_finite(batch)) if where else prediction

    def _predict_rows(self, x: Inputs) -> Prediction:
        try:
            self.check_network(x)
            prediction = self._forward_fast(x)
            if len(prediction) != count_rows(x):
                raise ValueError(
                    f"The network returns {len(prediction)} rows of logits for {count_rows(x)} "
                    "rows of inputs. It should return one row of logits for each."
                )
        except (RuntimeError, ValueError, IndexError) as error:
            self._explain(x, error)
            raise
        return prediction

    def _forward_fast(self, x: Inputs) -> Prediction:
        """Predict in eval mode; the mode of the model itself is not changed."""
        return in_eval_mode(self)(x)

    def _explain(self, x: Inputs, error: Exception) -> None:
        """Raise a ``ValueError`` if the inputs of a failed prediction do not fit the network."""
        for part in self._with_networks():
            network, head = in_eval_mode(part.network), getattr(part, "logits_layer", None)
            if is_single_row(network, x, part.num_logits):
                raise ValueError(
                    f"Expected inputs of shape (N, ...), found {describe(x)}, a single row "
                    "without a batch dimension. Pass x[None], or value[None] for each value of a dict."
                ) from error
            if not isinstance(error, ValueError):
                check_network(network, x, part.num_logits, (), head)

    def _vacuous(self, prediction: Any, rows: Tensor) -> Prediction:
        raise ValueError(
            f"{type(self).__name__} predicts distributions, and none of them says that nothing is known. Only credal "
            "models take missing='vacuous'; impute or drop rows that hold NaN or infinite numbers."
        )

    def check_network(self, x: Inputs) -> None:
        """Check on the first rows of ``x`` that networks run and return logits; each network once.

        Raises:
            ValueError: If a network does not.
        """
        for part in self._with_networks():
            if not part.is_checked:
                with LOCK, torch.inference_mode(False), torch.enable_grad():
                    if not part.is_checked:
                        part._check_network(in_eval_mode(part.network), first_rows(x))
                        part.is_checked = True

    def _check_network(self, network: torch.nn.Module, x: Inputs) -> None:
        """Check :attr:`network`, or a copy of it in eval mode."""
        check_network(network, x, self.num_logits)

    def _take_mode_of_members(self) -> None:
        """Put a new ensemble into eval mode if all members are; a new module is in training mode."""
        if not any(is_training(member) for member in self.members):
            self.eval()

    def _with_networks(self) -> "list[Classifier]":
        return [
            part
            for part in self.modules()
            if isinstance(part, Classifier) and hasattr(part, "network")
        ]

    def options(self) -> dict[str, Any]:
        """The constructor's arguments after the network or the members, by name."""
        names = list(inspect.signature(type(self)).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    def save(
        self,
        directory: str | PathLike[str],
        classes: Sequence[str | int] | None = None,
        **about: Any,
    ) -> None:
        """Save the model to a directory; see :func:`creinn.save` and :func:`creinn.load`."""
        creinn.save(self, directory, classes, **about)


def common_classes(members: Sequence[Classifier]) -> int:
    """The number of classes of all members of an ensemble; refuses none, and those that differ."""
    counts = {member.num_classes for member in members}
    if len(counts) != 1:
        found = f"members have {sorted(counts)} classes" if counts else "there are no members"
        raise ValueError(
            f"An ensemble needs at least one member and one number of classes, but {found}."
        )
    return counts.pop()


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Put a module into eval mode, and restore the mode of each part afterwards.

    For training. Other threads must not use the module at the same time.
    """
    training = [part for part in module.modules() if part.training]
    if training:
        module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True
