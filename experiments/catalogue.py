"""Experiments of ``catalogue.yaml``: those of the paper, and small forms."""

from pathlib import Path
from typing import Any

import yaml

from creinn.classifier.methods import find_method
from experiments.definition import (
    TABLE,
    Condition,
    Experiment,
    Images,
    Network,
    Shift,
    Timing,
    Training,
)


def _read() -> dict[str, Experiment]:
    kinds = {
        "images": Images,
        "test": Images,
        "network": Network,
        "training": Training,
        "timing": Timing,
    }
    found = {}
    for name, given in yaml.safe_load(
        Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    ).items():
        if name.startswith("."):
            continue
        settings = _tuples(given)
        settings |= {
            field: kind(**settings[field]) for field, kind in kinds.items() if field in settings
        }
        settings["ood"] = tuple(Images(**images) for images in settings.get("ood", ()))
        settings["conditions"] = tuple(
            _condition(**found) for found in settings.get("conditions", ({},))
        )
        fits_all = (
            settings.get("logits", Experiment.logits) > 2
        )  # BNN-L is for three classes or more
        methods = settings.get("methods", TABLE)
        settings["methods"] = tuple(
            method for method in methods if fits_all or find_method(method).kind != "bnn-l"
        )
        found[name] = Experiment(name=name, **settings)
    return found


def _condition(train: Any = None, tests: Any = (None,)) -> Condition:
    return Condition(train and Shift(*train), tuple(shift and Shift(*shift) for shift in tests))


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tuples(entry) for name, entry in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


EXPERIMENTS = _read()


def experiment(name: str) -> Experiment:
    """Return the experiment with this name.

    Raises:
        ValueError: If there is none.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"There is no experiment {name!r}. Known are {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]
