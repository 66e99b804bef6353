"""Base class of classifiers with a loss and batched prediction."""

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, get_args

import torch
from torch import Tensor
from torch.nn import Module

import creinn
from creinn.classifier.compile_cache import LOCK
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

Inputs: TypeAlias = Any
"""A tensor or an :class:`Interval`, a dict or tuple of tensors, or batches of these."""

Labelled: TypeAlias = Iterable[tuple[Inputs, Tensor]]  # batches

Missing = Literal["refuse", "vacuous"]


class Prediction(Protocol):
    """Prediction for ``N`` rows, such as a :class:`creinn.CredalSet`."""

    @property
    def label(self) -> Tensor:
        """Predicted classes."""

    @property
    def probabilities(self) -> Tensor:
        """Probabilities of the classes ``(N, K)``."""

    @property
    def total(self) -> Tensor:
        """Total uncertainty."""

    @property
    def aleatoric(self) -> Tensor:
        """Aleatoric uncertainty."""

    @property
    def epistemic(self) -> Tensor:
        """Epistemic uncertainty."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> "Prediction": ...

    @classmethod
    def concatenate(cls, predictions: Sequence[Any], /) -> "Prediction":
        """Concatenate the predictions of several batches."""


class Classifier(Module):
    """Base class of classifiers; a call returns a :attr:`prediction_type`."""

    prediction_type: type[Prediction]
    num_classes: int
    class_names: Sequence[str | int] | None = None
    """Names of the classes; saved with the model."""
    preprocessing: Any = None
    """Preprocessing as JSON; saved with the model."""
    network: Any  # not of ensembles
    members: Any  # of ensembles
    num_logits: int
    is_checked = False

    def loss(self, prediction: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the mean loss, with weights ``(K,)`` or ``(N, 1)``."""
        raise NotImplementedError(f"{type(self).__name__} defines no loss.")

    def batch_loss(self, x: Inputs, target: Tensor, weight: Tensor | None) -> tuple[Any, Tensor]:
        """Return the prediction or the logits of a batch, and the loss."""
        prediction = self(x)
        return prediction, self.loss(prediction, target, weight)

    def before_training(self, data: Labelled, epochs: int) -> None:
        """Prepare the training; ``data`` are in the order of the rows."""

    def after_training(self, data: Labelled, held_out: Labelled | None = None) -> None:
        """Fit what depends on the network to the rows of this process."""

    def after_step(self) -> None:
        """Restore the constraints after an optimizer step."""

    def predict(self, x: Inputs, batch_size: int = 256, missing: Missing = "refuse") -> Prediction:
        """Return the predictions of :meth:`predict_batches`.

        Raises:
            ValueError: If there are no rows.
        """
        parts = list(self._predict_all(x, batch_size, missing))
        if not parts:
            raise ValueError("Nothing to predict: the data are empty.")
        return parts[0] if len(parts) == 1 else self.prediction_type.concatenate(parts)

    def predict_batches(
        self, x: Inputs, batch_size: int = 256, missing: Missing = "refuse"
    ) -> Iterator[Prediction]:
        """Yield the predictions, in eval mode and without gradients.

        It can be called from several threads. In training mode, a copy of
        the model in eval mode is used, which shares the weights.

        Args:
            x: Inputs ``(N, ...)``: a tensor, an array or an
                :class:`Interval`, or a dict or tuple of these; a
                ``Dataset``; or batches. If the items or batches are
                tuples, the first entries are used.
            batch_size: The number of rows per batch, unless ``x`` contains
                batches.
            missing: For NaN or infinite numbers, ``"refuse"`` raises an
                error, and ``"vacuous"`` predicts all distributions with a
                credal classifier.

        Raises:
            TypeError: If ``x`` has another type.
            ValueError: If values are missing, ``x`` has no batch
                dimension, or the network does not return logits.

        Example:
            >>> from creinn.baselines import SNN
            >>> model = SNN(torch.nn.Linear(2, 3))
            >>> [len(prediction) for prediction in model.predict_batches(torch.zeros(10, 2), 4)]
            [4, 4, 2]
        """
        return self._predict_all(x, batch_size, missing)

    def predict_labelled(
        self, data: Any, batch_size: int = 256, missing: Missing = "refuse"
    ) -> tuple[Any, Tensor]:
        """Return the predictions of labelled rows, and their classes.

        The data are a pair of inputs and classes, a ``Dataset`` of pairs,
        or batches of pairs. See :meth:`predict_batches` for the other
        arguments.

        Raises:
            TypeError: If the data are not supported, or if the classes are
                not integers.
            ValueError: If there are no rows, or if a label is not a class.

        Example:
            >>> from creinn.baselines import SNN
            >>> data = torch.zeros(2, 2), torch.tensor([0, 1])
            >>> SNN(torch.nn.Linear(2, 3)).predict_labelled(data)[1]
            tensor([0, 1])
        """

        def classes(y: Any) -> Tensor:
            return as_classes(y, self.num_classes, "the data")

        return self._predict_with_labels(data, batch_size, missing, classes)

    def _predict_with_labels(
        self, data: Any, batch_size: int, missing: Missing, convert: Callable[[Any], Tensor]
    ) -> tuple[Any, Tensor]:
        labels: list[Tensor] = []

        def inputs() -> Iterator[tuple[Inputs]]:
            for x, y in labelled_batches(data, batch_size, "the data"):
                y, rows = convert(y), count_rows(x)
                if rows != len(y):
                    raise ValueError(f"The batch has {rows} inputs but {len(y)} labels.")
                labels.append(y)
                yield (x,)

        prediction = self.predict(inputs(), batch_size, missing)
        return prediction, torch.cat([y.to(prediction.label.device) for y in labels])

    def _predict_all(self, x: Inputs, batch_size: int, missing: Missing) -> Iterator[Prediction]:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        check_choice("missing", missing, Missing)
        return self._predict_batches(batches(x, batch_size), missing)

    def _predict_batches(self, inputs: Iterable[Inputs], missing: Missing) -> Iterator[Prediction]:
        rows = 0
        for batch in inputs:
            prediction = self._predict_batch(batch, missing, rows)
            rows += len(prediction)
            yield prediction

    def _predict_batch(self, batch: Inputs, missing: Missing, first: int) -> Prediction:
        like = next(p for p in self.parameters() if p.is_floating_point())
        with torch.no_grad():
            batch = to_device(batch, like.device, like.dtype)
            if not (found := find_not_finite(batch, first=first)):
                return self._predict_rows(batch)
            if missing == "refuse":
                raise ValueError(
                    f"{found}. Impute or drop it; credal models accept missing='vacuous'."
                )
            return self._vacuous(self._predict_rows(nan_to_zero(batch)), rows_not_finite(batch))

    def _predict_rows(self, x: Inputs) -> Prediction:
        try:
            self.check_network(x)
            prediction = self._forward_fast(x)
            if len(prediction) != count_rows(x):
                raise ValueError(
                    f"The network returns {len(prediction)} rows of logits for {count_rows(x)} "
                    "rows of inputs."
                )
        except (RuntimeError, ValueError, IndexError) as error:
            self._explain(x, error)
            raise
        return prediction

    def _forward_fast(self, x: Inputs) -> Prediction:
        return in_eval_mode(self)(x)

    def _explain(self, x: Inputs, error: Exception) -> None:
        for part in self._with_networks():
            network = in_eval_mode(part.network)
            if is_single_row(network, x, part.num_logits):
                raise ValueError(
                    f"Expected inputs with shape (N, ...), got a single row: {describe(x)}. "
                    "Add a batch dimension, for example x[None]."
                ) from error
            if not isinstance(error, ValueError):
                part._check_network(network, x)

    def _vacuous(self, prediction: Any, rows: Tensor) -> Prediction:
        raise ValueError(
            f"missing='vacuous' needs a credal model, got {type(self).__name__}. Impute or drop "
            "missing values."
        )

    def check_network(self, x: Inputs) -> None:
        """Raise a ``ValueError`` if a network does not return logits."""
        if all(part.is_checked for part in members_of(self)):
            return
        with LOCK, torch.inference_mode(False), torch.enable_grad():
            for part in self._with_networks():
                if not part.is_checked:
                    part._check_network(in_eval_mode(part.network), first_rows(x))
                    part.is_checked = True

    def _check_network(self, network: Module, x: Inputs) -> None:
        check_network(network, x, self.num_logits)

    def _take_mode_of_members(self) -> None:
        if not any(map(is_training, self.members)):
            self.eval()

    def _with_networks(self) -> "list[Classifier]":
        parts = (part for part in self.modules() if isinstance(part, Classifier))
        return [part for part in parts if hasattr(part, "network")]

    def options(self) -> dict[str, Any]:
        """Return the arguments of the constructor after the first one."""
        names = list(inspect.signature(type(self)).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_options(cls, content: Any, **options: Any) -> Any:
        """Build a classifier from its network or members."""
        return cls(content, **options)

    def save(
        self,
        directory: str | PathLike[str],
        classes: Sequence[str | int] | None = None,
        **about: Any,
    ) -> None:
        """Save the model; see :func:`creinn.save`."""
        creinn.save(self, directory, classes, **about)


def common_classes(members: Sequence[Classifier]) -> int:
    """Return the number of classes of the members."""
    counts = {member.num_classes for member in members}
    if len(counts) != 1:
        found = f"members have {sorted(counts)} classes" if counts else "there are no members"
        raise ValueError(f"An ensemble needs members with one number of classes, but {found}.")
    return counts.pop()


def is_training(module: Module) -> bool:
    """Return whether a part of the module is in training mode."""
    return any(part.training for part in module.modules())


def in_eval_mode(module: Module) -> Module:
    """Return a module if it is in eval mode, or else a copy in eval mode.

    The copy shares parameters, buffers and hooks.
    """
    if not is_training(module):
        return module
    with LOCK:
        shared = {id(value): value for part in module.modules() for value in _shared(part)}
        try:
            duplicate = copy.deepcopy(module, shared)
        except Exception as error:
            raise RuntimeError(
                f"{type(module).__name__} is in training mode and cannot be copied: {error}. Call "
                "model.eval() first."
            ) from error
    return duplicate.eval()


def _shared(part: Module) -> list[Any]:
    named = (part._parameters, part._buffers, part._forward_hooks, part._forward_pre_hooks)
    others = (value for value in vars(part).values() if isinstance(value, Tensor))
    return [*(value for group in named for value in group.values()), *others]


@contextmanager
def evaluating(module: Module) -> Iterator[None]:
    """Put a module into eval mode, and restore the modes; not thread-safe."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def members_of(model: Any) -> list[Any]:
    """Return the members of an ensemble, or the model in a list."""
    return list(getattr(model, "members", [model]))


def takes_intervals(model: Any) -> bool:
    """Return whether the inputs can be intervals."""
    return all(getattr(member, "is_interval", False) for member in members_of(model))


def check_choice(name: str, value: Any, choices: Any) -> None:
    """Raise a ``ValueError`` if a value is not among the choices."""
    names = get_args(choices) or choices
    if value not in names:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, names))}, got {value!r}.")
