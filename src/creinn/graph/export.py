"""Export of models to ONNX and ``torch.export``.

The graph runs without this library, in single precision for ONNX. The
outputs are, in this order:

- ``lower``, ``upper`` and ``probabilities`` ``(N, K)``: reachable bounds
  and intersection probability;
- ``label`` ``(N,)``: index of the predicted class;
- ``TU``, ``AU``, ``EU`` ``(N,)``: uncertainties, as in
  :class:`creinn.CredalSet`. For more than :data:`MOST_CLASSES` classes
  there is only ``TU``. Then ``AU`` is
  :meth:`creinn.CredalSet.lower_entropy`, or the function in
  ``examples/entropy_numpy.py``, and ``EU = TU - AU``;
- ``classes`` ``(N, K)``: classes of the rule ``"maximality"``;
- ``conformal`` ``(N, K)``, if the model is calibrated on labels;
- ``widened_lower`` and ``widened_upper`` ``(N, K)``, if it is calibrated
  on distributions;
- ``accepted`` ``(N,)``, if it is calibrated with ``max_error``.

A calibration with groups, random numbers or an uncertainty that is not in
the graph is not exported, with a warning.
"""

import copy
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.nn import Module

from creinn import __version__
from creinn.classifier.base import Inputs
from creinn.classifier.creinn import CreINN
from creinn.classifier.inputs import concatenate, count_rows, first_rows, to_device
from creinn.credal.abstention import Abstention
from creinn.credal.conformal import ONE_GROUP, Conformal, class_scores
from creinn.credal.credal_set import CredalSet
from creinn.credal.entropy import MOST_CLASSES, lower_entropy_by_vertices
from creinn.credal.margin import UNITS, add_margin
from creinn.files import write_bytes
from creinn.graph.checks import GraphError
from creinn.graph.compile import Model, compile
from creinn.interval import Interval
from creinn.numerics import entropy

Join = Callable[[Sequence[Tensor]], Inputs]
Calibration = tuple[Conformal | None, Abstention | None]

_OUTPUTS = {"total": "TU", "aleatoric": "AU", "epistemic": "EU"}


def export(model: Model, path: str | PathLike[str], example: Inputs | None = None) -> None:
    """Export a model to ONNX or ``torch.export``, depending on the suffix.

    The input is ``x``, or ``x_lower`` and ``x_upper`` for intervals, with
    any number of rows. The inputs of a dict have the names of its keys,
    and those of a tuple are ``x_0``, ``x_1`` and so on. The values must be
    finite and preprocessed. The outputs are described in
    :mod:`creinn.graph.export`. The metadata ``class_names``,
    ``preprocessing`` and ``creinn`` (the version) are JSON, in the extra
    file ``creinn.json`` of a ``.pt2`` file.

    Args:
        model: A trained model, which is not changed.
        path: A file with the suffix ``.onnx`` or ``.pt2``, which is
            replaced.
        example: An example of the inputs; an :class:`Interval` for a graph
            with intervals. The default is a tensor of the size of the
            first layer, if it is linear.

    Raises:
        TypeError: If the class of the model or the type of the example is
            not supported.
        ValueError: If the suffix is unknown, an example is required, or
            torch cannot export an operation.
        RuntimeError: If a distance is not fitted, or the model has changed
            after it was fitted or calibrated.
        ImportError: If ONNX is required and is not installed.

    Example:
        >>> from tempfile import mkdtemp
        >>> from creinn import nn as inn
        >>> path = Path(mkdtemp(), "model.pt2")
        >>> export(CreINN(inn.Linear(2, 3)), path)
        >>> list(torch.export.load(path).module()(torch.zeros(5, 2)))
        ['lower', 'upper', 'probabilities', 'label', 'TU', 'AU', 'EU', 'classes']
    """
    path = Path(path)
    is_onnx = _check_arguments(model, path)
    example = example_of(model) if example is None else example
    if is_onnx and _dtype(model) != torch.float32:
        model = copy.deepcopy(model).float()  # for onnxruntime
    program, names = _program(model, first_rows(example, 2), _kept_calibration(model))
    about = {"class_names": model.class_names, "preprocessing": model.preprocessing}
    about |= {"creinn": __version__}
    if is_onnx:
        texts = {name: json.dumps(value) for name, value in about.items() if value is not None}
        write_bytes(path, _onnx(program, names, texts))
        return
    file = io.BytesIO()
    with _errors_of_torch():
        torch.export.save(program, file, extra_files={"creinn.json": json.dumps(about)})
    write_bytes(path, file.getvalue())


def _check_arguments(model: Any, path: Path) -> bool:
    """Check the arguments, and return whether the format is ONNX."""
    if not isinstance(model, Model):
        raise TypeError(f"export expects a CreINN or an Ensemble, got {type(model).__name__}.")
    if (suffix := path.suffix.lower()) not in (".onnx", ".pt2"):
        raise ValueError(f"The suffix of {path} must be .onnx or .pt2.")
    if suffix == ".onnx" and not (find_spec("onnx") and find_spec("onnxscript")):
        raise ImportError('ONNX is not installed: pip install "creinn[onnx]"')
    model.check_fitted()
    return suffix == ".onnx"


class _Graph(Module):
    quantiles: Tensor  # one value, or one for each class

    def __init__(self, model: Any, join: Join, calibration: Calibration) -> None:
        super().__init__()
        self.model, self.join = model, join
        self.conformal, self.abstention = calibration
        if self.conformal is not None:
            dtype = _dtype(model)
            groups = torch.arange(model.num_classes) if self.conformal.by else ONE_GROUP
            quantiles = self.conformal.quantiles(groups=groups)
            quantiles = quantiles + self.conformal.tolerance(quantiles, dtype)
            self.register_buffer("quantiles", quantiles.to(dtype))

    def forward(self, *x: Tensor) -> dict[str, Tensor]:
        sets = self.model(self.join(x))
        found = _outputs(sets)
        if self.conformal is not None:
            found |= self._calibrated(sets, self.conformal)
        if self.abstention is not None:
            by = self.abstention.by
            u = entropy(sets.intersection) if by == "entropy" else found[_OUTPUTS[by]]
            found["accepted"] = self.abstention.accepts(u)
        return found

    def _calibrated(self, sets: CredalSet, conformal: Conformal) -> dict[str, Tensor]:
        score, bounds = conformal.score, (sets.lower, sets.upper)
        if score in UNITS:
            lower, upper = add_margin(*bounds, self.quantiles, score)
            return {"widened_lower": lower, "widened_upper": upper}
        scores = class_scores(score, *bounds, sets.intersection, usual=conformal.usual)
        return {"conformal": scores <= self.quantiles}


def _kept_calibration(model: Model) -> Calibration:
    conformal, abstention = model.current_calibration()
    for found in (conformal, abstention):
        if found is not None and found.stale:
            raise RuntimeError(found.stale)
    if conformal is not None and (conformal.random or conformal.by == "groups"):
        _warn("The calibration", "random numbers" if conformal.random else "groups")
        conformal = None
    if abstention is not None:
        is_in_graph = abstention.by in ("total", "entropy") or model.num_classes <= MOST_CLASSES
        if abstention.groups is not None or not is_in_graph:
            _warn("The limit for acceptance", "groups" if is_in_graph else "the lower entropy")
            abstention = None
    return conformal, abstention


def _warn(what: str, why: str) -> None:
    warnings.warn(f"{what} is not exported, because it uses {why}.", stacklevel=4)


def _outputs(sets: CredalSet) -> dict[str, Tensor]:
    found = {"lower": sets.lower, "upper": sets.upper}
    found |= {"probabilities": sets.intersection, "label": sets.label}
    if sets.num_classes == 2:
        found["TU"], found["AU"], found["EU"] = sets.uncertainty("interval")
    else:
        found["TU"] = total = sets.upper_entropy()
        if sets.num_classes <= MOST_CLASSES:
            found["AU"] = least = lower_entropy_by_vertices(sets.lower, sets.upper)
            found["EU"] = (total - least).clamp_min(0)
    return {**found, "classes": sets.classes()}


@torch.no_grad()
def _program(
    model: Model, example: Inputs, calibration: Calibration
) -> tuple[ExportedProgram, list[str]]:
    example = to_device(example, next(model.parameters()).device, _dtype(model))
    if count_rows(example) == 1:  # the graph would be for one row
        example = concatenate([example, example])
    model.check_network(example)
    try:
        form: Module = compile(model, example, torch.contiguous_format, native=False)
    except GraphError:
        form = copy.deepcopy(model).eval().requires_grad_(False)
    form(example)  # checks the example
    names, inputs, join = _flatten(example)
    graph = _Graph(form, join, calibration)
    shapes = (({0: Dim("rows", min=1)},) * len(inputs),)
    with _errors_of_torch():
        program = torch.export.export(graph, inputs, dynamic_shapes=shapes, strict=False)
    return program, names


def _flatten(example: Inputs) -> tuple[list[str], tuple[Tensor, ...], Join]:
    if isinstance(example, Interval):  # bounds can be the same tensor
        example = Interval._of_parts(example.lower, example.upper.clone())
    leaves, structure = pytree.tree_flatten_with_path(example)
    paths, inputs = zip(*leaves, strict=True)
    names = []
    for path in paths:
        keys = [str(value) for key in path for value in astuple(key)]
        is_dict = path and isinstance(path[0], pytree.MappingKey)
        names.append("_".join(keys if is_dict else ["x", *keys]))
    return names, inputs, lambda x: pytree.tree_unflatten(x, structure)


def _onnx(program: ExportedProgram, names: list[str], about: dict[str, str]) -> bytes:
    tiny = torch.finfo(torch.float32).tiny
    for node in program.graph.nodes:  # smaller numbers would be 0
        if node.target is torch.ops.aten.clamp_min.default and 0 < node.args[1] < tiny:
            node.update_arg(1, tiny)
    options: dict[str, Any] = {
        "input_names": names,
        "output_names": list(program.call_spec.out_spec.context),
        "dynamic_shapes": (({0: "rows"},) * len(names),),
    }
    with _errors_of_torch():
        found: Any = torch.onnx.export(program, dynamo=True, verbose=False, **options)
    found.model.metadata_props.update(about)
    return found.model_proto.SerializeToString()


@contextmanager
def _errors_of_torch() -> Iterator[None]:
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")  # of torchvision
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        cause: BaseException = error
        while (earlier := cause.__cause__ or cause.__context__) is not None:
            cause = earlier
        reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
        raise GraphError(f"torch cannot export the model: {reason} Replace this.") from error
    finally:
        logger.setLevel(level)


def _dtype(model: Module) -> torch.dtype:
    return next(p.dtype for p in model.parameters() if p.is_floating_point())


def example_of(model: Model) -> Tensor:
    """Return two rows of zeros for a linear first layer."""
    network = next(part.network for part in model.modules() if isinstance(part, CreINN))
    first: Any = next(layer for layer in network.modules() if list(layer.parameters(recurse=False)))
    if not hasattr(first, "in_features"):
        kind = type(first).__name__
        raise ValueError(f"The input size of {kind} is unknown. Pass example=x[:1].")
    return torch.zeros(2, first.in_features)
