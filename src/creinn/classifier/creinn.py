"""CreINN and its ensemble: a network and a head that turns its logits into a credal set.

In: a tensor or an :class:`Interval`. Out: a :class:`CredalSet`, differentiable. Sections "Credal-set interval neural
networks" and "Ensemble strategy"; the distance is our own extension, see :mod:`creinn.distance.radius`.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from creinn import nn as inn
from creinn.classifier import compile_cache
from creinn.classifier.base import Inputs, Labelled, common_classes
from creinn.classifier.credal import CredalClassifier
from creinn.classifier.fitted_on import clear_hashes, digest, part_hashes
from creinn.classifier.head import Mode, credal_set
from creinn.classifier.inputs import (
    ReiterableStream,
    as_classes,
    find_not_finite,
    is_mapped,
    is_pair,
    labelled_batches,
    to_device,
)
from creinn.classifier.label_check import Agreement
from creinn.classifier.logits import as_logits, logits_cross_entropy
from creinn.classifier.network import (
    HEAD,
    TOKENS,
    check_layers,
    check_network,
    count_logits,
    find_logits_layer,
    outputs_and_logits,
    pooled,
    run,
)
from creinn.classifier.state import structure
from creinn.classifier.temperature import Temperature
from creinn.credal.credal_set import CredalSet
from creinn.credal.loss import bounds_cross_entropy, cross_entropy
from creinn.distance.feature_layers import find_feature_layers
from creinn.distance.fitting import Observed, fit_radius
from creinn.distance.radius import DistanceRadius, check_distance
from creinn.distributed import single_process
from creinn.interval import Interval, as_interval
from creinn.nn.affine import IntervalParameters, project_
from creinn.nn.batchnorm import IntervalBatchNorm

Loss = Literal["intersection", "bounds"]
Combine = Literal["average", "envelope"]


class CreINN(CredalClassifier):
    """Credal-set interval neural network.

    The logits pass batch norm, if there is one, then Interval SoftMax (IntSoftMax); one makes a binary classifier.

    Args:
        network: A module from inputs to logits ``(N, K)``, built of :mod:`creinn.nn` layers; with ``distance`` also an
            ordinary one, which takes what it was made for: tensors of any dtype, or a dict or tuple of them.
        mode: ``"paper"``: Interval Batch Normalization and softmax of the paper, heuristics for containment;
            ``"scaled"``: norms keep the order of radii; ``"sound"``: norms and softmax keep containment. In eval mode
            the set then contains the probabilities of every ordinary network inside the weight intervals; radii should
            be small, see ``nn.scale_radii_``. ``creinn.compile(model, rigorous=True)`` also rounds outwards.
            ``model.mode = ...`` sets it later. Interval batch norms follow the mode.
        num_logits: Number of logits ``K``; by default that of the last interval layer, or of the
            head of an ordinary network.
        logit_norm: Whether to put batch norm on the logits; by default on those of an interval network, as its authors
            do. Few steps of training leave probabilities timid behind it.
        distance: Inputs whose features are far from the training data get wider sets, in eval mode. ``True`` chooses
            the scale on held-out data, a number fixes it. Fitted when :func:`creinn.fit` ends, or by
            :meth:`fit_distance`. Around an ordinary network this is CreINN-D, the recommended form.
        feature_layers: Paths of the modules of ``network`` at whose outputs the distance is measured, the deepest last;
            ``"<head>"`` stands for what enters the last layer. By default they are found when the network is first
            run, see :func:`creinn.distance.feature_layers.find_feature_layers`.
        loss: ``"intersection"``, the paper's cross-entropy, or ``"bounds"``, see :func:`creinn.bounds_cross_entropy`.
        logits_layer: Path of the module of ``network`` that computes the logits from the
            features. Needed if the network returns more than logits or ends in a softmax.
        temperature: Whether to divide the logits by the one number that has the least log loss on held-out data, found
            where the distance is, before its scale; see :mod:`creinn.classifier.temperature`. By default so around an
            ordinary network. Without held-out data it is 1.

    Raises:
        ValueError: If an option is unknown, the network has no interval layer and there is no distance
            either, or it has no module of ``feature_layers`` or ``logits_layer``.
        TypeError: If ``distance`` is neither a truth value nor a number.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = CreINN(torch.nn.Sequential(inn.Linear(2, 8), inn.ReLU(), inn.Linear(8, 3))).eval()
        >>> prediction = model(torch.zeros(5, 2))
        >>> prediction.lower.shape, bool((prediction.lower <= prediction.upper).all())
        (torch.Size([5, 3]), True)
        >>> x, y = torch.randn(90, 2), torch.arange(90) % 3
        >>> ordinary = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> model = CreINN(ordinary, distance=0.01).fit_distance(x, y)
        >>> prediction = model.predict(torch.tensor([[0.0, 0.0], [99.0, 99.0]]))
        >>> [round(width, 2) for width in prediction.width.mean(1).tolist()]
        [0.0, 1.0]
    """

    def __init__(
        self,
        network: torch.nn.Module,
        mode: Mode = "paper",
        num_logits: int | None = None,
        logit_norm: bool | None = None,
        distance: float | bool | None = None,
        loss: Loss = "intersection",
        feature_layers: Sequence[str] | None = None,
        logits_layer: str | None = None,
        temperature: bool | None = None,
    ) -> None:
        super().__init__()
        _check_choice("loss", loss, Loss)
        check_distance(distance)
        self.distance_radius: DistanceRadius | None = None
        self.network, self.logits_layer, self._loss = network, logits_layer, loss
        self.is_interval = any(isinstance(layer, IntervalParameters) for layer in network.modules())
        has_distance = distance is not None and distance is not False
        if not self.is_interval and not has_distance:
            raise ValueError(
                "The network has no interval layer, so its credal sets would be single points. Build it from "
                "creinn.nn, make an interval twin of it with creinn.convert(network), or pass distance=True."
            )
        self.num_logits = (
            num_logits if num_logits is not None else count_logits(network, logits_layer)
        )
        self.num_classes = max(self.num_logits, 2)
        self.logit_norm = logit_norm = self.is_interval if logit_norm is None else logit_norm
        family: Any = inn if self.is_interval else torch.nn
        like = next(network.parameters())
        norm = family.BatchNorm1d(self.num_logits) if logit_norm else family.Identity()
        self.norm: torch.nn.Module = norm.to(like.device, like.dtype)
        self.temperature = Temperature(
            not self.is_interval if temperature is None else temperature
        ).to(like)
        self.mode = mode
        self.distance = distance
        self.feature_layers = (
            None if feature_layers is None else tuple(feature_layers)
        )  # found by the first rows
        check_layers(network, self.feature_layers or ())
        self._has_warned = False  # that the distance is left out
        if has_distance:
            self._add_distance()

    @property
    def mode(self) -> Mode:
        """How bounds are computed; to set it switches the interval batch norms too."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        _check_choice("mode", mode, Mode)
        for layer in self.modules():
            if isinstance(layer, IntervalBatchNorm):
                layer.set_mode(mode)
        self._mode = mode

    def options(self) -> dict[str, Any]:
        """The constructor's arguments after the network, by name."""
        options = {
            name: getattr(self, name)
            for name in ("mode", "num_logits", "logit_norm", "distance", "logits_layer")
        }
        places = (
            None
            if self.distance_radius is None or self.feature_layers is None
            else list(self.feature_layers)
        )
        return {
            **options,
            "loss": self._loss,
            "feature_layers": places,
            "temperature": self.temperature.is_on,
        }

    def part_hashes(self) -> dict[str, int]:
        """Return a hash of each part of the model that its predictions depend on."""
        radius = self.distance_radius
        parts: dict[str, tuple[Any, ...]] = {
            "mode": (self.mode,),
            "structure": (structure(self.network), structure(self.norm)),
            "weights": (self.network, self.norm),
            "temperature": (self.temperature.is_on, self.temperature),
            "distance": () if radius is None else (radius,),
        }
        if radius is None or self.feature_layers is not None:  # otherwise the first rows find them
            parts["feature layers"] = (self.feature_layers,) if radius is not None else ()
        return part_hashes(parts)

    @property
    def distance_is_current(self) -> bool:
        """Whether a distance is fitted and the network has not changed since."""
        radius = self.distance_radius
        return radius is not None and radius.has_data and not self._distance_changes(radius)

    def check_distance(self) -> None:
        """Raise a ``RuntimeError`` if the network has changed since the distance was fitted."""
        radius = self.distance_radius
        if radius is not None and radius.has_data and (names := self._distance_changes(radius)):
            raise RuntimeError(
                f"The distance is not valid any more. Changed since it was fitted: "
                f"{', '.join(names)}. Call model.fit_distance(x, y) with the training data."
            )

    def _distance_changes(self, radius: DistanceRadius) -> list[str]:
        """Return what changed; features of an ordinary network are the same in all modes."""
        names = ["structure", "weights", "feature layers", *(["mode"] if self.is_interval else [])]
        return radius.fitted_on.changes(self.part_hashes(), names) if radius.fitted_on.parts else []

    def forward(self, x: Inputs) -> CredalSet:
        """Predict a credal set per row.

        Raises:
            TypeError: If an ordinary network gets an interval, or an interval network neither that nor a tensor.
        """
        x = self._inputs(x)
        radius = self.distance_radius
        if radius is None or self.training or not radius.has_data:
            if radius is not None and radius.has_data and not self._has_warned:
                self._has_warned = True
                warnings.warn(
                    "In training mode the distance is left out; call model.eval() first.",
                    stacklevel=4,
                )
            return credal_set(self._logits(x), self.mode, training=self.training)
        if not torch.compiler.is_compiling():
            self.check_distance()
        outputs, logits = outputs_and_logits(
            self.network, x, self.feature_layers or (), self.logits_layer
        )
        return credal_set(self._normalised(logits), self.mode, radius(self._measured(outputs)))

    def loss(self, prediction: CredalSet, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Cross-entropy of the intersection probability (Section "Training procedure"), or of both bounds."""
        function = bounds_cross_entropy if self._loss == "bounds" else cross_entropy
        return function(prediction, target, weight, check=False)

    def batch_loss(self, x: Inputs, target: Tensor, weight: Tensor | None) -> tuple[Any, Tensor]:
        """Return the prediction and the loss of a batch in training.

        For an ordinary network these are the logits and their cross-entropy, which is the loss of
        credal sets that are single distributions.
        """
        if self.is_interval or self._loss != "intersection" or type(self).loss is not CreINN.loss:
            return super().batch_loss(x, target, weight)
        logits = self._network_logits(self._inputs(x))
        logits = self.temperature(self.norm(as_logits(logits, self.num_logits)))
        return logits, logits_cross_entropy(logits, target, weight)

    def after_step(self) -> None:
        """Project the radii onto ``>= 0``."""
        if self.is_interval:
            project_(self)

    def before_training(self, data: Labelled, epochs: int) -> None:
        """Forget calibration, temperature and distance: they belong to a network that is about to change."""
        self.calibration.reset()
        self.temperature.reset()
        if self.distance_radius is not None:
            self._add_distance()

    def after_training(self, data: Labelled, held_out: Labelled | None = None) -> None:
        """Fit temperature and distance, if there are any, with the validation data as those held out."""
        if self.distance_radius is not None:
            self._fit_distance(data, held_out, 256)
        else:
            self._fit_temperature(held_out, 256)

    def fit_distance(
        self,
        x: Inputs | Iterable[Any],
        y: Tensor | None = None,
        held_out: tuple[Inputs, Tensor] | Iterable[tuple[Inputs, Tensor]] | None = None,
        batch_size: int = 256,
    ) -> "CreINN":
        """Make the radius of the logits grow with the distance from training data.

        A model that was built without ``distance`` gets one. Returns the model, in eval mode. Of ``held_out`` data the
        temperature is found first, where the model has one; without them it stays as it is. The scale, unless
        ``distance`` is a number, is the largest up to which predictions on ``held_out``, or else on a sixth of the
        training data, hardly suffer: see :mod:`creinn.distance.mahalanobis`. Of either at most 20,000 rows are looked
        at, drawn at random.

        Inside a process group every rank looks at all that it is given; :func:`creinn.fit` shares the work.
        A :class:`creinn.classifier.label_check.LabelWarning` is raised if a class has no row, or
        if the network predicts the labels of the training data not better than chance.

        A DataLoader or Dataset is gone over twice, in memory that does not grow with its rows. The features of tensors
        are kept in memory instead, and so are those of an iterator, which can be gone over only once.

        Args:
            x: Training inputs, a Dataset of pairs ``(input, target)``, or batches of such, as a DataLoader gives.
            y: Their classes ``(N,)``; ``None`` if ``x`` gives them.
            held_out: The same of data that the network was not trained on; the median distance is then over these.
            batch_size: Rows that are taken at once, unless they come in batches.

        Raises:
            TypeError: If batches are not pairs.
            ValueError: If there are no data, a label is not a class, or the network has no features.
        """
        if self.distance_radius is None:
            self._add_distance()
            self.distance = True
        agreement = Agreement(self.num_classes)
        with single_process():
            self._fit_distance(x if y is None else (x, y), held_out, batch_size, agreement)
        agreement.warn(stacklevel=2)
        return self

    @torch.no_grad()
    def _fit_distance(
        self, data: Any, held_out: Any, batch_size: int, agreement: Agreement | None = None
    ) -> None:
        """Fit the distance to the rows of all ranks, of which this one is given a share."""
        assert self.distance_radius is not None
        held_out = self._fit_temperature(held_out, batch_size)
        train = self._observe(data, batch_size, "the training data")
        if isinstance(train, Iterator) or (is_pair(data) and not is_mapped(data)):
            train = list(train)
        new = None if held_out is None else self._observe(held_out, batch_size, "the held-out data")
        scale = (
            None
            if self.distance is None or isinstance(self.distance, bool)
            else float(self.distance)
        )
        head = partial(credal_set, mode=self.mode)
        fit_radius(self.distance_radius, train, new, scale, head, agreement)
        clear_hashes()
        self.distance_radius.fitted_on.parts = self.part_hashes()

    @torch.no_grad()
    def _fit_temperature(self, held_out: Any, batch_size: int) -> Any:
        """Fit the temperature, if there is one, to held-out data; give these back, to be gone over again."""
        compile_cache.invalidate(self.eval())
        self.calibration.reset()
        if held_out is None or not self.temperature.is_on:
            return held_out
        held_out = list(held_out) if isinstance(held_out, Iterator) else held_out
        like, name = next(self.network.parameters()), "the held-out data"
        self.temperature.reset()

        def found() -> Iterator[tuple[Interval, Tensor]]:
            for x, y in labelled_batches(held_out, batch_size, name):
                x = to_device(x, like.device, like.dtype)
                self.check_network(x)
                logits = self._logits(self._inputs(x))
                yield (
                    logits,
                    as_classes(torch.as_tensor(y).long(), self.num_classes, name, len(logits)).to(
                        like.device
                    ),
                )

        self.temperature.fit(found(), lambda logits: credal_set(logits, self.mode).intersection)
        return held_out

    def _add_distance(self) -> None:
        if self.feature_layers is None:
            find_logits_layer(self.network, self.logits_layer)  # refuses a network without one
        self.is_checked = False  # there are features to be looked at too
        self.distance_radius = DistanceRadius(self.num_classes).train(self.training)
        like = next(self.network.parameters())
        self.distance_radius.to(like.device, like.dtype)

    def _check_network(self, network: torch.nn.Module, x: Inputs) -> None:
        x = self._inputs(x)
        measures = self.distance_radius is not None
        at = self.feature_layers or (HEAD,) if measures else ()
        check_network(network, x, self.num_logits, at, self.logits_layer)
        if measures and self.feature_layers is None:
            self.feature_layers = find_feature_layers(network, x, self.logits_layer)

    def _inputs(self, x: Inputs) -> Inputs:
        if self.is_interval:
            return as_interval(x)
        if isinstance(x, Interval):
            raise TypeError(
                "This CreINN has an ordinary network, which takes tensors, but got Interval. For intervals "
                "build the network from creinn.nn, or make an interval twin of it with creinn.convert(network)."
            )
        return x

    def _logits(self, x: Inputs) -> Interval:
        return self._normalised(self._network_logits(x))

    def _network_logits(self, x: Inputs) -> Inputs:
        if self.logits_layer is None:
            return run(self.network, x)
        return outputs_and_logits(self.network, x, (), self.logits_layer)[1]

    def _normalised(self, logits: Inputs) -> Interval:
        return self.temperature(as_interval(self.norm(as_logits(logits, self.num_logits))))

    def _measured(self, outputs: Iterable[Inputs]) -> tuple[Interval, ...]:
        """Features that the distance is measured of: in sound mode of all of the box, otherwise of its centre."""
        found, of_box = [], self.mode == "sound"
        for place, output in zip(self.feature_layers or (), outputs, strict=True):
            box = as_interval(output)
            found.append(as_interval(pooled(box if of_box else box.center, place.endswith(TOKENS))))
        return tuple(found)

    def _observe(self, data: Any, batch_size: int, name: str) -> Iterable[Observed]:
        """Features to measure, normalised logits and classes, batch by batch; to be gone over again if the data can."""
        given = labelled_batches(data, batch_size, name)
        return (
            self._observed(given, name)
            if isinstance(given, Iterator)
            else ReiterableStream(lambda: self._observed(given, name))
        )

    def _observed(self, batches: Labelled, name: str) -> Iterator[Observed]:
        like, rows = next(self.network.parameters()), 0
        for x, y in batches:
            x = to_device(x, like.device, like.dtype)
            if where := find_not_finite(x, name, first=rows):
                raise ValueError(f"{where}. Impute or drop it first.")
            self.check_network(x)
            outputs, logits = outputs_and_logits(
                self.network, self._inputs(x), self.feature_layers or (), self.logits_layer
            )
            labels = as_classes(torch.as_tensor(y).long(), self.num_classes, name, len(logits)).to(
                like.device
            )
            rows += len(labels)
            yield Observed(self._measured(outputs), self._normalised(logits), labels)


class Ensemble(CredalClassifier):
    """Several CreINNs as one.

    Args:
        members: CreINNs with the same number of classes.
        combine: ``"average"``, the mean of the members' reachable bounds (ensemble of CreINN); or ``"envelope"``, the
            smallest intervals that contain every member's set: disagreement counts as epistemic uncertainty.

    If all members are in eval mode, so is the ensemble.
    """

    def __init__(self, members: Sequence[CreINN], combine: Combine = "average") -> None:
        super().__init__()
        _check_choice("combine", combine, Combine)
        self.num_classes = common_classes(members)
        self.members = torch.nn.ModuleList(members)
        self.combine = combine
        self._take_mode_of_members()

    def part_hashes(self) -> dict[str, int]:
        """Return a hash of each part of all members."""
        members = [member.part_hashes() for member in self.members]
        known = set.intersection(*map(set, members))
        parts = {name: digest([member[name] for member in members]) for name in known}
        return {**parts, "combine": digest(self.combine)}

    @property
    def distance_is_current(self) -> bool:
        """Whether the distances of all members are fitted and current."""
        return all(member.distance_is_current for member in self.members)

    def forward(self, x: Inputs) -> CredalSet:
        """Predict the combined credal set per row."""
        sets = [member(x) for member in self.members]
        return CredalSet.envelope(sets) if self.combine == "envelope" else CredalSet.average(sets)


def _check_choice(name: str, value: Any, choices: Any) -> None:
    *others, last = (repr(choice) for choice in get_args(choices))
    if value not in get_args(choices):
        raise ValueError(f"Unknown {name} {value!r}; choose {', '.join(others)} or {last}.")
