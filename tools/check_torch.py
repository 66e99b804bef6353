"""Fail if a CUDA build of torch or torchvision is installed."""

import importlib.util
import sys

import torch

if torch.version.cuda is not None:
    sys.exit(
        f"torch {torch.__version__} is a CUDA build; install with `-c constraints.txt` to get the CPU build."
    )
if importlib.util.find_spec("torchvision") is not None:
    sys.exit(
        "torchvision is installed; it does not work beside the CPU build of torch. Run `make clean` and try again."
    )
print(f"torch {torch.__version__}: CPU build, no torchvision.")
