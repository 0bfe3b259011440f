"""Stops a thread after the line that has changed a value.

The expression is evaluated at each line of the chosen functions or files, and where they return. A
value is compared by its safe rendering, and known by the object that it is taken from: another
`self` has a value of its own. The lines come from `engine.watched_code`.
"""

import _thread
import os
import weakref

from debug_relay.worker.probe.engine.frames import MONITORED
from debug_relay.worker.probe.engine.threads import running_frames
from debug_relay.worker.probe.engine.watched_code import WatchedCode, stop_here, stop_soon
from debug_relay.worker.probe.runtime.expressions import Expression, base_of, raised_text
from debug_relay.worker.probe.runtime.muted_output import unmute
from debug_relay.worker.probe.values.class_facts import key_of
from debug_relay.worker.probe.values.rendering import ATOMS, Interrupted, View

_ident = _thread.get_ident
_getpid = os.getpid
KNOWN = 1000  # Objects of one watchpoint whose values are known.
_NO_VALUE = "the expression has no value in its frame: %s"
_OTHER = "Send an expression that can be evaluated there."
_FREE = "Watch while that tool does not run, or capture the value in a trace."
SHOWN = 200  # Characters of a value before and after.


class Watchpoint(object):
    def __init__(self, spec):
        self.id, self.text = spec["id"], spec["expression"]
        self.enabled = spec["enabled"]
        self.files = {path: frozenset(lines) for path, lines in spec["lines"].items()}
        self.condition = Expression(spec["condition"]) if spec.get("condition") else None
        self.hits = spec.get("hits", 0)
        self.values = {}  # key → (value if it is plain, text, type)
        self.failed = False
        self.whole, (self.base, _) = Expression(self.text), base_of(self.text)
        self.held = None  # the object of a frame that was named, weakly if it can be

    def bind(self, frame):
        """Watch the value of the object that the expression names in this frame, and no other."""
        if self.base is None:
            self.held = (id(frame), None)
            return
        owner = self.base(frame)
        try:
            self.held = (id(owner), weakref.ref(owner))
        except TypeError:
            self.held = (id(owner), lambda: owner)

    def key(self, frame):
        """The number by which the value's owner is known; None if it is not watched."""
        key = id(self.base(frame)) if self.base is not None else id(frame)
        if self.held is not None and (key != self.held[0] or (self.held[1] or _there)() is None):
            return None
        return key

    def look(self, frame):
        """(text before, text now) if the value has changed."""
        key = self.key(frame)
        if key is None:
            return None
        value = self.whole(frame)
        kind, known = type(value), self.values.get(key)
        plain = key_of(kind) in ATOMS
        if plain and known is not None and known[0] is value and known[2] is kind:
            return None
        text = View("safe", width=SHOWN, nodes=64, depth=3, items=16).text(value)
        if known is None and len(self.values) >= KNOWN:
            self.values.clear()
        self.values[key] = (value if plain else None, text, kind)
        if known is None or (known[1] == text and known[2] is kind):
            return None
        return known[1], text


def _there():
    return True


class Watchpoints(object):
    def __init__(self, probe):
        self.probe = probe
        self.table = {}
        self.code = None
        self.last = {}  # thread ident → the place of its last watched line that may make a change
        probe.commands.update(watchpoints=self.change)

    def change(self, set=(), remove=()):
        """Set and remove watchpoints; by id why one cannot stop, and what helps."""
        for id in remove:
            self.table.pop(id, None)
        told = {}
        for spec in set:
            point = Watchpoint(spec)
            known = self.table.get(point.id)
            if known is not None:
                point.hits, point.values, point.held = known.hits, known.values, known.held
            if spec.get("frame") is not None:
                told.update(self.bind(point, spec["frame"]))
            self.table[point.id] = point
        self.renew()
        refusal = None if self.code is None else self.code.refusal()
        if refusal is not None:
            told.update({spec["id"]: (refusal, _FREE) for spec in set})
        return told

    def bind(self, point, dap_frame):
        thread_id, frame_id = self.probe.engine.owner_of(dap_frame)
        frame = None if thread_id is None else self.probe.engine.frame(thread_id, frame_id)
        if frame is None:
            return {point.id: (_NO_VALUE % "the frame is gone", _OTHER)}
        try:
            point.bind(frame)
            point.look(frame)
        except Exception as error:
            return {point.id: (_NO_VALUE % raised_text(error), _OTHER)}
        return {}

    @running_frames.steady
    def renew(self):
        lines = {}
        for point in list(self.table.values()):
            if point.enabled:
                for path, numbers in point.files.items():
                    file = self.probe.engine.canonical(path)
                    lines[file] = lines.get(file, frozenset()) | numbers
        if self.code is None:
            if not lines:
                return
            self.code = WatchedCode(self.probe, self.at_line, self.at_return, self.at_entry)
        self.code.change(lines)
        for ident, frame in running_frames.of_all().items():
            place = self.code.line_of(frame)
            if place is not None:
                self.last[ident] = place

    def hits(self):
        return {point.id: point.hits for point in list(self.table.values())}

    def remove(self):
        code, self.code = self.code, None
        if code is not None:
            code.remove()
        self.table.clear()

    # -- in the program's own thread

    def at_line(self, frame, stops_anyway=False):
        """Stop if a value has changed; up to 3.11 the caller stops when this is true."""
        changes = self.changes(frame)
        code = frame.f_code
        before = self.last.get(_ident())
        self.last[_ident()] = [code.co_filename, frame.f_lineno, code.co_name]
        if not changes:
            return False
        self.note(changes, before)
        this_thread = self.probe.this_thread
        hits = [point.id for point, _ in changes]
        this_thread.frame = frame
        this_thread.hits = (this_thread.hits if stops_anyway else []) + hits
        if MONITORED:
            stop_here(self.probe.engine, frame)
        return True

    def at_entry(self, frame):
        """A watched function begins, or resumes: what has changed since the last watched line was
        changed by code that is not watched, unless a watched line calls this function."""
        self.last[_ident()] = self.code.line_of(frame.f_back)

    def at_return(self, frame):
        changes = self.changes(frame)
        self.at_entry(frame)
        if not changes:
            return
        code = frame.f_code
        self.note(changes, [code.co_filename, frame.f_lineno, code.co_name])
        this_thread = self.probe.this_thread
        this_thread.hits = [point.id for point, _ in changes]
        if MONITORED:
            this_thread.frame = frame
            stop_here(self.probe.engine, frame)
        else:
            this_thread.frame = frame.f_back
            stop_soon(self.probe.engine, frame)

    def changes(self, frame):
        """[(watchpoint, (before, after))] of those that have changed."""
        answers, ident = self.probe.answers, _ident()
        if ident in answers.running or self.probe.points.suspended:
            return []
        if _getpid() != self.probe.pid:
            return []  # a forked child that is not debugged
        token = answers.running[ident] = answers.begun("watch")
        found = []
        try:
            for point in list(self.table.values()):
                if point.enabled:
                    change = self.look(point, frame)
                    if change is not None:
                        point.hits += 1
                        found.append((point, change))
        except Interrupted:
            pass  # the relay has ended a look that took too long
        except KeyboardInterrupt:
            _thread.interrupt_main()
        finally:
            unmute()
            answers.settle(ident, token)
        return found

    def look(self, point, frame):
        try:
            change = point.look(frame)
            if change is not None and point.condition is not None and not point.condition(frame):
                return None
            return change
        except (Interrupted, KeyboardInterrupt):
            raise
        except (NameError, AttributeError, LookupError):
            return None  # most lines do not know the expression's names
        except BaseException as error:
            if not point.failed:
                point.failed = True
                words = "the watched expression raised %s" % type(error).__name__
                self.probe.emit(
                    "relayError", {"id": point.id, "error": words, "line": frame.f_lineno}
                )
            return None

    def note(self, changes, place):
        """Keep the changes for the event of this thread's stop; `place` is None if it is unknown
        which line made them."""
        path, line, function = place or (None, None, None)
        self.probe.this_thread.changes = [
            {
                "id": point.id,
                "before": before,
                "after": after,
                "path": path,
                "line": line,
                "function": function,
            }
            for point, (before, after) in changes
        ]

    def changes_now(self):
        """The changes for which this thread stops."""
        return self.probe.this_thread.__dict__.pop("changes", None)
