r"""Batch normalization of intervals in three modes.

The center is normalized as usual, :math:`c' = \mathrm{BN}_c(c)`. The
radius depends on the mode:

* ``"paper"`` is the algorithm "Interval Batch Normalization Transform"
  with :math:`r' = |\mathrm{BN}_r(r)|`. The bounds are not sound, and the
  order of the radii can change.
* ``"scaled"`` is
  :math:`r' = |\gamma_r|\, r / \sqrt{\overline{r^2} + \epsilon} + |\beta_r|`
  with the mean square of the batch, or its running mean in eval mode. The
  bounds are not sound, but the order of the radii of a channel does not
  change.
* ``"sound"`` is :math:`r' = |\gamma_c| / \sigma_c \cdot r`, which is exact
  in eval mode.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from creinn.interval import Interval, as_interval, stack_parts
from creinn.numerics import magnitude, widen

Mode = Literal["paper", "scaled", "sound"]
RADIUS_GAIN = 0.3  # the initial weight of the radius in scaled mode
_TENSORS = ("weight", "bias", "running_mean", "running_var")


class IntervalBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Interval batch norm with the arguments of torch and ``mode``.

    In paper and scaled mode, the parameters and the running statistics
    contain the values of the center and then those of the radius. In
    scaled mode, the running variance of the radius is the mean of
    :math:`r^2`.
    """

    _dims: tuple[int, ...] = ()
    center_frozen: bool = False  # whether the map of the center is fixed

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        mode: Mode = "paper",
    ) -> None:
        self._check_mode(mode, num_features, track_running_stats)
        width = num_features if mode == "sound" else 2 * num_features
        super().__init__(width, eps, momentum, affine, track_running_stats, device, dtype)
        self.num_features, self.mode = num_features, mode
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize the parameters and the statistics."""
        super().reset_parameters()
        if self.affine and getattr(self, "mode", None) == "scaled":
            self.weight[self.num_features :] = RADIUS_GAIN

    def forward(self, x: Interval | Tensor) -> Interval:
        """Normalize inputs of shape ``(N, C, ...)``."""
        x = as_interval(x)
        by_batch = self.training or self.running_var is None
        frozen = self.training and self.center_frozen
        self._check_shape(x, by_batch)
        share = self._count_batch()
        if not by_batch or (self.mode == "paper" and not frozen):
            return Interval._of_center_radius(self._as_one(x.center_radius, by_batch, share))
        center, radius = x.center_radius.unbind(1)
        if self.mode == "paper":
            radius = magnitude(self._batch_norm(radius, self._half(of_radius=True), True, share)[0])
        elif self.mode == "scaled":
            radius = self._scaled(radius, share)
        else:
            radius = self._like_the_center(radius, center)
        half = self._half(of_radius=False, detach=frozen)
        by_batch = not frozen or self.running_var is None
        center = self._batch_norm(center, half, by_batch, share)[0]
        return Interval._of_center_radius(stack_parts(center, radius))

    def eval_maps(self) -> tuple[Tensor, Tensor] | None:
        """Return scale and shift ``(2, C)`` of center and radius in eval mode.

        The result is None without running statistics. In paper mode, the
        absolute value of the radius follows.

        Example:
            >>> norm = BatchNorm1d(1, eps=0.0, mode="sound")
            >>> _ = norm.running_var.fill_(4), norm.running_mean.fill_(6)
            >>> norm.eval_maps()  # (c - 6) / 2 and r / 2
            (tensor([[0.5000], [0.5000]], ...), tensor([[-3.], [ 0.]], ...))
        """
        if self.running_var is None:
            return None
        packed: Any = (None if t is None else widen(t.detach()) for t in self._packed())
        weight, bias, mean, variance = packed
        scale, shift = _affine_map(mean, torch.rsqrt(variance + self.eps), weight, bias)
        return scale.view(2, -1), shift.view(2, -1)

    def _packed(self) -> Sequence[Any]:
        """Return weight, bias, mean and variance of center and radius."""
        weight, bias, mean, variance = (getattr(self, name) for name in _TENSORS)
        count = self.num_features
        if self.mode == "sound":
            mean, variance = torch.cat((mean, torch.zeros_like(mean))), variance.repeat(2)
            if self.affine:
                weight = torch.cat((weight, weight.abs()))
                bias = torch.cat((bias, torch.zeros_like(bias)))
        elif self.mode == "scaled" and self.affine:
            weight, bias = (torch.cat((t[:count], magnitude(t[count:]))) for t in (weight, bias))
        return weight, bias, mean, variance

    def _as_one(self, center_radius: Tensor, by_batch: bool, share: float) -> Tensor:
        packed, rows = self._packed(), center_radius.flatten(1, 2)
        result, mean, inverse = self._batch_norm(rows, packed, by_batch, share)
        result = result.unflatten(1, (2, -1))
        if self.mode != "paper":
            return result
        weight, bias, running_mean, running_var = packed
        if not by_batch:
            mean, inverse = running_mean, torch.rsqrt(running_var + self.eps)
        scale, shift = (
            _per_channel(t.detach()[self.num_features :], center_radius[:, 0])
            for t in _affine_map(mean, inverse, weight, bias)
        )
        positive: Tensor = _PositiveRadius.apply(result, center_radius, scale, shift)
        return positive

    def _count_batch(self) -> float:
        if not (self.training and self.track_running_stats):
            return 0.0
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        return 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum

    def _half(self, of_radius: bool, detach: bool = False) -> Sequence[Any]:
        half = slice(self.num_features, None) if of_radius else slice(self.num_features)
        tensors = (getattr(self, name) for name in _TENSORS)
        halves = (None if t is None else t[half] for t in tensors)
        return [t.detach() if detach and t is not None else t for t in halves]

    def _batch_norm(
        self, x: Tensor, tensors: Sequence[Any], by_batch: bool, share: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output, the mean and the inverse deviation."""
        weight, bias, mean, variance = tensors
        if by_batch and share == 0:
            mean = variance = None
        return torch.native_batch_norm(x, weight, bias, mean, variance, by_batch, share, self.eps)

    def _scaled(self, radius: Tensor, share: float) -> Tensor:
        weight, bias, _, running = self._half(of_radius=True)
        wide = radius.to(torch.promote_types(radius.dtype, torch.float32))
        square = wide.square().mean((0, *range(2, radius.ndim)))
        if running is not None and share != 0:
            # With `data`, a second call does not invalidate the saved statistics.
            running.data.lerp_(square.detach().to(running.dtype), share)
        scale = torch.rsqrt(square + self.eps)
        scaled = wide * _per_channel(scale if weight is None else scale * magnitude(weight), radius)
        if bias is not None:
            scaled = scaled + _per_channel(magnitude(bias), radius)
        return scaled.to(radius.dtype)

    def _like_the_center(self, radius: Tensor, center: Tensor) -> Tensor:
        variance: Any = self.running_var
        if not self.center_frozen:
            variance = center.var((0, *range(2, center.ndim)), correction=0)
        scale = torch.rsqrt(variance + self.eps)
        if self.affine:
            scale = scale * (self.weight.detach() if self.center_frozen else self.weight).abs()
        return radius * _per_channel(scale, radius)

    def _check_shape(self, x: Interval, by_batch: bool) -> None:
        expected = None
        if x.ndim not in self._dims:
            expected = f"{self._dims} dimensions"
        elif x.shape[1] != self.num_features:
            expected = f"{self.num_features} channels"
        elif by_batch and x.shape.numel() == self.num_features:
            expected = "more values per channel in training (use more rows or eval())"
        if expected is not None:
            name = type(self).__name__
            raise ValueError(f"{name} expects {expected}, got shape {tuple(x.shape)}.")

    def set_mode(self, mode: Mode) -> None:
        """Change the mode in place, without a change of the center.

        Sound mode removes the parameters and statistics of the radius.
        From sound mode, and from scaled to paper mode, the output in eval
        mode does not change. From paper to scaled mode, the mean square of
        the radii does not change. Initial values are replaced by those of
        the new mode.

        Raises:
            ValueError: If the mode is unknown, or sound without running
                statistics.
        """
        self._check_mode(mode, self.num_features, self.running_var is not None)
        self._switch(mode)

    @torch.no_grad()
    def _switch(self, mode: Mode) -> None:
        if mode == self.mode:
            return
        count = self.num_features
        found = {name: getattr(self, name) for name in _TENSORS}
        old = {name: t for name, t in found.items() if t is not None}
        halves = {name: t.detach()[-count:] for name, t in old.items()}
        radii = {} if mode == "sound" else _radii_in(mode, self.mode, halves)
        for name, tensor in old.items():
            new = tensor.detach()[:count].clone()
            if radii:
                new = torch.cat((new, radii[name]))
            if isinstance(tensor, Parameter):
                new = Parameter(new, tensor.requires_grad)
            setattr(self, name, new)
        self.mode = mode

    @classmethod
    def _check_mode(cls, mode: str, num_features: int, has_statistics: bool) -> None:
        if mode not in ("paper", "scaled", "sound"):
            raise ValueError(f"Unknown batch norm mode {mode!r}. Use 'paper', 'scaled' or 'sound'.")
        if mode == "sound" and not has_statistics:
            raise ValueError(
                f"{cls.__name__}({num_features}) needs running statistics in sound mode. Use "
                "track_running_stats=True, or mode 'paper' or 'scaled'."
            )

    def extra_repr(self) -> str:
        """Return the arguments for ``repr``."""
        return f"{super().extra_repr()}, mode={self.mode!r}"


def _radii_in(mode: Mode, old: Mode, half: dict[str, Tensor]) -> dict[str, Tensor]:
    """Convert the tensors of the radius, or of the center in sound mode."""
    new = {name: torch.zeros_like(t) for name, t in half.items()}
    if "running_var" in half:
        square = 0 if old == "sound" else half["running_mean"].square()
        new["running_var"] = half["running_var"] + square
    if "weight" not in half:
        return new
    new["weight"] = half["weight"].abs()
    if old == "sound":
        return new
    if mode == "scaled":  # from paper mode
        new["weight"] = torch.hypot(half["weight"], half["bias"])
    else:
        new["bias"] = half["bias"].abs()
    gain = {"paper": 1.0, "scaled": RADIUS_GAIN}
    initial = {"weight": gain[old], "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}
    is_initial = torch.stack([(t == initial[name]).all() for name, t in half.items()]).all()
    new["weight"] = torch.where(is_initial, gain[mode], new["weight"])
    return new


def _affine_map(
    mean: Tensor, inverse: Tensor, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    scale = inverse if weight is None else inverse * weight
    return scale, -mean * scale if bias is None else bias - mean * scale


class _PositiveRadius(torch.autograd.Function):
    """Absolute value of the radii, which does not save the signs."""

    generate_vmap_rule = True

    @staticmethod
    def forward(center_radius: Tensor, before: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        result = center_radius.clone()
        result.select(1, 1).abs_()
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        before, scale, shift = ctx.saved_tensors
        of_center, of_radius = gradient.unbind(1)
        normalized = torch.addcmul(shift, before.select(1, 1), scale)
        sign = torch.copysign(torch.ones_like(of_radius), normalized)
        return stack_parts(of_center, of_radius * sign), None, None, None


def _per_channel(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *(1,) * (like.ndim - 2))


class BatchNorm1d(IntervalBatchNorm):
    """Interval version of ``torch.nn.BatchNorm1d``.

    The inputs have shape ``(N, C)`` or ``(N, C, L)``.

    Example:
        >>> norm = BatchNorm1d(1, mode="scaled")  # radii 1 and 7: mean square 25
        >>> norm(Interval([[1.0], [-6.0]], [[3.0], [8.0]])).radius
        tensor([[0.0600], [0.4200]], ...)
    """

    _dims = (2, 3)


class BatchNorm2d(IntervalBatchNorm):
    """Interval version of ``torch.nn.BatchNorm2d``, for ``(N, C, H, W)``."""

    _dims = (4,)


class BatchNorm3d(IntervalBatchNorm):
    """Interval version of ``torch.nn.BatchNorm3d``, for ``(N, C, D, H, W)``."""

    _dims = (5,)
