"""Credal-set interval neural network (CreINN and CreINN-D).

Sections "Credal-set interval neural networks" and "Training procedure" of
the paper, with the extension of :mod:`creinn.distance.radius`.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Module

from creinn import nn as inn
from creinn.classifier import compile_cache
from creinn.classifier.base import Inputs, Labelled, check_choice
from creinn.classifier.credal import CredalClassifier, Mode, credal_set, prediction_quality
from creinn.classifier.fitted_on import FittedOn, clear_hashes, part_hashes
from creinn.classifier.inputs import (
    ReiterableStream,
    as_logits,
    checked_batches,
    is_mapped,
    is_pair,
    most_probable,
    run,
)
from creinn.classifier.network import (
    check_layers,
    check_network,
    find_feature_layers,
    find_logits_layer,
    logits_cross_entropy,
    outputs_and_logits,
)
from creinn.classifier.temperature import Temperature
from creinn.credal.credal_set import CredalSet
from creinn.credal.loss import bounds_cross_entropy, cross_entropy
from creinn.distance.feature_layers import HEAD, TOKENS, pooled
from creinn.distance.fitting import Agreement, FeatureBatch, fit_radius
from creinn.distance.radius import DistanceRadius, check_distance
from creinn.distributed import single_process
from creinn.interval import Interval, as_interval
from creinn.nn.affine import IntervalParameters, project_
from creinn.nn.batchnorm import IntervalBatchNorm

Loss = Literal["intersection", "bounds"]


class CreINN(CredalClassifier):
    """Credal-set interval neural network.

    Args:
        network: A module of :mod:`creinn.nn` layers that maps inputs to
            logits ``(N, K)``. With ``distance``, it can be an ordinary
            network with any inputs, and its logits are divided by a
            :mod:`creinn.classifier.temperature`.
        mode: ``"paper"`` uses the batch norm and softmax of the paper,
            which do not guarantee containment. ``"scaled"`` uses norms
            that preserve the order of the radii. ``"sound"`` guarantees in
            eval mode that the set contains the probabilities of all
            ordinary networks with weights in the intervals. It needs small
            radii, see ``nn.scale_radii_``.
        num_logits: The number of logits ``K``, by default of the last
            layer. One logit makes a binary classifier.
        logit_norm: Whether to apply batch norm to the logits, by default
            for interval networks, as in the paper.
        distance: Whether the credal sets become wider in eval mode with
            the distance from the training data; see :meth:`fit_distance`.
            A number is the scale of the radii. With an ordinary network,
            this is CreINN-D, the recommended form.
        loss: ``"intersection"`` for the cross-entropy of the paper, or
            ``"bounds"`` for :func:`creinn.bounds_cross_entropy`.
        feature_layers: The paths of the modules that compute the features;
            the deepest is the last. The default is selected by
            :mod:`creinn.distance.feature_layers`.
        logits_layer: The path of the module that computes the logits, if
            the network returns more or ends in a softmax.

    Raises:
        ValueError: If an option is not valid, or if a distance is
            necessary.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> layers = inn.Linear(2, 8), inn.ReLU(), inn.Linear(8, 3)
        >>> CreINN(torch.nn.Sequential(*layers)).eval()(torch.zeros(5, 2)).lower.shape
        torch.Size([5, 3])
        >>> x, y = torch.randn(90, 2), torch.arange(90) % 3
        >>> model = CreINN(torch.nn.Linear(2, 3), distance=0.01).fit_distance(x, y)
        >>> prediction = model.predict(torch.tensor([[0.0, 0.0], [99.0, 99.0]]))
        >>> [round(width, 2) for width in prediction.width.mean(1).tolist()]
        [0.0, 1.0]
    """

    _credal_set = staticmethod(credal_set)  # compiled models replace it

    def __init__(
        self,
        network: Module,
        mode: Mode = "paper",
        num_logits: int | None = None,
        logit_norm: bool | None = None,
        distance: float | bool | None = None,
        loss: Loss = "intersection",
        feature_layers: Sequence[str] | None = None,
        logits_layer: str | None = None,
    ) -> None:
        super().__init__()
        check_choice("loss", loss, Loss)
        check_distance(distance)
        self.network, self.logits_layer, self._loss = network, logits_layer, loss
        layers = [part for part in network.modules() if isinstance(part, IntervalParameters)]
        self.is_interval = bool(layers)
        has_distance = distance is not None and distance is not False
        if not self.is_interval and not has_distance:
            raise ValueError(
                "The network has no interval layer. Use creinn.nn layers, creinn.convert(network) "
                "or distance=True."
            )
        if num_logits is None:
            is_last = layers and logits_layer is None
            last: Any = layers[-1] if is_last else find_logits_layer(network, logits_layer)
            weight = getattr(last, "weight", None)
            if weight is None:
                name = type(last).__name__
                raise ValueError(f"{name} has no weight to count the logits. Pass num_logits=...")
            num_logits = len(weight)
        self.num_logits = num_logits
        self.num_classes = max(self.num_logits, 2)
        self.logit_norm = self.is_interval if logit_norm is None else logit_norm
        family: Any = inn if self.is_interval else torch.nn
        like = next(network.parameters())
        norm = family.BatchNorm1d(self.num_logits) if self.logit_norm else family.Identity()
        self.norm: Module = norm.to(like)
        self.temperature = Temperature(not self.is_interval).to(like)
        self.mode = mode
        self.distance = distance
        self.distance_radius: DistanceRadius | None = None
        self.distance_fitted_on = FittedOn()
        self.feature_layers = None if feature_layers is None else tuple(feature_layers)
        check_layers(network, self.feature_layers or (), "feature_layers")
        if has_distance:
            self._add_distance()

    @classmethod
    def from_options(cls, content: Any, temperature: bool | None = None, **options: Any) -> Any:
        """Build a model; ``temperature`` is ``model.temperature.is_on``."""
        model = cls(content, **options)
        if temperature is not None:
            model.temperature.is_on = temperature
        return model

    def options(self) -> dict[str, Any]:
        """Return the arguments of :meth:`from_options` after the network."""
        names = ("mode", "num_logits", "logit_norm", "distance", "feature_layers", "logits_layer")
        options = {name: getattr(self, name) for name in names}
        return {**options, "loss": self._loss, "temperature": self.temperature.is_on}

    @property
    def mode(self) -> Mode:
        """Mode of the interval batch norms and the softmax."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        check_choice("mode", mode, Mode)
        for layer in self.modules():
            if isinstance(layer, IntervalBatchNorm):
                layer.set_mode(mode)
        self._mode = mode

    def part_hashes(self) -> dict[str, int]:
        """See :meth:`CredalClassifier.part_hashes`."""
        radius, layers = self.distance_radius, self.feature_layers
        parts: dict[str, tuple[Any, ...]] = {
            "mode": (self.mode,),
            "structure": tuple(map(compile_cache.structure, (self.network, self.norm))),
            "weights": (self.network, self.norm),
            "temperature": (self.temperature.is_on, self.temperature),
            "distance": () if radius is None else (radius,),
        }
        if radius is None or layers is not None:  # or else not known yet
            parts["feature layers"] = () if radius is None else (layers,)
        return part_hashes(parts)

    @property
    def distance_is_current(self) -> bool:
        """Whether the distance is fitted to the current network."""
        return self._has_fitted_distance and not self._distance_changes()

    @property
    def _has_fitted_distance(self) -> bool:
        return self.distance_radius is not None and self.distance_radius.has_data

    def check_distance(self) -> None:
        """See :meth:`CredalClassifier.check_distance`."""
        if self._has_fitted_distance and (names := self._distance_changes()):
            changed = f"The model has changed since the distance was fitted: {', '.join(names)}."
            raise RuntimeError(f"{changed} Call model.fit_distance(x, y) with the training data.")

    def _distance_changes(self) -> list[str]:
        names = ["structure", "weights", "feature layers"]
        if self.is_interval:
            names.append("mode")
        fitted_on = self.distance_fitted_on
        return fitted_on.changes(self.part_hashes(), names) if fitted_on.parts else []

    def forward(self, x: Inputs) -> CredalSet:
        """Return the credal sets."""
        x, radius = self._inputs(x), self.distance_radius
        if radius is None or self.training or not radius.has_data:
            if self._has_fitted_distance:
                warnings.warn(
                    "The distance is not used in training mode. Call eval().", stacklevel=4
                )
            return self._credal_set(self._logits(x), self.mode, training=self.training)
        if not torch.compiler.is_compiling():
            self.check_distance()
        features, logits = self._features_and_logits(x)
        return self._credal_set(logits, self.mode, radius(features))

    def loss(self, prediction: CredalSet, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the cross-entropy of the prediction."""
        function = bounds_cross_entropy if self._loss == "bounds" else cross_entropy
        return function(prediction, target, weight, check=False)

    def batch_loss(self, x: Inputs, target: Tensor, weight: Tensor | None) -> tuple[Any, Tensor]:
        """Return the prediction or the logits, and the loss."""
        if self.is_interval or self._loss != "intersection" or type(self).loss is not CreINN.loss:
            return super().batch_loss(x, target, weight)
        logits = self._logits(self._inputs(x)).lower
        return logits, logits_cross_entropy(logits, target, weight)

    def after_step(self) -> None:
        """Project the radii onto ``>= 0``."""
        if self.is_interval:
            project_(self)

    def before_training(self, data: Labelled, epochs: int) -> None:
        """Reset the calibration, the temperature and the distance."""
        self.calibration.reset()
        self.temperature.reset()
        if self.distance_radius is not None:
            self._add_distance()

    def after_training(self, data: Labelled, held_out: Labelled | None = None) -> None:
        """Fit the temperature and the distance."""
        if self.distance_radius is not None:
            self._fit_distance(data, held_out, 256)
        else:
            self._fit_temperature(held_out, 256)

    def fit_distance(
        self, x: Inputs, y: Tensor | None = None, held_out: Any = None, batch_size: int = 256
    ) -> "CreINN":
        """Fit the distance to the training data.

        The result is the model in eval mode. The temperature, if it is on,
        is fitted to the held-out data first. Unless ``distance`` is a
        number, the scale is chosen on at most 20,000 rows of the held-out
        data, or else on a sixth of at most 20,000 training rows; see
        :func:`creinn.distance.fitting.choose_scale`. The memory is
        constant for a DataLoader or Dataset. In a process group, each
        process uses all its rows.

        Args:
            x: The training inputs, a Dataset of pairs, or a DataLoader.
            y: The classes ``(N,)``, or ``None`` if ``x`` contains them. Of
                distributions ``(N, K)``, the most probable class counts.
            held_out: Data that the network was not trained on, in the same
                forms.
            batch_size: The number of rows per batch, unless the data
                contain batches.

        Raises:
            ValueError: If there are no rows or features, or if a label is
                not a class.

        Warns:
            LabelWarning: If a class has no row, or the accuracy is not
                better than chance.
        """
        if self.distance_radius is None:
            self._add_distance()
            self.distance = True
        agreement = Agreement(self.num_classes)

        def count(batch: FeatureBatch) -> None:
            agreement.add(batch.labels, credal_set(batch.logits, self.mode).label)

        with single_process():
            self._fit_distance(x if y is None else (x, y), held_out, batch_size, count)
        agreement.warn(stacklevel=2)
        return self

    @torch.no_grad()
    def _fit_distance(
        self, data: Any, held_out: Any, batch_size: int, on_batch: Any = None
    ) -> None:
        assert self.distance_radius is not None
        held_out = self._fit_temperature(held_out, batch_size)
        name = "the training data"
        train: Any = ReiterableStream(lambda: self._feature_batches(data, batch_size, name))
        if isinstance(data, Iterator) or (is_pair(data) and not is_mapped(data)):
            train = list(train)
        if held_out is not None:
            held_out = self._feature_batches(held_out, batch_size, "the held-out data")
        scale = None if self.distance is True else float(self.distance or 0)
        evaluate = partial(prediction_quality, mode=self.mode)
        fit_radius(self.distance_radius, train, held_out, scale, evaluate, on_batch)
        clear_hashes()
        self.distance_fitted_on.parts = self.part_hashes()

    @torch.no_grad()
    def _fit_temperature(self, held_out: Any, batch_size: int) -> Any:
        """Fit the temperature, and return data that can be iterated again."""
        compile_cache.invalidate(self.eval())
        if held_out is not None and self.temperature.is_on:
            held_out = list(held_out) if isinstance(held_out, Iterator) else held_out
            rows = self._labelled(held_out, batch_size, "the held-out data")
            self.temperature.fit(
                ((self._unscaled(self._network_logits(x)), y) for x, y in rows),
                lambda logits: credal_set(logits, self.mode).intersection,
            )
        self.calibration.reset()
        return held_out

    def _add_distance(self) -> None:
        if self.feature_layers is None:
            find_logits_layer(self.network, self.logits_layer)  # raises if there is none
        self.is_checked = False
        radius = DistanceRadius(self.num_classes).train(self.training)
        self.distance_radius = radius.to(next(self.network.parameters()))
        self.distance_fitted_on.parts = {}

    def _check_network(self, network: Module, x: Inputs) -> None:
        x, has_distance = self._inputs(x), self.distance_radius is not None
        layers = (self.feature_layers or (HEAD,)) if has_distance else ()
        check_network(network, x, self.num_logits, layers, self.logits_layer)
        if has_distance and self.feature_layers is None:
            self.feature_layers = find_feature_layers(network, x, self.logits_layer)

    def _inputs(self, x: Inputs) -> Inputs:
        if self.is_interval:
            return as_interval(x)
        if isinstance(x, Interval):
            raise TypeError(
                "An ordinary network needs tensors, got an Interval. Use creinn.nn layers or "
                "creinn.convert(network)."
            )
        return x

    def _network_logits(self, x: Inputs) -> Inputs:
        if self.logits_layer is None:
            return run(self.network, x)
        return outputs_and_logits(self.network, x, (), self.logits_layer)[1]

    def _logits(self, x: Inputs) -> Interval:
        return self._scaled_logits(self._network_logits(x))

    def _unscaled(self, output: Inputs) -> Interval:
        return as_interval(self.norm(as_logits(output, self.num_logits)))

    def _scaled_logits(self, output: Inputs) -> Interval:
        return self.temperature(self._unscaled(output))

    def _features_and_logits(self, x: Inputs) -> tuple[tuple[Interval, ...], Interval]:
        """Return the features, as intervals in sound mode only, and logits."""
        layers, features = self.feature_layers or (), []
        outputs, logits = outputs_and_logits(self.network, x, layers, self.logits_layer)
        mask = x.get("attention_mask") if isinstance(x, Mapping) else None
        for path, output in zip(layers, outputs, strict=True):
            if isinstance(output, Interval) and self.mode != "sound":
                output = output.center
            features.append(as_interval(pooled(output, path.endswith(TOKENS), mask)))
        return tuple(features), self._scaled_logits(logits)

    def _feature_batches(self, data: Any, batch_size: int, name: str) -> Iterator[FeatureBatch]:
        for x, y in self._labelled(data, batch_size, name):
            yield FeatureBatch(*self._features_and_logits(x), most_probable(y))

    def _labelled(self, data: Any, batch_size: int, name: str) -> Iterator[tuple[Inputs, Tensor]]:
        like = next(self.network.parameters())
        for x, y in checked_batches(data, batch_size, name, self.num_classes, like):
            self.check_network(x)
            yield self._inputs(x), y
