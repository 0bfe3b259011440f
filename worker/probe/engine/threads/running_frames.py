"""Reads the frames of all threads while they run, without harm to them.

A function that holds a dict of all threads' frames is in the dict with its own frame: a cycle. The
objects that the program's functions held just then, files and locks too, live on until the garbage
collector runs, which may be never. And the collector of 3.12.1 crashes the program when a
`BytesIO.getbuffer()` is part of the cycle, as in a message that `multiprocessing` just sends.

Up to 3.11 the collector may run at any allocation, also while we read. It then runs Python code,
and another thread may run. If that thread ends, it waits, holding the interpreter, for a lock that
the reader holds: a deadlock. If it returns from its function, the reader has the frame of a
function that is over, and the program crashes later.
"""

import _thread
import functools
import gc
import sys

from debug_relay.worker.probe.engine.frames import MONITORED


class Uncollected(object):
    """No garbage is collected meanwhile. Several threads may use this: the last one ends it."""

    lock = _thread.RLock()  # a signal's handler may use this within the few lines that hold it
    users = []
    is_ours = False  # the collector was on, and is to be turned on again

    def __enter__(self):
        cls = Uncollected
        with cls.lock:
            cls.users.append(self)
            if gc.isenabled():
                gc.disable()
                cls.is_ours = True

    def __exit__(self, *error):
        cls = Uncollected
        with cls.lock:
            if self in cls.users:
                cls.users.remove(self)
                cls.end_after_the_last()

    @classmethod
    def end_after_the_last(cls):
        if not cls.users and cls.is_ours:
            cls.is_ours = False
            gc.enable()


def in_child():
    """After a fork: the threads that would end it do not exist in the child."""
    Uncollected.lock = _thread.RLock()
    del Uncollected.users[:]
    Uncollected.end_after_the_last()


def steady(function):
    """Wrap a function that reads frames of other threads, and their callers."""
    if MONITORED:
        return function

    @functools.wraps(function)
    def looking(*args, **kwargs):
        with Uncollected():
            return function(*args, **kwargs)

    return looking


@steady
def _now():
    return sys._current_frames()


def of_all():
    """The frames of `sys._current_frames`; for this thread the frame of our caller's caller."""
    found, caller = _now(), sys._getframe(1)
    found[_thread.get_ident()] = caller.f_back or caller
    return found


def hook(probe):
    """Replace the two functions of pydevd that read them: at each stop, and after changed
    breakpoints.
    """
    for name in ("pydevd_additional_thread_info_regular", "pydevd_cython"):
        facts = sys.modules.get("_pydevd_bundle." + name)
        if facts is not None:
            probe.engine.hooks.swap(facts, "_current_frames", of_all)
    db, pydevd, tracing = probe.engine.db, sys.modules["pydevd"], sys.modules["pydevd_tracing"]
    probe.engine.hooks.swap(tracing, "set_trace_to_threads", steady(tracing.set_trace_to_threads))

    @steady
    def set_tracing(breakpoints_changed=False):
        if MONITORED and breakpoints_changed:
            pydevd.pydevd_sys_monitoring.update_monitor_events()
        left_out = {thread.ident for thread in pydevd.threadingEnumerate() if _is_left_out(thread)}
        for ident, frame in of_all().items():
            if ident not in left_out:
                db.set_trace_for_frame_and_parents(ident, frame)
        if MONITORED:
            pydevd.pydevd_sys_monitoring.restart_events()

    probe.engine.hooks.around(
        "set_tracing_for_untraced_contexts", "running_frames", lambda _: set_tracing
    )


def _is_left_out(thread):
    marks = "is_pydev_daemon_thread", "pydev_do_not_trace"
    return any(getattr(thread, mark, False) for mark in marks)
