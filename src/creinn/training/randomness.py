"""Random seeds of a training run.

All randomness follows from the seed, the epoch and the rank, so checkpoints hold no state of a
random generator.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derived_seed(seed: int, epoch: int, rank: int = 0) -> int:
    """Return the seed of one epoch on one process; different arguments give different seeds."""
    sequence = np.random.SeedSequence([seed, epoch, *[rank] * (rank > 0)])
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1


def seed_everything(seed: int) -> None:
    """Seed torch on all devices, NumPy and Python."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (the user's transforms may use it)


@contextmanager
def preserve_random_state(device: torch.device, deterministic: bool) -> Iterator[None]:
    """Restore the caller's random generators and setting of deterministic algorithms on exit."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    mode = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.use_deterministic_algorithms(
            mode or deterministic, warn_only=warn_only and not deterministic
        )
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(mode, warn_only=warn_only)
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
