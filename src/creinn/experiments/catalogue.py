"""The experiments by name: the paper's settings, and small twins of them for two cores.

``catalogue.yaml`` has the settings; interval experiments and studies are derived here. Importing this loads no torch.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import yaml

from creinn.classifier.methods import find_method
from creinn.experiments.definition import TABLE, Arm, Experiment, Images, Network, Shift, Timing, Training

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

LEVELS = {"noise": (0, 0.08, 0.12, 0.16, 0.18, 0.2), "brightness": (0, 0.05, 0.1, 0.15, 0.2, 0.3)}
"""Strengths between which images are shifted."""


def _arm(kind: Literal["noise", "brightness"]) -> Arm:
    narrowest, _, *stronger = (Shift(kind, *ends) for ends in pairwise(LEVELS[kind]))
    return Arm(narrowest, (narrowest, *stronger))


INTERVAL_ARMS = (_arm("noise"), _arm("brightness"))
"""Train on the narrowest range, test on it and on stronger ones (DesignInterval)."""

POINT_ARMS = (Arm(None, tuple(Shift(kind, 0, high) for kind, levels in LEVELS.items() for high in levels[1:])),)  # type: ignore[arg-type]
"""Train on points, test on ever wider ranges (DesignIntervalSig2Interval)."""


def _read() -> dict[str, Experiment]:
    """The experiments of the file."""
    kinds = {"images": Images, "test": Images, "network": Network, "training": Training, "timing": Timing}
    found = {}
    for name, given in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")).items():
        settings = _tuples(given)
        settings |= {field: kind(**settings[field]) for field, kind in kinds.items() if field in settings}
        settings["ood"] = tuple(Images(**images) for images in settings.get("ood", ()))
        settings["methods"] = _fitting(settings.get("methods", TABLE), settings.get("logits", Experiment.logits))
        found[name] = Experiment(name=name, **settings)
    return found


def _tuples(value: Any) -> Any:
    """Lists as tuples."""
    if isinstance(value, dict):
        return {name: _tuples(entry) for name, entry in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _fitting(methods: Sequence[str], logits: int) -> tuple[str, ...]:
    """Methods for so many logits: BNN-L is for three classes or more."""
    return tuple(method for method in methods if logits > 2 or find_method(method).kind != "bnn-l")


def _shifted(*bases: Experiment) -> list[Experiment]:
    """Of each base: trained and tested on interval images; then trained on points and tested on intervals."""
    kinds = {
        "interval": (" as intervals of noise and of brightness", INTERVAL_ARMS),
        "points-to-intervals": (": trained on points, tested on intervals", POINT_ARMS),
    }
    common: dict[str, Any] = {"ood": (), "methods": ("creinn", "creinn-ensemble"), "paper": None}
    made = []
    for kind, (what, arms) in kinds.items():
        for base in bases:
            name, title = f"{kind}-{base.name.replace('-svhn', '')}", base.title.split(",")[0] + what
            title += "; small" if name.endswith("-small") else ""
            made.append(replace(base, name=name, title=title, arms=arms, **common))
    return made


def _study(base: Experiment, *ood: Images) -> Experiment:
    """The trainings of a small experiment, those of our own forms and of rivals with a norm, and more OOD sets."""
    methods = _fitting(STUDY, base.logits)
    name, title = f"study-{base.name.removesuffix('-small')}", f"Forms of CreINN and its rivals: {base.title}"
    return replace(base, name=name, title=title, methods=methods, ood=base.ood + ood, paper=None)


_FILE = _read()
_ALL = (
    *_FILE.values(),
    *_shifted(_FILE["cifar10-svhn"], _FILE["chest-xray"]),
    *_shifted(_FILE["cifar10-svhn-small"], _FILE["chest-xray-small"]),
    _study(_FILE["fashion-mnist-small"], Images(name="cifar10", size=28, channels=1, count=2000)),
    _study(_FILE["cifar10-svhn-small"]),
    _study(_FILE["chest-xray-small"], Images(name="cifar10", size=48, channels=1, count=600)),
)

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}


def experiment(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        ValueError: If there is none.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"There is no experiment {name!r}. Known are {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]
