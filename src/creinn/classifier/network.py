"""What a classifier asks of its network: logits, and features at its head and at places before it, in one pass.

A place is the path of a module, whose output is looked at, with ``:tokens`` behind it if that is ``(N, tokens, D)``; or
``<head>``, for what enters the head. That is the module whose path is given, and whose output are then the logits; or a
layer named ``head`` of a network with a method ``features``, as those of :mod:`creinn.models`; or the last ``Linear``.
Hooks outputs_and_logits the modules (``creinn.classifier.recording``), so ``torch.export`` needs ``strict=False``.
"""

import inspect
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from creinn.classifier.inputs import describe
from creinn.classifier.logits import as_logits, check_logits, tracking_operations
from creinn.classifier.recording import last_calls, recording
from creinn.interval import Interval, as_interval
from creinn.nn.affine import IntervalParameters

HEAD, TOKENS = "<head>", ":tokens"
LABELS = "labels"

_ONE_ARGUMENT = (
    " It gets a dict or tuple as one argument, unless its forward takes the keys of a dict by name."
)
_ADVICE = (
    "Name the module that gives the logits, CreINN(network, logits_layer='path'), or give the "
    "network a method features(x) and a layer head, so that forward(x) is head(features(x))."
)


def run(network: torch.nn.Module, x: Any) -> Any:
    """Call a network; a mapping becomes keyword arguments if ``forward`` takes its keys by name.

    The key ``labels`` is left out of keyword arguments, because with it a Hugging Face model
    computes a loss. An output with an attribute ``logits`` is replaced by that attribute.

    Example:
        >>> run(torch.nn.Linear(2, 3), {"input": torch.zeros(1, 2)}).shape
        torch.Size([1, 3])
    """
    named = as_arguments(network, x)
    output = network(x) if named is None else network(**named)
    return output if isinstance(output, Tensor | Interval) else getattr(output, "logits", output)


def as_arguments(network: torch.nn.Module, x: Any) -> dict[str, Any] | None:
    """The keyword arguments for ``forward`` if ``x`` is a mapping of these; ``None`` otherwise."""
    if not isinstance(x, Mapping) or not all(isinstance(name, str) for name in x):
        return None
    named = {name: part for name, part in x.items() if name != LABELS}
    try:
        inspect.signature(network.forward).bind(**named)
    except TypeError:
        return None
    return named


def find_logits_layer(network: torch.nn.Module, head: str | None = None) -> torch.nn.Module:
    """The layer from features to logits: the one of the path ``head``, or else a linear one; refuses to find none.

    Example:
        >>> find_logits_layer(torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)))
        Linear(in_features=8, out_features=3, bias=True)
    """
    if head is not None:
        check_layers(network, [head], "that gives the logits")
        return network.get_submodule(head)
    layers = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)]
    layer: Any = network.head if _names_features(network) else layers[-1] if layers else None
    if not (hasattr(layer, "in_features") and hasattr(layer, "out_features")):
        raise ValueError(
            f"{type(network).__name__} has no linear layer, so there are no features before it. {_ADVICE}"
        )
    return layer


def count_logits(network: torch.nn.Module, head: str | None = None) -> int:
    """How many logits the last interval layer gives, or the head; refuses, with a ``ValueError``, one that is silent.

    Example:
        >>> count_logits(torch.nn.Linear(8, 3))
        3
    """
    interval = [layer for layer in network.modules() if isinstance(layer, IntervalParameters)]
    layer = interval[-1] if interval and head is None else find_logits_layer(network, head)
    if isinstance(layer, IntervalParameters):
        return layer.weight.shape[0]
    count = getattr(layer, "out_features", getattr(layer, "out_channels", None))
    if count is None:
        raise ValueError(
            f"The head {head!r} does not say how many logits it gives; pass their number, num_logits=..."
        )
    return int(count)


def outputs_and_logits(
    network: torch.nn.Module, x: Any, at: Sequence[str] = (HEAD,), head: str | None = None
) -> tuple[tuple[Any, ...], Any]:
    """One forward pass: what there is at the places ``at``, and the logits.

    A network with a method ``outputs_and_logits`` answers itself.
    """
    if hasattr(network, "outputs_and_logits"):
        return network.outputs_and_logits(x)  # type: ignore[operator]
    last = find_logits_layer(network, head) if HEAD in at or head is not None else None
    places = [
        last if place == HEAD else network.get_submodule(place.removesuffix(TOKENS)) for place in at
    ]
    with last_calls(module for module in (*places, last) if module is not None) as calls:
        logits = run(network, x)
    for path, module in zip((*at, head or HEAD), (*places, last), strict=True):
        if module is not None and calls[module] is None:
            raise ValueError(
                f"The module {path!r} did not run, so it has no output to outputs_and_logits."
            )
    outputs = tuple(
        calls[module].inputs[0] if place == HEAD else calls[module].output  # type: ignore
        for place, module in zip(at, places, strict=True)
    )
    return outputs, logits if head is None else calls[last].output  # type: ignore


def features_and_logits(network: torch.nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """One pass through a network that must end in its head: the head's input ``(N, D)`` and the logits ``(N, K)``."""
    head = find_logits_layer(network)
    with recording([head]) as calls:
        logits = run(network, x)
    if len(calls) != 1 or calls[0].output is not logits:
        raise ValueError(
            f"The network's last Linear layer, {head}, should be the last thing that it does and be called once, "
            "but its output is not the network's. End the network in a Linear layer."
        )
    return calls[0].inputs[0], logits


def pooled(output: Interval | Tensor, tokens: bool = False) -> Interval | Tensor:
    r"""Features ``(N, D)`` of an output ``(N, D)`` or ``(N, C, ...)``: of the latter, mean and deviation per channel.

    With ``tokens`` the output is ``(N, tokens, C)``.

    The standard deviation over positions moves by at most the root mean square of what the positions move by, since
    centring is a projection. So over a box with centre :math:`c` and radius :math:`r` it lies within
    :math:`\operatorname{sd}(c) \pm \operatorname{rms}(r)`.

    Example:
        >>> pooled(torch.tensor([[[1.0, 3.0], [2.0, 2.0]]]))
        tensor([[2., 2., 1., 0.]])
        >>> pooled(Interval(torch.tensor([[[0.5, 2.5]]]), torch.tensor([[[1.5, 3.5]]])))
        Interval(lower=tensor([[1.5000, 0.5000]]), upper=tensor([[2.5000, 1.5000]]))
    """
    if output.ndim == 2:
        return output
    maps = as_interval(output)
    maps = maps.transpose(1, 2) if tokens else maps.flatten(2)
    mean, positions = maps.mean(2), maps.shape[2]
    residuals = maps.center - mean.center.unsqueeze(2)
    deviation = torch.linalg.vector_norm(residuals, dim=2) / math.sqrt(
        positions
    )  # faster than torch.std
    if maps.is_point:
        return torch.cat((mean.lower, deviation), 1)
    slack = torch.linalg.vector_norm(maps.radius, dim=2) / math.sqrt(positions)
    lower = torch.cat((mean.lower, (deviation - slack).clamp_min(0)), 1)
    return Interval._of_parts(lower, torch.cat((mean.upper, deviation + slack), 1))


def is_single_row(network: torch.nn.Module, x: Any, count: int) -> bool:
    """Whether inputs that a network in eval mode does not take are one row without a batch dimension."""
    is_dict = isinstance(x, Mapping) and all(isinstance(part, Tensor) for part in x.values())
    if not is_dict and not isinstance(x, Tensor | Interval):
        return False
    if not is_dict and x.ndim < 2:
        return True
    try:
        rows = {name: part[None] for name, part in x.items()} if is_dict else x[None]
        return as_logits(run(network, rows), count).shape == (1, count)
    except Exception:  # it does not take these inputs either
        return False


def check_network(
    network: torch.nn.Module,
    x: Any,
    logits: int,
    at: Sequence[str] = (),
    head: str | None = None,
) -> None:
    """Refuse a network that cannot be run on these rows, gives no logits, or no features at the places ``at``."""
    who = f"The network {type(network).__name__}"
    named = as_arguments(network, x)
    if named is not None and LABELS in x:
        warnings.warn(
            f"The inputs have the key {LABELS!r}, which is not passed to the network. Pass the "
            "classes separately, for example fit_distance(x, y).",
            stacklevel=2,
        )
    try:
        with tracking_operations(network):
            output = run(network, x)
    except Exception as error:
        advice = "" if isinstance(x, Tensor | Interval) or named is not None else _ONE_ARGUMENT
        if any(isinstance(t, Tensor) and not t.is_floating_point() for t in pytree.tree_leaves(x)):
            advice += " Integers reach it as they are: .float() makes numbers of them, Dataset.scaled() of images."
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"{who} cannot be run on inputs of {describe(x)}: {reason}.{advice}"
        ) from error
    if head is None:
        output = as_logits(output, logits)
    if at or head is not None:
        _check_features(network, x, at, head)
    if head is not None:
        with tracking_operations(network):
            output, who = outputs_and_logits(network, x, (), head)[1], f"The module {head!r}"
    check_logits(as_logits(output, logits), logits, who)


def check_layers(
    network: torch.nn.Module, at: Iterable[str], what: str = "to measure a distance at"
) -> None:
    """Refuse paths that the network does not have."""
    known = [path for path, _ in network.named_modules() if path]
    for path in at:
        if path != HEAD and path.removesuffix(TOKENS) not in known:
            raise ValueError(
                f"{type(network).__name__} has no module {path!r} {what}. Its modules are: {', '.join(known)}."
            )


@torch.no_grad()
def _check_features(network: torch.nn.Module, x: Any, at: Sequence[str], head: str | None) -> None:
    """Refuse places that did not run once, or give no features, by running the network on ``x``."""
    if HEAD in at and head is None:
        _check_head(network, x)
    named = {
        place: place.removesuffix(TOKENS)
        for place in (*at, *([] if head is None else [head]))
        if place != HEAD
    }
    modules = {place: network.get_submodule(path) for place, path in named.items()}
    with recording(set(modules.values())) as calls:
        run(network, x)
    for place, module in modules.items():
        if (runs := [call.module for call in calls].count(module)) != 1:
            what = (
                "The logits are to come from"
                if place == head
                else "A distance is to be measured at"
            )
            raise ValueError(f"{what} {place!r}, but it ran {runs} times, not once.")
    outputs, logits = outputs_and_logits(network, x, at, head)
    for place, found in zip(at, outputs, strict=True):
        is_array = (
            isinstance(found, Tensor | Interval) and found.ndim > 1 and len(found) == len(logits)
        )
        if not is_array or (place.endswith(TOKENS) and found.ndim != 3):
            where = f"the input of {head}" if place == HEAD else place
            raise ValueError(
                f"A distance is to be measured at {where!r}, but its output is {describe(found)}. It should have shape "
                f"({len(logits)}, D) or ({len(logits)}, C, ...), and with {TOKENS!r} behind the name (N, tokens, D)."
            )


def _check_head(network: torch.nn.Module, x: Any) -> None:
    """Refuse a network whose head is not found by the rules of this module."""
    name = type(network).__name__
    paths = {layer: path for path, layer in network.named_modules()}
    layer: Any = find_logits_layer(network)
    with recording(
        {layer, *(part for part in paths if isinstance(part, torch.nn.Linear))}
    ) as calls:
        output = as_interval(run(network, x))
    ran = [call.module for call in calls]
    if not ran or ran[-1] is not layer or ran.count(layer) != 1:
        order = ", ".join(paths.get(part) or type(part).__name__ for part in ran) or "none"
        raise ValueError(
            f"The last linear layer of {name} in the order of its modules, {paths.get(layer)!r}, should "
            f"run once and after all others, but the linear layers ran in the order: {order}. {_ADVICE}"
        )
    features, logits = as_interval(calls[-1].inputs[0]), as_interval(calls[-1].output)
    bounds = ((logits.lower, output.lower), (logits.upper, output.upper))
    alike = logits.shape == output.shape and all(
        torch.allclose(*pair, 1e-4, 1e-5, equal_nan=True) for pair in bounds
    )
    if _names_features(network) and not alike:
        raise ValueError(
            f"The output of {name} is not head(features(x)), though it has both names. "
            "Rename the method features, or make forward(x) equal to head(features(x))."
        )
    if features.ndim != 2 or features.shape[1] != layer.in_features:
        raise ValueError(
            f"The features of {name} should have shape (N, {layer.in_features}), one row per input, "
            f"got {tuple(features.shape)}. Pool or flatten before the last linear layer."
        )


def _names_features(network: torch.nn.Module) -> bool:
    """Whether the network has a method ``features``; in some architectures the name stands for a layer."""
    features, head = getattr(network, "features", None), getattr(network, "head", None)
    return (
        callable(features)
        and not isinstance(features, torch.nn.Module)
        and isinstance(head, torch.nn.Module)
    )
