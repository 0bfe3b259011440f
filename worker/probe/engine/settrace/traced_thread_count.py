"""How many threads CPython 3.8 and 3.9 believe to be traced, set right when nobody traces any more.

While that count is not 0 every thread runs all its code a sixth slower. A thread that ends while it
is traced is never taken off it, and pydevd starts such threads on purpose, one for each thread that
it traces from outside; one that waits for long, as a main thread does that joins others, keeps its
tracer until it wakes. Nothing in Python ends the one or lowers the other from outside, so both are
written where they lie. Where that is, is found out by tracing this thread and looking what went up
by one and down again.
"""

import ctypes
import sys
import time
import types

from debug_relay.worker.probe.engine.detaching import tracing_off as tracing
from debug_relay.worker.probe.engine.settrace.interpreter_threads import asked, ident_of, of_all
from debug_relay.worker.probe.engine.threads import running_frames as all_frames
from debug_relay.worker.probe.startup.switch_interval import Undisturbed

# The offsets of `use_tracing`, an int, and of three pointers in a PyThreadState, in both.
_IN_USE, _PROFILE_FUNCTION, _TRACE_FUNCTION, _TRACER = 48, 56, 64, 80
_PYTHONS = {(3, 8): 300, (3, 9): 64}  # how many ints of what holds the count are looked at
_MOST = 100000  # The highest count of traced threads that is taken for one.
_TRIES = 10  # Attempts to find the interpreter's count of traced threads.


@all_frames.steady  # or threads end in between, and what is looked at is no more
def set_right():
    """In a thread that the program does not know."""
    looked_at = _PYTHONS.get(sys.version_info[:2])
    if looked_at is None or ctypes.sizeof(ctypes.c_void_p) != 8 or _is_replaced(sys.settrace):
        return
    with Undisturbed():
        for _ in range(_TRIES):
            time.sleep(0)  # to whoever waits already
            count = _find_count(looked_at)
            if count is None:
                continue  # disturbed all the same, by a machine that is busy
            traced = sum(1 for thread in list(of_all()) if _is_traced(thread))
            if count.value == traced:
                break
            count.value = traced
    for frame in all_frames.of_all().values():
        tracing.untrace(frame, tracing.stopping())


def _is_replaced(function):
    return type(function) is not types.BuiltinFunctionType


def _find_count(looked_at):
    """The only int that follows the tracing of this thread; None where there is no such one."""
    ints = (ctypes.c_int * looked_at).from_address(_holder())
    own = asked("PyThreadState_Get")

    def nothing(frame, event, arg):
        return None

    found = set(range(looked_at))
    for _ in range(2):
        sys.settrace(None)
        before, untraced = list(ints), _tracing(own)
        sys.settrace(nothing)
        during, traced = list(ints), _tracing(own)
        sys.settrace(None)
        after = list(ints)
        if untraced != (0, False, 0) or traced != (1, True, id(nothing)):
            return None
        found = set(
            at for at in found if -_MOST < before[at] == after[at] == during[at] - 1 < _MOST
        )
    return ctypes.c_int.from_buffer(ints, found.pop() * 4) if len(found) == 1 else None


def _holder():
    """On 3.8 the count is one for all interpreters, on 3.9 each has its own."""
    if sys.version_info < (3, 9):
        return ctypes.addressof(ctypes.c_char.in_dll(ctypes.PyDLL(None), "_PyRuntime"))
    return asked("PyInterpreterState_Get")


def _is_traced(thread):
    """Not any more, if it was by what only waits for its next event to end that."""
    stop = tracing.stopping()
    if _tracing(thread)[2] == id(stop) and ident_of(thread) not in stop.back:
        profiled = ctypes.c_size_t.from_address(thread + _PROFILE_FUNCTION).value
        ctypes.c_int.from_address(thread + _IN_USE).value = bool(profiled)
        for pointer in (_TRACE_FUNCTION, _TRACER):
            ctypes.c_size_t.from_address(thread + pointer).value = 0
        ctypes.PyDLL(None).Py_DecRef(ctypes.py_object(stop))  # the thread's own count of it
    return _tracing(thread)[1]


def _tracing(thread):
    """Whether anything is in use, whether that is a tracer, and which."""
    return (
        ctypes.c_int.from_address(thread + _IN_USE).value,
        ctypes.c_size_t.from_address(thread + _TRACE_FUNCTION).value != 0,
        ctypes.c_size_t.from_address(thread + _TRACER).value,
    )
