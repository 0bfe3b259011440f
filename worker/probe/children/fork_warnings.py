"""Forks of a program that has no other threads than the debugger's: Python's warning is not for it.

From 3.12 on Python counts the process's threads at a fork and warns of them at the place of the
call, which is ours. No filter is touched for that: they are all threads' at once. Where the program
has threads of its own the warning is given again, at its own line.
"""

import os
import sys
import threading
import types
from _warnings import warn as _warn

from debug_relay.worker.probe.engine.engine import is_debuggers_thread

_TEXT = "This process (pid=%d) is multi-threaded, use of %s() may lead to deadlocks in the child."
_MARK = "is_relay_thread"


def mark(thread):
    """One of our own."""
    setattr(thread, _MARK, True)


def warns(name, original):
    """Whether Python itself does. What somebody has put in its place warns at his."""
    return (
        sys.version_info >= (3, 12)
        and name in ("fork", "forkpty")
        and isinstance(original, types.BuiltinFunctionType)
    )


def quiet(original):
    """A module without a name is shown no warnings: that is meant for the interpreter's end."""
    return types.FunctionType(_call.__code__, {"__name__": None, "original": original})


def _call(*args, **kwargs):
    return original(*args, **kwargs)  # noqa: F821  see above


def has_others():
    """Whether the program has threads beside this one, also those that Python does not know."""
    ours = {threading.get_native_id()}
    for thread in list(threading._active.values()):
        if is_debuggers_thread(thread) or getattr(thread, _MARK, False):
            ours.add(thread.native_id)
    try:
        return any(int(number) not in ours for number in os.listdir("/proc/self/task"))
    except OSError:
        return True  # nobody can say


def warn_of_threads(name):
    """To be called by what the program has called."""
    try:
        _warn(_TEXT % (os.getpid(), name), DeprecationWarning, 3)
    except Warning:
        pass  # Python has forked already, and forgets this as well
