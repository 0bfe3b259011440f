"""Reads from the interpreter's memory who traces each thread (up to 3.11).

Python shows a thread's tracer to that thread alone.
"""

import _thread
import ctypes
import itertools
import sys

from debug_relay.worker.probe.engine import interpreter_memory as memory
from debug_relay.worker.probe.engine.threads import running_frames as all_frames

# The offsets of the tracer and of the thread's ident in a PyThreadState.
_PLACES = {(3, 8): (80, 176), (3, 9): (80, 176), (3, 10): (80, 176), (3, 11): (88, 152)}


@all_frames.steady
def tracers():
    """Thread ident → its tracer or None; empty if the memory's layout is not known."""
    if not _is_known():
        return {}
    tracer, ident = _PLACES[sys.version_info[:2]]
    ones, others = itertools.tee(of_all())
    is_traced, found = memory.objects(memory.moved(others, tracer))
    idents, traced, found = memory.at_once(memory.read(ones, ident), is_traced, found)
    found = iter(found)
    return {ident: next(found) if its else None for ident, its in zip(idents, traced)}


def _is_known():
    if hasattr(sys, "gettotalrefcount") or memory.POINTER != 8:
        return False  # a debug build, or a narrow one
    places = _PLACES.get(sys.version_info[:2])
    own = own_address()
    return (
        places is not None
        and own is not None
        and ctypes.c_ulong.from_address(own + places[1]).value == _thread.get_ident()
    )


def own_address():
    """The address of this thread's state; None in an embedded interpreter, whose functions only its
    host sees.
    """
    try:
        return memory.function("PyThreadState_Get")(0)
    except AttributeError:
        return None


@all_frames.steady
def interpreters():
    """The number of interpreters in this process."""
    try:
        found = memory.chained("PyInterpreterState_Head", "PyInterpreterState_Next")
    except AttributeError:
        return 1  # embedded
    return len(memory.at_once(found)[0])


def own_interpreter():
    """The address of this thread's interpreter."""
    name = "PyInterpreterState_Get" if sys.version_info >= (3, 9) else "_PyInterpreterState_Get"
    return memory.function(name)(0)


def of_all():
    """Iterate over the addresses of the thread states of this interpreter."""
    first, following = "PyInterpreterState_ThreadHead", "PyThreadState_Next"
    return memory.chained(first, following, own_interpreter())
