"""The goal of a run to a line: not a breakpoint of the user, and removed when it is reached.

A breakpoint on the same line comes first: its condition and its count work as without the goal.
"""

import _thread
import os

from debug_relay.worker.probe.engine.watched_lines import TRAP

_getpid = os.getpid
NUMBER = 1 << 29  # The debugger's number for the goal; those of breakpoints are lower
ID = "goal_%d" % NUMBER
CONDITION = "'relay:%s'" % ID


class RunToLine(object):
    def __init__(self, probe):
        self.probe = probe
        self.wanted = None  # (the debugger's name of the file, line, ident of the only thread)
        self.place = None  # (file, line) of the trap
        self.lock = _thread.allocate_lock()
        probe.commands.update(goal=self.begin, no_goal=self.end)

    def begin(self, path, line, thread=None):
        """Set the goal; returns a reason if the debugger leaves that file out."""
        places = self.probe.points.watched_lines
        self.end()
        out = places.left_out([(ID, path)]).get(ID)
        if out is not None:
            return out
        found = self.probe.threads.found(thread) if thread is not None else None
        self.wanted = (path, line, found[1].ident if found else None)
        self.place = (path, line)
        places.trap(path, line, CONDITION)
        self.probe.engine.breakpoints_changed()
        return None

    def end(self):
        self.wanted, place = None, self.place
        if place is None:
            return False
        self.place = None
        places, traps = self.probe.points.watched_lines, self.probe.points.functions.places()
        places.keep_traps(traps)
        if place in traps:
            places.trap(place[0], place[1], TRAP)
        return True

    def hook(self):
        self.probe.engine.hooks.around("handle_breakpoint_condition", "run_to_line", self.deciding)

    def deciding(self, decide):
        this_thread = self.probe.this_thread

        def handle_breakpoint_condition(info, breakpoint, frame):
            wanted = self.wanted
            stops = decide(info, breakpoint, frame)
            if wanted is None or not self.reached(wanted, frame):
                return stops
            this_thread.frame, this_thread.hits = frame, (this_thread.hits if stops else []) + [ID]
            return True

        return handle_breakpoint_condition

    def reached(self, wanted, frame):
        """Whether this thread reaches the goal: once, and never in a forked child."""
        file, line, ident = wanted
        if frame.f_lineno != line or ident not in (None, _thread.get_ident()):
            return False
        if _getpid() != self.probe.pid or self.probe.engine.place_of(frame)[1] != file:
            return False
        with self.lock:
            if self.wanted is not wanted:
                return False
            self.wanted = None
        return True
