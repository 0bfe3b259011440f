"""Puts back what pydevd has changed in a program's modules."""

import _thread
import atexit
import sys
import threading
import time

from debug_relay.worker.probe.engine.detaching.tracing_off import is_pydevds
from debug_relay.worker.probe.engine.threads import running_frames as all_frames

_HIDING = ("enumerate", "active_count", "_pickSomeNonDaemonThread")
# pydevd's own undoing adds these names; pydevd keeps its originals in `_KEPT`.
_INVENTED = {
    _thread: ("_start_new_thread", "_start_joinable_thread"),
    threading: ("start_new_thread", "start_new", "start_joinable_thread"),
}
_KEPT = ("_original_start_new_thread", "_original_start_joinable_thread")
_ROOM = 100  # Frames by which the recursion limit is raised while a debugger is attached.
_ABOVE = 20  # Frames by which a stack may have exceeded the limit before.
_LOOKS, _LOOK_SECONDS = 20, 0.02
_STARTING = (
    "start_new_thread", "start_new", "_start_new_thread", "start_joinable_thread",
    "_start_joinable_thread",
)  # fmt: skip


class OriginalState(object):
    """The program's own hooks, limits and threads, before the debugger was loaded."""

    def __init__(self):
        self.breakpointhook = sys.__breakpointhook__
        self.trace_hook = None
        self.start_new = getattr(_thread, "start_new", None)
        self.limit = None  # the program's recursion limit, while a higher one is set
        self.strange_threads = _strange_threads()
        self.tracers = {}  # thread → the program's own tracer
        self.look_again()

    def make_room(self):
        """Make room on the stack: our frames would end a program that is just below its limit."""
        limit = sys.getrecursionlimit()
        if _is_deep(limit):
            self.limit = limit
            sys.setrecursionlimit(limit + _ROOM)

    def look_again(self):
        """Read the program's own hooks; hooks that a debugger has left do not count."""
        if not is_pydevds(sys.breakpointhook):
            self.breakpointhook = sys.breakpointhook
        hook = getattr(threading, "_trace_hook", None)
        self.trace_hook = None if is_pydevds(hook) else hook
        self.hiding = {name: _code_of(name) for name in _HIDING if hasattr(threading, name)}


def _code_of(name):
    """The program's code of a function. pydevd replaces it to keep its threads out of lists."""
    code = getattr(threading, name).__code__
    daemon = sys.modules.get("_pydevd_bundle.pydevd_daemon_thread")
    if not getattr(daemon, "_patched_threading_to_hide_pydevd_threads", False):
        return code
    # An earlier debugger has left its own code there; the original is in the module's file.
    module = threading.__spec__.loader.get_code("threading")
    for found in module.co_consts:
        if getattr(found, "co_name", None) == name:
            return found
    return code


def restore(before, attempt):
    """Restore each part by `attempt(what, function, *arguments)`, which records errors."""
    attempt("start of threads", restore_threads)
    if before.start_new is not None:
        _thread.start_new = before.start_new  # pydevd keeps one original for both names
    attempt("list of threads", _restore_hiding, before)
    attempt("entries of threads", _restore_entries, before)
    attempt("breakpoint()", _restore_breakpointhook, before)
    attempt("new threads", _restore_trace_hook, before)
    attempt("tracer", _restore_tracer, before)
    attempt("at exit", atexit.unregister, sys.modules["pydevd"].stoptrace)
    attempt("streams", restore_streams)
    attempt("start of processes", restore_processes)
    attempt("limit of recursion", _restore_limit, before)
    # Otherwise a later session's debugger would connect to the old port.
    attempt("setup", setattr, sys.modules["pydevd"].SetupHolder, "setup", None)


def restore_threads():
    for module, invented in _INVENTED.items():
        for name in _STARTING:
            original = vars(module).get(_KEPT["joinable" in name])
            if original is not None and is_pydevds(vars(module).get(name)):
                setattr(module, name, original)
        for name in (*_KEPT, *invented):
            vars(module).pop(name, None)


def _restore_hiding(before):
    daemon = sys.modules["_pydevd_bundle.pydevd_daemon_thread"]
    for name, code in before.hiding.items():
        function = getattr(threading, name)
        if function.__code__ is not code and "pydevd" in function.__code__.co_filename:
            function.__code__ = code
    daemon._patched_threading_to_hide_pydevd_threads = False


def _strange_threads():
    """Entries for threads that `threading` has not started."""
    active = list(threading._active.items())
    return {ident for ident, thread in active if isinstance(thread, threading._DummyThread)}


def _restore_entries(before):
    """Remove the entries that pydevd has made: for each thread that it met, also for its own."""
    for ident in _strange_threads() - before.strange_threads:
        threading._active.pop(ident, None)


def _restore_breakpointhook(before):
    if is_pydevds(sys.breakpointhook):
        sys.breakpointhook = before.breakpointhook


def _restore_trace_hook(before):
    if before.trace_hook is not None and getattr(threading, "_trace_hook", None) is None:
        threading.settrace(before.trace_hook)


def _restore_tracer(before):
    """Restore this thread's tracer. The only thread of a forked child calls this itself."""
    own = before.tracers.get(_thread.get_ident())
    if own is not None:
        sys.settrace(own.tracer)


def _restore_limit(before):
    limit, before.limit = before.limit, None
    # The program may have set another limit meanwhile. Up to 3.11 the interpreter aborts if a
    # thread is more than 50 frames above its limit: as long as one is so deep, the limit stays
    # raised.
    if limit is None or sys.getrecursionlimit() != limit + _ROOM:
        return
    for _ in range(_LOOKS):
        if not _is_deep(limit + _ROOM + _ABOVE):
            sys.setrecursionlimit(limit)
            # Another thread may have run in between.
            if not _is_deep(limit + _ROOM + _ABOVE):
                return
            sys.setrecursionlimit(limit + _ROOM)
        time.sleep(_LOOK_SECONDS)
    raise RuntimeError(
        "it is %d now, not %d: a thread's stack is that deep" % (limit + _ROOM, limit)
    )


@all_frames.steady
def _is_deep(limit):
    """Whether the stack of a thread is near to this limit."""
    for frame in all_frames.of_all().values():
        room = limit - _ROOM
        while frame is not None and room > 0:
            frame = frame.f_back
            room -= 1
        if frame is not None:
            return True
    return False


def restore_streams():
    """Undo `redirect_output`."""
    # A thread of pydevd's reads these again and again, and would replace the streams anew.
    pydevd = sys.modules["pydevd"]
    pydevd._global_redirect_stdout_to_server = pydevd._global_redirect_stderr_to_server = False
    holder = sys.modules["_pydevd_bundle.pydevd_io"]._RedirectionsHolder
    for name in ("stdout", "stderr"):
        stack = getattr(holder, "_stack_" + name)
        if stack and is_pydevds(getattr(sys, name)):
            setattr(sys, name, stack[0].original)
        del stack[:]
        setattr(holder, "_pydevd_%s_redirect_" % name, None)


def restore_processes():
    """Undo patches that only other versions of the debugger make: with them, children
    would not start.
    """
    held = False
    for module_name in ("os", "subprocess", "_posixsubprocess"):
        module = sys.modules.get(module_name)
        for kept in [n for n in vars(module or object) if n.startswith("original_")]:
            name = kept[len("original_") :]
            current = getattr(module, name, None)
            if not is_pydevds(current):
                continue
            setattr(module, name, getattr(module, kept))
            if sys.getrefcount(current) > 2:
                held = True  # a module has imported it by `from os import …`; it needs its original
            else:
                delattr(module, kept)
    if held:
        monkey = sys.modules["_pydev_bundle.pydev_monkey"]
        monkey.patch_args = lambda arguments, is_exec=False: arguments
        monkey._on_forked_process = lambda setup_tracing=True: None
