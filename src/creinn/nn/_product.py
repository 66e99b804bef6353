"""Interval versions of matrix products and convolutions.

The result contains ``operation(a, W) + b`` for all members ``a``, ``W``
and ``b`` (forward_inn).

| weights | input | bounds | products |
|---|---|---|---|
| any | point of any sign | exact | 2 |
| full radii | known to be >= 0 (sim_full_o_lower_upper) | exact | 4 in one block |
| full radii | interval of any sign | outer | 8 in one block, and 3 |
| relative radii | interval of any sign | exact | 2 |

The outer bounds are exact if a weight or its input does not change its
sign. The backward pass computes the inputs and weights of the products
again to save memory. The errata of the equations are in
``docs/method.md``.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from creinn.interval import Interval, stack_parts
from creinn.nn._operations import Biases, Operation
from creinn.numerics import valid_radius

Tensors = Sequence[Tensor]
NO_BIASES: Biases = (None, None)


def interval_affine(
    operation: Operation, x: Interval, center: Tensor, radius: Tensor, biases: Biases = NO_BIASES
) -> Interval:
    """Return bounds of ``operation(a, W, b)`` for all members.

    The weights ``(O, C / groups, ...)`` are ``center ± radius``. A
    negative radius is replaced by 0, with a derivative of 1.

    Example:
        >>> from creinn.nn._operations import Matrix
        >>> x = Interval([[1.0, 0.0]], [[2.0, 3.0]])
        >>> center, radius = torch.tensor([[1.0, -1.0]]), torch.tensor([[0.5, 0.5]])
        >>> y = interval_affine(Matrix(), x, center, radius)
        >>> y.lower, y.upper  # 0.5 * 1 - 1.5 * 3, 1.5 * 2 - 0.5 * 0
        (tensor([[-4.]]), tensor([[3.]]))
    """
    if x.is_point:
        return interval_product(PointProduct(operation), biases, x.lower, center, radius)
    if x.nonnegative:
        rule = NonnegativeProduct(operation)
        return interval_product(rule, biases, x.center_radius, center, radius)
    radius = valid_radius(radius)
    one = _sign_split(operation, x, center - radius, center + radius, biases)
    two = _midpoint_radius(operation, x, center, radius, biases)
    lower, upper = torch.maximum(one.lower, two.lower), torch.minimum(one.upper, two.upper)
    # Rounding can cause upper < lower.
    return Interval._of_parts(lower, torch.where(upper < lower, lower, upper))


def relative_affine(
    operation: Operation, x: Interval, weight: Tensor, relative: Tensor, biases: Biases = NO_BIASES
) -> Interval:
    r"""Return the exact bounds for weights :math:`W_{ij} (1 \pm \rho_j)`.

    The shape of :math:`\rho` is ``(C, 1, ...)``.
    """
    if x.nonnegative:
        rule = RelativeProduct(operation)
        return interval_product(rule, biases, x.center_radius, relative, weight)
    center, radius = widened(x, relative)
    center = operation(center, weight, biases[0])
    radius = operation(radius, weight.abs(), biases[1])
    return Interval._of_center_radius(stack_parts(center, radius))


class ProductRule:
    """Inputs and weights of the products as functions of the saved tensors.

    The inputs depend on the first ``sources`` saved tensors, the weights
    on the others. There is a product for the center and one for the radius
    by default. A subclass with one product overrides ``biases``, ``join``
    and ``split``.
    """

    sources: ClassVar[int] = 1
    inputs: Callable[..., Tensors]
    weights: Callable[..., Tensors]
    from_inputs: Callable[..., Tensors]  # (gradients, *sources)
    from_weights: Callable[..., Tensors]  # (gradients, weights, *parameters)

    def __init__(self, operation: Operation) -> None:
        self.operation = operation

    def biases(self, biases: Biases) -> Sequence[Tensor | None]:
        """Return the bias of each product."""
        return biases

    def join(self, products: Tensors) -> Tensor:
        """Return the centers and radii ``(N, 2, O, ...)``."""
        return stack_parts(*products)

    def split(self, gradient: Tensor) -> Tensors:
        """Return the gradients of the products."""
        return gradient.unbind(1)


class PointProduct(ProductRule):
    """Two products for a point ``x``: ``W_c x`` and ``W_r |x|``."""

    def inputs(self, x: Tensor) -> Tensors:
        return x, x.abs()

    def weights(self, center: Tensor, radius: Tensor) -> Tensors:
        return center, radius.clamp_min(0)

    def from_inputs(self, gradients: Tensors, x: Tensor) -> Tensors:
        return (torch.addcmul(gradients[0], gradients[1], x.sign()),)

    def from_weights(self, gradients: Tensors, *_: Any) -> Tensors:
        return gradients


class NonnegativeProduct(ProductRule):
    """One product for intervals ``>= 0`` with a :func:`nonnegative_weight`."""

    def inputs(self, x: Tensor) -> Tensors:
        return (_to_channels(x, self.operation.groups),)

    def weights(self, center: Tensor, radius: Tensor) -> Tensors:
        return (nonnegative_weight(center, radius, self.operation.groups),)

    def from_inputs(self, gradients: Tensors, x: Tensor) -> Tensors:
        return (_to_parts(gradients[0], self.operation.groups),)

    def from_weights(
        self, gradients: Tensors, weights: Tensors, center: Tensor, radius: Tensor
    ) -> Tensors:
        (to_center, to_clipped), (to_radius, to_largest) = self._quarters(gradients[0])
        (_, clipped), _ = self._quarters(weights[0])
        outside = (center - clipped).sign()  # 0 if |center| <= radius
        inside = 1 - outside.abs()
        return (
            torch.addcmul(to_center, inside, to_clipped).addcmul(outside, to_largest),
            torch.addcmul(to_radius, inside, to_largest).addcmul(outside, to_clipped),
        )

    def biases(self, biases: Biases) -> tuple[Tensor | None]:
        return (block_bias(biases, self.operation.groups),)

    def join(self, products: Tensors) -> Tensor:
        return _to_parts(products[0], self.operation.groups)

    def split(self, gradient: Tensor) -> Tensors:
        return (_to_channels(gradient, self.operation.groups),)

    def _quarters(self, block: Tensor) -> list[Tensors]:
        rows = block.unflatten(0, (self.operation.groups, 2, -1)).unbind(1)
        return [half.flatten(0, 1).chunk(2, 1) for half in rows]


class RelativeProduct(ProductRule):
    """Two products for intervals ``>= 0`` and relative radii."""

    sources = 2

    def inputs(self, x: Tensor, relative: Tensor) -> Tensors:
        return _exchanged(x.unbind(1), relative.to(x.dtype))

    def weights(self, weight: Tensor) -> Tensors:
        return weight, weight.abs()

    def from_inputs(self, gradients: Tensors, x: Tensor, relative: Tensor) -> Tensors:
        (to_center, to_radius), (center, radius) = gradients, x.unbind(1)
        to_relative = torch.addcmul(to_center * radius, to_radius, center)
        to_relative = to_relative.sum((0, *range(2, center.ndim)))
        to_input = stack_parts(*_exchanged(gradients, relative.to(x.dtype)))
        return to_input, to_relative.view(relative.shape).to(relative.dtype)

    def from_weights(self, gradients: Tensors, weights: Tensors, weight: Tensor) -> Tensors:
        return (torch.addcmul(gradients[0], weight.sign(), gradients[1]),)


def interval_product(rule: ProductRule, biases: Biases, x: Tensor, *others: Tensor) -> Interval:
    """Return the output for an input ``x`` and the other tensors of a rule."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        x = x.to(torch.get_autocast_dtype(device))
    return Interval._of_center_radius(_IntervalProduct.apply(rule, *biases, x, *others))


class _IntervalProduct(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(rule: ProductRule, bias: Any, bias_radius: Any, *saved: Tensor) -> Tensor:
        inputs, weights = rule.inputs(*saved[: rule.sources]), rule.weights(*saved[rule.sources :])
        terms = zip(inputs, weights, rule.biases((bias, bias_radius)), strict=True)
        return rule.join([rule.operation(x, w.to(x.dtype), b) for x, w, b in terms])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.rule = inputs[0]
        ctx.save_for_backward(*inputs[3:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rule, needed = ctx.rule, ctx.needs_input_grad
        end = 3 + rule.sources
        sources, parameters = ctx.saved_tensors[: end - 3], ctx.saved_tensors[end - 3 :]
        wanted = any(needed[3:end]), any(needed[end:])
        weights = rule.weights(*parameters)
        terms = zip(rule.split(gradient), rule.inputs(*sources), weights, strict=True)
        found = [rule.operation.gradients(part, x, w.to(x.dtype), wanted) for part, x, w in terms]
        result: list[Tensor | None] = [None] * len(needed)
        if any(needed[1:3]):
            result[1:3] = gradient.sum((0, *range(3, gradient.ndim))).unbind()
        if wanted[0]:
            result[3:end] = rule.from_inputs([to_input for to_input, _ in found], *sources)
        if wanted[1]:
            to_weights = [to_weight.to(weights[0].dtype) for _, to_weight in found]
            result[end:] = rule.from_weights(to_weights, weights, *parameters)
        return tuple(result)


def nonnegative_weight(center: Tensor, radius: Tensor, groups: int) -> Tensor:
    r"""Return the block weight for center and radius of an input ``>= 0``.

    For :math:`a = c \pm r \ge 0`, the center and the radius of the output
    are

    .. math::
        W_c\, c + \min(\max(W_c, -W_r), W_r)\, r,\qquad W_r\, c + \max(|W_c|, W_r)\, r.

    This follows from (sim_full_o_lower_upper). All terms of the radius are
    ``>= 0``, so there is no cancellation.
    """
    inputs = center.shape[1]
    block = center.new_empty((groups, 2, len(center) // groups, 2 * inputs, *center.shape[2:]))
    center, radius = (t.unflatten(0, (groups, -1)) for t in (center, radius.clamp_min(0)))
    block[:, 0, :, :inputs] = center
    block[:, 0, :, inputs:] = torch.clamp(center, -radius, radius)
    block[:, 1, :, :inputs] = radius
    block[:, 1, :, inputs:] = torch.maximum(center.abs(), radius)
    return block.flatten(0, 2)


def widened(x: Interval, relative: Tensor) -> Tensors:
    r"""Return center and radius of :math:`[1 - \rho, 1 + \rho] \cdot x`.

    They are :math:`c + \rho \min(\max(c, -r), r)` and
    :math:`r + \rho \max(|c|, r)`.
    """
    center = x.center
    if x.is_point:
        return center, relative * center.abs()
    radius = x.radius
    if x.nonnegative:
        return _exchanged((center, radius), relative)
    inner, outer = center.clamp(-radius, radius), torch.maximum(center.abs(), radius)
    return center.addcmul(relative, inner), radius.addcmul(relative, outer)


def _exchanged(pair: Tensors, share: Tensor) -> Tensors:
    a, b = pair
    return a.addcmul(share, b), b.addcmul(share, a)


def _sign_split(
    operation: Operation, x: Interval, low: Tensor, high: Tensor, biases: Biases
) -> Interval:
    r"""Compute bounds from the positive and negative parts.

    .. math::
        \underline o &= \underline W^+ \underline a^+ + \underline W^- \overline a^+ +
        \overline W^+ \underline a^- + \overline W^- \overline a^- \\
        \overline o &= \overline W^- \underline a^+ + \overline W^+ \overline a^+ +
        \underline W^- \underline a^- + \underline W^+ \overline a^-
    """
    groups = operation.groups
    parts = torch.stack(by_sign(x.lower, x.upper), 1)
    low_above, high_above, low_below, high_below = by_sign(low, high)
    lower = torch.cat((low_above, low_below, high_above, high_below), 1)
    upper = torch.cat((high_below, high_above, low_below, low_above), 1)
    weight = by_group((lower + upper) / 2, (upper - lower) / 2, groups)
    bias = block_bias(biases, groups)
    product = on_blocks(lambda t: operation(t, weight, bias), parts, groups)
    return Interval._of_center_radius(product)


def by_sign(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Return :math:`\underline a^+, \overline a^+, \underline a^-, \overline a^-`.

    The derivatives at 0 differ from ``torch.clamp``, so that a point can
    become wider.
    """
    low_above, high_below = low.relu(), -(-high).relu()
    return low_above, high - high_below, low - low_above, high_below


def _midpoint_radius(
    operation: Operation, x: Interval, center: Tensor, radius: Tensor, biases: Biases
) -> Interval:
    """Compute Rump's ``W_c a_c`` and ``|W_c| a_r + W_r (|a_c| + a_r)``."""
    mid = operation(x.center, center, biases[0])
    rad = operation(x.radius, center.abs() + radius, biases[1]) + operation(x.center.abs(), radius)
    return Interval._of_center_radius(stack_parts(mid, rad))


def on_blocks(function: Callable[[Tensor], Tensor], parts: Tensor, groups: int) -> Tensor:
    """Apply a layer with a block weight to parts ``(N, P, C, ...)``."""
    return _to_parts(function(_to_channels(parts, groups)), groups)


def by_group(center: Tensor, radius: Tensor, groups: int) -> Tensor:
    """Stack the rows of center and radius for each group."""
    rows = [t.unflatten(0, (groups, -1)) for t in (center, radius)]
    return torch.stack(rows, 1).flatten(0, 2)


def block_bias(biases: Biases, groups: int) -> Tensor | None:
    center, radius = biases
    return None if center is None or radius is None else by_group(center, radius, groups)


def _to_channels(parts: Tensor, groups: int) -> Tensor:
    return parts.unflatten(2, (groups, -1)).transpose(1, 2).flatten(1, 3)


def _to_parts(channels: Tensor, groups: int) -> Tensor:
    return channels.unflatten(1, (groups, 2, -1)).transpose(1, 2).flatten(2, 3)
