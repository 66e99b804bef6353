"""Table of all methods by name, which does not import torch.

- ``NAME-ensemble`` pools or averages several runs of ``NAME``.
- ``NAME-envelope`` is the envelope of their credal sets.
- ``NAME-wrapper`` is the credal wrapper of the samples of a baseline.
- Deep Ensembles are ensembles of ``snn``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Combination = Literal["average", "envelope", "wrapper"]

TIMES = "\u00d7"


@dataclass(frozen=True)
class Method:
    """Method that trains one network.

    Attributes:
        kind: The plain method of a variant.
        label: The name in tables.
        classifier: The name of the class.
        layers: The layer family of the network.
        options: The arguments of the classifier, and another family.
        start: The method of the trained network to start from, if any.
    """

    kind: str
    label: str
    classifier: str
    layers: str = "ordinary"
    options: Mapping[str, Any] = field(default_factory=dict)
    start: str | None = None

    @property
    def is_credal(self) -> bool:
        """Whether the predictions are credal sets."""
        return self.classifier == "CreINN"

    @property
    def forms_ensembles(self) -> bool:
        """Whether several networks of the method can be combined."""
        return self.kind not in ("effcre", "crerl")

    @property
    def takes_intervals(self) -> bool:
        """Whether the inputs can be intervals."""
        return self.options.get("layers", self.layers) in ("interval", "relative")

    @property
    def trains(self) -> bool:
        """Whether experiments train the network."""
        return self.start is None or self.takes_intervals


_PLAIN = {
    "snn": Method("snn", "SNN", "SNN"),
    "bnn-r": Method("bnn-r", "BNN-R", "BNN", "local_reparameterization"),
    "bnn-f": Method("bnn-f", "BNN-F", "BNN", "flipout"),
    "fsvi": Method("fsvi", "FSVI", "FSVI"),
    "bnn-l": Method("bnn-l", "BNN-L", "LaplaceBNN"),
}


def _normed(plain: Method) -> Method:
    return replace(plain, label=f"{plain.label}, logit norm", options={"logit_norm": True})


def _creinn(
    variant: str = "", options: Mapping[str, Any] | None = None, start: str | None = None
) -> Method:
    return Method("creinn", f"CreINN{variant}", "CreINN", "interval", options or {}, start)


_DISTANCE = {"layers": "ordinary", "distance": True, "temperature": True}

METHODS: dict[str, Method] = {
    **_PLAIN,
    "creinn": _creinn(),
    **{f"{name}-norm": _normed(plain) for name, plain in _PLAIN.items()},
    "creinn-relative": _creinn(", relative radii", {"layers": "relative"}),
    "creinn-scaled": _creinn(", scaled norm", {"mode": "scaled"}),
    "creinn-bounds": _creinn(", bounds", {"loss": "bounds"}),
    "creinn-scaled-bounds": _creinn(", scaled norm, bounds", {"mode": "scaled", "loss": "bounds"}),
    "creinn-radii": _creinn(", frozen centres", {"mode": "scaled", "loss": "bounds"}, "snn-norm"),
    "creinn-d": _creinn("-D", _DISTANCE, "snn-norm"),
    "creinn-d-post-hoc": _creinn("-D, post hoc", _DISTANCE, "snn"),
    "bnn-l-post-hoc": replace(_PLAIN["bnn-l"], label="BNN-L, post hoc", start="snn"),
    "effcre": Method("effcre", "EffCre", "EffCre", start="snn"),
    "crerl": Method("crerl", "CreRL", "CreRL", start="snn"),
}
"""Methods that train one network, by name."""

BASELINES = tuple(_PLAIN)
"""Names of the baseline methods."""

_DEEP = {
    "deep-ensemble": "snn",
    "deep-ensemble-norm": "snn-norm",
    "deep-ensemble-wrapper": "snn",
    "deep-ensemble-norm-wrapper": "snn-norm",
    "creinn-d-deep": "creinn-d",
}


def base_method(method: str) -> str:
    """Return the method that trains the members, or ``method`` itself.

    Example:
        >>> base_method("deep-ensemble"), base_method("bnn-r-ensemble")
        ('snn', 'bnn-r')
    """
    if method in METHODS:
        return method
    how = combination(method)
    base = _DEEP.get(method) or method.removesuffix("-ensemble")
    base = base if how == "average" else base.removesuffix(f"-{how}")
    found = METHODS.get(base)
    if (
        found is None
        or (method not in _DEEP and (found.kind == "snn" or not found.forms_ensembles))
        or (how != "average" and found.is_credal != (how == "envelope"))
    ):
        raise ValueError(
            f"Unknown method {method!r}. Use one of {', '.join((*METHODS, *_DEEP))}. The suffix "
            "-ensemble is possible except for snn, snn-norm, effcre and crerl, -envelope for "
            "creinn and its variants, -wrapper for all others."
        )
    return base


def find_method(method: str) -> Method:
    """Return the entry of the base method."""
    return METHODS[base_method(method)]


def is_ensemble(method: str) -> bool:
    """Return whether the method combines several runs."""
    return method in _DEEP or method.endswith(("-ensemble", "-envelope", "-wrapper"))


def combination(method: str) -> Combination:
    """Return how the members are combined."""
    _, _, last = method.rpartition("-")
    return last if last in ("envelope", "wrapper") else "average"  # type: ignore[return-value]


def is_deep(method: str) -> bool:
    """Return whether the method has as many members as Deep Ensembles."""
    return method in _DEEP


def label(method: str, size: int | None = None) -> str:
    """Return the name in tables of a method with ``size`` members.

    Example:
        >>> label("creinn-ensemble", 5), label("deep-ensemble", 10)
        ('CreINN ×5', 'Deep Ensembles (10)')
    """
    found, how = find_method(method), combination(method)
    if not is_ensemble(method):
        return found.label
    if method in _DEEP and not found.is_credal:
        count = "" if size is None else f" ({size})"
        many = f"Deep Ensembles{count}{found.label.removeprefix('SNN')}"
    else:
        many = f"{found.label} Ensemble" if size is None else f"{found.label} {TIMES}{size}"
    return many if how == "average" else f"{many}, {how}"
