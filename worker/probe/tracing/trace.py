"""Records rows of a trace when the program reaches the traced lines.

Every traced line gets a place in the debugger, which a breakpoint of the user's there replaces.
While a trace is on, every breakpoint that is hit comes here, too. A row needs no stop and no
message: it goes into the ring. The last row may stop its thread exactly there.
"""

import _thread
import dis
import itertools
import json
import time

from debug_relay.worker.probe.engine.watched_lines import FIRST_OBSERVED
from debug_relay.worker.probe.inspection.evaluation import begun
from debug_relay.worker.probe.runtime.expressions import Expression
from debug_relay.worker.probe.runtime.muted_output import unmute
from debug_relay.worker.probe.tracing.changed_locals import ChangedLocals
from debug_relay.worker.probe.tracing.ring_writer import Ring
from debug_relay.worker.probe.tracing.spots import Spot
from debug_relay.worker.probe.values.rendering import Interrupted, View

_ident = _thread.get_ident
_now = time.monotonic
_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
OURS = "'relay:trace_"
OBJECTS = 1000  # Objects whose last captured values are remembered.


class Tracer(object):
    """Handles the commands of traces; there is at most one trace at a time."""

    def __init__(self, probe):
        self.probe = probe
        self.trace = None
        self.first = None  # the trace that counts the line of an entry stop, where nothing has run
        probe.commands.update(trace=self.begin, untrace=self.end, function=self.function)

    def frame(self, dap_frame):
        thread_id, frame_id = self.probe.engine.owner_of(dap_frame)
        return None if thread_id is None else self.probe.engine.frame(thread_id, frame_id)

    def function(self, frame):
        """The path and lines of a stopped frame's function."""
        found = self.frame(frame)
        if found is None:
            return None
        code = found.f_code
        lines = {line for _, line in dis.findlinestarts(code) if line}
        return {
            "path": self.probe.engine.place_of(found)[1],
            "lines": sorted(lines),
            # A generator leaves its frame and comes back: its end cannot be seen from its returns.
            "resumes": bool(code.co_flags & 0x2A0) or code.co_name == "<module>",
        }

    def begin(
        self,
        ring,
        rows,
        pause,
        spots,
        lines,
        until=None,
        frame=None,
        entry=False,
        changed=False,
        ends=False,
        returns=False,
    ):
        self.end()
        found = self.frame(frame) if frame is not None else None
        trace = Trace(self.probe, Ring(ring, rows), pause, until, changed)
        trace.ends = ends
        if returns or ends:
            trace.shows_returns = returns
            trace.returns = self.probe.returns.begin(trace.returned)
        made = [Spot(spec) for spec in spots]
        for path, places in lines.items():
            here = trace.lines.setdefault(self.probe.engine.canonical(path), {})
            for line, numbers in places.items():
                here.setdefault(int(line), []).extend(made[number] for number in numbers)
        if found is not None:
            for spot in made:
                spot.code = found.f_code
            trace.changed(found)  # the present values count as known
        self.trace = trace
        self.first = trace if entry else None
        self.hook(trace)
        self.look(trace)
        return True

    def look(self, trace):
        """Give the debugger places for the lines."""
        rows = [(file, line) for file, places in trace.lines.items() for line in places]
        trace.places = ["trace_%d" % (FIRST_OBSERVED + at) for at in range(len(rows))]
        put = [(id, file, line) for id, (file, line) in zip(trace.places, rows)]
        self.probe.points.watched_lines.change(put, [])

    def hook(self, trace):
        self.probe.engine.hooks.around("handle_breakpoint_condition", "trace", trace.deciding)

    def end(self):
        trace, self.trace, self.first = self.trace, None, None
        if trace is None:
            return False
        trace.over = trace.over or "ended"
        self.probe.points.watched_lines.change([], trace.places)
        self.forget(trace)
        return True

    def forget(self, trace):
        self.probe.engine.hooks.drop("handle_breakpoint_condition", "trace")
        if trace.returns is not None:
            trace.returns.end()
        trace.ring.close()

    def remove(self):
        """Remove the trace, because the probe is removed or this is a forked child. Takes no lock
        that another thread may hold.
        """
        trace, self.trace, self.first = self.trace, None, None
        if trace is not None:
            trace.over = "ended"
            self.forget(trace)

    def hook_entry(self):
        self.probe.engine.hooks.around("do_wait_suspend", "trace", self.waiting)

    def waiting(self, wait):
        def do_wait_suspend(thread, frame, event, arg, exception_type=None):
            wait(thread, frame, event, arg, exception_type)
            trace, self.first = self.first, None
            if trace is not None and event == "line" and trace.take(frame, False):
                self.probe.engine.suspend_at_breakpoint(thread)
                wait(thread, frame, event, arg, exception_type)

        return do_wait_suspend


class Trace(object):
    def __init__(self, probe, ring, pause, until, news_only):
        self.probe = probe
        self.news_only = news_only  # record only what differs from the row before
        self.last = {}  # (captured expression, number of the object) → its text in the last row
        self.ends = False  # whether functions are looked at where they return
        self.shows_returns = False
        self.places_before = {}  # thread ident → the place of its last hit
        self.returns = None  # tells of functions that return, if that is wanted
        self.failed = set()  # captures that have raised
        self.ring = ring
        self.pause = pause
        self.until = Expression(until) if until else None
        self.lines = {}  # file as the debugger calls it → line → spots
        self.places = []
        self.over = None
        self.endings = iter((True,))
        # (file name, code) → (its file's lines, path, the offset of its first line). The file name
        # is part of the key because code objects of two files with the same text are equal.
        self.codes = {}
        self.counts = {}
        self.threads = {}
        self.locals = ChangedLocals()
        self.problems = set()
        self.slow = set()  # classes whose repr took too long
        self.slow_captures = set()

    # -- at a hit, in the program's own thread

    def deciding(self, decide):
        this_thread = self.probe.this_thread

        def handle_breakpoint_condition(info, breakpoint, frame):
            condition = breakpoint.condition
            ours = condition is not None and condition.startswith(OURS)
            stops = not ours and decide(info, breakpoint, frame)
            if self.over is None and self.take(frame, stops):
                if not stops:
                    this_thread.frame, this_thread.hits = frame, []
                return True
            return stops

        return handle_breakpoint_condition

    def take(self, frame, stops_anyway):
        """Record the rows of this place; whether the thread must stop for that."""
        code = frame.f_code
        place = code.co_filename, code
        known = self.codes.get(place)
        if known is None:
            known = self.codes[place] = self.known(frame, code)
        spots = known[0].get(frame.f_lineno)
        if not spots:
            return False
        answers, ident, token = self.probe.answers, _ident(), begun("trace")
        if ident in answers.running:
            return False
        answers.running[ident] = token
        stops = False
        try:
            for spot in spots:
                if spot.wants(frame):
                    reason = self.record(spot, frame, known[1])
                    if reason is not None:
                        stops = self.finish(reason, stops_anyway)
        except Interrupted:
            self.complain(frame, "interrupted: it took too long")
        except KeyboardInterrupt:
            # A signal that arrived while our code ran is the program's: give it back.
            _thread.interrupt_main()
        except BaseException as error:
            self.complain(frame, _words(error))
        finally:
            answers.settle(ident, token)
        return stops

    def known(self, frame, code):
        paths = self.probe.engine.place_of(frame)
        starts = [(at, line) for at, line in dis.findlinestarts(code) if line is not None]
        body = [at for at, line in starts if line != code.co_firstlineno]
        first = body[0] if body else starts[0][0] if starts else 0
        return self.lines.get(paths[1], {}), paths[0], first

    def record(self, spot, frame, path):
        """Record one row; returns the reason if it was the last one."""
        if spot.condition is not None and not self.holds(spot.condition, frame, "condition"):
            return None
        code, line = frame.f_code, frame.f_lineno
        values, was = self.values(spot, frame) if spot.capture else (None, {})
        if self.returns is not None and (self.shows_returns or values):
            self.returns.watch(frame)
        before = self.places_before.get(_ident())
        self.places_before[_ident()] = [path, line, code.co_name]
        if was is None:
            return None
        count = self.counts.get((spot, line))
        if count is None:
            count = self.counts.setdefault((spot, line), itertools.count(1).__next__)
        row = {
            "path": path,
            "line": line,
            "function": code.co_name,
            "thread": self.thread(),
            "hit": count(),
        }
        if spot.label:
            row["label"] = spot.label
        if values is not None:
            row["values"] = values
        if spot.changes:
            row["changed"], bounded = self.changed(frame)
            if bounded:
                row["bounded"] = True
            if self.news_only and values is None and not row["changed"]:
                return None
        if was:
            row["was"] = was
            if before is not None:
                row["after"] = before
        return self.written(row, frame)

    def differs(self, values, keys):
        """The former texts of the captures that differ; None if none does. A first text differs
        from nothing.
        """
        was, is_new = {}, False
        for text, value in values.items():
            key = text, keys.get(text)
            known = self.last.get(key)
            if known != value:
                is_new = True
                if known is not None:
                    was[text] = known
                elif len(self.last) >= OBJECTS:
                    self.last.clear()
                self.last[key] = value
        return was if is_new else None

    def written(self, row, frame):
        """Put a row into the ring; the reason if it was the last one."""
        body = _encode(row).encode("ascii")
        if len(body) > self.ring.largest:
            for name in ("values", "changed", "was", "returned"):
                row.pop(name, None)
            row["bounded"] = True
            body = _encode(row).encode("ascii")
        number = self.ring.put(body)
        if not number:
            return None
        if number == self.ring.limit:
            return "max_rows"
        if self.until is not None and self.holds(self.until, frame, "until"):
            return "until"
        return None

    def returned(self, frame, value):
        """A function with traced lines returns: record that, or what its last line has changed. Its
        thread cannot stop here.
        """
        code = frame.f_code
        known = self.codes.get((code.co_filename, code))
        if self.over is not None or known is None:
            return
        answers, ident, token = self.probe.answers, _ident(), begun("trace")
        if ident in answers.running:
            return
        answers.running[ident] = token
        try:
            row = self.end_row(frame, known)
            if row is None and not self.shows_returns:
                return
            key = (code, "return")
            count = self.counts.get(key)
            if count is None:
                count = self.counts.setdefault(key, itertools.count(1).__next__)
            row = {
                "path": known[1],
                "line": frame.f_lineno,
                "function": code.co_name,
                "thread": self.thread(),
                "hit": count(),
                **(row or {}),
            }
            if self.shows_returns:
                view = View(self.probe.pages.mode, slow=self.slow)
                row["returned"] = view.text(value)
            reason = self.written(row, frame)
            if reason is not None:
                self.finish(reason, False)
        except KeyboardInterrupt:
            _thread.interrupt_main()
        except BaseException as error:
            self.complain(frame, "the returned value raised %s" % _words(error))
        finally:
            unmute()
            answers.settle(ident, token)

    def end_row(self, frame, known):
        """A row of what the last line of a function has changed: no line follows it."""
        line = frame.f_lineno
        for spot in known[0].get(line, ()) if self.ends else ():
            if spot.capture:
                values, was = self.values(spot, frame)
                if was:
                    after = [known[1], line, frame.f_code.co_name]
                    return {"values": values, "was": was, "after": after}
        return None

    def finish(self, reason, stops_anyway):
        if not next(self.endings, False):
            return False
        self.over = reason
        self.probe.emit("relayTrace", {"over": reason, "breakpoint": stops_anyway})
        return self.pause

    def holds(self, expression, frame, what):
        """Whether the expression is true. If it raises it is not, and that is reported once."""
        try:
            return bool(expression(frame))
        except (Interrupted, KeyboardInterrupt):
            raise
        except BaseException as error:
            # `until` is evaluated at each line, and most may not know its names.
            if what != "until" or what not in self.failed:
                self.failed.add(what)
                self.complain(frame, "%s raised %s" % (what, _words(error)))
            return False

    def complain(self, frame, problem):
        place = (frame.f_code, frame.f_lineno, problem)
        if place not in self.problems and len(self.problems) < 20:
            self.problems.add(place)
            where = {"path": frame.f_code.co_filename, "line": frame.f_lineno}
            self.probe.emit("relayTrace", {"problem": problem, "where": where})

    def thread(self):
        """The debugger's number for this thread; its first row is announced."""
        id = self.probe.engine.current_thread_id()
        number = self.threads.get(id)
        if number is None:
            number = self.threads[id] = self.probe.engine.dap_id(id)
            self.probe.emit("relayTrace", {"thread": number})
        return number

    def values(self, spot, frame):
        """The texts of the captures; and the former ones of those that differ, or None if rows are
        only for changes and nothing has changed.
        """
        view = View(self.probe.pages.mode, slow=self.slow)
        found, keys = {}, {}
        try:
            for capture in spot.capture:
                text = capture.text
                if capture in self.slow_captures:
                    found[text] = "<not evaluated: it took too long at another row>"
                    continue
                try:
                    if self.news_only:
                        keys[text], value = capture.look(frame)
                    else:
                        value = capture.expression(frame)
                    found[text] = view.text(value)
                except Interrupted:
                    found[text] = "<interrupted: it took too long>"
                    self.slow_captures.add(capture)
                    self.begin_again()
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # the expression may even call exit()
                    if text not in self.failed:
                        self.failed.add(text)
                        self.complain(frame, "capture %s raised %s" % (text[:100], _words(error)))
        finally:
            unmute()
        return found, self.differs(found, keys) if self.news_only else {}

    def changed(self, frame):
        """The locals that differ from those of the frame's last row."""
        code = frame.f_code
        place = self.codes.get((code.co_filename, code))
        return self.locals.of(frame, place is not None and frame.f_lasti <= place[2])

    def begin_again(self):
        """Give the next capture its own time."""
        token = self.probe.answers.running.get(_ident())
        if token is not None:
            token[3] = _now()


def _words(error):
    try:
        text = str(error)[:500]
    except Exception:
        text = ""
    name = type(error).__name__
    return "%s: %s" % (name, text) if text else name
