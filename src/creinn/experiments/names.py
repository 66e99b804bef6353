"""Methods by name: single ones, variants of them with other options, and ensembles. Importing this does not load torch.

``snn-norm`` is the SNN with batch norm on its logits; ``creinn-d`` the CreINN whose radii come from distances;
``NAME-ensemble`` pools or averages several runs of ``NAME``, ``NAME-envelope`` takes the envelope of their credal sets;
Deep Ensembles are those of ``snn``, and ``creinn-d-deep`` has as many members as these.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TIMES = "\u00d7"

_PLAIN = {"snn": "SNN", "bnn-r": "BNN-R", "bnn-f": "BNN-F", "fsvi": "FSVI", "bnn-l": "BNN-L", "creinn": "CreINN"}
_DEEP = {"deep-ensemble": "snn", "deep-ensemble-norm": "snn-norm", "creinn-d-deep": "creinn-d"}
_SUFFIXES = ("-ensemble", "-envelope")


@dataclass(frozen=True)
class Single:
    """A method that is trained as one network.

    Args:
        kind: What it is a variant of, or itself.
        label: Its name in tables.
        options: Arguments of the classifier; ``layers`` names the layer family of the network.
        start: A method whose trained network is the start: its weights stay, as centres if the layers are intervals.
            Only radii are learnt, or the distance from the training data is fitted.
    """

    kind: str
    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    start: str | None = None

    @property
    def trains(self) -> bool:
        """Whether there is anything to train; a distance on top of a trained network is fitted in one pass."""
        return self.start is None or self.options.get("layers") != "ordinary"


SINGLE: dict[str, Single] = {
    **{name: Single(name, label) for name, label in _PLAIN.items()},
    "snn-norm": Single("snn", "SNN, logit norm", {"logit_norm": True}),
    "bnn-r-norm": Single("bnn-r", "BNN-R, logit norm", {"logit_norm": True}),
    "bnn-f-norm": Single("bnn-f", "BNN-F, logit norm", {"logit_norm": True}),
    "fsvi-norm": Single("fsvi", "FSVI, logit norm", {"logit_norm": True}),
    "bnn-l-norm": Single("bnn-l", "BNN-L, logit norm", {"logit_norm": True}),
    "creinn-relative": Single("creinn", "CreINN, relative radii", {"layers": "relative"}),
    "creinn-scaled": Single("creinn", "CreINN, scaled norm", {"mode": "scaled"}),
    "creinn-bounds": Single("creinn", "CreINN, bounds", {"loss": "bounds"}),
    "creinn-scaled-bounds": Single("creinn", "CreINN, scaled norm, bounds", {"mode": "scaled", "loss": "bounds"}),
    "creinn-radii": Single("creinn", "CreINN, frozen centres", {"mode": "scaled", "loss": "bounds"}, "snn-norm"),
    "creinn-d": Single("creinn", "CreINN-D", {"layers": "ordinary", "distance": True}, "snn-norm"),
}  # fmt: skip
"""Every single method by name."""

TABLE = (
    *("snn", "bnn-r", "bnn-f", "fsvi", "bnn-l", "creinn"),
    *("deep-ensemble", "bnn-r-ensemble", "bnn-f-ensemble", "fsvi-ensemble", "bnn-l-ensemble", "creinn-ensemble"),
)
"""The twelve rows of the paper's table."""

STUDY = (
    *("snn", "snn-norm", "bnn-r", "bnn-r-norm", "bnn-f", "bnn-f-norm", "fsvi", "fsvi-norm", "bnn-l", "bnn-l-norm"),
    *("creinn", "creinn-relative", "creinn-scaled", "creinn-bounds", "creinn-scaled-bounds"),
    *("creinn-radii", "creinn-d"),
    *("deep-ensemble", "deep-ensemble-norm", "bnn-r-ensemble", "bnn-r-norm-ensemble", "bnn-f-ensemble"),
    *("bnn-f-norm-ensemble", "fsvi-ensemble", "fsvi-norm-ensemble", "bnn-l-ensemble", "bnn-l-norm-ensemble"),
    *("creinn-ensemble", "creinn-envelope"),
    *("creinn-relative-ensemble", "creinn-scaled-ensemble", "creinn-bounds-ensemble", "creinn-scaled-bounds-ensemble"),
    *("creinn-scaled-bounds-envelope", "creinn-d-ensemble", "creinn-d-envelope", "creinn-d-deep"),
)
"""Rivals with and without batch norm on the logits, and the forms of CreINN, each alone and as an ensemble."""


def base_method(method: str) -> str:
    """The single method that a method is, or is an ensemble of.

    Raises:
        ValueError: If there is no such method.

    Example:
        >>> base_method("deep-ensemble"), base_method("bnn-r-ensemble"), base_method("creinn")
        ('snn', 'bnn-r', 'creinn')
    """
    base = _DEEP.get(method) or _without_suffix(method)
    deep = method not in SINGLE and method not in _DEEP and base in SINGLE and SINGLE[base].kind == "snn"
    wrong_envelope = method.endswith("-envelope") and not is_credal(base)
    if base not in SINGLE or deep or wrong_envelope:
        raise ValueError(
            f"There is no method {method!r}. Known are {', '.join((*SINGLE, *_DEEP))}; others than snn and snn-norm "
            f"also with -ensemble behind, and those of creinn with -envelope."
        )
    return base


def is_ensemble(method: str) -> bool:
    """Whether the method combines several runs of another."""
    return method in _DEEP or method.endswith(_SUFFIXES)


def is_deep(method: str) -> bool:
    """Whether the method is an ensemble with as many members as Deep Ensembles."""
    return method in _DEEP


def is_credal(method: str) -> bool:
    """Whether a single method predicts credal sets."""
    return method in SINGLE and SINGLE[method].kind == "creinn"


def takes_intervals(method: str) -> bool:
    """Whether a method can be given interval inputs."""
    base = SINGLE[base_method(method)]
    return base.kind == "creinn" and base.options.get("layers") != "ordinary"


def label(method: str, size: int | None = None) -> str:
    """A method as tables name it; ``size`` is the number of members.

    Example:
        >>> label("creinn"), label("creinn-ensemble", 5), label("deep-ensemble", 10), label("creinn-d-envelope", 5)
        ('CreINN', 'CreINN ×5', 'Deep Ensembles (10)', 'CreINN-D ×5, envelope')
    """
    name = SINGLE[base_method(method)].label
    if method in _DEEP and not is_credal(base_method(method)):
        count = "" if size is None else f" ({size})"
        return f"Deep Ensembles{count}{name.removeprefix('SNN')}"
    if not is_ensemble(method):
        return name
    many = f"{name} Ensemble" if size is None else f"{name} {TIMES}{size}"
    return f"{many}, envelope" if method.endswith("-envelope") else many


def _without_suffix(method: str) -> str:
    for suffix in _SUFFIXES:
        method = method.removesuffix(suffix)
    return method
