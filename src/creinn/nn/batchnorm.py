r"""Interval batch normalisation in three modes: interval features in, interval features out.

Centre and radius are normalised separately, the centre always by ordinary batch norm, :math:`c' = \mathrm{BN}_c(c)`:

* ``"paper"``, Algorithm "Interval Batch Normalization Transform": :math:`r' = |\mathrm{BN}_r(r)|`, with parameters and
  statistics of its own. A heuristic that keeps neither containment nor the order of radii: one below the mean radius
  grows again through the absolute value.
* ``"scaled"``: :math:`r' = |\gamma_r|\, r / \sqrt{\overline{r^2} + \epsilon} + |\beta_r|`, with the mean square
  :math:`\overline{r^2}` over the batch in training and its running mean otherwise. The larger of two radii of a channel
  stays the larger. It does not preserve containment either, for :math:`\gamma_r` is free.
* ``"sound"``: the centre's affine map applied to both, :math:`r' = |\gamma_c| / \sigma_c \cdot r`, in eval mode the
  exact image of the interval. It needs running statistics: those of a batch of centres are not those of its members.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import batch_norm

from creinn.interval import Interval, as_interval, stack_parts
from creinn.numerics import magnitude, widen

Mode = Literal["paper", "scaled", "sound"]
RADIUS_GAIN = 0.3  # scale of the radius that a norm in scaled mode starts with


class IntervalBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    r"""Interval batch norm; arguments as in torch, and ``mode``.

    In paper and scaled mode each of ``weight``, ``bias``, ``running_mean`` and ``running_var`` holds the centre's
    values, then the radius's; in scaled mode the radius's are 0.3 at first, 0 at first, 0, and the mean :math:`r^2`.

    Attributes:
        center_frozen: Set it to train radii alone: in training the centre's statistics and parameters stay as they are.
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
        """Start anew, as a new layer."""
        super().reset_parameters()
        if (
            self.affine and getattr(self, "mode", None) == "scaled"
        ):  # torch's constructor knows no mode yet
            with torch.no_grad():
                self.weight[self.num_features :] = RADIUS_GAIN

    def forward(self, x: Interval | Tensor) -> Interval:
        """Normalise ``(N, C, ...)``; a tensor is a point."""
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
        if self.mode == "paper":  # the centre is frozen
            radius = magnitude(self._half_as_one(radius, True, share, of_radius=True))
        elif self.mode == "scaled":
            radius = self._scaled(radius, share)
        else:
            radius = self._like_the_center(radius, center)
        center = self._half_as_one(center, not (self.training and self.center_frozen), share)
        return Interval._of_center_radius(stack_parts(center, radius))

    def eval_maps(self) -> tuple[Tensor, Tensor] | None:
        """Scale and shift ``(2, C)`` of centre and radius in eval mode; ``None`` if they depend on the batch.

        In paper mode the radius is the absolute value of what its map gives.

        Example:
            >>> norm = BatchNorm1d(1, eps=0.0, mode="sound")
            >>> _ = norm.running_var.fill_(4), norm.running_mean.fill_(6), norm.weight.data.fill_(-1)
            >>> norm.eval_maps()   # centre: -(c - 6) / 2; radius: r / 2
            (tensor([[-0.5000], [ 0.5000]], dtype=torch.float64), tensor([[3.], [0.]], dtype=torch.float64))
        """
        weight, bias, mean, variance = (
            None if t is None else widen(t.detach()) for t in self._packed()
        )
        if mean is None or variance is None:
            return None
        scale, shift = _affine_map(mean, torch.rsqrt(variance + self.eps), weight, bias)
        return scale.view(2, -1), shift.view(2, -1)

    def _packed(self) -> tuple[Any, Any, Tensor | None, Tensor | None]:
        """Scale, shift, mean and variance of one ordinary batch norm of centres and radii."""
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
        """One ordinary batch norm of centres and radii; in paper mode the radii's absolute value."""
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
        """Weight of this batch in the running statistics, by torch's rule; 0 if it does not enter them."""
        if not (
            self.training and self.track_running_stats and self.num_batches_tracked is not None
        ):
            return 0.0
        self.num_batches_tracked.add_(1)
        return 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum

    def _half(self, name: str, of_radius: bool) -> Tensor | None:
        """The centre's or the radius's part of a parameter or statistic."""
        tensor, half = (
            getattr(self, name),
            slice(self.num_features, None) if of_radius else slice(self.num_features),
        )
        return None if tensor is None else tensor[half]

    def _half_as_one(
        self, x: Tensor, by_batch: bool, share: float, of_radius: bool = False
    ) -> Tensor:
        """Torch's batch norm with one half of everything. The autograd graph holds copies of the statistics."""
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
        """The radius by the mean square of the batch; in half precision the squares are taken in float32."""
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
        """The radius in sound mode, in training."""
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
                f"{type(self).__name__} expects {self._dims} dimensions, got shape {tuple(x.shape)}."
            )
        if x.shape[1] != self.num_features:
            name = f"{type(self).__name__}({self.num_features})"
            raise ValueError(f"{name} got {x.shape[1]} channels in {tuple(x.shape)}.")
        if by_batch and x.shape.numel() == x.shape[1]:
            raise ValueError(
                f"Batch norm in training needs more than one value per channel, got shape {tuple(x.shape)}; give it "
                "more rows, or call eval() first."
            )

    def set_mode(self, mode: Mode) -> None:
        r"""Switch between the modes in place. The centre's half never changes.

        * To sound: the radius's parameters and statistics are dropped.
        * From sound, and from scaled to paper: in eval mode the output stays the same.
        * From paper to scaled the mean square of the radii stays: :math:`\overline{r^2} = \mu_r^2 + \sigma_r^2` before
          the norm, and after it by :math:`\gamma_r \leftarrow \sqrt{\gamma_r^2 + \beta_r^2},\ \beta_r \leftarrow 0`.
        * Between paper and scaled, radius parameters that are as they were constructed become so in the other mode.

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
            raise ValueError(
                f"Unknown batch norm mode {mode!r}; choose 'paper', 'scaled' or 'sound'."
            )
        if mode == "sound" and not has_statistics:
            raise ValueError(
                f"{cls.__name__}({num_features}) with track_running_stats=False cannot be sound: it normalises by the "
                "batch in eval mode too, and members of the intervals have other means and variances than the centres. "
                "Track running statistics, or choose mode 'paper' or 'scaled'."
            )

    def extra_repr(self) -> str:
        """Arguments as printed."""
        return f"{super().extra_repr()}, mode={self.mode!r}"


def _radii_in(mode: Mode, old: Mode, half: dict[str, Tensor]) -> dict[str, Tensor]:
    """The radius's parameters and statistics in another mode than ``old``; in sound mode it has the centre's."""
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
    """Scale and shift of ``(x - mean) * inverse * weight + bias``."""
    scale = inverse if weight is None else inverse * weight
    return scale, -mean * scale if bias is None else bias - mean * scale


class _PositiveRadius(torch.autograd.Function):
    """The radii's magnitude behind a batch norm, derivative 1 at 0. Keeps what the norm keeps, finds signs again."""

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
