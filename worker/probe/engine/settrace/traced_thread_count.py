"""Corrects CPython's count of traced threads (3.8 and 3.9) when tracing has ended.

While that count is not 0 every thread runs all its code a sixth slower. CPython does not count down
for a thread that ends while it is traced, and pydevd starts such threads on purpose, one for each
thread that it traces from outside. And a thread that waits for long, such as a main thread that
joins others, keeps its tracer until it wakes. Python has no function that removes such a tracer or
lowers the count from outside, so we write both in memory. We find the place of the count by tracing
this thread: the count goes up by one, and down again.
"""

import ctypes
import itertools
import operator
import sys
import time
import types

from debug_relay.worker.probe.engine import interpreter_memory as memory
from debug_relay.worker.probe.engine.detaching import tracing_off as tracing
from debug_relay.worker.probe.engine.settrace import interpreter_threads as thread_states
from debug_relay.worker.probe.engine.threads import running_frames as all_frames
from debug_relay.worker.probe.startup.switch_interval import Undisturbed

# The offsets of `use_tracing`, an int, of three pointers, and of the ident in a PyThreadState, in
# both.
_IN_USE, _PROFILE_FUNCTION, _TRACE_FUNCTION, _TRACER, _IDENT = 48, 56, 64, 80, 176
_PYTHONS = {(3, 8): 300, (3, 9): 64}  # how many ints at the beginning of the struct are compared
_MOST = 100000  # The highest number that may be a count of traced threads.
_TRIES = 10  # Attempts to find the interpreter's count of traced threads.


@all_frames.steady
def set_right():
    """Correct the count. Runs in a thread of the probe's, which the program does not know."""
    looked_at = _PYTHONS.get(sys.version_info[:2])
    if looked_at is None or memory.POINTER != 8 or _is_replaced(sys.settrace):
        return
    if sys.version_info < (3, 9) and thread_states.interpreters() > 1:
        return  # they share one count, and we do not know the other one's threads
    with Undisturbed():
        for _ in range(_TRIES):
            time.sleep(0)  # hand over to a thread that waits already
            count = _find_count(looked_at)
            if count is None:
                continue  # another thread has run nevertheless, on a busy machine
            _end_waiting_traces()
            traces = memory.read(thread_states.of_all(), _TRACE_FUNCTION)
            traced = sum(map(bool, memory.at_once(traces)[0]))
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
    own = thread_states.own_address()

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
    return thread_states.own_interpreter()


def _end_waiting_traces():
    """Remove our `stop` from the threads that it traces and that have no tracer to restore. It
    would remove itself at the thread's next event.
    """
    stop, of = tracing.stopping(), itertools.tee(thread_states.of_all(), 3)
    is_stop = map(operator.eq, memory.read(of[1], _TRACER), itertools.repeat(id(stop)))
    keeps = map(stop.back.__contains__, memory.read(of[2], _IDENT))
    ends = map(operator.gt, is_stop, keeps)  # the one and not the other
    of = itertools.tee(itertools.compress(of[0], ends), 5)
    is_unprofiled = map(operator.not_, memory.read(of[1], _PROFILE_FUNCTION))
    ended = memory.at_once(
        of[0],
        memory.zeroed(memory.moved(itertools.compress(of[2], is_unprofiled), _IN_USE), 4),
        memory.zeroed(memory.moved(of[3], _TRACE_FUNCTION), memory.POINTER),
        memory.zeroed(memory.moved(of[4], _TRACER), memory.POINTER),
    )[0]
    for _ in ended:
        ctypes.PyDLL(None).Py_DecRef(ctypes.py_object(stop))  # the thread's reference to it


def _tracing(thread):
    """(whether tracing or profiling is on, whether there is a tracer, the tracer's address)."""
    return (
        ctypes.c_int.from_address(thread + _IN_USE).value,
        ctypes.c_size_t.from_address(thread + _TRACE_FUNCTION).value != 0,
        ctypes.c_size_t.from_address(thread + _TRACER).value,
    )
