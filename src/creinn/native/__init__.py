"""A C++ library for products of intervals ``>= 0``.

The library uses two multiplications for each weight instead of four. The inputs are the bounds of a
batch and the packed weights. The outputs are the bounds of the results. See ``nonnegative`` for the
computation, ``library`` for the location, ``product.cpp`` for the threads and processors, and
``tile.inc`` for the product. The library is built with the package if there is a compiler. It only
affects the speed. ``available`` is true if the library is loaded, and ``reason`` is the reason if
it is not. It is disabled if the environment variable ``CREINN_NATIVE`` is 0. Compiled models use it
if ``is_vectorized`` is true, which requires a processor with AVX2 or AVX-512.
"""

from creinn.native.library import available, is_vectorized, reason
from creinn.native.nonnegative import Window, pack, product, unpack

__all__ = ["Window", "available", "is_vectorized", "pack", "product", "reason", "unpack"]
