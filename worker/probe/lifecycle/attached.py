"""Attaches inside a program that the relay did not start, watches the connection, and detaches.

Threads of our own do all of this; the program's thread that the injection has interrupted only
starts the first of them. A watch thread notices when the relay's end of the connection closes or
falls silent. It then detaches by itself, whatever has become of the relay. After a detach the
debugger stays in the program, imported and idle, and in it a list with one item: the present
attachment (`engine.loading.earlier_debugger`).
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
from debug_relay.worker.probe.engine.connection.connect import connect
from debug_relay.worker.probe.engine.detaching import detach, patched_modules
from debug_relay.worker.probe.engine.detaching import tracing_off as tracing
from debug_relay.worker.probe.engine.engine import mark_debuggers_thread
from debug_relay.worker.probe.engine.loading import earlier_debugger as earlier
from debug_relay.worker.probe.engine.loading import load as debugger
from debug_relay.worker.probe.engine.loading import programs_own_copy
from debug_relay.worker.probe.engine.loading.earlier_debugger import Refused, has_other_end
from debug_relay.worker.probe.engine.settrace import program_tracers
from debug_relay.worker.probe.engine.threads import running_frames
from debug_relay.worker.probe.inspection.evaluation import Interrupted, begun
from debug_relay.worker.probe.startup import switch_interval as pace

_RDHUP = 0x2000
_TICK_SECONDS = 0.25  # The pause between two looks at whether the worker still sends.
_SOON_SECONDS = 0.02  # The pause between two looks at whether the handshake is over.
_HANDSHAKE_LOOKS = 500  # Looks at whether the handshake is over.
_GONE_SECONDS = 10.0  # A new attachment waits this long for a former one that is leaving.
_EXIT_SECONDS = 3.0  # A program that exits waits this long for the debugger to leave.
_TALKS_SECONDS = 5.0  # A worker that was heard within this time counts as alive.


def attach(setup, bytecode, imported):
    """Attach. If that fails, undo everything and raise the reason.

    Runs in a thread of our own; only one thread at a time runs it. `imported` is called when all
    imports are done.
    """
    _refuse_free_threads()
    earlier.refuse_taken_place()
    _refuse_forbidden_tracing()
    former = earlier.attachment()
    if former is not None:
        if former.setup["token"] == setup["token"]:
            return  # the payload was run twice
        _end(former)
    before = patched_modules.OriginalState()
    restore_own_copy = programs_own_copy.set_aside(setup["debugger_parent"])
    try:
        earlier.refuse_strange_debugger()
        debugger.import_debugger(setup["debugger_parent"], bytecode)
        earlier.refuse_strange_debugger()
        imported()
        earlier.refuse_interpreters()
        held = earlier.place_of_attachment()
        before.tracers = program_tracers.tracers()
        earlier.clear_remains(before)
        before.look_again()
        before.make_room()
        attachment = Attachment(held, before, setup, restore_own_copy)
        restore_own_copy = None  # from here on the attachment does it
        attachment.begin()
    finally:
        bytecode.leave()
        if restore_own_copy is not None:
            restore_own_copy()


def _refuse_free_threads():
    """Refuse an interpreter without the lock; the worker could not see that from its files."""
    if "t" in sys.abiflags:
        raise Refused("free-threaded", "%d.%d" % sys.version_info[:2])


def _refuse_forbidden_tracing():
    """Raise if an audit hook of the program forbids tracing. Up to 3.9 `sys.settrace` itself only
    prints the hook's error, at every call.
    """
    if not hasattr(sys, "monitoring"):
        sys.audit("sys.settrace")


def _end(former):
    """Refuse if the former attachment is in use; else wait until it has left.

    Its last steps, such as putting the program's own copy of the debugger back, would undo this
    attachment's.
    """
    if former.talks():
        raise Refused("busy", former.setup["session"])
    former.leave("replaced")
    former.thread.join(_GONE_SECONDS)


class Attachment(object):
    """One session in the program, from its attach to its detach."""

    def __init__(self, held, before, setup, restore_own_copy):
        self.held = held
        self.before = before
        self.restore_own_copy = restore_own_copy  # a copy of the debugger
        self.setup = setup
        self.pid = os.getpid()
        self.engine = self.sock = self.probe = None
        self.reason = None  # why it detaches
        self.waiting = set()  # idents of threads that wait for the end of the detach
        self.heard = 0
        self.quiet = 0  # ticks since the last message
        self.thread = threading.Thread(target=self.watch, name="debug relay")
        mark(self.thread)

    # -- attaching

    def begin(self):
        self.held[0] = self
        try:
            connect(
                self.prepare, self.setup, patch_multiprocessing=False, wait_for_ready_to_run=False
            )
            debugger.install_breakpointhook()
            program_tracers.report(self.probe, self.before.tracers)
        except BaseException:
            self.leave("failed")
            if self.engine is None:
                # The worker has stopped listening.
                self.held[0] = None
                debugger.forget()
                patched_modules.restore(self.before, detach.Report().attempt)
                self.restore_own_copy()
            elif self.thread.ident is None:
                self.detach()  # no watch thread runs that would do it
            raise

    def prepare(self, engine, sock):
        """Called before any thread reads the socket, so that we never miss its end."""
        earlier.refuse_missing(engine.gone)
        self.engine, self.sock = engine, sock
        engine.on_end(self.disposed)
        engine.listen(self)
        self.probe = core.start(engine, True)
        self.probe.started = True
        self.probe.commands["leave"] = self.leave_on_request
        self.probe.children.report_starts()
        engine.around_commands(lambda original: tracked(self.probe.answers, original))
        # The program's `threading.setprofile` must not profile the debugger's threads or the
        # probe's.
        engine.on_thread_start(tracing.be_untraced)
        self.thread.start()

    def before_send(self, message):
        """The debugger calls this before it sends; `after_receive` after it has received."""

    def after_receive(self, message):
        self.heard += 1

    def talks(self):
        if self.reason is not None or self.quiet * _TICK_SECONDS >= _TALKS_SECONDS:
            return False
        return self.sock is None or has_other_end(self.sock)

    # -- watching

    def watch(self):
        tracing.be_untraced()
        poll = select.poll()
        poll.register(self.sock.fileno(), _RDHUP | select.POLLHUP | select.POLLERR)
        self.hurry(poll)
        seen = None
        while self.reason is None:
            # Silence is counted in ticks of this thread, not by a clock: a program that was
            # stopped, or held the interpreter for a minute, must not make the relay seem silent.
            if poll.poll(_TICK_SECONDS * 1000) or not self.sock.is_own():
                self.leave("closed")
                break
            now = self.heard, self.unread()
            self.quiet = self.quiet + 1 if now == seen else 0
            seen = now
            if self.quiet * _TICK_SECONDS >= self.setup["silence"]:
                self.leave("silent")
        with pace.Pace():
            self.detach()

    def hurry(self, poll):
        """Keep the short switch interval until the handshake is over."""
        with pace.Pace():
            for _ in range(_HANDSHAKE_LOOKS):
                if self.engine.is_ready() or self.reason is not None:
                    break
                if poll.poll(_SOON_SECONDS * 1000):
                    break

    def unread(self):
        """How many bytes the debugger has not read yet: if it is busy, the relay is not silent."""
        try:
            return struct.unpack("i", fcntl.ioctl(self.sock.fileno(), termios.FIONREAD, b"\0" * 4))
        except (OSError, ValueError):
            return None

    def leave(self, reason):
        if self.reason is None:
            self.reason = reason

    def leave_on_request(self):
        """The worker requests a detach. The reply is sent at once; the watch thread detaches."""
        self.leave("asked")
        return True

    def disposed(self, wait=True, timeout=None):
        """The debugger calls this at the end of the connection, and of the program."""
        self.leave("disposed")
        current = threading.current_thread()
        if wait and current is not self.thread and not tracing.is_debuggers(current):
            self.waiting.add(current.ident)
            try:
                self.sock.shutdown(socket.SHUT_RD)  # wakes the watch thread
            except OSError:
                pass  # it is closed already
            self.thread.join(_EXIT_SECONDS)

    # -- detaching

    def detach(self):
        report = detach.Report()
        try:
            detach.free_program(self.engine, self.probe, self.before, report, self.waiting)
        finally:
            notify = None
            if self.reason == "asked":
                words = report.words(self.reason)
                notify = lambda: self.probe.emit("relayLeft", words)  # noqa: E731
            elif self.reason == "disposed":  # at the program's end, which may take long
                notify = lambda: self.probe.emit("relayEnding", {})  # noqa: E731
            self.engine.unlisten(self)
            try:
                detach.end_debugger(self.engine, self.sock, report, notify, self.restore_own_copy)
            finally:
                if self.probe is not None:
                    del self.probe.retracing.others[:]
                # Last, because the next attachment waits for this: our last steps would undo its
                # first ones.
                self.held[0] = None

    def in_child(self):
        """Run in the child after fork(), in its only thread. Takes no lock that another thread of
        the parent may have held.
        """
        self.held[0] = None
        self.reason = "fork"
        report = detach.Report()
        if self.probe is None:  # the thread that was loading it does not exist in the child
            report.attempt("collector", running_frames.in_child)
            report.attempt("tracing", tracing.stop_in_child)
            report.attempt("debugger", debugger.forget)
        else:
            self.probe.children.detach()
        patched_modules.restore(self.before, report.attempt)
        self.restore_own_copy()


def tracked(answers, original):
    """Wrap a command that the debugger runs in one of the program's threads, so that it can be
    interrupted.
    """

    def do_it(*arguments):
        thread = threading.current_thread()
        if tracing.is_debuggers(thread):
            return original(*arguments)
        ident = _thread.get_ident()
        token = answers.running[ident] = begun(0)
        woken = thread is threading.main_thread() and _can_be_woken()
        try:
            return original(*arguments)
        except Interrupted:
            return None
        finally:
            answers.settle(ident, token)
            if woken:
                signal.signal(signal.SIGURG, signal.SIG_DFL)

    return do_it


def _can_be_woken():
    """Whether the main thread's sleeps can be ended by a signal without any other effect, while it
    evaluates for us.
    """
    if signal.getsignal(signal.SIGURG) is not signal.SIG_DFL:
        return False
    signal.signal(signal.SIGURG, lambda number, frame: None)
    return True


def mark(thread):
    """Hide a thread of the probe's as the debugger's are: not traced, not waited for."""
    mark_debuggers_thread(thread)
    forks.mark(thread)
