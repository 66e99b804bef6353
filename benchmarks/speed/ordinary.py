"""The ordinary network at its best: batch norm folded into the layer before it, weights in either memory format."""

import copy
from typing import Any

import torch
from torch import fx
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval


def fold_batch_norm(network: torch.nn.Module) -> fx.GraphModule:
    """A copy of a network for inference, in which no batch norm follows a convolution or a linear layer alone.

    Example:
        >>> network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
        >>> [type(layer).__name__ for layer in fold_batch_norm(network).children()]
        ['Conv2d', 'ReLU']
    """
    folded = fx.symbolic_trace(copy.deepcopy(network).eval())
    for norm in [node for node in folded.graph.nodes if _is(folded, node, torch.nn.modules.batchnorm._BatchNorm)]:
        before = norm.args[0]
        if len(before.users) > 1 or not _is(folded, before, _AFFINE):
            continue
        layer: Any = folded.get_submodule(str(before.target))
        batch_norm: Any = folded.get_submodule(str(norm.target))
        fuse = fuse_linear_bn_eval if isinstance(layer, torch.nn.Linear) else fuse_conv_bn_eval
        folded.set_submodule(str(before.target), fuse(layer, batch_norm))
        norm.replace_all_uses_with(before)
        folded.graph.erase_node(norm)
    folded.delete_all_unused_submodules()
    folded.recompile()
    return folded.requires_grad_(False)


_AFFINE = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.Linear)


def _is(module: fx.GraphModule, node: fx.Node, kind: type | tuple[type, ...]) -> bool:
    return node.op == "call_module" and isinstance(module.get_submodule(str(node.target)), kind)
