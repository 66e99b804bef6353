"""Loading of the C++ library.

The library uses the OpenMP threads of torch, so torch must be imported first.
"""

import ctypes
import os
import sysconfig
from pathlib import Path

import torch  # noqa: F401 (its OpenMP)

_SIZES = (
    *("images", "channels", "height", "width", "outputs", "groups", "out_height", "out_width"),
    *("kernel_y", "kernel_x", "stride_y", "stride_x"),
    *("padding_y", "padding_x", "dilation_y", "dilation_x"),
    *("step", "magnitude", "relu"),
)
_ADDRESSES = ("inputs", "norm", "residual", "weights", "results")
_ADVICE = "Install a C++ compiler (g++) and creinn again, with pip install --verbose."
NAME = f"_product{sysconfig.get_config_var('EXT_SUFFIX')}"
LEVELS = ("portable", "AVX2", "AVX-512")


class Layer(ctypes.Structure):
    """The arguments of the product; see ``product.cpp``."""

    _fields_ = [
        *((name, ctypes.c_long) for name in _SIZES),
        *((name, ctypes.c_void_p) for name in _ADDRESSES),
    ]


def load(folder: Path) -> tuple[ctypes.CDLL | None, str]:
    """Return the library in a folder, or ``None`` and the reason."""
    if os.environ.get("CREINN_NATIVE") == "0":
        return None, "The native product is disabled by CREINN_NATIVE=0 in the environment."
    path = folder / NAME
    if not path.exists():
        return None, f"The native product was not built: {path} does not exist. {_ADVICE}"
    try:
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOW)
        library.creinn_product.argtypes = [ctypes.POINTER(Layer), ctypes.c_int, ctypes.c_int]
        if library.creinn_size_of_layer() != ctypes.sizeof(Layer):
            return None, f"The native product was built from other sources: {path}. {_ADVICE}"
    except (OSError, AttributeError) as error:
        return None, f"The native product was built but cannot be loaded: {error}"
    return library, ""


LIBRARY, reason = load(Path(__file__).parent)
available = LIBRARY is not None
best_level = LIBRARY.creinn_best_level() if LIBRARY is not None else 0
is_vectorized = best_level > 0
