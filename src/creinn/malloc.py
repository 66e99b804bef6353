"""Setting of the memory allocator: keep freed memory in the process.

glibc returns large freed blocks to the kernel at once. The kernel clears each page before it hands
it out again, which can take much of the training time. The command line calls
:func:`keep_freed_memory`; other programs may do so too.
"""

import ctypes
import platform

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of the settings in <malloc.h>
_LARGEST_BLOCK, _LARGEST_TOTAL = 2**30, 2**31 - 1  # bytes


def keep_freed_memory() -> bool:
    """Let this process keep up to 2 GiB of freed memory, in blocks of up to 1 GiB.

    The setting acts on the whole process from now on. Child processes are not affected.

    Returns:
        Whether the C library has this setting, as glibc has. Otherwise nothing changes.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    settings = {_MMAP_THRESHOLD: _LARGEST_BLOCK, _TRIM_THRESHOLD: _LARGEST_TOTAL}
    return all(library.mallopt(name, value) == 1 for name, value in settings.items())
