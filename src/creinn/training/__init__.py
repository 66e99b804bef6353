"""Training: a configuration, one loop for every classifier, checkpoints that survive a kill.

In: a classifier, data, a :class:`TrainConfig`. Out: the classifier, trained, and its :class:`History`. Read ``config``,
``data`` (where batches come from), ``start``, ``loop``, ``distributed``, ``checkpoint`` with the history; ``diagnose``
looks inside a network. :class:`TrainConfig` can be imported without loading torch.
"""

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
