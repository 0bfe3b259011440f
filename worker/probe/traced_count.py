"""How many threads CPython 3.8 and 3.9 believe to be traced, set right when nobody traces any more.

Runs in the program: Python 3.8 to 3.14, standard library only. See `core`.

While that count is not 0 every thread runs all its code a sixth slower. A thread that ends while it
is traced is never taken off it, and pydevd starts such threads on purpose, one for each thread that
it traces from outside. Nothing in Python lowers the count, so it is written where it lies; where
that is, is found out by tracing this thread and looking what went up by one and down again.
"""

import ctypes
import sys
import time
import types

_UNDISTURBED = 60.0  # no other thread gets the interpreter before all is done
_TRACE_FUNCTION = 64  # where `c_tracefunc` is in a PyThreadState, in both
_PYTHONS = {(3, 8): 300, (3, 9): 64}  # how many ints of what holds the count are looked at
_MOST = 100000


def set_right():
    """In a thread that the program does not know."""
    looked_at = _PYTHONS.get(sys.version_info[:2])
    if looked_at is None or ctypes.sizeof(ctypes.c_void_p) != 8 or _is_replaced(sys.settrace):
        return
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_UNDISTURBED)
    try:
        time.sleep(0)  # to whoever waits already, by the former interval
        count = _find_count(looked_at)
        if count is not None:
            count.value = _traced_threads()
    finally:
        sys.setswitchinterval(interval)


def _is_replaced(function):
    return type(function) is not types.BuiltinFunctionType


def _find_count(looked_at):
    """The only int that follows the tracing of this thread; None where there is no such one."""
    ints = (ctypes.c_int * looked_at).from_address(_holder())
    own = _trace_function(_asked("PyThreadState_Get"))

    def nothing(frame, event, arg):
        return None

    found = set(range(looked_at))
    for _ in range(2):
        sys.settrace(None)
        before, untraced = list(ints), own.value
        sys.settrace(nothing)
        during, traced = list(ints), own.value
        sys.settrace(None)
        after = list(ints)
        if untraced or not traced:
            return None
        found = set(
            at for at in found if -_MOST < before[at] == after[at] == during[at] - 1 < _MOST
        )
    return ctypes.c_int.from_buffer(ints, found.pop() * 4) if len(found) == 1 else None


def _holder():
    """On 3.8 the count is one for all interpreters, on 3.9 each has its own."""
    if sys.version_info < (3, 9):
        return ctypes.addressof(ctypes.c_char.in_dll(ctypes.PyDLL(None), "_PyRuntime"))
    return _asked("PyInterpreterState_Get")


def _traced_threads():
    if sys.version_info < (3, 9):
        interpreters = _chain("PyInterpreterState_Head", "PyInterpreterState_Next")
    else:
        interpreters = [_asked("PyInterpreterState_Get")]
    return sum(
        1
        for interpreter in interpreters
        for thread in _chain("PyInterpreterState_ThreadHead", "PyThreadState_Next", interpreter)
        if _trace_function(thread).value
    )


def _trace_function(thread):
    return ctypes.c_size_t.from_address(thread + _TRACE_FUNCTION)


def _chain(first, following, *of):
    state = _asked(first, *of)
    while state:
        yield state
        state = _asked(following, state)


def _asked(name, *states):
    """A function of the interpreter's own, which keeps it; states are addresses."""
    function = getattr(ctypes.PyDLL(None), name)
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_void_p] * len(states)
    return function(*states)
