"""Training of classifiers; :class:`TrainConfig` can be imported without torch."""

from typing import TYPE_CHECKING, Any

from creinn.training.config import TrainConfig

if TYPE_CHECKING:
    from creinn.training.history import History
    from creinn.training.loop import fit

__all__ = ["History", "TrainConfig", "fit"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from creinn.training import loop

    return getattr(loop, name)
