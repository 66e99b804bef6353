"""Choice of a torch device by name."""

import os

import torch

from creinn.distributed import rank, world_size


def choose_device(name: str) -> torch.device:
    """Return the torch device ``name``; ``"auto"`` prefers a GPU.

    In a process group, ``"cuda"`` is ``cuda:LOCAL_RANK``.

    Raises:
        ValueError: If the device cannot be used.
    """
    if name == "auto":
        has_mps = torch.backends.mps.is_available()
        name = "cuda" if torch.cuda.is_available() else "mps" if has_mps else "cpu"
    has_group = world_size() > 1
    if name == "cuda" and has_group:
        name = f"cuda:{os.environ.get('LOCAL_RANK', rank() % torch.cuda.device_count())}"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        found = f"The device {name!r} cannot be used: {str(error).splitlines()[0]}"
        raise ValueError(f"{found} Choose 'cpu' or 'auto'.") from error
    if has_group and device.type == "cuda":
        torch.cuda.set_device(device)
    elif has_group and torch.distributed.get_backend() == "nccl":
        found = f"The backend nccl needs a GPU, but the device is {device}"
        raise ValueError(f"{found}. Use the backend gloo, or device='auto'.")
    return device
