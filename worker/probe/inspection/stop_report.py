"""The stop report, which a stopped thread sends by itself right after its `stopped` event.

The thread makes it itself, after the event, so that no slow `__repr__` delays the event. The frames
are those that the debugger lists for the thread. The report keeps nothing of the program alive: of
frames at earlier stops it keeps only texts and immutable values. A frame is compared with its own
last stop, so that a later stop in it shows what has changed meanwhile.
"""

import threading
import time

from debug_relay.worker.probe.engine.frames import FunctionRun
from debug_relay.worker.probe.runtime.expressions import Expression
from debug_relay.worker.probe.runtime.muted_output import unmute
from debug_relay.worker.probe.values.class_facts import key_of, name_of
from debug_relay.worker.probe.values.parts import names_of
from debug_relay.worker.probe.values.rendering import (
    ATOMS,
    BRACKETS,
    MAPPINGS,
    Interrupted,
    View,
    clean,
)

_now = time.perf_counter
FRAMES, LOCALS = 20, 50
REMEMBERED = 1000  # Names whose values are compared with those of the previous stop.
THREADS = 64  # Threads whose earlier stops are remembered.
KNOWN = 16  # Frames in which a thread has stopped last.
HASHED = 1 << 20  # A longer text is compared by its length and identity, not by its content.
SLOW = 1000  # Objects that are remembered because their own code was too slow.
NAMED_LAST = ("function", "module", "type")  # at module level these come after data
SHORT = 200  # Characters of one value in a stop report.
AGAIN = "not evaluated: it took too long at another stop; GET \u2026/snapshot tries again"


class StopReports(object):
    def __init__(self, probe):
        self.probe = probe
        self.watches = []
        self.number = 0
        self.due = {}  # thread id → the number of its stop
        self.known = {}  # thread id → [(run of a function, its locals)], the latest last
        self.before = {}  # thread id → the locals of its frame at its last stop, if known
        self.rows = {}  # (name, width) → (an immutable value, its row, its mark)
        # Code that took too long is run again only for a caller.
        self.slow = set()  # classes with a slow repr
        self.slow_watches = set()  # ids
        probe.questions.update(report=self.ask)
        probe.commands.update(watches=self.watch)

    def hook(self):
        passed = self.probe.step_unwinding.passed_now
        changes = self.probe.watchpoints.changes_now
        self.probe.engine.on_stop_event(self.due_now, self.place, passed, changes)

    def place(self, thread_id):
        """The place for the `stopped` event; None at an exception, whose column the debugger
        knows.
        """
        listed = self.probe.engine.frames(thread_id)
        if listed is None or listed.frame_id_to_lineno:
            return None
        rows, _ = self.probe.engine.stack(listed, 1, count=False)
        return rows[0] if rows else None

    def due_now(self, thread_id):
        self.number += 1
        self.due[thread_id] = self.number
        self.probe.engine.post(
            thread_id, self.probe.answers.work, None, self.send_report, thread_id, self.number
        )

    def send_report(self, id, thread_id, number):
        if self.due.get(thread_id) != number:
            return None  # the thread was resumed meanwhile: this report belongs to another stop
        self.due.pop(thread_id)
        self.probe.pages.slow.clear()
        if len(self.known) > THREADS or len(self.slow) > SLOW:
            self.known.clear()
            self.before.clear()
            self.slow.clear()
        made = self.made(thread_id, FRAMES, LOCALS, SHORT, self.slow, "top", remember=True)
        return None if made is None else {"id": id, "report": made}

    def ask(self, id, thread, frames, locals, width, fold="top", safe=False):
        """Make the report for a caller, with the caller's bounds."""
        wanted = frames, locals, width, fold, safe
        return self.probe.answers.ask_thread(thread, id, self.again, *wanted)

    def again(self, id, thread_id, frames, locals, width, fold, safe):
        slow = self.probe.pages.slow
        made = self.made(thread_id, frames, locals, width, slow, fold, remember=False, safe=safe)
        return {"id": id, "gone": True} if made is None else {"id": id, "report": made}

    def forget(self, thread_id):
        for table in (self.due, self.known, self.before):
            table.pop(thread_id, None)

    def watch(self, watches):
        """Set the watches, given as [[id, expression]]; the worker has verified each."""
        self.watches = [(id, Expression(text)) for id, text in watches]
        return len(self.watches)

    # -- making it

    def made(self, thread_id, frames, locals, width, slow, fold, remember, safe=False):
        began = _now()
        engine = self.probe.engine
        listed = engine.frames(thread_id)
        tracker = self.probe.engine.tracker(thread_id)
        if listed is None or tracker is None:
            return None
        view = View("safe" if safe else self.probe.pages.mode, width, slow=slow)
        try:
            stack = engine.folded(listed, max(frames, 1), fold)
            report = {"thread": self.probe.engine.dap_id(thread_id)}
            report["frames"], report["total_frames"] = stack.rows[:frames], stack.total
            report["numbers"], report["folded"] = stack.numbers, stack.folds
            report["in_library"] = stack.near is not None
            report["name"] = thread_name()
            top = engine.top_of(listed)
            frame = stack.top or top
            if frame is not None:
                if safe or frame is not top:
                    # Watches and changes belong to the top frame.
                    report.update(self.looked_at(frame, tracker, view, locals))
                    report["new_frame"] = frame is not top
                else:
                    report.update(self.of_frame(thread_id, frame, tracker, view, locals, remember))
                report["text"] = self.probe.texts.around(frame)
        finally:
            unmute()
        report["seconds"] = _now() - began
        return report

    def of_frame(self, thread_id, frame, tracker, view, most, remember):
        values = dict(names_of(frame))
        names = self.ordered(frame, values)
        # At least as many as the report of the stop has: the next stop compares their texts.
        chosen = names[: max(most, LOCALS)]
        # Watches are evaluated first, because they may change the locals.
        watches = self.watched_all(frame, tracker, view, by_caller=not remember)
        rows, texts = [], {}
        for name in chosen:
            view.lacks_repr = False
            rows.append(self.row(name, values[name], tracker, frame, view))
            if len(rows) <= LOCALS:
                texts[name] = rows[-1]["value"], not view.lacks_repr
        marks = self.marks(names[:REMEMBERED], values, texts, view.width)
        if remember:
            self.before[thread_id] = self.remembered(thread_id, FunctionRun(frame), marks)
        before = self.before.get(thread_id)
        return {
            "locals": rows[:most],
            "total_locals": len(names),
            "new_frame": before is None,
            "changed": [] if before is None else self.changed(before, marks, values, view),
            "watches": watches,
        }

    def looked_at(self, frame, tracker, view, most):
        """Only the locals, for `safe`: a watch would run the program's code, and texts of `safe`
        cannot be compared with those of the last stop.
        """
        values = dict(names_of(frame))
        names = self.ordered(frame, values)
        rows = [self.row(name, values[name], tracker, frame, view) for name in names[:most]]
        return {"locals": rows, "total_locals": len(names)}

    def ordered(self, frame, values):
        # No program can use names such as pytest's @py_assert1 and a generator expression's .0.
        names = [name for name in values if name[:1] not in ("@", ".")]
        if frame.f_code.co_name != "<module>":
            return names
        return sorted(names, key=lambda name: name_of(type(values[name])) in NAMED_LAST)

    def row(self, name, value, tracker, frame, view):
        """The row of a variable; the row of an immutable value is kept for the next stop."""
        known = self.rows.get((name, view.width))
        if known is not None and known[0] is value:
            return known[1]
        row = self.variable(name, value, tracker, frame, view)
        if key_of(type(value)) in ATOMS:
            if len(self.rows) >= REMEMBERED:
                self.rows.clear()
            self.rows[name, view.width] = value, row, (value, None)
        return row

    def variable(self, name, value, tracker, frame, view):
        return self.probe.pages.variable(tracker, frame, name, value, view)

    def watched_all(self, frame, tracker, view, by_caller):
        """All watches. Slow ones come last, and are evaluated only for a caller."""
        found = {}
        for watch in sorted(self.watches, key=lambda watch: watch[0] in self.slow_watches):
            is_slow = watch[0] in self.slow_watches
            if is_slow and not by_caller:
                found[watch[0]] = {"id": watch[0], "error": AGAIN}
            else:
                found[watch[0]] = self.watched(*watch, frame, tracker, view)
        return [found[id] for id, _ in self.watches]

    def watched(self, id, expression, frame, tracker, view):
        if view.late:
            return {"id": id, "error": "not evaluated: another one took too long"}
        try:
            value = expression(frame)
        except Interrupted:
            view.late = True
            self.slow_watches.add(id)
            return {"id": id, "error": "it took too long and was interrupted"}
        except Exception as error:
            try:
                words = clean(str(error)[:SHORT])
            except Exception:
                words = "its str() raised"
            return {"id": id, "error": "%s: %s" % (type(error).__name__, words)}
        self.slow_watches.discard(id)
        return {"id": id, "value": self.variable(id, value, tracker, frame, view)}

    # -- what has changed

    def remembered(self, thread_id, run, marks):
        """Remember the locals of this run of a function; returns those of its last stop, or
        None.
        """
        known, before = self.known.setdefault(thread_id, []), None
        for at in range(len(known) - 1, -1, -1):
            # A run without a mark may have ended, and another may have its frame.
            if run.is_of(known[at][0]) and (run.is_marked or at == len(known) - 1):
                before = known.pop(at)[1]
                break
        known.append((run, marks))
        del known[:-KNOWN]
        return before

    def marks(self, names, values, texts, width):
        """name → mark. The mark of an immutable value is (the value, its text or None); of another
        one (its size, its text or None, its id, whether the text is complete).
        """
        marks = {}
        for name in names:
            value = values[name]
            known = self.rows.get((name, width))
            if known is not None and known[0] is value:
                marks[name] = known[2]  # this very mark is equal to that of the last stop at once
                continue
            kind = key_of(type(value))
            if kind in ATOMS or (kind is str and len(value) <= SHORT):
                marks[name] = (value, None)
            elif kind is str or kind is bytes:
                size = len(value)
                marks[name] = (
                    (size, hash(value) if size < HASHED else id(value)),
                    texts[name][0] if name in texts else "%s of %d" % (kind.__name__, size),
                )
            else:
                size = len(value) if kind in BRACKETS or kind in MAPPINGS else None
                text, is_said = texts.get(name, (None, False))
                marks[name] = (size, text, id(value), is_said)
        return marks

    def changed(self, old, marks, values, view):
        changes = []
        for name, mark in marks.items():
            known = old.get(name)
            if known is mark or (known is not None and same(known, mark)):
                continue
            if len(mark) == 4 and mark[1] is None:
                # The local is not in the list, but its change is shown.
                mark = (mark[0], view.text(values[name], name)) + mark[2:]
            if known is None:
                changes.append([name, None, shown(mark, view)])
            else:
                changes.append([name] + with_note_if_equal(known, mark, view))
        changes += [[name, shown(old[name], view), None] for name in old if name not in marks]
        return changes


def thread_name():
    name = getattr(threading.current_thread(), "_name", None)
    return clean(name[:SHORT]) if type(name) is str else None


def same(one, other):
    if len(one) != len(other):
        return False
    if len(one) == 4 and not (one[3] and other[3]):
        # Without complete texts only the object and its size are compared.
        return one[0] == other[0] and one[2] == other[2]
    if one[0] is other[0] and one[1] == other[1]:
        return True
    # 1, 1.0 and True are equal, and not the same; nor is a NaN equal to itself.
    return (
        type(one[0]) is type(other[0])
        and one[1] == other[1]
        and (one[0] == other[0] or (one[0] != one[0] and other[0] != other[0]))
    )


def shown(mark, view):
    if len(mark) == 4:
        return mark[1] or "(not among the locals shown)"
    return view.text(mark[0], "it") if mark[1] is None else mark[1]


def with_note_if_equal(old, new, view):
    """The two texts; if they are equal, a note says that the difference is not in them."""
    before, after = shown(old, view), shown(new, view)
    if before != after:
        return [before, after]
    sizes = [mark[0][0] if type(mark[0]) is tuple else mark[0] for mark in (old, new)]
    if sizes[0] != sizes[1] and None not in sizes:
        return ["%s (length %s)" % pair for pair in zip((before, after), sizes)]
    return [before, after + " (differs beyond what is shown)"]
