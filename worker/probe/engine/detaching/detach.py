"""Detaches: afterwards the attached program is as it was before.

A detach has two steps. `free_program`: nothing can stop the program any more, nothing is traced,
and all patches are put back. `end_debugger`: the debugger's threads and its socket end. The end of
the connection shows the worker that both are done.
"""

import os
import socket
import sys
import threading
import time

from debug_relay.worker.probe.engine.connection.connect import WholeMessages
from debug_relay.worker.probe.engine.detaching import patched_modules as patches
from debug_relay.worker.probe.engine.detaching import tracing_off as tracing
from debug_relay.worker.probe.engine.detaching.tracing_off import is_debuggers
from debug_relay.worker.probe.engine.settrace import traced_thread_count as traced_count
from debug_relay.worker.probe.engine.threads import running_frames as all_frames
from debug_relay.worker.probe.engine.threads.lifetimes import untie

_OUT_SECONDS = 3.0  # Threads that are inside the debugger have this long to leave it.
_LOOK_SECONDS = 0.05  # The pause between two looks at whether they have left it.
_INTERRUPT_EVERY = 10  # Looks after which running evaluations are interrupted.
_JOIN_SECONDS = 1.0  # Each of pydevd's threads has this long to end.


class Report(object):
    """Collects what could not be done in a detach."""

    def __init__(self):
        self.errors = []
        self.stuck = 0

    def attempt(self, what, function, *arguments):
        try:
            return function(*arguments)
        except Exception as error:
            self.errors.append("%s: %s: %s" % (what, type(error).__name__, error))

    def words(self, reason):
        return {"reason": reason, "errors": self.errors, "stuck": self.stuck}


def free_program(engine, probe, before, report, waiting=()):
    """Free the program. `waiting` has the idents of threads that wait in the debugger for this."""
    db = engine.db
    api = sys.modules["_pydevd_bundle.pydevd_api"].PyDevdAPI()
    attempt = report.attempt
    attempt("notices", api.set_enable_thread_notifications, db, False)
    attempt("breakpoints", api.remove_all_breakpoints, db, "*")
    if probe is not None:
        # A thread that changes the value again and again would stop again and again.
        attempt("watchpoints", probe.watchpoints.remove)
    attempt("functions", db.function_breakpoint_name_to_breakpoint.clear)
    attempt("exceptions", api.remove_all_exception_breakpoints, db)
    # A thread that is just inside pydevd's first event would begin to trace again.
    db.enable_tracing = lambda *args, **kwargs: None
    if probe is not None:
        attempt("retracing", probe.retracing.stop)
    report.stuck = _free_threads(db, probe, report, waiting)
    attempt("tracing", tracing.stop_everywhere, before.tracers)
    if probe is not None:
        attempt("probe", probe.remove)
    patches.restore(before, attempt)


def _free_threads(db, probe, report, waiting):
    """Resume suspended threads and end evaluations; returns how many threads could not be freed."""
    resume = sys.modules["_pydevd_bundle.pydevd_thread_lifecycle"].resume_threads
    pause = threading.Event().wait
    inside = []
    for turn in range(int(_OUT_SECONDS / _LOOK_SECONDS)):
        # In each turn, because a thread that was about to stop turns pydevd's events on again.
        report.attempt("silence", tracing.silence)
        for thread in list(threading._active.values()):
            info = getattr(thread, "additional_info", None)
            if info is not None and not is_debuggers(thread):
                info.pydev_step_cmd = info.pydev_original_step_cmd = -1
                info.pydev_step_stop = None
        report.attempt("resume", resume, "*")
        # Each waits for its own event, for 0.2 s at a time.
        for event in list(db._thread_events.values()):
            event.set()
        if turn % _INTERRUPT_EVERY == _INTERRUPT_EVERY // 2 and probe is not None:
            report.attempt("interrupt", probe.answers.interrupt)
        inside = [ident for ident in threads_inside() if ident not in waiting]
        if not inside:
            break
        pause(_LOOK_SECONDS)
    return len(inside)


@all_frames.steady
def threads_inside():
    """Idents of the program's threads that are inside the debugger just now."""
    ours = {t.ident for t in list(threading._active.values()) if is_debuggers(t)}
    ours.add(threading.get_ident())
    # The folder decides: a launched program's forked child has frames of similar names.
    pydevd = os.path.join(os.path.dirname(sys.modules["pydevd"].__file__), "")
    found = []
    for ident, frame in all_frames.of_all().items():
        while ident not in ours and frame is not None:
            code = frame.f_code
            # The start function of a traced thread is below all its other frames.
            if code.co_filename.startswith(pydevd) and code.co_name not in ("__call__", "attach"):
                found.append(ident)
                break
            frame = frame.f_back
    return found


def end_debugger(engine, sock, report, notify, last=None):
    """End the debugger's threads and its socket. Runs in a thread of our own.

    `notify` is called first and may still send; `last` is called when only the socket is left.
    """
    db = engine.db
    attempt = report.attempt
    if notify is not None:
        attempt("last message", notify)
        _until_sent(db)
    else:
        _shut(sock, socket.SHUT_RDWR)  # wakes a writer that waits in send()
    db.__dict__.pop("dispose_and_kill_all_pydevd_threads", None)
    # Otherwise pydevd would close it while the reader uses it, which would then never wake.
    db._client_socket = None
    if isinstance(getattr(db.writer, "sock", None), WholeMessages):
        db.writer.sock.is_kept_open = True  # its end must show that everything is done
    ours = [t for t in list(db.created_pydb_daemon_threads) if t is not threading.current_thread()]
    attempt("dispose", db.dispose_and_kill_all_pydevd_threads, False, 0.2)
    _shut(sock, socket.SHUT_RD)  # wakes the reader; the worker sees nothing yet
    for thread in ours:
        attempt("join", threading.Thread.join, thread, _JOIN_SECONDS)
    constants = sys.modules["_pydevd_bundle.pydevd_constants"]
    if constants.get_global_debugger() is db:
        constants.set_global_debugger(None)
    # Once more, for a thread that was inside pydevd's code the first time.
    attempt("tracing again", tracing.stop_everywhere)
    attempt("threads again", patches.restore_threads)
    attempt("streams again", patches.restore_streams)
    attempt("count", traced_count.set_right)
    if not threads_inside():
        for thread in list(threading._active.values()) + ours:
            attempt("thread", untie, thread)
            thread.__dict__.pop("additional_info", None)
    if last is not None:
        attempt("other debugger", last)
    _shut(sock, socket.SHUT_RDWR)
    sock.close()


def _until_sent(db):
    deadline = time.monotonic() + 0.5
    pause = threading.Event().wait
    while time.monotonic() < deadline and db.writer is not None and not db.writer.empty():
        pause(0.01)
    pause(0.05)  # the writer may have taken a message and not written it yet


def _shut(sock, how):
    try:
        sock.shutdown(how)
    except OSError:
        pass  # the other end has gone already
