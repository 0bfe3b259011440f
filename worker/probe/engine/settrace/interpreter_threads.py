"""Reads from the interpreter's memory who traces each thread (up to 3.11).

Python shows a thread's tracer to that thread alone.
"""

import _thread
import ctypes
import sys

from debug_relay.worker.probe.engine.threads import running_frames as all_frames
from debug_relay.worker.probe.startup.switch_interval import Undisturbed

# The offsets of the tracer and of the thread's ident in a PyThreadState.
_PLACES = {(3, 8): (80, 176), (3, 9): (80, 176), (3, 10): (80, 176), (3, 11): (88, 152)}


@all_frames.steady  # or threads end meanwhile, and their memory is freed
def tracers():
    """Thread ident → its tracer or None; empty if the memory's layout is not known."""
    if not _is_known():
        return {}
    with Undisturbed():
        if ident_of(call_interpreter("PyThreadState_Get")) != _thread.get_ident():
            return {}
        return {ident_of(state): _tracer_of(state) for state in of_all()}


def ident_of(state):
    return ctypes.c_ulong.from_address(state + _PLACES[sys.version_info[:2]][1]).value


def _tracer_of(state):
    place = state + _PLACES[sys.version_info[:2]][0]
    if not ctypes.c_size_t.from_address(place).value:
        return None
    return ctypes.py_object.from_address(place).value


def _is_known():
    is_debug_build = hasattr(sys, "gettotalrefcount")
    wide = ctypes.sizeof(ctypes.c_void_p) == 8
    return wide and not is_debug_build and sys.version_info[:2] in _PLACES


def interpreters():
    """The number of interpreters in this process."""
    try:
        return len(list(_chain("PyInterpreterState_Head", "PyInterpreterState_Next")))
    except AttributeError:
        return 1  # an embedded interpreter, whose functions only its host sees


def of_all():
    """The addresses of the thread states; on 3.8 of all interpreters, which share one count of
    traced threads.
    """
    if sys.version_info < (3, 9):
        interpreters = _chain("PyInterpreterState_Head", "PyInterpreterState_Next")
    else:
        interpreters = [call_interpreter("PyInterpreterState_Get")]
    for interpreter in interpreters:
        for thread in _chain("PyInterpreterState_ThreadHead", "PyThreadState_Next", interpreter):
            yield thread


def _chain(first, following, *of):
    state = call_interpreter(first, *of)
    while state:
        yield state
        state = call_interpreter(following, state)


def call_interpreter(name, *states):
    """The result of a function of the interpreter, for the addresses of states."""
    function = getattr(ctypes.PyDLL(None), name)
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_void_p] * len(states)
    return function(*states)
