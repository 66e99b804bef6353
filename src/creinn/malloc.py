"""Settings of the memory allocator to keep freed memory in the process.

By default, glibc returns large freed blocks to the kernel. The kernel clears each page before it is
used again, which can be a large part of the training time. The function
:func:`keep_freed_memory` is called by the command line and can be called by other programs.
"""

import ctypes
import platform

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # from <malloc.h>
_LARGEST_BLOCK, _LARGEST_TOTAL = 2**30, 2**31 - 1  # bytes


def keep_freed_memory() -> bool:
    """Keep up to 2 GiB of freed memory in this process, in blocks of up to 1 GiB.

    Returns:
        Whether the C library has this setting, as in glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    settings = {_MMAP_THRESHOLD: _LARGEST_BLOCK, _TRIM_THRESHOLD: _LARGEST_TOTAL}
    return all(library.mallopt(name, value) == 1 for name, value in settings.items())
