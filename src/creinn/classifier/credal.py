"""Base class of classifiers that predict credal sets: compiled predictions, vacuous rows."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

import creinn
from creinn.classifier import compile_cache
from creinn.classifier.base import Inputs, Missing
from creinn.classifier.calibration import Calibrated
from creinn.classifier.fitted_on import clear_hashes
from creinn.classifier.state import is_training
from creinn.credal.credal_set import CredalSet
from creinn.distance.radius import DistanceRadius


class CredalClassifier(Calibrated):
    """What :class:`CreINN` and :class:`Ensemble` share."""

    prediction_type = CredalSet
    uses_compile_cache = True
    """Whether ``predict`` compiles the model in eval mode, and keeps the compiled form until the model changes."""

    if TYPE_CHECKING:

        def predict(
            self, x: Inputs | Iterable[Any], batch_size: int = 256, missing: Missing = "refuse"
        ) -> CredalSet:
            """As :meth:`Classifier.predict`."""

    def predict_batches(
        self, x: Inputs | Iterable[Any], batch_size: int = 256, missing: Missing = "refuse"
    ) -> Iterator[CredalSet]:
        """As :meth:`Classifier.predict_batches`, by a compiled form: see :meth:`clear_cache`.

        Raises:
            RuntimeError: If a distance is not fitted, or the network has changed since.
        """
        self.check_fitted()
        return cast(Iterator[CredalSet], super().predict_batches(x, batch_size, missing))

    def check_fitted(self) -> None:
        """Raise a ``RuntimeError`` if a distance is not fitted, or the network changed since."""
        if not all(part.fitted for part in self.modules() if isinstance(part, DistanceRadius)):
            raise RuntimeError(
                "The distance is not fitted to the training data yet: call model.fit_distance(x, y) first; of an "
                "ensemble, for each member. creinn.fit does it at the end of a training that is not interrupted."
            )
        for part in self.modules():
            if isinstance(part, CredalClassifier):
                part.check_distance()

    def check_distance(self) -> None:
        """Raise a ``RuntimeError`` if the network has changed since the distance was fitted."""

    def clear_cache(self) -> None:
        """Drop the compiled form that :meth:`predict` caches for this model in eval mode.

        The calibration and the distance are compared with the weights again, too.

        Call it after a write through ``Tensor.data`` or a NumPy view of a weight, which torch does
        not count, or after a change inside an object that a module holds. All other changes of
        weights, layers and options are noticed, as are hooks.
        """
        compile_cache.clear(self)
        clear_hashes()

    def train(self, mode: bool = True) -> Any:
        """As ``torch.nn.Module.train``; training drops the compiled form that :meth:`predict` caches."""
        if mode:
            compile_cache.invalidate(self)
        return super().train(mode)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        compile_cache.invalidate(self)  # for ``.to`` and similar methods
        return super()._apply(*args, **kwargs)

    def _forward_fast(self, x: Inputs) -> CredalSet:
        if not self.uses_compile_cache:
            compile_cache.invalidate(self)
        elif not is_training(self):
            compiled = compile_cache.compiled_form(self, x, creinn.compile_for_predict)
            if compiled is not None:
                return compiled(x)
        return cast(CredalSet, super()._forward_fast(x))

    def _vacuous(self, prediction: CredalSet, rows: Tensor) -> CredalSet:
        lower = torch.where(rows.unsqueeze(1), 0.0, prediction.lower)
        upper = torch.where(rows.unsqueeze(1), 1.0, prediction.upper)
        return CredalSet._wrap(lower, upper, torch.where(rows, 0, prediction.label))
