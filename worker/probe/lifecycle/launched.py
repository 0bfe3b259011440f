"""Connects a launched program to its debugger, and its child processes if the launch asks for that.

A child connects in one of two ways. A forked child has all of this in its memory, but none of the
threads that serve the debugger: it drops what it has inherited (`child_processes`) and connects
anew, before the program's next line. A child that is another Python process is started by
`bootstrap` instead of by its own command line, which `child_debugging` rewrites on its way to the
kernel.

A child waits for the relay for a bounded time: without an answer it runs on without a debugger.
"""

import os
import sys
from importlib.machinery import PathFinder

from debug_relay.worker.probe import probe as core
from debug_relay.worker.probe.children.child_debugging import ChildDebugging
from debug_relay.worker.probe.engine.connection import program_end
from debug_relay.worker.probe.engine.connection.connect import NoDebugger, connect
from debug_relay.worker.probe.engine.connection.handshake import Handshake, NoAnswer
from debug_relay.worker.probe.engine.loading import load as debugger
from debug_relay.worker.probe.lifecycle import process_title
from debug_relay.worker.probe.startup.eager_imports import Eager


class Launched(object):
    """One process of a launched program."""

    def __init__(self, setup, bytecode, hidden):
        self.setup = setup
        self.bytecode = bytecode
        self.hidden = hidden
        # If it is off, or the debugger lacks a name, the worker uses plain DAP.
        self.wanted = os.environ.pop("DEBUG_RELAY_PROBE", "on") != "off"
        self.probe = None
        self.family = ChildDebugging(self) if setup["debug_subprocesses"] else None

    def connect(self, waits=False):
        """Connect; returns the probe of this process. With `waits` it gives up after a bounded
        time, and the process then runs as without a debugger.
        """
        handshake = []

        def prepare(engine, sock):
            if engine.gone and waits:
                raise NoAnswer  # the names with which we bound the wait may be lacking
            self.probe = core.start(engine, self.wanted)
            if engine.gone:
                return
            program_end.end_at_once(engine, sock)
            if waits:
                handshake.append(Handshake(engine))

        debugger.keep_bytecode(self.setup["debugger_parent"], self.bytecode)
        try:
            with Eager():
                connect(prepare, self.setup, hidden=self.hidden, patch_multiprocessing=False)
        except NoDebugger as error:
            if waits:
                raise
            sys.exit(str(error).strip())  # before the program's first line: the launch fails
        except Exception:
            self.give_up()
            raise
        finally:
            self.bytecode.leave()
        for begun in handshake:
            begun.end()
        if self.family is None:
            self.probe.children.watch()
        else:
            self.family.joined(self.probe)
        return self.probe

    def show(self, wanted_of):
        """Show the program's own command line.

        Called after `connect`: until then the relay recognises this process by our command line. A
        program with `setproctitle` keeps this title, because that library finds the place of the
        title by the words there.
        """
        if PathFinder.find_spec("setproctitle") is None:
            process_title.show(wanted_of)

    def give_up(self):
        probe, self.probe = self.probe, None
        if probe is None:
            debugger.forget()  # the worker has stopped listening
            return
        program_end.shut(probe.engine)
        probe.children.detach()
