"""Where all threads stand, without keeping anything of the program alive.

Runs in the program: Python 3.8 to 3.14, standard library only. See `core`.

Who holds a dict of all threads' frames is in it with its own, and that holds the dict: a circle.
What the program's functions held when they were met, files and locks too, then lives on until the
garbage collector comes by, which may be never; and that of 3.12.1 ends the program where a
`BytesIO.getbuffer()` is part of it, as in whatever `multiprocessing` just sends.
"""

import _thread
import sys

from debug_relay.worker.probe import tracing


def of_all():
    """As `sys._current_frames`, but this thread's begins where the caller was called."""
    found = sys._current_frames()
    found[_thread.get_ident()] = sys._getframe(2)
    return found


def hook(probe):
    """Where pydevd asks for them: at each stop, and when breakpoints have changed."""
    facts = sys.modules.get("_pydevd_bundle.pydevd_additional_thread_info_regular")
    if facts is not None:  # where that is compiled no function of Python's holds the dict
        probe.undo.append((facts, "_current_frames", facts._current_frames))
        facts._current_frames = of_all
    db, pydevd = probe.db, sys.modules["pydevd"]
    monitors = tracing.monitors()

    def set_tracing(breakpoints_changed=False):
        if monitors and breakpoints_changed:
            pydevd.pydevd_sys_monitoring.update_monitor_events()
        left_out = {thread.ident for thread in pydevd.threadingEnumerate() if _is_left_out(thread)}
        for ident, frame in of_all().items():
            if ident not in left_out:
                db.set_trace_for_frame_and_parents(ident, frame)
        if monitors:
            pydevd.pydevd_sys_monitoring.restart_events()

    probe.replace("set_tracing_for_untraced_contexts", set_tracing)


def _is_left_out(thread):
    marks = "is_pydev_daemon_thread", "pydev_do_not_trace"
    return any(getattr(thread, mark, False) for mark in marks)
