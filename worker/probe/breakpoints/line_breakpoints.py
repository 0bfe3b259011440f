"""Decides at a hit whether a breakpoint stops: is it enabled, is its condition true, does its hit
count match. Writes log lines and counts hits.
"""

import _thread
import itertools
import operator
import os
import sys
import time

from debug_relay.worker.probe.breakpoints.functions import Functions
from debug_relay.worker.probe.breakpoints.outdated_sources import outdated
from debug_relay.worker.probe.breakpoints.run_to_line import ID as GOAL
from debug_relay.worker.probe.engine.frames import SUSPENDED, state_of
from debug_relay.worker.probe.engine.watched_lines import TRAP, WatchedLines
from debug_relay.worker.probe.runtime.deferred_signals import is_foreign
from debug_relay.worker.probe.runtime.expressions import Expression, Template, raised_text
from debug_relay.worker.probe.runtime.shared_memory import mapped

_getpid = os.getpid
LOG_RATE = 100.0  # Lines a second that one log point writes after a burst.
LOG_BURST = 200.0  # Lines that one log point writes at once.
TEXT_LIMIT = 65536  # Characters of one line of a log point.
MANY_MISSES = 100000  # Misses of a condition within `HOT_SECONDS` that make a warning.
HOT_SECONDS = 2.0  # Processor time within which so many misses are most of what a loop does.

COMPARE = {
    "==": lambda n, k: n == k,
    "!=": lambda n, k: n != k,
    ">=": lambda n, k: n >= k,
    ">": lambda n, k: n > k,
    "<=": lambda n, k: n <= k,
    "<": lambda n, k: n < k,
    "%": lambda n, k: n % k == 0,
}


def counter(place, begin):
    """A function that counts in `place`. It is one C call, so that hits of several threads at once
    are all counted.
    """
    numbers, slot = place
    numbers[slot] = begin
    steps = (itertools.repeat(numbers), itertools.repeat(slot), itertools.count(begin + 1))
    return map(operator.setitem, *steps).__next__


class LineBreakpoint(object):
    """One breakpoint of the user."""

    def __init__(self, probe, spec, shown, skipped):
        self.probe = probe
        self.id = spec["id"]
        self.beside = ()  # the other breakpoints on the same line: an agent's and an IDE's
        self.shown, self.skipped = shown, skipped
        self.show = counter(shown, 0)
        self.skip = counter(skipped, skipped[0][skipped[1]])
        self.configure(spec)

    def hits(self):
        numbers, slot = self.shown
        return numbers[slot]

    def configure(self, spec):
        self.enabled = spec.get("enabled", True)
        condition, log = spec.get("condition"), spec.get("log")
        self.problem = None
        self.condition = self.compiled(Expression, condition, "condition")
        # Most conditions can be evaluated directly in the frame's own scope, without a call.
        own = self.condition is not None and not self.condition.nested
        self.plain = self.condition.code if own else None
        hit = spec.get("hit")
        self.turn = (COMPARE[hit[0]], hit[1]) if hit else None
        self.count = itertools.count(self.hits() + 1).__next__
        self.log = self.compiled(Template, log, "log message")
        self.has_reported = False
        self.tokens = LOG_BURST
        self.last = time.monotonic()
        self.misses = 0
        self.watched_from = time.process_time()
        if self.problem:
            self.enabled = False
            self.report_error(self.problem, 0)

    def compiled(self, kind, text, what):
        """Compile it; another version of Python may have verified it, and this one may refuse
        it.
        """
        try:
            return kind(text) if text else None
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            words = getattr(error, "msg", None) or error
            self.problem = "the %s does not compile on Python %d.%d: %s" % (
                (what,) + sys.version_info[:2] + (words,)
            )
        return None

    def check(self, frame):
        if not self.enabled:
            return False
        what = "condition"
        try:
            if self.plain is not None:
                true = eval(self.plain, frame.f_globals, frame.f_locals)
            else:
                true = self.condition is None or self.condition(frame)
            if not true:
                self.misses += 1
                if self.misses == MANY_MISSES:
                    self.look_at_time()
                return False
            self.show()
            if self.turn is not None and not self.turn[0](self.count(), self.turn[1]):
                return False
            if self.log is not None:
                what = "log message"
                self.write(frame)
                return False
        except KeyboardInterrupt:
            # A signal that arrived while our code ran is the program's: give it back.
            _thread.interrupt_main()
            return False
        except BaseException as error:
            # `exit()` in a condition is only a wrong condition, and must not end the program.
            if is_foreign(error):
                raise
            self.report_error("%s raised %s" % (what, raised_text(error)), frame.f_lineno)
            return False
        # A forked child that is not debugged must not wait for a debugger.
        return _getpid() == self.probe.pid

    def write(self, frame):
        """Write a log line; if there are too many in a short time, count it instead."""
        if _getpid() != self.probe.pid:
            return  # a forked child that is not debugged
        now = time.monotonic()
        self.tokens = min(LOG_BURST, self.tokens + (now - self.last) * LOG_RATE)
        self.last = now
        if self.tokens < 1:
            self.skip()
            return
        self.tokens -= 1
        text = self.log(frame)
        if len(text) > TEXT_LIMIT:
            text = "%s… (%d more characters)" % (text[:TEXT_LIMIT], len(text) - TEXT_LIMIT)
        numbers, slot = self.skipped
        row = {"id": self.id, "text": text, "skipped": numbers[slot]}
        row["path"], row["line"] = frame.f_code.co_filename, frame.f_lineno
        # Wait until it is sent: the program may end next, even by SIGKILL.
        self.probe.emit("relayLog", row, until_sent=True)

    def look_at_time(self):
        """Warn if a hot loop spends most of its time on the condition."""
        now = time.process_time()
        if now - self.watched_from < HOT_SECONDS:
            self.probe.emit("relayHot", {"id": self.id})  # once only, because `misses` only grows
        else:
            self.misses, self.watched_from = 0, now

    def report_error(self, words, line):
        """Report the first error and no later ones: a hot loop would send a flood."""
        if self.has_reported:
            return
        self.has_reported = True
        self.probe.emit("relayError", {"id": self.id, "error": words[:1000], "line": line})


class LineBreakpoints(object):
    """The table of line breakpoints; the debugger knows each by its condition, a string
    constant.
    """

    def __init__(self, probe):
        self.probe = probe
        self.table = {}
        self.watched_lines = WatchedLines(probe)
        self.functions = Functions(probe)
        self.numbers = None  # counts in memory that the worker reads
        self.suspended = False
        probe.commands.update(
            suspend=self.suspend,
            points=self.change,
            hits=self.hits,
            share_hits=self.share,
            outdated=outdated,
        )

    def suspend(self, on):
        """Suspend all breakpoints, those for exceptions included, or end that."""
        self.suspended = on
        return on

    def share(self, path, capacity):
        """Count in memory that the worker shares with us; returns whether that is possible."""
        try:
            memory = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                self.numbers = memoryview(mapped(memory, 2 * capacity * 8)).cast("Q")
            finally:
                os.close(memory)
        except (OSError, ValueError):
            return False
        return True

    def change(self, set=(), remove=()):
        """Set and remove breakpoints; returns those in files that the debugger leaves out."""
        put, take = [], list(remove)
        for id in remove:
            self.table.pop("'relay:%s'" % id, None)
        self.functions.forget(remove)
        for spec in set:
            self.configure(spec)
            place = spec.get("place")
            if place:
                put.append((spec["id"], place[0], place[1]))
            else:
                take.append(spec["id"])
        self.watched_lines.change(put, take)
        self.find_neighbours()
        return self.watched_lines.left_out([row[:2] for row in put])

    def find_neighbours(self):
        """Several breakpoints may be on one line: the debugger has one of them there, and each
        knows the others.
        """
        places = {}
        for id, place in list(self.watched_lines.known.items()):
            point = self.table.get("'relay:%s'" % id)
            if point is not None:
                places.setdefault(place, []).append(point)
        for points in places.values():
            for point in points:
                point.beside = tuple(one for one in points if one is not point)

    def configure(self, spec):
        key = "'relay:%s'" % spec["id"]
        old = self.table.get(key)
        if old is None or spec.get("fresh"):
            self.table[key] = LineBreakpoint(self.probe, spec, *self.slots(spec["id"]))
        else:
            old.configure(spec)

    def slots(self, id):
        """The slots for its hits and its skipped lines: the seventh of each half for `bp_7`."""
        number = int(id.rpartition("_")[2])
        half = 0 if self.numbers is None else len(self.numbers) // 2
        if number >= half:
            return ([0], 0), ([0], 0)
        return (self.numbers, number), (self.numbers, half + number)

    def hits(self):
        return {point.id: point.hits() for point in list(self.table.values())}

    def clear(self):
        self.table.clear()
        self.watched_lines.clear()
        self.functions.clear()
        self.numbers = None

    def hook(self):
        """`this_thread.frame` is the frame of the thread that is about to stop, `this_thread.hits`
        the breakpoints.
        """
        self.functions.hook()
        self.probe.engine.hooks.around("handle_breakpoint_condition", "breakpoints", self.deciding)

    def deciding(self, decide):
        table, functions, this_thread = self.table, self.functions, self.probe.this_thread

        def handle_breakpoint_condition(info, breakpoint, frame):
            if self.suspended:
                return False
            point = table.get(breakpoint.condition)
            if point is not None and not (functions.entry_points or point.beside):
                # The fast way: most hits come here, and most of them do not stop.
                if point.check(frame):
                    this_thread.frame, this_thread.hits = frame, [point.id]
                    return True
                if state_of(info) == SUSPENDED:
                    this_thread.counted = True
                return False
            points = () if point is None else (point,) + point.beside
            if functions.entry_points:
                begun = [table.get("'relay:%s'" % id) for id in functions.begun(frame)]
                points += tuple(point for point in begun if point is not None)
            if not points and breakpoint.condition != TRAP:
                # A breakpoint may have been removed while a thread was on its way here.
                gone = (breakpoint.condition or "").startswith("'relay:")
                return not gone and decide(info, breakpoint, frame)
            stops = self.stops(frame, points)
            if not stops and state_of(info) == SUSPENDED:
                # Another thread's stop has halted this one meanwhile: the hit is counted already.
                this_thread.counted = True
            return stops

        return handle_breakpoint_condition

    def stops(self, frame, points):
        """Whether one of these breakpoints stops; all are checked, because each counts its hits."""
        hits = [point.id for point in points if point.check(frame)]
        if not hits:
            return False
        self.probe.this_thread.frame, self.probe.this_thread.hits = frame, hits
        return True

    def still(self, hits):
        """The hits that would still stop now: a breakpoint may have been removed or suspended."""
        left = []
        for id in hits:
            point = self.table.get("'relay:%s'" % id) or self.probe.watchpoints.table.get(id)
            if point.enabled and not self.suspended if point is not None else id == GOAL:
                left.append(id)
        return left

    def hits_now(self, info, frame):
        """Whether a thread that was halted on this line has a breakpoint there that would
        stop it.
        """
        breakpoint = self.probe.engine.breakpoint_at(frame)
        if breakpoint is None:
            return False
        if breakpoint.condition != TRAP and breakpoint.condition not in self.table:
            return False
        return self.probe.engine.decide(info, breakpoint, frame)
