"""Tells of each line that chosen code runs, and of its returns, in the thread that runs it.

From 3.12 on by a monitoring tool of our own: only code of the chosen lines has events, and all
other code costs one question, when it is called first. Before, pydevd looks at these lines as it
does at lines with breakpoints, and a thread that has come to one of them gets a profile function
for returns, unless the program has one.
"""

import sys
import threading

from debug_relay.worker.probe.engine import monitoring_tool
from debug_relay.worker.probe.engine.frames import MONITORED
from debug_relay.worker.probe.engine.returns import Profiled
from debug_relay.worker.probe.engine.threads import running_frames
from debug_relay.worker.probe.engine.watched_lines import FIRST_OBSERVED

CALLERS = 20  # Frames between a watched function and the watched line that has called it.
NAME = "relay watch"
OURS = "'relay:watch_"
FIRST = FIRST_OBSERVED + (1 << 28)  # pydevd's numbers for the lines; those of traces are lower


class WatchedCode(object):
    """`at_line(frame)`, `at_return(frame)` and `at_entry(frame)` are called in the thread that runs
    the code."""

    def __init__(self, probe, at_line, at_return, at_entry):
        self.probe = probe
        self.at_line, self.at_return, self.at_entry = at_line, at_return, at_entry
        self.lines = {}  # the debugger's name of a file → lines
        self.way = Monitoring(self) if MONITORED else Tracing(self)

    def change(self, lines):
        """Look at these lines of these files, and at no others."""
        self.lines = lines
        self.way.change()

    def refusal(self):
        """Why no line is looked at; None if all wanted ones are."""
        return self.way.refusal if self.lines else None

    def wants(self, code):
        """Whether some of the code's own lines are wanted."""
        files = self.lines
        if not files:
            return False
        wanted = files.get(self.probe.engine.canonical(code.co_filename))
        if not wanted:
            return False
        return any(line in wanted for _, _, line in code.co_lines() if line)

    def line_of(self, frame):
        """[path, line, function] of the watched line that this frame or one that called it runs;
        None if there is none.
        """
        for _ in range(CALLERS):
            if frame is None:
                return None
            code = frame.f_code
            if frame.f_lineno in self.lines.get(self.probe.engine.canonical(code.co_filename), ()):
                return [code.co_filename, frame.f_lineno, code.co_name]
            frame = frame.f_back
        return None

    def remove(self):
        self.lines = {}
        self.way.remove()


class Monitoring(object):
    """From 3.12 on."""

    def __init__(self, watched):
        self.watched = watched
        self.tool = self.refusal = None
        self.codes = {}  # id → code with events

    def change(self):
        monitoring = sys.monitoring
        self.forget_codes()
        if not self.watched.lines:
            self.remove()
            return
        if self.tool is None and not self.take():
            return
        events = monitoring.events
        monitoring.set_events(self.tool, events.PY_START | events.PY_RESUME)
        for frame in running_frames.of_all().values():
            while frame is not None:
                self.runs(frame.f_code)
                frame = frame.f_back
        monitoring.restart_events()

    def take(self):
        monitoring, events = sys.monitoring, sys.monitoring.events
        tool = self.tool = monitoring_tool.free()
        if tool is None:
            self.refusal = (
                "the numbers of sys.monitoring that it could use are taken: %s"
                % monitoring_tool.holders()
            )
            return False
        monitoring.use_tool_id(tool, NAME)
        monitoring.register_callback(tool, events.PY_START, self.begins)
        monitoring.register_callback(tool, events.PY_RESUME, self.begins)
        monitoring.register_callback(tool, events.LINE, self.line)
        monitoring.register_callback(tool, events.PY_RETURN, self.returns)
        self.refusal = None
        return True

    def begins(self, code, offset):
        """Called by Python once for each code that is not watched; its answer ends such calls for
        that code.
        """
        if not self.runs(code):
            return sys.monitoring.DISABLE
        self.watched.at_entry(sys._getframe(1))
        return None

    def runs(self, code):
        """Request the events of code that runs, if it is watched."""
        if id(code) in self.codes:
            return True
        if not self.watched.wants(code):
            return False
        events = sys.monitoring.events
        wanted = events.LINE | events.PY_RETURN | events.PY_START | events.PY_RESUME
        self.codes[id(code)] = code
        monitoring_tool.request(self.tool, code, wanted)
        return True

    def line(self, code, number):
        if number in self.watched.lines.get(self.file_of(code), ()):
            self.watched.at_line(sys._getframe(1))
            return None
        return sys.monitoring.DISABLE

    def returns(self, code, offset, value):
        self.watched.at_return(sys._getframe(1))

    def file_of(self, code):
        return self.watched.probe.engine.canonical(code.co_filename)

    def forget_codes(self):
        codes, self.codes = self.codes, {}
        for code in codes.values():
            monitoring_tool.request(self.tool, code, 0)

    def remove(self):
        self.forget_codes() if self.tool is not None else None
        tool, self.tool = self.tool, None
        monitoring = sys.monitoring
        if tool is None or monitoring.get_tool(tool) != NAME:
            return
        monitoring.set_events(tool, 0)
        events = monitoring.events
        for event in (events.PY_START, events.PY_RESUME, events.LINE, events.PY_RETURN):
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)


class Tracing(object):
    """Up to 3.11."""

    refusal = None

    def __init__(self, watched):
        self.watched = watched
        self.places = []
        self.profiled = None

    def change(self):
        watched = self.watched
        rows = [(file, line) for file, lines in watched.lines.items() for line in lines]
        gone, self.places = self.places, ["watch_%d" % (FIRST + at) for at in range(len(rows))]
        put = [(id, file, line) for id, (file, line) in zip(self.places, rows)]
        kept = set(self.places)
        watched.probe.points.watched_lines.change(put, [id for id in gone if id not in kept])
        if watched.lines and self.profiled is None:
            self.profiled = Profiled(
                lambda frame, value: watched.at_return(frame), watched.at_entry
            )
            watched.probe.engine.hooks.around(
                "handle_breakpoint_condition", "watchpoints", self.deciding
            )
        elif not watched.lines:
            self.remove_hook()

    def deciding(self, decide):
        watched = self.watched

        def handle_breakpoint_condition(info, breakpoint, frame):
            condition = breakpoint.condition
            ours = condition is not None and condition.startswith(OURS)
            stops = not ours and decide(info, breakpoint, frame)
            wanted = watched.lines.get(watched.probe.engine.place_of(frame)[1], ())
            if frame.f_lineno not in wanted:
                return stops
            if self.profiled is not None:
                self.profiled.watch(frame)
            return watched.at_line(frame, stops) or stops

        return handle_breakpoint_condition

    def remove_hook(self):
        profiled, self.profiled = self.profiled, None
        if profiled is not None:
            profiled.end()
            self.watched.probe.engine.hooks.drop("handle_breakpoint_condition", "watchpoints")

    def remove(self):
        self.remove_hook()


def stop_here(engine, frame):
    """Suspend this thread at this line; from 3.12 on, in a callback of our own tool."""
    thread = threading.current_thread()
    engine.suspend_at_breakpoint(thread)
    thread.additional_info.trace_suspend_type = "sys_monitor"
    engine.db.do_wait_suspend(thread, frame, "line", None)


def stop_soon(engine, frame):
    """Suspend this thread at its next line in a frame below this one (up to 3.11)."""
    thread = threading.current_thread()
    engine.suspend_at_breakpoint(thread)
    if frame.f_back is not None:
        engine.db.set_trace_for_frame_and_parents(thread.ident, frame.f_back)
