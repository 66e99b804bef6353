"""Saved models: a directory with ``config.json`` and ``model.safetensors``.

They do not contain code. The weights contain a copy of the configuration,
so an interrupted :func:`save` leaves the old model or the new one.
"""

import copy
import json
import warnings
import zlib
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from creinn import __version__
from creinn.classifier.credal import CredalClassifier, Ensemble
from creinn.classifier.creinn import CreINN
from creinn.distance.feature_layers import HEAD, TOKENS
from creinn.files import read_tensors, write_bytes, write_tensors
from creinn.graph import serialize as architecture
from creinn.nn.registry import family_of

CONFIG, WEIGHTS = "config.json", "model.safetensors"
FORMAT = 1
ESTIMATOR = "estimator"  # kind of preprocessing
_WHAT = "creinn model"


def save(
    model: Any,
    directory: str | PathLike[str],
    classes: Sequence[str | int] | None = None,
    preprocessing: Any = None,
) -> None:
    """Save a model to a directory, and replace a model there.

    Raises a warning if the network has unknown layers; then its
    architecture is not saved.

    Args:
        model: A CreINN, an ensemble or a baseline.
        directory: The directory, which is created if necessary. Other
            files are not changed.
        classes: The names of the classes, by default
            ``model.class_names``.
        preprocessing: JSON values, by default ``model.preprocessing``.

    Raises:
        TypeError: If the model is not known, or ``preprocessing`` is not
            JSON.
        ValueError: If the number of names is wrong, or a value is NaN.
        OSError: If a file cannot be written.
    """
    directory = Path(directory)
    description = _describe(model)
    classes = model.class_names if classes is None else classes
    if classes is not None and len(classes) != model.num_classes:
        raise ValueError(f"Expected {model.num_classes} class names, got {len(classes)}.")
    weights = model.state_dict()
    config = {
        "what": _WHAT,
        "format": FORMAT,
        **description,
        "classes": None if classes is None else list(classes),
        "preprocessing": model.preprocessing if preprocessing is None else preprocessing,
        "structure": [part.part_hashes()["structure"] for part in _calibrated(model)],
        "checksum": _checksum(weights),
        "versions": {"creinn": __version__, "torch": str(torch.__version__)},
    }
    try:
        text = json.dumps(config, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        message = f"classes and preprocessing must be JSON without NaN: {error}."
        raise type(error)(message) from error
    config["id"] = f"{zlib.crc32(text.encode()):08x}"
    write_bytes(directory / CONFIG, (json.dumps(config, indent=2) + "\n").encode())
    write_tensors(directory / WEIGHTS, weights, config)


def load(
    directory: str | PathLike[str],
    device: str | torch.device = "cpu",
    network: torch.nn.Module | None = None,
) -> Any:
    """Load a model of :func:`save`, in eval mode.

    Raises a warning if the model is the network of an estimator, which
    scales its inputs.

    Args:
        directory: The directory of the model.
        device: The device of the model.
        network: A network of the same architecture, if it is not saved.
            Its weights are replaced, in a copy for each member of an
            ensemble.

    Raises:
        FileNotFoundError: If there is no model.
        ValueError: If a file is damaged, or the network does not match.
    """
    directory = Path(directory)
    config, weights = _read(directory)
    model = _build(config, network, directory / CONFIG)
    floating = {value.dtype for value in weights.values() if value.is_floating_point()}
    if len(floating) == 1:
        model.to(floating.pop())
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{directory}: the weights do not match the network: {error}") from error
    if network is None:
        for part, structure in zip(_calibrated(model), config["structure"], strict=True):
            part.adopt_structure(structure)
    model.class_names, model.preprocessing = config["classes"], config["preprocessing"]
    if isinstance(model.preprocessing, dict) and model.preprocessing.get("kind") == ESTIMATOR:
        found = f"{directory} is the network of a CreINNClassifier, which scales its inputs"
        warnings.warn(f"{found}. Use CreINNClassifier.load.", stacklevel=2)
    return model.to(device).eval()


def read_config(directory: str | PathLike[str]) -> dict[str, Any]:
    """Return the configuration of a saved model."""
    return _read(Path(directory))[0]


def _read(directory: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    path = directory / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"There is no saved model in {directory}: {CONFIG} is missing.")
    try:
        config = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}.") from error
    _check_header(config, path)
    path = directory / WEIGHTS
    weights, header = read_tensors(path)
    _check_header(header, path)
    if _checksum(weights) != header["checksum"]:
        raise ValueError(f"{path} is damaged: its checksum does not match.")
    if header["id"] != config.get("id"):
        config = header  # save was interrupted
    return config, weights


def _calibrated(model: torch.nn.Module) -> list[CredalClassifier]:
    return [part for part in model.modules() if isinstance(part, CredalClassifier)]


def _check_header(config: Any, path: Path) -> None:
    if not isinstance(config, dict) or config.get("what") != _WHAT:
        raise ValueError(f"{path} is not part of a model saved by creinn.")
    if config.get("format") != FORMAT:
        raise ValueError(f"{path} has format {config.get('format')}, expected {FORMAT}.")


def _known_classes(name: Any) -> dict[str, Any]:
    known: dict[str, Any] = {"CreINN": CreINN, "Ensemble": Ensemble}
    if name in known:
        return known
    from creinn.baselines.factory import CLASSES

    return CLASSES


def _describe(model: Any) -> dict[str, Any]:
    name = type(model).__name__
    if (known := _known_classes(name)).get(name) is not type(model):
        raise TypeError(f"Cannot save a {name}. The classes are {', '.join(known)}.")
    description: dict[str, Any] = {"kind": name, "options": model.options()}
    if hasattr(model, "members"):
        return description | {"members": [_describe(member) for member in model.members]}
    try:
        network = architecture.serialize(model.network)
        if "graph" in network:
            _check_named_layers(model)
    except (TypeError, ValueError) as error:
        warnings.warn(f"The architecture of the model is not saved, because {error}", stacklevel=4)
        return description | {"network": None, "reason": str(error)}
    return description | {"network": network}


def _check_named_layers(model: Any) -> None:
    options = model.options()
    paths = [path.removesuffix(TOKENS) for path in options.get("feature_layers") or ()]
    for path in (*paths, options.get("logits_layer")):
        if path not in (None, HEAD) and family_of(model.network.get_submodule(path)) is None:
            advice = "Load the model with creinn.load(path, network=...)."
            raise ValueError(f"the distance uses {path!r}, which is no known layer. {advice}")


def _build(description: Mapping[str, Any], network: torch.nn.Module | None, path: Path) -> Any:
    name = description.get("kind")
    if name not in (known := _known_classes(name)):
        raise ValueError(f"Unknown class {name!r} in {path}. Expected {', '.join(known)}.")
    try:
        content: Any = network
        if "members" in description:
            members = description["members"]
            content = [_build(member, copy.deepcopy(network), path) for member in members]
        elif network is None and description["network"] is None:
            found = f"{path} has no architecture, because {description['reason']}"
            raise ValueError(f"{found} Use load(path, network=...).")
        elif network is None:
            content = architecture.build(description["network"])
        return known[name].from_options(content, **description["options"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"The model in {path} cannot be built: {error!r}.") from error


def _checksum(weights: Mapping[str, Tensor]) -> str:
    code = 0
    for name, values in sorted(weights.items()):
        content = values.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        code = zlib.crc32(content.numpy().data, zlib.crc32(name.encode(), code))
    return f"{code:08x}"
