"""Reads the interpreter's memory while no other thread runs (up to 3.11).

A thread that ends, or that returns from a function, frees memory that we read. Python code may lose
the interpreter between any two of its instructions. A long switch interval only makes this rare: on
a busy machine the kernel may suspend our thread for longer. So each reading is one chain of
iterators and functions that are written in C. They execute no Python code, so no other thread runs
before the last of them has returned. A garbage collection would execute Python code, so callers
prevent it (`threads.running_frames.steady`).
"""

import ctypes
import itertools
import operator

POINTER = ctypes.sizeof(ctypes.c_void_p)
_value = operator.attrgetter("value")


def at_once(*iterators):
    """The items of each iterator as a list, the first iterator's first. What the iterators do must
    be done by functions in C.
    """
    return list(map(list, iterators))


def chained(first, following, *of):
    """Iterate over the addresses of a chain of structs.

    `first` and `following` name functions of the interpreter: the one finds the first struct,
    perhaps of another struct (its address), the other finds the struct after a given one.
    """
    head = map(function(first), of or (0,))
    # Each step calls function(address, 0). The function takes one argument and ignores the other.
    steps = itertools.accumulate(itertools.chain(head, itertools.repeat(0)), function(following))
    return itertools.takewhile(bool, steps)


def function(name):
    """A function of the interpreter for an address; the result is an address, or None for NULL."""
    found = getattr(ctypes.PyDLL(None), name)
    found.restype, found.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return found


def read(addresses, offset, kind=ctypes.c_size_t):
    """Iterate over what lies at this offset from each address, as values of this C type."""
    return map(_value, map(kind.from_address, moved(addresses, offset)))


def moved(addresses, offset):
    return map(operator.add, addresses, itertools.repeat(offset))


def objects(addresses):
    """Iterate over two things: whether there is a reference to an object at each address, and the
    objects that there are. Read the first one before the second one.
    """
    one, two = itertools.tee(map(ctypes.py_object.from_address, addresses))
    return map(bool, one), map(_value, filter(None, two))


def zeroed(addresses, size):
    """Iterate over the addresses; as many bytes at each become zero."""
    memset = ctypes.PyDLL(None).memset
    memset.restype = ctypes.c_void_p
    memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    return map(memset, addresses, itertools.repeat(0), itertools.repeat(size))
