"""How a launched program gets its debugger; and, where that was asked for, its children theirs.

Children come by two ways. One that is forked has all of this in its memory, and no thread that
would serve it: it lets go of what it has inherited (`children`) and connects anew, before the
program's next line. One that is another Python is started by `bootstrap` instead of by its own
command line: `family` rewrites that on its way to the kernel.

A child waits for the relay, but not for ever: whoever gets no answer runs on without a debugger.
"""

import os
import socket
import sys
import threading
import time
from importlib.machinery import PathFinder

from debug_relay.worker.probe import probe as core
from debug_relay.worker.probe.children.child_debugging import Family
from debug_relay.worker.probe.engine import load as debugger
from debug_relay.worker.probe.lifecycle import process_title
from debug_relay.worker.probe.startup.eager_imports import Eager

_END_SECONDS = 0.5  # pydevd's threads have this long at the program's end, as in pydevd itself.
# A child waits this long for the worker: many that come at once are served side by side.
_SILENCE_SECONDS = 15.0
_LOOK_SECONDS = 0.002  # The pause between two looks at whether the handshake is over.


class NoAnswer(Exception):
    """The relay is gone, or too busy."""


class Launched(object):
    """One process of a launched program."""

    def __init__(self, setup, pydevd, bytecode, hidden):
        self.setup = setup
        self.pydevd = pydevd
        self.bytecode = bytecode
        self.hidden = hidden
        # Where it is off, as where this debugpy lacks a name, the worker does with plain DAP.
        self.wanted = os.environ.pop("DEBUG_RELAY_PROBE", "on") != "off"
        self.probe = None
        self.family = Family(self) if setup["debug_subprocesses"] else None

    def connect(self, waits=False):
        """The probe of this process. With `waits` it fails in the end instead of waiting on, and
        the process is as without a debugger then."""

        ear = _Ear()

        def prepare(db, sock, gone):
            if gone and waits:
                raise NoAnswer  # what bounds the wait may be among them
            self.probe = core.start(db, self.wanted, gone)
            if gone:
                return
            _end_at_once(db, sock)
            if waits:
                db._dap_messages_listeners.append(ear)
                db.wait_for_ready_to_run = lambda: _wait_for_answer(db, ear)

        self.bytecode.watch(os.path.join(self.setup["debugpy_parent"], "debugpy"))
        try:
            with Eager():
                debugger.connect(
                    self.pydevd,
                    prepare,
                    self.setup,
                    hidden=self.hidden,
                    patch_multiprocessing=False,
                )
        except Exception:
            self.give_up()
            raise
        finally:
            self.bytecode.leave()
        db = self.probe.engine.db
        if waits:
            del db.wait_for_ready_to_run
            db._dap_messages_listeners.remove(ear)
        if self.probe.engine.gone:
            self.tell_missing()
        if self.family is None:
            self.probe.children.watch()
        else:
            self.family.joined(self.probe)
        return self.probe

    def tell_missing(self):
        try:
            self.probe.engine.tell_missing()
        except AttributeError:
            pass  # what would tell is missing too

    def show(self, wanted_of):
        """The program's own command line. Not before `connect`: until then the relay reads from
        ours which program this is. Who sets titles himself finds the place by the words in it."""
        if PathFinder.find_spec("setproctitle") is None:
            process_title.show(wanted_of)

    def give_up(self):
        probe, self.probe = self.probe, None
        if probe is None:
            # Nobody listens any more: pydevd has made its debugger and nothing else.
            sys.modules["_pydevd_bundle.pydevd_constants"].set_global_debugger(None)
            return
        _shut(probe.engine.db)
        probe.children.let_go()


def _shut(db):
    """Its reader wakes, and ends."""
    try:
        db._client_socket.shutdown(socket.SHUT_RDWR)
    except (AttributeError, OSError):
        pass  # the other end has gone already


class _Ear(object):
    """When the relay was last heard."""

    def __init__(self):
        self.heard = time.monotonic()

    def before_send(self, message):
        """pydevd asks its listeners before it sends and after it has received."""

    def after_receive(self, message):
        self.heard = time.monotonic()


def _wait_for_answer(db, ear):
    """In place of pydevd's own, which has no end."""
    while not db.ready_to_run:
        if db.pydb_disposed or time.monotonic() - ear.heard > _SILENCE_SECONDS:
            raise NoAnswer
        db.process_internal_commands()
        db._py_db_command_thread_event.clear()
        db._py_db_command_thread_event.wait(_LOOK_SECONDS)


def _end_at_once(db, sock):
    """Left alone, pydevd holds an ended program for 0.5 s: its reader sits in recv()."""
    dispose = db.dispose_and_kill_all_pydevd_threads
    ending = threading.Lock()

    def end(wait=True, timeout=_END_SECONDS):
        """By the program's main thread; up to 3.11 as well by the debugger's that works off what is
        posted, once it sees the main thread ended; and by the reader when the connection ends."""
        current = threading.current_thread()
        if not sock.is_own() or current is db.reader:
            wait, timeout = False, 0  # nobody hears what is left to tell
        is_debuggers = current in db.created_pydb_daemon_threads
        if wait and ending.acquire(True, 0 if is_debuggers else timeout):
            try:
                _finish_threads(db, sock, current, time.monotonic() + timeout)
            finally:
                ending.release()
        elif wait and is_debuggers:
            return  # who is at it waits for this one
        try:
            dispose(wait, timeout)
        except OSError:
            pass  # the program has closed every descriptor, this connection's too

    db.dispose_and_kill_all_pydevd_threads = end


def _finish_threads(db, sock, current, deadline):
    others = [t for t in list(db.created_pydb_daemon_threads) if t not in (current, db.reader)]
    # The writer ends when all that was to be told is sent, this last: only then is the reader
    # freed. Killed like the rest, it could end without while it looks for something to send.
    db.writer.add_command(db.cmd_factory.make_exit_command(db))
    for thread in others:
        if thread is not db.writer:
            thread.do_kill_pydev_thread()
    for thread in others:
        thread.join(max(0, deadline - time.monotonic()))
    db.reader.do_kill_pydev_thread()
    try:
        sock.shutdown(socket.SHUT_RD)
    except OSError:
        pass  # the peer has closed, which frees the reader as well
    db.reader.join(max(0, deadline - time.monotonic()))
