"""Setting of the memory allocator that keeps freed memory in the process.

By default, glibc returns large freed blocks to the kernel, which clears
each page before it is used again. This can take a large part of the
training time.
"""

import ctypes
import platform

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # from <malloc.h>
_LARGEST_BLOCK, _LARGEST_TOTAL = 2**30, 2**31 - 1  # bytes


def keep_freed_memory() -> bool:
    """Keep up to 2 GiB of freed memory, in blocks of up to 1 GiB.

    Returns:
        Whether the C library supports this, as in glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    settings = {_MMAP_THRESHOLD: _LARGEST_BLOCK, _TRIM_THRESHOLD: _LARGEST_TOTAL}
    return all(library.mallopt(name, value) == 1 for name, value in settings.items())
