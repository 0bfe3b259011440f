"""Reports the values that chosen functions return, in the thread that returns.

From 3.12 on a monitoring tool of our own does this, for the code of these functions only. Up to
3.11 pydevd passes returned values on only while it steps, so a thread that has reached such a
function gets a profile function, unless the program has one. It removes itself at the thread's
first call or return after the end.
"""

import dis
import sys

from debug_relay.worker.probe.engine import monitoring_tool
from debug_relay.worker.probe.engine.frames import GENERATOR, MONITORED

NAME = "relay returns"


class Returns(object):
    """Makes one watch after the other; at most one at a time."""

    def __init__(self, probe):
        self.probe = probe
        self.now = None

    def begin(self, report):
        """`report(frame, value)` is called for the functions that are watched from now on."""
        self.end()
        self.now = Monitored(report) if MONITORED else Profiled(report)
        return self.now

    def end(self):
        now, self.now = self.now, None
        if now is not None:
            now.end()


class Profiled(object):
    """Up to 3.11."""

    def __init__(self, report, began=None):
        """`began` is called with the frame of such a function where it begins, and where it ends by
        an exception.
        """
        self.report, self.began = report, began
        self.codes = {}  # id of a code object → the code object, which is held so
        self.function = self.event  # one object, to be found again

    def watch(self, frame):
        """Watch the function of this frame of the present thread."""
        code = frame.f_code
        if not code.co_flags & GENERATOR:
            self.codes[id(code)] = code
        if sys.getprofile() is None:
            sys.setprofile(self.function)

    def event(self, frame, event, value):
        codes = self.codes
        if codes is None:
            if sys.getprofile() is self.function:
                sys.setprofile(None)
        elif id(frame.f_code) not in codes:
            return
        elif event == "return" and has_returned(frame):
            self.report(frame, value)
        elif self.began is not None:
            self.began(frame)

    def end(self):
        self.codes = None
        if sys.getprofile() is self.function:
            sys.setprofile(None)


def has_returned(frame):
    """Whether the frame ends by `return`, and not by an exception."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return 0 <= at < len(code) and dis.opname[code[at]].startswith("RETURN")


class Monitored(object):
    """From 3.12 on."""

    def __init__(self, report):
        self.report = report
        self.codes = {}
        monitoring, tool = sys.monitoring, monitoring_tool.free()
        self.tool = tool
        if tool is not None:
            monitoring.use_tool_id(tool, NAME)
            monitoring.register_callback(tool, monitoring.events.PY_RETURN, self.event)

    def watch(self, frame):
        code = frame.f_code
        if self.tool is not None and self.codes is not None and id(code) not in self.codes:
            self.codes[id(code)] = code
            monitoring_tool.request(self.tool, code, sys.monitoring.events.PY_RETURN)

    def event(self, code, offset, value):
        if self.codes is not None:
            self.report(sys._getframe(1), value)

    def end(self):
        codes, self.codes = self.codes, None
        monitoring, tool = sys.monitoring, self.tool
        if tool is None or monitoring.get_tool(tool) != NAME:
            return
        for code in (codes or {}).values():
            monitoring.set_local_events(tool, code, 0)
        monitoring.register_callback(tool, monitoring.events.PY_RETURN, None)
        monitoring.free_tool_id(tool)
