"""Suppresses Python's warning at a fork when the only other threads are the debugger's.

From 3.12 on Python counts the process's threads at a fork, and warns at the line of the call, which
is ours. We do not change the warning filters, because all threads share them. If the program has
threads of its own, we give the warning again at the program's own line.
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
    """Mark a thread as one of the probe's."""
    setattr(thread, _MARK, True)


def warns(name, original):
    """Whether Python itself warns in this function. A function that the program has put in its
    place warns at its own line.
    """
    return (
        sys.version_info >= (3, 12)
        and name in ("fork", "forkpty")
        and isinstance(original, types.BuiltinFunctionType)
    )


def quiet(original):
    """Call the original from a module without a name. Python shows no warnings for such a module,
    as it has at the interpreter's end.
    """
    return types.FunctionType(_call.__code__, {"__name__": None, "original": original})


def _call(*args, **kwargs):
    return original(*args, **kwargs)  # noqa: F821  see above


def has_others():
    """Whether the program has other threads than this one, also ones unknown to Python."""
    ours = {threading.get_native_id()}
    for thread in list(threading._active.values()):
        if is_debuggers_thread(thread) or getattr(thread, _MARK, False):
            ours.add(thread.native_id)
    try:
        return any(int(number) not in ours for number in os.listdir("/proc/self/task"))
    except OSError:
        return True  # unknown: then warn as Python does


def warn_of_threads(name):
    """Warn at the program's line; only the function that the program called may call this."""
    try:
        _warn(_TEXT % (os.getpid(), name), DeprecationWarning, 3)
    except Warning:
        pass  # the fork is done, and Python, too, ignores a warning that became an error
