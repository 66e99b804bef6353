"""Construction of classifiers from the table of methods."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from creinn.baselines.bnn import BNN
from creinn.baselines.crerl import CreRL
from creinn.baselines.effcre import EffCre
from creinn.baselines.fsvi import FSVI
from creinn.baselines.laplace import LaplaceBNN
from creinn.baselines.snn import SNN, DeepEnsemble
from creinn.classifier.credal import Ensemble
from creinn.classifier.creinn import CreINN
from creinn.classifier.methods import Method
from creinn.nn.affine import scale_radii_
from creinn.nn.registry import family

_CLASSES = (CreINN, Ensemble, SNN, BNN, FSVI, LaplaceBNN, DeepEnsemble, EffCre, CreRL)
CLASSES: dict[str, Any] = {kind.__name__: kind for kind in _CLASSES}
"""Classes that can be saved, by name."""

SOUND_RADII = 0.01
"""Scale of initial radii in sound mode, to avoid vacuous credal sets."""


def build_classifier(method: Method, architecture: Callable[..., nn.Module], **options: Any) -> Any:
    """Return an untrained classifier of a method.

    Args:
        method: An entry of :data:`creinn.classifier.methods.METHODS`.
        architecture: A function of the layer family that returns a
            network.
        **options: Arguments of the classifier that replace those of the
            method.

    Example:
        >>> from creinn.classifier.methods import METHODS
        >>> type(build_classifier(METHODS["creinn"], lambda layers: layers.Linear(2, 3))).__name__
        'CreINN'
    """
    options = {"layers": method.layers, **method.options, **options}
    network = architecture(layers=family(options.pop("layers")))
    if options.get("mode") == "sound":
        scale_radii_(network, SOUND_RADII)
    return CLASSES[method.classifier].from_options(network, **options)


def build_ensemble(method: Method, members: Sequence[Any], **options: Any) -> Any:
    """Return an ensemble of classifiers of one method."""
    return (Ensemble if method.is_credal else DeepEnsemble)(members, **options)
