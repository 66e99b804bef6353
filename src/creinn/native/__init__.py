"""Products of intervals ``>= 0`` by a small library in C++: two multiplications for each weight instead of four.

In: both bounds of a batch, packed weights. Out: both bounds of the results. Read ``nonnegative`` (what is computed),
``library`` (where it is found), then ``product.cpp`` (threads, kinds of processors) and ``tile.inc`` (the product). The
library is built with the package where a compiler is. Without it nothing is lost but time: ``available`` says
whether it is there, ``reason`` why it is not. ``CREINN_NATIVE=0`` in the environment switches it off. Compiled models
use it if ``is_vectorized``: the processor has AVX2 or AVX-512.
"""

from creinn.native.library import available, is_vectorized, reason
from creinn.native.nonnegative import Window, pack, product, unpack

__all__ = ["Window", "available", "is_vectorized", "pack", "product", "reason", "unpack"]
