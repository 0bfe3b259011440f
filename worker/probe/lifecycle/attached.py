"""The relay inside a program that it did not start: how it comes, watches, and goes.

All is done by threads of our own; the program's thread that the injection has interrupted only
starts the first. A watch thread sees the relay's end of the connection close or fall silent and
then lets go by itself, whatever has become of the relay. What stays in the program is pydevd,
imported and idle, and in it, under `_HELD`, a list with one place: who is attached now.
"""

import _thread
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading

from debug_relay.worker.probe import probe as core
from debug_relay.worker.probe.children import fork_warnings as forks
from debug_relay.worker.probe.engine import load as debugger
from debug_relay.worker.probe.engine import monitoring_tool as own_tool
from debug_relay.worker.probe.engine import names
from debug_relay.worker.probe.engine import other_copy as other_debugpy
from debug_relay.worker.probe.engine import restore as patches
from debug_relay.worker.probe.engine import tracing_off as tracing
from debug_relay.worker.probe.engine.settrace import interpreter_threads as thread_states
from debug_relay.worker.probe.engine.settrace import program_tracers as set_aside
from debug_relay.worker.probe.engine.settrace import traced_thread_count as traced_count
from debug_relay.worker.probe.engine.threads import lifetimes
from debug_relay.worker.probe.engine.threads import running_frames as all_frames
from debug_relay.worker.probe.inspection.evaluation import Interrupted, begun
from debug_relay.worker.probe.lifecycle import detach as leaving
from debug_relay.worker.probe.startup import switch_interval as pace

_HELD = "_relay_held"
_RDHUP = 0x2000
_TICK = 0.25  # Seconds between two looks at whether the worker still speaks.
_SOON = 0.02  # Seconds between two looks at whether the handshake is over.
_HANDSHAKE_LOOKS = 500  # Looks at whether the handshake is over.
_GONE_SECONDS = 10.0  # A new attachment waits this long for a former one that is leaving.
_EXIT_SECONDS = 3.0  # A program that exits waits this long for the debugger to leave.
_SHOWN = 5  # Missing names of a debugpy that a refusal lists.
_TALKS_SECONDS = 5.0  # A worker that was heard within this time counts as alive.


class Refused(Exception):
    """Why the relay cannot come in; `reason` is a word that the worker knows."""

    def __init__(self, reason, words):
        Exception.__init__(self, words)
        self.reason = reason


def arrive(setup, bytecode, imported):
    """Attach; runs in a thread of its own, of which one at a time is here. Raises what goes wrong,
    and has undone all then. `imported` is called when all that is imported is there."""
    _refuse_free_threads()
    _refuse_taken_place()
    _refuse_forbidden_tracing()
    former = _former()
    if former is not None:
        if former.setup["token"] == setup["token"]:
            return  # brought twice
        _end(former)
    bytecode.watch(os.path.join(setup["debugpy_parent"], "debugpy"))
    before = patches.Before()
    bring_back = other_debugpy.set_aside(setup["debugpy_parent"])
    try:
        _refuse_strange_debugger(sys.modules.get("debugpy"))
        pydevd = debugger.bring_in(setup["debugpy_parent"])
        _refuse_strange_debugger(sys.modules["debugpy"])
        imported()
        _refuse_interpreters()
        held = _held(pydevd)
        before.tracers = set_aside.tracers()
        _clear_remains(pydevd, before)
        before.look_again()
        before.make_room()
        attachment = Attachment(held, before, setup, bring_back)
        bring_back = None  # from here on it is the attachment's to do
        attachment.begin(pydevd)
    finally:
        bytecode.leave()
        if bring_back is not None:
            bring_back()


def _refuse_free_threads():
    """Where its files have not told so before."""
    if "t" in sys.abiflags:
        raise Refused("free-threaded", "%d.%d" % sys.version_info[:2])


def _refuse_taken_place():
    """Another debugger is at work: somebody steps there, and two would stop the same threads."""
    monitoring = getattr(sys, "monitoring", None)
    tool = monitoring.get_tool(monitoring.DEBUGGER_ID) if monitoring else None
    if tool not in (None, own_tool.NAME):
        raise Refused("taken", tool)


def _refuse_interpreters():
    """Up to 3.11 threads are traced from outside by what looks for them in the newest one only."""
    if not tracing.monitors() and thread_states.interpreters() > 1:
        raise Refused("interpreters", "%d.%d" % sys.version_info[:2])


def _refuse_forbidden_tracing():
    """By an audit hook of the program's: up to 3.9 Python just prints so, at every try."""
    if not hasattr(sys, "monitoring"):
        sys.audit("sys.settrace")


def _refuse_strange_debugger(debugpy):
    """The program may have brought its own: there can be just one in it."""
    if debugpy is None:
        return
    version = getattr(debugpy, "__version__", "unknown")
    if not version.startswith("1.8."):
        raise Refused("strange", "debugpy %s from %s" % (version, debugpy.__file__))
    if "pydevd" in sys.modules:
        _refuse_missing(names.missing())


def _refuse_missing(gone):
    if gone:
        version = getattr(sys.modules["debugpy"], "__version__", "unknown")
        raise Refused("strange", "debugpy %s without %s" % (version, ", ".join(gone[:_SHOWN])))


def _held(pydevd):
    held = vars(pydevd).get(_HELD)
    if held is None:
        held = vars(pydevd)[_HELD] = [None]

        def in_child():
            pace.in_child()
            if held[0] is not None:
                held[0].in_child()

        # It cannot be taken back; with nobody attached it does nothing.
        os.register_at_fork(after_in_child=in_child)
    return held


def _former():
    held = vars(sys.modules.get("pydevd", object)).get(_HELD)
    return held[0] if held is not None else None


def _end(former):
    """Who is there is left in peace, who is gone is waited for: what he does last, as to bring the
    program's own debugpy back, would be done to us."""
    if former.talks():
        raise Refused("busy", former.setup["session"])
    former.leave("replaced")
    former.thread.join(_GONE_SECONDS)


def _clear_remains(pydevd, before):
    """Of somebody who went without clearing away."""
    db = pydevd.get_global_debugger()
    if db is None:
        tracing.silence()
        tracing.stop_everywhere()
        # Each thread that ends its tracing counts down for what was never counted up.
        traced_count.set_right()
    elif _is_connected(db):
        raise Refused("strangers", "another debugger is connected to it")
    else:
        _clear(pydevd, db, before)
    lifetimes.begin_anew()
    patches.restore_processes()
    pydevd.SetupHolder.setup = None


def _is_connected(db):
    sock = getattr(getattr(db, "reader", None), "sock", None)
    return sock is not None and not db.pydb_disposed and _has_other_end(sock)


def _has_other_end(sock):
    try:
        sock.getpeername()
        poll = select.poll()
        poll.register(sock.fileno(), _RDHUP)
        return not poll.poll(0)
    except (OSError, ValueError):
        return False


def _clear(pydevd, db, before):
    if not db.ready_to_run:
        # Its client went before the handshake was over: the program's thread waits in there.
        db.ready_to_run = True
        for _ in range(100):
            if pydevd._set_trace_lock.acquire(False):
                pydevd._set_trace_lock.release()
                break
            threading.Event().wait(0.05)
    report = leaving.Report()
    leaving.free_program(db, None, before, report)
    sock = getattr(getattr(db, "reader", None), "sock", None) or socket.socket()
    leaving.end_debugger(db, sock, report, None)


class Attachment(object):
    """One session's stay in the program."""

    def __init__(self, held, before, setup, bring_back):
        self.held = held
        self.before = before
        self.bring_back = bring_back  # the program's own debugpy, if it has one
        self.setup = setup
        self.pid = os.getpid()
        self.db = self.sock = self.probe = None
        self.reason = None  # why to go
        self.waiting = set()  # idents of threads that wait for the end of it
        self.heard = 0
        self.quiet = 0  # ticks since something was heard
        self.thread = threading.Thread(target=self.watch, name="debug relay")
        mark(self.thread)

    # -- coming

    def begin(self, pydevd):
        self.held[0] = self
        try:
            debugger.connect(
                pydevd,
                self.prepare,
                self.setup,
                patch_multiprocessing=False,
                wait_for_ready_to_run=False,
            )
            self.install_breakpointhook(pydevd)
            set_aside.tell(self.probe, self.before.tracers)
        except BaseException:
            self.leave("failed")
            if self.db is None:
                # Nobody listens any more: pydevd has made its debugger and nothing else.
                self.held[0] = None
                sys.modules["_pydevd_bundle.pydevd_constants"].set_global_debugger(None)
                patches.restore(self.before, leaving.Report().attempt)
                self.bring_back()
            elif self.thread.ident is None:
                self.go()  # there is no watch thread that would
            raise

    def prepare(self, db, sock, gone):
        """Before anybody reads the socket: its end is never missed."""
        _refuse_missing(gone)
        self.db, self.sock = db, sock
        db.dispose_and_kill_all_pydevd_threads = self.disposed
        db._dap_messages_listeners.append(self)
        self.probe = core.start(db, True, gone)
        self.probe.started = True
        self.probe.commands["leave"] = self.asked
        self.probe.children.tell_starts()
        self.track_commands()
        self.untrace_threads()
        self.thread.start()

    def untrace_threads(self):
        """pydevd's own, which the program's `threading.setprofile` means as little as ours."""
        daemon = sys.modules["_pydevd_bundle.pydevd_daemon_thread"].PyDBDaemonThread
        stop = daemon._stop_trace

        def stop_trace(thread):
            stop(thread)
            tracing.be_untraced()

        self.probe.engine.hooks.swap(daemon, "_stop_trace", stop_trace)

    def install_breakpointhook(self, pydevd):
        ours = sys.modules["debugpy._vendored.force_pydevd"].debugpy_breakpointhook
        if sys.breakpointhook is not ours:
            pydevd.install_breakpointhook(ours)

    def before_send(self, message):
        """pydevd asks its listeners before it sends and after it has received."""

    def after_receive(self, message):
        self.heard += 1

    def talks(self):
        if self.reason is not None or self.quiet * _TICK >= _TALKS_SECONDS:
            return False
        return self.sock is None or _has_other_end(self.sock)

    # -- watching

    def watch(self):
        tracing.be_untraced()
        poll = select.poll()
        poll.register(self.sock.fileno(), _RDHUP | select.POLLHUP | select.POLLERR)
        self.hurry(poll)
        seen = None
        while self.reason is None:
            # Counted in ticks of this thread and not by a clock: a program that was stopped, or
            # held the interpreter for a minute, is not taken for a silent relay.
            if poll.poll(_TICK * 1000) or not self.sock.is_own():
                self.leave("closed")
                break
            now = self.heard, self.unread()
            self.quiet = self.quiet + 1 if now == seen else 0
            seen = now
            if self.quiet * _TICK >= self.setup["silence"]:
                self.leave("silent")
        with pace.Pace():
            self.go()

    def hurry(self, poll):
        """Until the handshake is over."""
        with pace.Pace():
            for _ in range(_HANDSHAKE_LOOKS):
                if self.db.ready_to_run or self.reason is not None or poll.poll(_SOON * 1000):
                    break

    def unread(self):
        """What pydevd has no time to read is life as well."""
        try:
            return struct.unpack("i", fcntl.ioctl(self.sock.fileno(), termios.FIONREAD, b"\0" * 4))
        except (OSError, ValueError):
            return None

    def leave(self, reason):
        if self.reason is None:
            self.reason = reason

    def asked(self):
        """The relay's wish: answered at once, done by the watch thread."""
        self.leave("asked")
        return True

    def disposed(self, wait=True, timeout=None):
        """pydevd calls this at the end of the connection, and of the program."""
        self.leave("disposed")
        current = threading.current_thread()
        if wait and current is not self.thread and not tracing.is_debuggers(current):
            self.waiting.add(current.ident)
            try:
                self.sock.shutdown(socket.SHUT_RD)  # wakes the watch
            except OSError:
                pass
            self.thread.join(_EXIT_SECONDS)

    # -- going

    def go(self):
        report = leaving.Report()
        try:
            leaving.free_program(self.db, self.probe, self.before, report, self.waiting)
        finally:
            tell = None
            if self.reason == "asked":
                words = report.words(self.reason)
                tell = lambda: self.probe.emit("relayLeft", words)  # noqa: E731
            elif self.reason == "disposed":  # at the program's end, which may take its time
                tell = lambda: self.probe.emit("relayEnding", {})  # noqa: E731
            if self in self.db._dap_messages_listeners:
                self.db._dap_messages_listeners.remove(self)
            try:
                leaving.end_debugger(self.db, self.sock, report, tell, self.bring_back)
            finally:
                if self.probe is not None:
                    del self.probe.rearming.others[:]
                # Not before: the next one waits for us; what we do last would be done to him.
                self.held[0] = None

    def in_child(self):
        """After fork(), in the child, in the only thread there is; takes no lock of another."""
        self.held[0] = None
        self.reason = "fork"
        report = leaving.Report()
        if self.probe is None:  # the thread that was bringing it is not here
            report.attempt("collector", all_frames.in_child)
            report.attempt("tracing", tracing.stop_in_child)
            constants = sys.modules["_pydevd_bundle.pydevd_constants"]
            report.attempt("debugger", constants.set_global_debugger, None)
        else:
            self.probe.children.let_go()
        patches.restore(self.before, report.attempt)
        self.bring_back()

    # -- interrupting what pydevd does for us in the program's threads

    def track_commands(self):
        comm = sys.modules["_pydevd_bundle.pydevd_comm"]
        command = comm.InternalThreadCommand
        original = command.do_it
        self.probe.engine.hooks.swap(command, "do_it", tracked(self.probe.answers, original))


def tracked(answers, original):
    def do_it(self, db):
        thread = threading.current_thread()
        if tracing.is_debuggers(thread):
            return original(self, db)
        ident = _thread.get_ident()
        token = answers.running[ident] = begun(0)
        woken = thread is threading.main_thread() and _can_be_woken()
        try:
            return original(self, db)
        except Interrupted:
            return None
        finally:
            answers.settle(ident, token)
            if woken:
                signal.signal(signal.SIGURG, signal.SIG_DFL)

    return do_it


def _can_be_woken():
    """While it evaluates for us, the main thread's sleeps end by a signal without any effect."""
    if signal.getsignal(signal.SIGURG) is not signal.SIG_DFL:
        return False
    signal.signal(signal.SIGURG, lambda number, frame: None)
    return True


def mark(thread):
    """One of the debugger's: hidden, not traced, not waited for."""
    thread.daemon = thread.is_pydev_daemon_thread = thread.pydev_do_not_trace = True
    forks.mark(thread)
