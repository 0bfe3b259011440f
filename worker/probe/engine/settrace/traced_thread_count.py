"""Corrects CPython's count of traced threads (3.8 and 3.9) when tracing has ended.

While that count is not 0 every thread runs all its code a sixth slower. CPython does not count down
for a thread that ends while it is traced, and pydevd starts such threads on purpose, one for each
thread that it traces from outside. And a thread that waits for long, such as a main thread that
joins others, keeps its tracer until it wakes. Python has no function that removes such a tracer or
lowers the count from outside, so we write both in memory. We find the place of the count by tracing
this thread: the count goes up by one, and down again.
"""

import ctypes
import sys
import time
import types

from debug_relay.worker.probe.engine.detaching import tracing_off as tracing
from debug_relay.worker.probe.engine.settrace.interpreter_threads import (
    call_interpreter,
    ident_of,
    of_all,
)
from debug_relay.worker.probe.engine.threads import running_frames as all_frames
from debug_relay.worker.probe.startup.switch_interval import Undisturbed

# The offsets of `use_tracing`, an int, and of three pointers in a PyThreadState, in both.
_IN_USE, _PROFILE_FUNCTION, _TRACE_FUNCTION, _TRACER = 48, 56, 64, 80
_PYTHONS = {(3, 8): 300, (3, 9): 64}  # how many ints at the beginning of the struct are compared
_MOST = 100000  # The highest number that may be a count of traced threads.
_TRIES = 10  # Attempts to find the interpreter's count of traced threads.


@all_frames.steady  # or threads end meanwhile, and their memory is freed
def set_right():
    """Correct the count. Runs in a thread of the probe's, which the program does not know."""
    looked_at = _PYTHONS.get(sys.version_info[:2])
    if looked_at is None or ctypes.sizeof(ctypes.c_void_p) != 8 or _is_replaced(sys.settrace):
        return
    with Undisturbed():
        for _ in range(_TRIES):
            time.sleep(0)  # hand over to a thread that waits already
            count = _find_count(looked_at)
            if count is None:
                continue  # another thread has run nevertheless, on a busy machine
            traced = sum(1 for thread in list(of_all()) if _is_traced(thread))
            if count.value == traced:
                break
            count.value = traced
    for frame in all_frames.of_all().values():
        tracing.untrace(frame, tracing.stopping())


def _is_replaced(function):
    return type(function) is not types.BuiltinFunctionType


def _find_count(looked_at):
    """The only int that follows the tracing of this thread; None unless there is exactly one."""
    ints = (ctypes.c_int * looked_at).from_address(_holder())
    own = call_interpreter("PyThreadState_Get")

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
    """The address of the struct with the count: on 3.8 that of all interpreters, on 3.9 of this
    one.
    """
    if sys.version_info < (3, 9):
        return ctypes.addressof(ctypes.c_char.in_dll(ctypes.PyDLL(None), "_PyRuntime"))
    return call_interpreter("PyInterpreterState_Get")


def _is_traced(thread):
    """Whether a thread is traced. If its tracer is our `stop`, which would remove itself at the
    thread's next event, remove it now.
    """
    stop = tracing.stopping()
    if _tracing(thread)[2] == id(stop) and ident_of(thread) not in stop.back:
        profiled = ctypes.c_size_t.from_address(thread + _PROFILE_FUNCTION).value
        ctypes.c_int.from_address(thread + _IN_USE).value = bool(profiled)
        for pointer in (_TRACE_FUNCTION, _TRACER):
            ctypes.c_size_t.from_address(thread + pointer).value = 0
        ctypes.PyDLL(None).Py_DecRef(ctypes.py_object(stop))  # the thread's reference to it
    return _tracing(thread)[1]


def _tracing(thread):
    """(whether tracing or profiling is on, whether there is a tracer, the tracer's address)."""
    return (
        ctypes.c_int.from_address(thread + _IN_USE).value,
        ctypes.c_size_t.from_address(thread + _TRACE_FUNCTION).value != 0,
        ctypes.c_size_t.from_address(thread + _TRACER).value,
    )
