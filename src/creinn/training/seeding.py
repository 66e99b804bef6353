"""Randomness of a run as a function of the seed and the epoch alone, so that no generator state needs to be kept."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derived_seed(seed: int, epoch: int) -> int:
    """A seed for one epoch of a run; different for every pair of arguments."""
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> 1)


def seed_everything(seed: int) -> None:
    """Seed torch on all devices, NumPy and Python."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (transforms of others may use it)


@contextmanager
def own_randomness(device: torch.device, deterministic: bool) -> Iterator[None]:
    """Leave the caller's generators, and the choice of deterministic algorithms, as they were before."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    mode = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.use_deterministic_algorithms(mode or deterministic, warn_only=warn_only and not deterministic)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(mode, warn_only=warn_only)
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
