r"""Batch normalization of intervals in three modes.

The center is normalized as in ordinary batch norm, :math:`c' = \mathrm{BN}_c(c)`. The radius
depends on the mode:

* ``"paper"`` is the algorithm "Interval Batch Normalization Transform" with
  :math:`r' = |\mathrm{BN}_r(r)|`. It has separate parameters and statistics for the radius. This is
  a heuristic. The bounds are not sound, and the order of the radii can change.
* ``"scaled"`` is :math:`r' = |\gamma_r|\, r / \sqrt{\overline{r^2} + \epsilon} + |\beta_r|`. The
  mean square :math:`\overline{r^2}` is computed over the batch in training, and it is the running
  mean otherwise. The order of the radii of a channel does not change. The bounds are not sound,
  because :math:`\gamma_r` can have any value.
* ``"sound"`` is :math:`r' = |\gamma_c| / \sigma_c \cdot r`. In eval mode the bounds are exact. This
  mode needs running statistics, because the statistics of a batch of centers are not those of the
  members of the intervals.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import batch_norm

from creinn.interval import Interval, as_interval, stack_parts
from creinn.numerics import magnitude, widen

Mode = Literal["paper", "scaled", "sound"]
RADIUS_GAIN = 0.3  # initial weight of the radius in scaled mode


class IntervalBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    r"""Interval batch norm with the arguments of torch and ``mode``.

    In paper and scaled mode, each of ``weight``, ``bias``, ``running_mean`` and ``running_var``
    contains the values of the center, followed by those of the radius. In scaled mode, the initial
    weight of the radius is 0.3, and the running variance of the radius is the mean of :math:`r^2`.

    Attributes:
        center_frozen: If True, training does not change the parameters and the statistics of the
            center.
    """

    _dims: tuple[int, ...] = ()
    center_frozen: bool = False

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
        super().__init__(
            width, eps, momentum, affine, track_running_stats, device=device, dtype=dtype
        )
        self.num_features = num_features
        self.mode = mode
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the parameters and the statistics."""
        super().reset_parameters()
        if self.affine and getattr(self, "mode", None) == "scaled":
            with torch.no_grad():
                self.weight[self.num_features :] = RADIUS_GAIN

    def forward(self, x: Interval | Tensor) -> Interval:
        """Normalize inputs of shape ``(N, C, ...)``; a tensor is a point."""
        x = as_interval(x)
        by_batch = self.training or self.running_var is None
        self._check_shape(x, by_batch)
        as_one = not by_batch or (
            self.mode == "paper" and not (self.training and self.center_frozen)
        )
        if as_one:
            return Interval._of_center_radius(self._as_one(x.center_radius, by_batch))
        share = self._count_batch()
        center, radius = x.center_radius.unbind(1)
        if self.mode == "paper":  # the center is frozen
            radius = magnitude(self._half_as_one(radius, True, share, of_radius=True))
        elif self.mode == "scaled":
            radius = self._scaled(radius, share)
        else:
            radius = self._like_the_center(radius, center)
        center = self._half_as_one(center, not (self.training and self.center_frozen), share)
        return Interval._of_center_radius(stack_parts(center, radius))

    def eval_maps(self) -> tuple[Tensor, Tensor] | None:
        """Return the scale and the shift ``(2, C)`` of center and radius in eval mode.

        The result is None if they depend on the batch. In paper mode, the absolute value of the
        mapped radius is used.

        Example:
            >>> norm = BatchNorm1d(1, eps=0.0, mode="sound")
            >>> _ = norm.running_var.fill_(4), norm.running_mean.fill_(6)
            >>> _ = norm.weight.data.fill_(-1)
            >>> norm.eval_maps()  # -(c - 6) / 2 and r / 2
            (tensor([[-0.5000], [ 0.5000]], ...), tensor([[3.], [0.]], ...))
        """
        weight, bias, mean, variance = (
            None if t is None else widen(t.detach()) for t in self._packed()
        )
        if mean is None or variance is None:
            return None
        scale, shift = _affine_map(mean, torch.rsqrt(variance + self.eps), weight, bias)
        return scale.view(2, -1), shift.view(2, -1)

    def _packed(self) -> tuple[Any, Any, Tensor | None, Tensor | None]:
        """Return weight, bias, mean and variance of one batch norm of center and radius."""
        found: tuple[Any, ...] = (self.weight, self.bias, self.running_mean, self.running_var)
        weight, bias, mean, variance = found
        count = self.num_features
        if self.mode == "sound" and mean is not None and variance is not None:
            mean, variance = torch.cat((mean, torch.zeros_like(mean))), variance.repeat(2)
            if self.affine:
                weight, bias = (
                    torch.cat((weight, weight.abs())),
                    torch.cat((bias, torch.zeros_like(bias))),
                )
        elif self.mode == "scaled" and self.affine:
            weight, bias = (torch.cat((t[:count], magnitude(t[count:]))) for t in (weight, bias))
        return weight, bias, mean, variance

    def _as_one(self, center_radius: Tensor, by_batch: bool) -> Tensor:
        """Apply one batch norm to center and radius, and the absolute value in paper mode."""
        weight, bias, mean, variance = self._packed()
        share = self._count_batch()
        flat = center_radius.flatten(1, 2)
        if by_batch and share == 0:
            mean = variance = None
        result, batch_mean, inverse = torch.native_batch_norm(
            flat, weight, bias, mean, variance, by_batch, share, self.eps
        )
        result = result.unflatten(1, (2, -1))
        if self.mode != "paper":
            return result
        if not by_batch and mean is not None and variance is not None:
            batch_mean, inverse = mean, torch.rsqrt(variance + self.eps)
        maps = [
            t.detach()[self.num_features :] for t in _affine_map(batch_mean, inverse, weight, bias)
        ]
        positive: Tensor = _PositiveRadius.apply(
            result, center_radius, *(_spread(t, center_radius[:, 0]) for t in maps)
        )
        return positive

    def _count_batch(self) -> float:
        """Count the batch, and return its weight in the running statistics."""
        if not (
            self.training and self.track_running_stats and self.num_batches_tracked is not None
        ):
            return 0.0
        self.num_batches_tracked.add_(1)
        return 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum

    def _half(self, name: str, of_radius: bool) -> Tensor | None:
        """Return the values of the center or the radius of a parameter or a statistic."""
        tensor, half = (
            getattr(self, name),
            slice(self.num_features, None) if of_radius else slice(self.num_features),
        )
        return None if tensor is None else tensor[half]

    def _half_as_one(
        self, x: Tensor, by_batch: bool, share: float, of_radius: bool = False
    ) -> Tensor:
        """Apply batch norm to the center or the radius, with copies of the statistics."""
        weight, bias, mean, variance = (
            self._half(name, of_radius)
            for name in ("weight", "bias", "running_mean", "running_var")
        )
        if self.center_frozen and not of_radius:
            weight, bias = (None if t is None else t.detach() for t in (weight, bias))
        if mean is None or variance is None or (by_batch and share == 0):
            return batch_norm(x, None, None, weight, bias, True, 0.0, self.eps)
        new_mean, new_variance = mean.clone(), variance.clone()
        result = batch_norm(x, new_mean, new_variance, weight, bias, by_batch, share, self.eps)
        if by_batch:
            mean.copy_(new_mean)
            variance.copy_(new_variance)
        return result

    def _scaled(self, radius: Tensor, share: float) -> Tensor:
        """Scale the radius by its mean square, which is computed in float32 or float64."""
        wide = radius.to(torch.promote_types(radius.dtype, torch.float32))
        square = wide.square().mean((0, *range(2, radius.ndim)))
        running = self._half("running_var", of_radius=True)
        if running is not None and share != 0:
            running.lerp_(square.detach().to(running.dtype), share)
        weight, bias = self._half("weight", of_radius=True), self._half("bias", of_radius=True)
        scale = torch.rsqrt(square + self.eps)
        scaled = wide * _spread(scale if weight is None else scale * magnitude(weight), radius)
        return (scaled if bias is None else scaled + _spread(magnitude(bias), radius)).to(
            radius.dtype
        )

    def _like_the_center(self, radius: Tensor, center: Tensor) -> Tensor:
        """Scale the radius in sound mode during training."""
        variance: Any = self.running_var
        if not self.center_frozen:
            variance = center.var((0, *range(2, center.ndim)), correction=0)
        scale = torch.rsqrt(variance + self.eps)
        if self.affine:
            scale = scale * (self.weight.detach() if self.center_frozen else self.weight).abs()
        return radius * _spread(scale, radius)

    def _check_shape(self, x: Interval, by_batch: bool) -> None:
        if x.ndim not in self._dims:
            raise ValueError(
                f"{type(self).__name__} expects {self._dims} dimensions, got {tuple(x.shape)}."
            )
        if x.shape[1] != self.num_features:
            name = f"{type(self).__name__}({self.num_features})"
            raise ValueError(f"{name} got {x.shape[1]} channels in {tuple(x.shape)}.")
        if by_batch and x.shape.numel() == x.shape[1]:
            raise ValueError(
                "Batch norm in training needs more than one value for each channel, got shape "
                f"{tuple(x.shape)}. Use more rows, or call eval()."
            )

    def set_mode(self, mode: Mode) -> None:
        r"""Change the mode in place, without a change of the center.

        * To sound mode: The parameters and the statistics of the radius are removed.
        * From sound mode, or from scaled to paper mode: The output in eval mode does not change.
        * From paper to scaled mode: The mean square of the radii does not change. It is
          :math:`\mu_r^2 + \sigma_r^2` for the input, and the new parameters are
          :math:`\sqrt{\gamma_r^2 + \beta_r^2}` and 0.
        * Between paper and scaled mode: Parameters of the radius with initial values get the
          initial values of the new mode.

        Raises:
            ValueError: If the mode is unknown, or sound without running statistics.
        """
        self._check_mode(mode, self.num_features, self.running_var is not None)
        self._switch(mode)

    @torch.no_grad()
    def _switch(self, mode: Mode) -> None:
        if mode == self.mode:
            return
        count = self.num_features
        found = {
            name: getattr(self, name) for name in ("weight", "bias", "running_mean", "running_var")
        }
        old = {name: t.detach() for name, t in found.items() if t is not None}
        new = {name: t[:count].clone() for name, t in old.items()}
        if mode != "sound":
            radii = _radii_in(mode, self.mode, {name: t[-count:] for name, t in old.items()})
            new = {name: torch.cat((t, radii[name])) for name, t in new.items()}
        for name, tensor in new.items():
            before = found[name]
            setattr(
                self,
                name,
                Parameter(tensor, before.requires_grad)
                if isinstance(before, Parameter)
                else tensor,
            )
        self.mode = mode

    @classmethod
    def _check_mode(cls, mode: str, num_features: int, has_statistics: bool) -> None:
        if mode not in ("paper", "scaled", "sound"):
            raise ValueError(f"Unknown batch norm mode {mode!r}. Use 'paper', 'scaled' or 'sound'.")
        if mode == "sound" and not has_statistics:
            raise ValueError(
                f"{cls.__name__}({num_features}) in sound mode needs running statistics. Use "
                "track_running_stats=True, or mode 'paper' or 'scaled'."
            )

    def extra_repr(self) -> str:
        """Return the arguments for ``repr``."""
        return f"{super().extra_repr()}, mode={self.mode!r}"


def _radii_in(mode: Mode, old: Mode, half: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters and statistics of the radius in a new mode.

    In sound mode, ``half`` contains those of the center.
    """
    new = {name: torch.zeros_like(t) for name, t in half.items()}
    if "running_var" in half:
        square = 0 if old == "sound" else half["running_mean"].square()
        new["running_var"] = half["running_var"] + square
    if "weight" not in half:
        return new
    if mode == "scaled" and old == "paper":
        new["weight"] = torch.hypot(half["weight"], half["bias"])
    else:
        new["weight"] = half["weight"].abs()
        new["bias"] = new["bias"] if old == "sound" else half["bias"].abs()
    if old != "sound":
        gain = {"paper": 1.0, "scaled": RADIUS_GAIN}
        constructed = {"weight": gain[old], "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}
        untouched = torch.stack([(t == constructed[name]).all() for name, t in half.items()]).all()
        new["weight"] = torch.where(untouched, gain[mode], new["weight"])
    return new


def _affine_map(
    mean: Tensor, inverse: Tensor, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the scale and the shift of ``(x - mean) * inverse * weight + bias``."""
    scale = inverse if weight is None else inverse * weight
    return scale, -mean * scale if bias is None else bias - mean * scale


class _PositiveRadius(torch.autograd.Function):
    """Absolute value of the radii after batch norm, with a derivative of 1 at 0.

    The signs are computed again in the backward pass, so the output is not saved.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(center_radius: Tensor, before: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        result = center_radius.clone()
        result.select(1, 1).abs_()
        return result

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor], output: Tensor
    ) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        before, scale, shift = ctx.saved_tensors
        of_center, of_radius = gradient.unbind(1)
        normalised = torch.addcmul(shift, before.select(1, 1), scale)
        sign = torch.copysign(torch.ones_like(of_radius), normalised)
        return stack_parts(of_center, of_radius * sign), None, None, None


def _spread(per_channel: Tensor, like: Tensor) -> Tensor:
    return per_channel.view(-1, *(1,) * (like.ndim - 2))


class BatchNorm1d(IntervalBatchNorm):
    """Interval version of ``torch.nn.BatchNorm1d``, for ``(N, C)`` or ``(N, C, L)``.

    Example:
        >>> norm = BatchNorm1d(1, mode="sound").eval()
        >>> norm(Interval(torch.tensor([[1.0]]), torch.tensor([[3.0]]))).lower.round(decimals=3)
        tensor([[1.]], ...)
        >>> norm = BatchNorm1d(1, mode="scaled")  # radii 1 and 7: mean square 25
        >>> norm(Interval(torch.tensor([[1.0], [-6.0]]), torch.tensor([[3.0], [8.0]]))).radius
        tensor([[0.0600], [0.4200]], ...)
    """

    _dims = (2, 3)


class BatchNorm2d(IntervalBatchNorm):
    """Interval version of ``torch.nn.BatchNorm2d``, for ``(N, C, H, W)``."""

    _dims = (4,)


class BatchNorm3d(IntervalBatchNorm):
    """Interval version of ``torch.nn.BatchNorm3d``, for ``(N, C, D, H, W)``."""

    _dims = (5,)
