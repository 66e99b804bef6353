"""Training: a configuration, one loop for every classifier, checkpoints that survive a kill.

:class:`TrainConfig` can be imported without loading torch; the rest is loaded when first asked for.
"""

from typing import TYPE_CHECKING, Any

from creinn.training.config import TrainConfig

if TYPE_CHECKING:
    from creinn.training.history import History
    from creinn.training.loop import fit

__all__ = ["History", "TrainConfig", "fit"]


def __getattr__(name: str) -> Any:
    if name == "fit":
        from creinn.training.loop import fit

        return fit
    if name == "History":
        from creinn.training.history import History

        return History
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
