"""A C++ library for products of intervals ``>= 0``.

It is built with the package if there is a compiler, and only affects the
speed. If it is not ``available``, ``reason`` contains the reason. The
environment variable ``CREINN_NATIVE=0`` disables it. Compiled models use
it if ``is_vectorized`` is true, which requires AVX2 or AVX-512.
"""

from creinn.native.kernel import Window, available, is_vectorized, pack, product, reason, unpack

__all__ = ["Window", "available", "is_vectorized", "pack", "product", "reason", "unpack"]
