"""Freed memory is kept for the next step instead of being given back to the system.

glibc returns large freed blocks to the kernel at once, and gets them back page by page, cleared: much of the time of
training can go into that. The command line asks for freed memory to be kept; programs of your own may.
"""

import ctypes
import platform

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of the settings in <malloc.h>
_LARGEST_KEPT, _KEPT_AT_MOST = 2**30, 2**31 - 1  # bytes


def keep_freed_memory() -> bool:
    """Let this process keep up to 2 GiB of freed memory, in blocks of up to 1 GiB, for itself.

    It acts on the whole process, from now on. Processes started from it are not affected.

    Returns:
        Whether the C library has this setting (glibc has); nothing is changed otherwise.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    settings = {_MMAP_THRESHOLD: _LARGEST_KEPT, _TRIM_THRESHOLD: _KEPT_AT_MOST}
    return all(library.mallopt(name, value) == 1 for name, value in settings.items())
