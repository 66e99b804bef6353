r"""Interval Batch Normalization, Algorithm "Interval Batch Normalization Transform".

Centre and radius are normalised separately, each with its own affine parameters and running statistics:
:math:`[c' - |r'|,\ c' + |r'|]` with :math:`c' = \mathrm{BN}_c(c)`, :math:`r' = \mathrm{BN}_r(r)`.

``mode="paper"`` is a heuristic: it does **not** preserve containment, since a radius below the mean radius grows again
through the absolute value. ``mode="sound"`` applies the centre's affine map to both: :math:`r' = |\gamma_c| / \sigma_c
\cdot r`, the exact image of the interval.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Parameter

from creinn.interval import Interval, as_interval
from creinn.numerics import magnitude

Mode = Literal["paper", "sound"]


class IntervalBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """Interval batch norm; arguments as in torch, and ``mode``.

    In paper mode each of ``weight``, ``bias``, ``running_mean`` and ``running_var`` holds the centre's values, then the
    radius's: one ordinary batch norm over twice the channels. ``train()`` and ``eval()`` act as in torch.
    """

    _dims: tuple[int, ...] = ()

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
        _check_mode(mode)
        width = 2 * num_features if mode == "paper" else num_features
        super().__init__(width, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self.num_features = num_features
        self.mode = mode

    def forward(self, x: Interval | Tensor) -> Interval:
        """Normalise ``(N, C, ...)``; a tensor is a point."""
        x = as_interval(x)
        self._check_shape(x)
        if self.mode == "sound":
            return self._sound(x)
        normalised = super().forward(x.moments.flatten(1, 2)).unflatten(1, (2, -1))
        center, radius = normalised[:, 0], magnitude(normalised[:, 1])
        return Interval._of_bounds(torch.stack((center - radius, center + radius), 1))

    def _sound(self, x: Interval) -> Interval:
        center = x.center
        variance = self.running_var
        if self.training or variance is None:
            variance = center.var([d for d in range(x.ndim) if d != 1], correction=0)
        scale = torch.rsqrt(variance + self.eps)
        if self.affine:
            scale = scale * self.weight.abs()
        radius = x.radius * scale.view(-1, *(1,) * (x.ndim - 2))
        return Interval._of_moments(torch.stack((super().forward(center), radius), 1))

    def _check_input_dim(self, input: Tensor) -> None:
        """Torch's hook on the packed tensor; :meth:`_check_shape` has seen the interval."""

    def _check_shape(self, x: Interval) -> None:
        if x.ndim not in self._dims:
            raise ValueError(f"{type(self).__name__} expects {self._dims} dimensions, got shape {tuple(x.shape)}.")
        if x.shape[1] != self.num_features:
            raise ValueError(
                f"{type(self).__name__}({self.num_features}) got {x.shape[1]} channels in {tuple(x.shape)}."
            )

    @torch.no_grad()
    def set_mode(self, mode: Mode) -> None:
        """Switch between the modes in place.

        To sound: the radius's parameters and statistics are dropped. To paper: they start so that in eval mode the
        output stays the same, with scale ``|gamma_c|``, shift 0, running mean 0 and the centre's running variance.
        """
        _check_mode(mode)
        if mode == self.mode:
            return
        count = self.num_features
        if mode == "sound":
            grow = {name: (lambda t: t[:count]) for name in ("weight", "bias", "running_mean", "running_var")}
        else:
            grow = {
                "weight": lambda t: torch.cat((t, t.abs())),
                "bias": lambda t: torch.cat((t, torch.zeros_like(t))),
                "running_mean": lambda t: torch.cat((t, torch.zeros_like(t))),
                "running_var": lambda t: torch.cat((t, t)),
            }
        for name, change in grow.items():
            tensor = getattr(self, name)
            if tensor is not None:
                changed = change(tensor.detach()).clone()
                setattr(
                    self, name, Parameter(changed, tensor.requires_grad) if isinstance(tensor, Parameter) else changed
                )
        self.mode = mode

    def extra_repr(self) -> str:
        """Arguments as printed."""
        return f"{super().extra_repr()}, mode={self.mode!r}"


def _check_mode(mode: str) -> None:
    if mode not in ("paper", "sound"):
        raise ValueError(f"Unknown batch norm mode {mode!r}; choose 'paper' or 'sound'.")


class BatchNorm1d(IntervalBatchNorm):
    """Interval version of ``torch.nn.BatchNorm1d``, for ``(N, C)`` or ``(N, C, L)``.

    Example:
        >>> norm = BatchNorm1d(1, mode="sound").eval()
        >>> norm(Interval(torch.tensor([[1.0]]), torch.tensor([[3.0]]))).lower.round(decimals=3)
        tensor([[1.]], ...)
    """

    _dims = (2, 3)


class BatchNorm2d(IntervalBatchNorm):
    """Interval version of ``torch.nn.BatchNorm2d``, for ``(N, C, H, W)``."""

    _dims = (4,)


class BatchNorm3d(IntervalBatchNorm):
    """Interval version of ``torch.nn.BatchNorm3d``, for ``(N, C, D, H, W)``."""

    _dims = (5,)
