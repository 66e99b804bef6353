"""Every method by name, in one table that saving, commands, experiments and benchmarks read; loads without torch.

``NAME-ensemble`` pools or averages several runs of ``NAME``, ``NAME-envelope`` takes the envelope of their credal sets,
and ``NAME-wrapper`` the credal wrapper of a baseline's samples; Deep Ensembles are those of ``snn``, and
``creinn-d-deep`` has as many members as these.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Literal

Combination = Literal["average", "envelope", "wrapper"]

CLASSES: dict[str, str] = {
    "CreINN": "creinn.classifier.creinn",
    "Ensemble": "creinn.classifier.creinn",
    "SNN": "creinn.baselines.snn",
    "BNN": "creinn.baselines.bnn",
    "FSVI": "creinn.baselines.fsvi",
    "LaplaceBNN": "creinn.baselines.laplace",
    "DeepEnsemble": "creinn.baselines.deep_ensemble",
}
"""What can be saved, and where it is defined; constructors take a network or members, then what ``options`` gives."""

TIMES = "\u00d7"
SOUND_RADII = 0.01  # of the usual at the start: the sets of a wide sound network are all of the simplex, and stay so


@dataclass(frozen=True)
class Method:
    """A way to learn and predict with one network."""

    kind: str  # the plain method that it is a variant of, or itself
    label: str  # its name in tables
    classifier: str  # its class, of CLASSES
    layers: str = "ordinary"  # the layer family of its network
    options: Mapping[str, Any] = field(
        default_factory=dict
    )  # of the classifier, and ``layers``, that make a variant
    start: str | None = None  # in experiments, the method of a trained network whose weights stay

    @property
    def is_credal(self) -> bool:
        """Whether it predicts credal sets."""
        return self.classifier == "CreINN"

    @property
    def takes_intervals(self) -> bool:
        """Whether inputs may be intervals."""
        return self.options.get("layers", self.layers) in ("interval", "relative")

    @property
    def trains(self) -> bool:
        """Whether experiments train anything; a distance on top of a trained network is fitted in one pass."""
        return self.start is None or self.takes_intervals

    def build(self, architecture: Callable[..., Any], **options: Any) -> Any:
        """An untrained classifier around ``architecture(layers=...)``, called with the family that the method needs.

        ``options`` are arguments of the classifier, over those of the variant. In sound mode radii start small.

        Example:
            >>> type(METHODS["creinn"].build(lambda layers: layers.Linear(2, 3))).__name__
            'CreINN'
        """
        options = {"layers": self.layers, **self.options, **options}
        create = find_class(self.classifier)
        network = architecture(
            layers=import_module("creinn.nn.families").family(options.pop("layers"))
        )
        if options.get("mode") == "sound":
            import_module("creinn.nn.affine").scale_radii_(network, SOUND_RADII)
        return create(network, **options)

    def ensemble(self, members: Any, **options: Any) -> Any:
        """One classifier of several."""
        return find_class("Ensemble" if self.is_credal else "DeepEnsemble")(members, **options)


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
}
"""Every single method by name."""

BASELINES = tuple(_PLAIN)
"""The methods that CreINN is measured against."""

_DEEP = {
    "deep-ensemble": "snn",
    "deep-ensemble-norm": "snn-norm",
    "deep-ensemble-wrapper": "snn",
    "deep-ensemble-norm-wrapper": "snn-norm",
    "creinn-d-deep": "creinn-d",
}


def find_class(name: str) -> Any:
    """The class of that name in :data:`CLASSES`."""
    return getattr(import_module(CLASSES[name]), name)


def base_method(method: str) -> str:
    """The single method that a method is, or is an ensemble of; refuses unknown names.

    Example:
        >>> base_method("deep-ensemble"), base_method("bnn-r-ensemble"), base_method("creinn")
        ('snn', 'bnn-r', 'creinn')
    """
    base = _DEEP.get(method) or method.removesuffix("-ensemble").removesuffix(
        f"-{combination(method)}"
    )
    found = METHODS.get(base)
    deep = (
        found is not None and method not in METHODS and method not in _DEEP and found.kind == "snn"
    )
    kind = {"envelope": True, "wrapper": False}.get(combination(method))
    if found is None or deep or kind not in (None, found.is_credal):
        raise ValueError(
            f"There is no method {method!r}. Known are {', '.join((*METHODS, *_DEEP))}; others than snn and snn-norm "
            f"also with -ensemble behind, those of creinn with -envelope, and all others with -wrapper."
        )
    return base


def find_method(method: str) -> Method:
    """The single method that a method is, or is an ensemble of; see :func:`base_method`."""
    return METHODS[base_method(method)]


def is_ensemble(method: str) -> bool:
    """Whether the method combines several runs of another."""
    return method in _DEEP or method.endswith(("-ensemble", "-envelope", "-wrapper"))


def combination(method: str) -> Combination:
    """What an ensemble makes of its members."""
    _, _, last = method.rpartition("-")
    return last if last in ("envelope", "wrapper") else "average"  # type: ignore[return-value]


def is_deep(method: str) -> bool:
    """Whether the method is an ensemble with as many members as Deep Ensembles."""
    return method in _DEEP


def label(method: str, size: int | None = None) -> str:
    """A method as tables name it; ``size`` is the number of members.

    Example:
        >>> label("creinn"), label("creinn-ensemble", 5), label("deep-ensemble", 10), label("creinn-d-envelope", 5)
        ('CreINN', 'CreINN ×5', 'Deep Ensembles (10)', 'CreINN-D ×5, envelope')
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
