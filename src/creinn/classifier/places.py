"""Features of a network: what enters its last linear layer, or what leaves modules of one's choice; and the logits.

In: a network, interval or ordinary, and its input. Out: outputs at each place, features ``(N, D)`` of them, and logits
``(N, K)``, all from one forward pass.

Where the path of the head is given, its output are the logits and its input are the features.
A network that defines a method ``features`` and a layer ``head`` with ``forward(x) = head(features(x))``, as those of
:mod:`creinn.models` do, is called by these names. Of any other network the last ``Linear`` in the order of
``network.modules()`` is taken as the head, and its input is noted by a hook that lives as long as the forward pass.
Modules of one's choice are observed by such hooks too. Networks with hooks cannot be exported with ``strict=True``, nor
called from several threads at once.
:func:`check_features` tells whether these rules fit a network.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from creinn.classifier.inputs import in_words
from creinn.interval import Interval, as_interval

_ADVICE = (
    "Name the module that gives the logits, CreINN(network, head='path'), or give the network a method features(x) "
    "and a layer head, so that forward(x) is head(features(x))."
)


def find_head(network: torch.nn.Module, head: str | None = None) -> torch.nn.Module:
    """The layer from features to logits: the one of the path ``head``, or else a linear one.

    Raises:
        ValueError: If there is none.

    Example:
        >>> find_head(torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)))
        Linear(in_features=8, out_features=3, bias=True)
    """
    if head is not None:
        check_places(network, [head], "that gives the logits")
        return network.get_submodule(head)
    if _names_features(network):
        layers = [network.head]
    else:
        layers = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)]
    if not layers or not (hasattr(layers[-1], "in_features") and hasattr(layers[-1], "out_features")):
        raise ValueError(f"{type(network).__name__} has no linear layer, so there are no features before it. {_ADVICE}")
    return layers[-1]  # type: ignore[return-value]


def observe(
    network: torch.nn.Module, x: Any, at: Sequence[str] = (), head: str | None = None
) -> tuple[tuple[Any, ...], Any]:
    """One forward pass: outputs of the modules with the paths ``at``, and the logits.

    Without paths, the input of the head stands for them. A network with a method ``outputs_and_logits`` answers itself.
    """
    if hasattr(network, "outputs_and_logits"):
        return network.outputs_and_logits(x)  # type: ignore[operator]
    if not at and head is None and _names_features(network):
        features = network.features(x)  # type: ignore[operator]
        return (features,), network.head(features)  # type: ignore[operator]
    places = [network.get_submodule(path) for path in at]
    last = [] if at and head is None else [find_head(network, head)]
    calls, logits = _calls(network, x, [*places, *last])
    seen = {call.module: call for call in calls}
    features = tuple(seen[place].output for place in places) if at else (seen[last[0]].input,)
    return features, logits if head is None else seen[last[0]].output


def features_and_logits(network: torch.nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """One forward pass of a network that ends in its head: the head's input ``(N, D)`` and the logits ``(N, K)``.

    Raises:
        ValueError: If the network's output is not that of its head.
    """
    head = find_head(network)
    calls, logits = _calls(network, x, [head])
    if len(calls) != 1 or calls[0].output is not logits:
        raise ValueError(
            f"The network's last Linear layer, {head}, should be the last thing that it does and be called once, "
            "but its output is not the network's. End the network in a Linear layer."
        )
    return calls[0].input, logits


def pooled(output: Interval | Tensor) -> Interval | Tensor:
    r"""Features ``(N, D)`` of an output ``(N, D)`` or ``(N, C, ...)``: of the latter, mean and deviation per channel.

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
    maps = as_interval(output).flatten(2)
    mean, positions = maps.mean(2), maps.shape[2]
    residuals = maps.center - mean.center.unsqueeze(2)
    deviation = torch.linalg.vector_norm(residuals, dim=2) / math.sqrt(positions)  # faster than torch.std
    if maps.is_point:
        return torch.cat((mean.lower, deviation), 1)
    slack = torch.linalg.vector_norm(maps.radius, dim=2) / math.sqrt(positions)
    lower = torch.cat((mean.lower, (deviation - slack).clamp_min(0)), 1)
    return Interval._of_parts(lower, torch.cat((mean.upper, deviation + slack), 1))


def named_stages(network: torch.nn.Module) -> tuple[str, ...]:
    """Paths that a network gives as its ``stages``, a tuple of names; elsewhere that word may stand for layers."""
    stages = getattr(network, "stages", ())
    return stages if isinstance(stages, tuple) and all(isinstance(path, str) for path in stages) else ()


def check_places(network: torch.nn.Module, at: Sequence[str], what: str = "to measure a distance at") -> None:
    """Refuse paths that the network does not have.

    Raises:
        ValueError: If there is no such module.
    """
    known = [path for path, _ in network.named_modules() if path]
    for path in at:
        if path not in known:
            raise ValueError(
                f"{type(network).__name__} has no module {path!r} {what}. Its modules are: {', '.join(known)}."
            )


@torch.no_grad()
def check_features(network: torch.nn.Module, x: Any, at: Sequence[str] = (), head: str | None = None) -> None:
    """Refuse a network whose features are not found by the rules of this module, by running it on ``x``.

    Raises:
        ValueError: If a module of ``at``, or ``head``, runs not exactly once, or what is measured there is no tensor or
            interval ``(N, D)`` or ``(N, C, ...)``. Without both: if the layer taken for the head runs not at all, more
            than once, or not as the last linear one; if ``head(features(x))`` is not the network's output; or if
            features are not ``(N, D)``.
    """
    name = type(network).__name__
    if at or head is not None:
        _check_places(network, x, at, head)
        return
    names = {layer: path for path, layer in network.named_modules()}
    calls, output = _calls(network, x, [layer for layer in names if isinstance(layer, torch.nn.Linear)])
    layer, ran = find_head(network), [call.module for call in calls]
    if _names_features(network):
        logits, output = as_interval(observe(network, x)[1]), as_interval(output)
        bounds = [(getattr(logits, name), getattr(output, name)) for name in ("lower", "upper")]
        same = all(torch.allclose(ours, theirs, 1e-4, 1e-5, equal_nan=True) for ours, theirs in bounds)
        if logits.shape != output.shape or not same:
            raise ValueError(
                f"The output of {name} is not head(features(x)), though it has both names. "
                "Rename the method features, or make forward(x) equal to head(features(x))."
            )
    elif not ran or ran[-1] is not layer or ran.count(layer) != 1:
        order = ", ".join(names[part] or type(part).__name__ for part in ran) or "none"
        raise ValueError(
            f"The last linear layer of {name} in the order of its modules, {names[layer]!r}, should "
            f"run once and after all others, but the linear layers ran in the order: {order}. {_ADVICE}"
        )
    features = as_interval(observe(network, x)[0][0])
    if features.ndim != 2 or features.shape[1] != layer.in_features:
        raise ValueError(
            f"The features of {name} should have shape (N, {layer.in_features}), one row per input, "
            f"got {tuple(features.shape)}. Pool or flatten before the last linear layer."
        )


def _check_places(network: torch.nn.Module, x: Any, at: Sequence[str], head: str | None) -> None:
    for path in at if head is None else (*at, head):
        runs = len(_calls(network, x, [network.get_submodule(path)])[0])
        if runs != 1:
            what = "The logits are to come from" if path == head else "A distance is to be measured at"
            raise ValueError(f"{what} {path!r}, but it ran {runs} times, not once.")
    features, logits = observe(network, x, at, head)
    for path, found in zip(at or [f"the input of {head}"], features, strict=True):
        if not isinstance(found, Tensor | Interval) or found.ndim < 2 or len(found) != len(logits):
            raise ValueError(
                f"A distance is to be measured at {path!r}, but its output is {in_words(found)}. It should have shape "
                f"({len(logits)}, D) or ({len(logits)}, C, ...)."
            )


class _Call(NamedTuple):
    module: torch.nn.Module
    input: Any
    output: Any


def _calls(network: torch.nn.Module, x: Any, modules: Sequence[torch.nn.Module]) -> tuple[list[_Call], Any]:
    """Every call of these modules during one forward pass, in order, and the output of the network."""
    calls: list[_Call] = []

    def note(module: torch.nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        calls.append(_Call(module, next(iter((*inputs, *named.values())), None), output))

    handles = [module.register_forward_hook(note, with_kwargs=True) for module in modules]
    try:
        return calls, network(x)
    finally:
        for handle in handles:
            handle.remove()


def _names_features(network: torch.nn.Module) -> bool:
    """Whether the network has a method ``features``; in some architectures the name stands for a layer."""
    features = getattr(network, "features", None)
    return (
        callable(features)
        and not isinstance(features, torch.nn.Module)
        and isinstance(getattr(network, "head", None), torch.nn.Module)
    )
