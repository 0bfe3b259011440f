"""Handles another debugger that is in the program, or has been there, before the relay's is loaded.

A session's attachment is under `_HELD` in pydevd's module: a list with one item.
"""

import os
import select
import socket
import sys
import threading

from debug_relay.worker.probe.engine import monitoring_tool, names
from debug_relay.worker.probe.engine.detaching import detach, patched_modules, tracing_off
from debug_relay.worker.probe.engine.engine import Engine
from debug_relay.worker.probe.engine.settrace import interpreter_threads, traced_thread_count
from debug_relay.worker.probe.engine.threads import lifetimes
from debug_relay.worker.probe.startup import switch_interval

_HELD = "_relay_held"
_RDHUP = 0x2000
_SHOWN = 5  # Missing names of a debugpy that a refusal lists.
_LOCK_LOOKS = 100  # Looks at whether a handshake that its client has left is over.
_LOCK_SECONDS = 0.05  # The pause between two of those looks.


class Refused(Exception):
    """Why the relay cannot attach; `reason` is one that `refusals` of the worker knows."""

    def __init__(self, reason, words):
        Exception.__init__(self, words)
        self.reason = reason


def refuse_taken_place():
    """Refuse if another debugger is in use: two debuggers would stop the same threads."""
    monitoring = getattr(sys, "monitoring", None)
    tool = monitoring.get_tool(monitoring.DEBUGGER_ID) if monitoring else None
    if tool not in (None, monitoring_tool.NAME):
        raise Refused("taken", tool)


def refuse_interpreters():
    """Refuse several interpreters: up to 3.11 debugpy's library finds threads only in the newest
    one.
    """
    if not tracing_off.monitors() and interpreter_threads.interpreters() > 1:
        raise Refused("interpreters", "%d.%d" % sys.version_info[:2])


def refuse_strange_debugger():
    """Refuse a debugpy of the program's own that the probe cannot use: there can be only one."""
    debugpy = sys.modules.get("debugpy")
    if debugpy is None:
        return
    version = getattr(debugpy, "__version__", "unknown")
    if not version.startswith("1.8."):
        raise Refused("strange", "debugpy %s from %s" % (version, debugpy.__file__))
    if "pydevd" in sys.modules:
        refuse_missing(names.missing())


def refuse_missing(gone):
    if gone:
        version = getattr(sys.modules["debugpy"], "__version__", "unknown")
        raise Refused("strange", "debugpy %s without %s" % (version, ", ".join(gone[:_SHOWN])))


def place_of_attachment():
    """The list with the present attachment, or None, as its one item. The first session
    makes it.
    """
    pydevd = sys.modules["pydevd"]
    held = vars(pydevd).get(_HELD)
    if held is None:
        held = vars(pydevd)[_HELD] = [None]

        def in_child():
            switch_interval.in_child()
            if held[0] is not None:
                held[0].in_child()

        # This hook cannot be removed; while no session is attached it does nothing.
        os.register_at_fork(after_in_child=in_child)
    return held


def attachment():
    """The present attachment, of this version of the relay or another."""
    held = vars(sys.modules.get("pydevd", object)).get(_HELD)
    return held[0] if held is not None else None


def clear_remains(before):
    """Undo what a debugger has left that did not clean up."""
    pydevd = sys.modules["pydevd"]
    db = pydevd.get_global_debugger()
    if db is None:
        tracing_off.silence()
        tracing_off.stop_everywhere()
        # Each thread that ended its tracing has counted down, and none had counted up.
        traced_thread_count.set_right()
    elif _is_connected(db):
        raise Refused("strangers", "another debugger is connected to it")
    else:
        _clear(pydevd, db, before)
    lifetimes.begin_anew()
    patched_modules.restore_processes()
    pydevd.SetupHolder.setup = None


def _is_connected(db):
    sock = getattr(getattr(db, "reader", None), "sock", None)
    return sock is not None and not db.pydb_disposed and has_other_end(sock)


def has_other_end(sock):
    try:
        sock.getpeername()
        poll = select.poll()
        poll.register(sock.fileno(), _RDHUP)
        return not poll.poll(0)
    except (OSError, ValueError):
        return False


def _clear(pydevd, db, before):
    if not db.ready_to_run:
        # Its client left before the handshake was over: a thread of the program waits in it.
        db.ready_to_run = True
        for _ in range(_LOCK_LOOKS):
            if pydevd._set_trace_lock.acquire(False):
                pydevd._set_trace_lock.release()
                break
            threading.Event().wait(_LOCK_SECONDS)
    engine, report = Engine(db, []), detach.Report()
    detach.free_program(engine, None, before, report)
    sock = getattr(getattr(db, "reader", None), "sock", None) or socket.socket()
    detach.end_debugger(engine, sock, report, None)
