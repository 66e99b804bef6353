"""Saved models: a directory with ``config.json`` and ``model.safetensors``, and no code.

Networks come back through :mod:`creinn.graph.describe`, classifiers through :data:`creinn.classifier.methods.CLASSES`;
nothing else that a file names is ever built. The weights carry a copy of the configuration they belong to: a save that
was killed half-way leaves the model that was there before, or the new one, never a mixture.
"""

import copy
import json
import platform
import warnings
import zlib
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from creinn import __version__
from creinn.classifier.methods import CLASSES, find_class
from creinn.classifier.network import HEAD, TOKENS
from creinn.files import read_tensors, write_bytes, write_tensors
from creinn.graph import describe as architecture
from creinn.nn.families import family_of

CONFIG, WEIGHTS = "config.json", "model.safetensors"
FORMAT = 1
ESTIMATOR = "estimator"  # the kind of preprocessing that a CreINNClassifier does
_WHAT = "creinn model"

_RETIRED = {  # options of models saved before, by class, with the one value that is still computed
    "FSVI": {"stochastic": "last", "prior": "independent", "covariance": "full"},
    "LaplaceBNN": {"structure": "kronecker"},
}


def save(
    model: Any,
    directory: str | PathLike[str],
    classes: Sequence[str | int] | None = None,
    preprocessing: Any = None,
) -> None:
    """Write ``model`` to a directory, in place of the model that may be there; other files in it are left alone.

    A network of more than known layers is saved without its architecture, and a warning says so.

    Args:
        model: A classifier of one of :data:`creinn.classifier.methods.CLASSES`.
        directory: Made if it does not exist.
        classes: Names of the classes, in order; ``model.class_names`` if ``None``.
        preprocessing: What was done to the inputs, as plain JSON; ``model.preprocessing`` if ``None``.

    Raises:
        TypeError: If the model is of another kind, or ``preprocessing`` is not JSON.
        ValueError: If there is not one name per class, or ``preprocessing`` holds NaN.
        OSError: If a file cannot be written.
    """
    directory = Path(directory)
    if directory.exists() and not directory.is_dir():
        raise OSError(
            f"Cannot save a model at {directory}: there is a file of that name. Choose a directory."
        )
    description = _describe(model)
    classes = model.class_names if classes is None else classes
    if classes is not None and len(classes) != model.num_classes:
        raise ValueError(f"There are {len(classes)} names for {model.num_classes} classes.")
    weights = {name: value.detach() for name, value in model.state_dict().items()}
    config = {
        "what": _WHAT,
        "format": FORMAT,
        **description,
        "classes": None if classes is None else list(classes),
        "preprocessing": model.preprocessing if preprocessing is None else preprocessing,
        "checksum": _checksum(weights),
        "versions": {
            "creinn": __version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
    }
    try:
        config["id"] = (
            f"{zlib.crc32(json.dumps(config, allow_nan=False, sort_keys=True).encode()):08x}"
        )
    except TypeError as error:
        raise TypeError(f"classes and preprocessing must be plain JSON values: {error}.") from error
    except ValueError as error:
        raise ValueError(
            "preprocessing holds NaN or an infinite number, which JSON cannot."
        ) from error
    write_bytes(directory / CONFIG, (json.dumps(config, indent=2) + "\n").encode())
    write_tensors(directory / WEIGHTS, weights, config)


def load(
    directory: str | PathLike[str],
    device: str | torch.device = "cpu",
    network: torch.nn.Module | None = None,
) -> Any:
    """Read a model that :func:`save` wrote; it is in eval mode, with ``class_names`` and ``preprocessing``.

    Warns if it is the network of an estimator, which scales its inputs.

    Args:
        directory: Where it was saved.
        device: Where the model shall live.
        network: A network of the architecture that was saved, where that is not in the file; its weights are replaced.
            An ensemble takes a copy of it for each member.

    Raises:
        FileNotFoundError: If there is no saved model.
        ValueError: If a file is damaged, of another origin or of a newer format, or weights and network do not fit.
    """
    config, weights = _read(Path(directory))
    before = None if network is None else copy.deepcopy(network.state_dict())
    model = _build(config, network, Path(directory) / CONFIG)
    floating = {value.dtype for value in weights.values() if value.is_floating_point()}
    if len(floating) == 1:
        model.to(floating.pop())
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        if network is not None and before is not None:  # torch has loaded what fits
            network.load_state_dict(before)
        raise ValueError(
            f"{Path(directory) / WEIGHTS} does not belong to this network: {error}"
        ) from error
    model.class_names, model.preprocessing = config["classes"], config["preprocessing"]
    if isinstance(model.preprocessing, dict) and model.preprocessing.get("kind") == ESTIMATOR:
        warnings.warn(
            f"The model in {directory} is the network of a CreINNClassifier: its inputs must be prepared as "
            "model.preprocessing says, columns scaled to (x - mean) / scale. CreINNClassifier.load does it.",
            stacklevel=2,
        )
    return model.to(device).eval()


def read_config(directory: str | PathLike[str]) -> dict[str, Any]:
    """The configuration of a saved model, which :func:`save` wrote; raises as :func:`load` does."""
    return _read(Path(directory))[0]


def _read(directory: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not (directory / CONFIG).is_file():
        raise FileNotFoundError(f"There is no saved model in {directory}: it holds no {CONFIG}.")
    try:
        config = json.loads((directory / CONFIG).read_bytes())
    except ValueError as error:
        raise ValueError(f"{directory / CONFIG} is truncated, or is no JSON: {error}.") from error
    _check_header(config, directory / CONFIG)
    if not (directory / WEIGHTS).is_file():
        raise FileNotFoundError(
            f"{directory} holds no {WEIGHTS}: it was removed, or saving never came to its end."
        )
    weights, header = read_tensors(directory / WEIGHTS)
    _check_header(header, directory / WEIGHTS)
    if _checksum(weights) != header["checksum"]:
        raise ValueError(f"{directory / WEIGHTS} is damaged: its checksum does not match.")
    if header["id"] != config.get("id"):
        config = (
            header  # a save was killed between the two files; this is what the weights belong to
        )
    return config, weights


def _check_header(config: Any, path: Path) -> None:
    if not isinstance(config, dict) or config.get("what") != _WHAT:
        raise ValueError(f"{path} is not part of a model saved by creinn.")
    if not isinstance(config.get("format"), int) or config["format"] > FORMAT:
        found = config.get("format")
        raise ValueError(
            f"{path} has format {found}, but this version reads up to {FORMAT}. Update creinn."
        )


def _describe(model: Any) -> dict[str, Any]:
    name = type(model).__name__
    if name not in CLASSES or type(model).__module__ != CLASSES[name]:
        raise TypeError(
            f"{name} cannot be saved; {', '.join(CLASSES)} can. See creinn.classifier.methods.CLASSES."
        )
    description: dict[str, Any] = {"kind": name, "options": model.options()}
    if hasattr(model, "members"):
        return description | {"members": [_describe(member) for member in model.members]}
    try:
        network = architecture.describe(model.network)
        options = description["options"]
        places = [
            place.removesuffix(TOKENS)
            for place in options.get("distance_at") or ()
            if place != HEAD
        ]
        for path in (*places, options.get("head")) if "graph" in network else ():
            if path is not None and family_of(model.network.get_submodule(path)) is None:
                raise ValueError(
                    f"its distance is measured at {path!r}, and a graph of layers has no such part."
                )
        return description | {"network": network}
    except (TypeError, ValueError) as error:
        warnings.warn(
            f"The model is saved without its architecture, so creinn.load(path, network=...) will need it: {error}",
            stacklevel=4,
        )
        return description | {"network": None, "reason": str(error)}


def _build(description: Mapping[str, Any], network: torch.nn.Module | None, path: Path) -> Any:
    name = description.get("kind")
    if name not in CLASSES:
        raise ValueError(
            f"{path} describes a {name!r}, which is not known; known are {', '.join(CLASSES)}."
        )
    try:
        options = dict(description["options"])
        for option, default in _RETIRED.get(name, {}).items():
            if (value := options.pop(option, default)) != default:
                raise ValueError(
                    f"{path} describes a {name} with {option}={value!r}, which this version cannot build. "
                    "Load it with the version that saved it."
                )
        content: Any = network
        if "members" in description:
            content = [
                _build(member, copy.deepcopy(network), path) for member in description["members"]
            ]
        elif network is None and description["network"] is None:
            raise ValueError(
                f"The architecture of the model in {path.parent} is not in the file: {description['reason']} "
                "Build the network and pass it: load(path, network=...)."
            )
        elif network is None:
            content = architecture.build(description["network"])
        return find_class(name)(content, **options)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path} does not describe a model that can be built: {error!r}."
        ) from error


def _checksum(weights: Mapping[str, Tensor]) -> str:
    code = 0
    for name, values in sorted(weights.items()):
        code = zlib.crc32(name.encode(), code)
        code = zlib.crc32(
            values.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data, code
        )
    return f"{code:08x}"
