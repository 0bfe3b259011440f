"""What a breakpoint does when it is hit: is it on, is it true, is it this time's turn.

Runs in the program: Python 3.8 to 3.14, standard library only. See `core`.
"""

import _thread
import itertools
import os
import sys
import time

from debug_relay.worker.probe.expressions import Expression, Template

_getpid = os.getpid
LOG_RATE = 100.0  # lines a second that one log point writes at most, after a burst
LOG_BURST = 200.0
TEXT_LIMIT = 65536


COMPARE = {
    "==": lambda n, k: n == k,
    "!=": lambda n, k: n != k,
    ">=": lambda n, k: n >= k,
    ">": lambda n, k: n > k,
    "<=": lambda n, k: n <= k,
    "<": lambda n, k: n < k,
    "%": lambda n, k: n % k == 0,
}


class Point(object):
    """What one breakpoint does at a hit: is it on, is it true, is it this time's turn."""

    def __init__(self, probe, spec):
        self.probe = probe
        self.id = spec["id"]
        # One C call, so that threads that hit at once are all counted.
        self.count = itertools.count(1).__next__
        self.hits = 0
        self.configure(spec)

    def configure(self, spec):
        self.enabled = spec.get("enabled", True)
        condition = spec.get("condition")
        self.condition = Expression(condition) if condition else None
        hit = spec.get("hit")
        self.turn = (COMPARE[hit[0]], hit[1]) if hit else None
        log = spec.get("log")
        self.log = Template(log) if log else None
        self.told = False
        self.tokens = LOG_BURST
        self.last = time.monotonic()
        self.skipped = 0

    def check(self, frame):
        if not self.enabled:
            return False
        try:
            if self.condition is not None and not self.condition(frame):
                return False
            n = self.count()
            if n > self.hits:
                self.hits = n
            if self.turn is not None and not self.turn[0](n, self.turn[1]):
                return False
            if self.log is not None:
                self.write(frame)
                return False
        except KeyboardInterrupt:
            # A signal that arrived while our code ran is the program's: give it back.
            _thread.interrupt_main()
            return False
        except Exception as error:
            self.tell(frame, error)
            return False
        if _getpid() != self.probe.pid:
            return False  # a forked child that nobody debugs must not wait for a debugger
        self.probe.emit("relayHits", {self.id: self.hits})
        return True

    def write(self, frame):
        """A log line, unless there were too many of late: those are counted in the next."""
        now = time.monotonic()
        self.tokens = min(LOG_BURST, self.tokens + (now - self.last) * LOG_RATE)
        self.last = now
        if self.tokens < 1 or _getpid() != self.probe.pid:
            self.skipped += 1
            return
        self.tokens -= 1
        text = self.log(frame)[:TEXT_LIMIT]
        skipped, self.skipped = self.skipped, 0
        row = {"id": self.id, "text": text, "skipped": skipped}
        row["path"], row["line"] = frame.f_code.co_filename, frame.f_lineno
        self.probe.emit("relayLog", row)

    def tell(self, frame, error):
        """The first error in words, later ones not: a hot loop would flood."""
        if self.told:
            return
        self.told = True
        try:
            words = "%s: %s" % (type(error).__name__, error)
        except Exception:
            words = type(error).__name__
        self.probe.emit(
            "relayError", {"id": self.id, "error": words[:1000], "line": frame.f_lineno}
        )


class Points(object):
    """The table of them; pydevd knows each by its condition, a string constant."""

    def __init__(self, probe):
        self.probe = probe
        self.table = {}
        probe.commands.update(points=self.change, hits=self.hits)

    def change(self, set=(), remove=()):
        for id in remove:
            self.table.pop("'relay:%s'" % id, None)
        for spec in set:
            key = "'relay:%s'" % spec["id"]
            old = self.table.get(key)
            if old is None or spec.get("fresh"):
                self.table[key] = Point(self.probe, spec)
            else:
                old.configure(spec)
        return len(self.table)

    def hits(self):
        return {point.id: point.hits for point in list(self.table.values())}

    def tell_hits(self):
        self.probe.emit("relayHits", self.hits())

    def hook(self):
        """`told.frame`: where the thread stands that is about to stop."""
        points, told = self.table, self.probe.told
        decide = self.probe.db.handle_breakpoint_condition

        def handle_breakpoint_condition(info, breakpoint, frame):
            point = points.get(breakpoint.condition)
            if point is None:
                return decide(info, breakpoint, frame)
            stops = point.check(frame)
            if stops:
                told.frame = frame
            return stops

        self.probe.replace("handle_breakpoint_condition", handle_breakpoint_condition)

    def hits_now(self, info, frame):
        """Whether a thread that was halted on this very line has a breakpoint of its own there."""
        db = self.probe.db
        files = sys.modules["pydevd_file_utils"]
        path = files.get_abs_path_real_path_and_base_from_frame(frame)[1]
        breakpoint = (db.breakpoints.get(path) or {}).get(frame.f_lineno)
        if breakpoint is None or breakpoint.condition not in self.table:
            return False
        return db.handle_breakpoint_condition(info, breakpoint, frame)
