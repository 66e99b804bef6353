"""Features of a network: what enters its last linear layer, or what leaves modules of one's choice; and the logits.

In: a network, interval or ordinary, and its input. Out: outputs at each place, features ``(N, D)`` of them, and logits
``(N, K)``, all from one forward pass.

A network that defines a method ``features`` and a layer ``head`` with ``forward(x) = head(features(x))``, as those of
:mod:`creinn.models` do, is called by these names. Of any other network the last ``Linear`` in the order of
``network.modules()`` is taken as the head, and its input is noted by a hook that lives as long as the forward pass.
Modules of one's choice are observed by such hooks too. Networks with hooks cannot be exported with ``strict=True``, nor
called from several threads at once.
:func:`check_features` tells whether these rules fit a network.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from creinn.interval import Interval, as_interval

_ADVICE = "Give the network a method features(x) and a layer head, so that forward(x) is head(features(x))."


def find_head(network: torch.nn.Module) -> torch.nn.Module:
    """The layer from features to logits; it has ``in_features`` and ``out_features``, as a ``Linear`` does.

    Raises:
        ValueError: If there is none.

    Example:
        >>> find_head(torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)))
        Linear(in_features=8, out_features=3, bias=True)
    """
    if _names_features(network):
        layers = [network.head]
    else:
        layers = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)]
    if not layers or not (hasattr(layers[-1], "in_features") and hasattr(layers[-1], "out_features")):
        raise ValueError(
            f"{type(network).__name__} has no linear layer, so there are no features before it to measure a distance "
            f"with. {_ADVICE}"
        )
    return layers[-1]  # type: ignore[return-value]


def features_and_logits(network: torch.nn.Module, x: Interval | Tensor) -> tuple[Any, Any]:
    """One forward pass: the input of the head and the output of the network, tensors or intervals."""
    if _names_features(network):
        features = network.features(x)  # type: ignore[operator]
        return features, network.head(features)  # type: ignore[operator]
    seen: list[Any] = []
    handle = find_head(network).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        logits = network(x)
    finally:
        handle.remove()
    return seen[-1], logits


def observe(network: torch.nn.Module, x: Interval | Tensor, at: Sequence[str] = ()) -> tuple[tuple[Any, ...], Any]:
    """One forward pass: outputs of the modules with the paths ``at``, and of the network.

    Without paths, the input of the head stands for them. A network with a method ``outputs_and_logits`` answers itself.
    """
    if hasattr(network, "outputs_and_logits"):
        return network.outputs_and_logits(x)  # type: ignore[operator]
    if not at:
        features, logits = features_and_logits(network, x)
        return (features,), logits
    outputs, logits = _outputs(network, x, at)
    return tuple(outputs[path][-1] for path in at), logits


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


def check_places(network: torch.nn.Module, at: Sequence[str]) -> None:
    """Refuse paths that the network does not have.

    Raises:
        ValueError: If there is no such module.
    """
    known = [path for path, _ in network.named_modules() if path]
    for path in at:
        if path not in known:
            raise ValueError(
                f"{type(network).__name__} has no module {path!r} to measure a distance at. Its modules are: "
                f"{', '.join(known)}."
            )


@torch.no_grad()
def check_features(network: torch.nn.Module, x: Interval | Tensor, at: Sequence[str] = ()) -> None:
    """Refuse a network whose features are not found by the rules of this module, by running it on ``x``.

    Raises:
        ValueError: If a module of ``at`` runs not exactly once, or gives no tensor or interval ``(N, D)`` or
            ``(N, C, ...)``. Without ``at``: if the layer taken for the head runs not at all, more than once, or not as
            the last linear one; if ``head(features(x))`` is not the network's output; or if features are not
            ``(N, D)``.
    """
    if at:
        _check_outputs(network, x, at)
        return
    names = {layer: path for path, layer in network.named_modules()}
    head, ran = find_head(network), []
    handles = [
        layer.register_forward_pre_hook(lambda layer, _: ran.append(layer))
        for layer in names
        if isinstance(layer, torch.nn.Linear)
    ]
    try:
        output = as_interval(network(x))
    finally:
        for handle in handles:
            handle.remove()
    if _names_features(network):
        logits = as_interval(features_and_logits(network, x)[1])
        same = all(torch.allclose(getattr(logits, b), getattr(output, b), 1e-4, 1e-5) for b in ("lower", "upper"))
        if logits.shape != output.shape or not same:
            raise ValueError(
                f"The output of {type(network).__name__} is not head(features(x)), though it has both names. "
                "Rename the method features, or make forward(x) equal to head(features(x))."
            )
    elif not ran or ran[-1] is not head or ran.count(head) != 1:
        order = ", ".join(names[layer] or type(layer).__name__ for layer in ran) or "none"
        raise ValueError(
            f"The last linear layer of {type(network).__name__} in the order of its modules, {names[head]!r}, should "
            f"run once and after all others, but the linear layers ran in the order: {order}. {_ADVICE}"
        )
    features = as_interval(features_and_logits(network, x)[0])
    if features.ndim != 2 or features.shape[1] != head.in_features:
        raise ValueError(
            f"The features of {type(network).__name__} should have shape (N, {head.in_features}), one row per input, "
            f"got {tuple(features.shape)}. Pool or flatten before the last linear layer."
        )


def _check_outputs(network: torch.nn.Module, x: Interval | Tensor, at: Sequence[str]) -> None:
    for path, found in _outputs(network, x, at)[0].items():
        if len(found) != 1:
            raise ValueError(f"A distance is to be measured at {path!r}, but it ran {len(found)} times, not once.")
        if not isinstance(found[0], Tensor | Interval) or found[0].ndim < 2 or len(found[0]) != len(x):
            shape = tuple(getattr(found[0], "shape", ()))
            raise ValueError(
                f"A distance is to be measured at {path!r}, but its output is a {type(found[0]).__name__} of shape "
                f"{shape}. It should be ({len(x)}, D) or ({len(x)}, C, ...)."
            )


def _outputs(network: torch.nn.Module, x: Interval | Tensor, at: Sequence[str]) -> tuple[dict[str, list[Any]], Any]:
    """Every output of the modules with these paths during one forward pass, and that of the network."""
    outputs: dict[str, list[Any]] = {path: [] for path in at}

    def note(path: str) -> Any:
        return lambda _, inputs, output: outputs[path].append(output)

    handles = [network.get_submodule(path).register_forward_hook(note(path)) for path in at]
    try:
        return outputs, network(x)
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
