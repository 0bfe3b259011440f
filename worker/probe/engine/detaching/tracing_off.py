"""Turns pydevd's tracing and monitoring off, in every thread and every frame."""

import _thread
import ctypes
import sys
import threading
import types

from debug_relay.worker.probe.engine import monitoring_tool as own_tool
from debug_relay.worker.probe.engine.settrace.interpreter_threads import tracers
from debug_relay.worker.probe.engine.threads import running_frames as all_frames
from debug_relay.worker.probe.startup.switch_interval import Undisturbed

_STOPPING = "_relay_stop"
_MARKS = "debug_relay.worker.probe.engine.frames"


def monitors():
    """Whether pydevd works by `sys.monitoring` (3.12 and later) and not by `sys.settrace`."""
    constants = sys.modules["_pydevd_bundle.pydevd_constants"]
    return bool(getattr(constants, "PYDEVD_USE_SYS_MONITORING", False))


def silence():
    """Turn pydevd's events off: no thread can begin to stop; some may still be inside pydevd."""
    if not monitors():
        _give_settrace_back()
        if is_pydevds(getattr(threading, "_trace_hook", None)):
            threading.settrace(None)
        return
    monitoring, tool = sys.monitoring, own_tool.number()
    if tool is None:
        return
    monitoring.set_events(tool, 0)
    for name in dir(monitoring.events):
        event = getattr(monitoring.events, name)
        if isinstance(event, int) and event and not event & (event - 1):
            try:
                monitoring.register_callback(tool, event, None)
            except ValueError:
                continue  # this event takes no callbacks


@all_frames.steady
def stop_everywhere(back=None):
    """Turn tracing off in all threads while they run; `back` has the former tracers to restore."""
    if monitors():
        _free_monitoring()
        _unmark()
        return

    ends = stopping()
    ends.done = set()
    if back is not None:
        ends.back = dict(back)
    programs = {ident for ident, tracer in tracers().items() if is_programs(tracer)}
    idents = _trace_all(ends, programs)
    # A thread that calls `stop` clears its own frames, perhaps before the walk reaches it. If
    # another thread could run in between, that thread would keep what the walk sets in its frames.
    with Undisturbed():
        for ident, frame in all_frames.of_all().items():
            if ident not in idents and ident not in programs:
                continue
            waits = ident in idents and ident not in ends.done
            while frame is not None:
                if is_pydevds(frame.f_trace):
                    frame.f_trace = ends if waits else None
                elif waits and frame.f_trace is None:
                    # So that a loop that calls nothing drops its tracing at its next line. pydevd
                    # has set None in frames in which nothing can stop.
                    frame.f_trace = ends
                frame = frame.f_back


def stop(frame, event, arg):
    """A thread's tracer: its first event ends the thread's tracing, or our part of it."""
    if sys.gettrace() is not stop:
        return None
    sys.settrace(None)
    stop.done.add(_thread.get_ident())
    try:
        untrace(frame, stop)
    except RecursionError:
        pass  # no room on the stack: the walk clears pydevd's functions, and a second walk follows
    before = stop.back.pop(_thread.get_ident(), None)
    if before is None:
        return None
    before.give_back(frame)
    return before.tracer(frame, event, arg) if event == "call" else frame.f_trace


stop.done, stop.back = set(), {}


def stopping():
    """The one `stop` of this process. A thread that has rested since an earlier session still has
    that session's `stop`, and may be about to call it when we replace it.
    """
    return vars(sys.modules["pydevd"]).setdefault(_STOPPING, stop)


def untrace(frame, ends):
    """Clear the trace functions in this stack that are `ends`, which has ended its tracing, or
    pydevd's.

    `stop` does this in the thread itself: the walk of `stop_everywhere` passes over a thread that
    has called `stop` before the walk reached it.
    """
    while frame is not None:
        if frame.f_trace is ends or is_pydevds(frame.f_trace):
            frame.f_trace = None
        frame = frame.f_back


def _trace_all(function, programs):
    """Set a tracer in all threads as pydevd does, without the threads that pydevd starts to raise
    CPython's count of traced threads (`settrace.traced_thread_count`).
    """
    library = sys.modules["pydevd_tracing"]._load_python_helper_lib()
    if library is None:
        raise OSError("debugpy's library for this Python cannot be loaded")
    nothing = ctypes.py_object(None)
    # The class decides: a Jupyter kernel marks its own threads as pydevd's, and pydevd traces them.
    pydevds = sys.modules["_pydevd_bundle.pydevd_daemon_thread"].PyDBDaemonThread
    others = {t.ident for t in list(threading._active.values()) if isinstance(t, pydevds)}
    others.add(threading.get_ident())
    idents = set(all_frames.of_all()) - others - programs
    for ident in idents:
        library.AttachDebuggerTracing(
            ctypes.c_int(0),
            ctypes.py_object(sys.settrace),
            ctypes.py_object(function),
            ctypes.c_uint(ident & 0xFFFFFFFF),
            nothing,
        )
    if sys.gettrace() is not None:
        sys.settrace(None)
    return idents


def stop_in_child():
    """Turn tracing off in the child after a fork, in its only thread."""
    if monitors():
        _free_monitoring()
        _unmark()
        return
    # pydevd's own settrace would print a warning on the child's stderr.
    _give_settrace_back()
    sys.settrace(None)
    threading.settrace(None)
    for frame in sys._current_frames().values():
        while frame is not None:
            frame.f_trace = None
            frame = frame.f_back


def _give_settrace_back():
    """Restore the program's own function, without the wrapper that `settrace/retracing` made."""
    tracing = sys.modules["pydevd_tracing"]
    kept = tracing.TracingFunctionHolder._original_tracing
    tracing.TracingFunctionHolder._original_tracing = getattr(kept, "wrapped", kept)
    tracing.restore_sys_set_trace_func()


def _free_monitoring():
    monitoring, tool = sys.monitoring, own_tool.number()
    if tool is None:
        return
    monitoring.set_events(tool, 0)
    pydevds = sys.modules["_pydevd_sys_monitoring._pydevd_sys_monitoring"]
    cache = getattr(pydevds, "_code_to_func_code_info_cache", {})
    # Freeing the tool leaves local events behind.
    for code in list(cache):
        try:
            monitoring.set_local_events(tool, code, 0)
        except ValueError:
            continue  # another thread has freed the tool meanwhile
    cache.clear()
    monitoring.free_tool_id(tool)


def _unmark():
    """Remove our marks (`FunctionRun` in `frames`) from frames that have stopped and still run."""
    for frame in all_frames.of_all().values():
        while frame is not None:
            if _module_of(type(frame.f_trace)) == _MARKS:
                frame.f_trace = None
            frame = frame.f_back


def be_untraced():
    """Keep this thread of the probe's untraced: the program's tracers and profilers of new threads
    are for its own threads.
    """
    if sys.gettrace() is not None:
        sys.settrace(None)
    if sys.getprofile() is not None:
        sys.setprofile(None)


def is_debuggers(thread):
    return getattr(thread, "is_pydev_daemon_thread", False)


def is_pydevds(function):
    """Whether this function, or the object behind it, is pydevd's."""
    if isinstance(function, types.MethodType):
        function = function.__func__ if is_named(function.__func__) else function.__self__
    return (
        is_named(function) or is_named(type(function)) or is_named(getattr(function, "func", None))
    )


def is_programs(tracer):
    """Whether the program itself has set this tracer."""
    ours = tracer is None or tracer is stopping() or is_pydevds(tracer)
    return not ours and not _module_of(tracer).startswith("debug_relay.")


def is_named(thing):
    return _module_of(thing).split(".")[0] in _PACKAGES


def _module_of(thing):
    module = getattr(thing, "__module__", None)
    return module if isinstance(module, str) else ""


_PACKAGES = (
    "_pydev_bundle", "_pydevd_bundle", "_pydevd_sys_monitoring", "_pydevd_frame_eval", "pydevd",
    "pydevd_tracing", "debugpy", "pydevd_file_utils",
)  # fmt: skip
