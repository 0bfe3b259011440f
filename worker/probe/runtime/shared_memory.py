"""Maps files into the program's memory without keeping a descriptor open.

Python's `mmap` keeps a descriptor of its own and closes it in the end, by its number. If the
program has closed all descriptors meanwhile, that number may be one of its own files.
"""

import ctypes
import mmap
import os
import sys

_SHARED, _FIXED = 0x01, 0x10
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE


def mapped(fd, size=None):
    """Map `size` bytes of the file, or all of them."""
    there = os.fstat(fd).st_size
    size = there if size is None else size
    if not 0 < size <= there:
        raise ValueError("%d bytes of %d" % (size, there))  # reading beyond it would be SIGBUS
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, size, trackfd=False)
    memory = mmap.mmap(-1, size)
    place = ctypes.c_char.from_buffer(memory)
    try:
        put = ctypes.CDLL(None).mmap
        put.restype = ctypes.c_void_p
        put.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        address = ctypes.addressof(place)
        if put(address, size, _READ_WRITE, _SHARED | _FIXED, fd, 0) != address:
            raise OSError("it cannot be mapped")
    finally:
        del place  # with this reference the memory could not be released
    return memory
