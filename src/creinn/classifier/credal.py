"""What every classifier with credal sets shares: predictions by a compiled form that is kept, and vacuous rows."""

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from creinn.classifier import kept
from creinn.classifier.base import Inputs, Missing
from creinn.classifier.calibration import Calibrated
from creinn.classifier.radius import DistanceRadius
from creinn.credal.credal_set import CredalSet


class _Credal(Calibrated):
    """What :class:`CreINN` and :class:`Ensemble` share."""

    prediction_type = CredalSet
    keeps_compiled = True
    """Whether ``predict`` keeps the compiled form of the model while its weights stay as they are, for speed."""

    if TYPE_CHECKING:

        def predict(
            self, x: Inputs | Iterable[Any], batch_size: int = 256, missing: Missing = "refuse"
        ) -> CredalSet:
            """As :meth:`Classifier.predict`."""

    def predict_batches(
        self, x: Inputs | Iterable[Any], batch_size: int = 256, missing: Missing = "refuse"
    ) -> Iterator[CredalSet]:
        """As :meth:`Classifier.predict_batches`, by a compiled form while weights stay: see ``classifier/kept.py``.

        Raises:
            RuntimeError: If a distance was asked for, but never fitted to the training data.
        """
        self.check_fitted()
        return cast(Iterator[CredalSet], super().predict_batches(x, batch_size, missing))

    def check_fitted(self) -> None:
        """Refuse, with a ``RuntimeError``, a distance that was asked for, but never fitted to the training data."""
        if not all(part.fitted for part in self.modules() if isinstance(part, DistanceRadius)):
            raise RuntimeError(
                "The distance is not fitted to the training data yet: call model.fit_distance(x, y) first; of an "
                "ensemble, for each member. creinn.fit does it at the end of a training that is not interrupted."
            )

    def train(self, mode: bool = True) -> Any:
        """As ``torch.nn.Module.train``; training drops the compiled form that :meth:`predict` keeps."""
        if mode:
            kept.outdate(self)
        return super().train(mode)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        kept.forget(self)  # of ``.to`` and its kind
        return super()._apply(*args, **kwargs)

    def _quick(self, x: Inputs) -> CredalSet:
        if self.keeps_compiled:
            return kept.call(
                self, x, import_module("creinn.graph.compile").quick_form
            )  # stands above, as files do
        kept.forget(self)
        return self(x)

    def _vacuous(self, prediction: CredalSet, rows: Tensor) -> CredalSet:
        lower = torch.where(rows.unsqueeze(1), 0.0, prediction.lower)
        upper = torch.where(rows.unsqueeze(1), 1.0, prediction.upper)
        return CredalSet._wrap(lower, upper, torch.where(rows, 0, prediction.label))
