"""Reports the exception at which a thread is stopped: type, message, frames, causes, members.

The thread does it itself. Only `str()` of an exception is the program's code; it may raise, lie, or
never end. If it takes too long it is interrupted, and no more of the program's code is run.
"""

import linecache
import sys
import types

from debug_relay.worker.probe.values.class_facts import full_name, key_of, lookup, qualname
from debug_relay.worker.probe.values.rendering import (
    ATOMS,
    TEXTS,
    Interrupted,
    View,
    clean,
    name_of,
)

MESSAGE, LINE, NOTE = 16384, 500, 2000
FRAMES = 100  # Frames of one exception; of more the first and the last half are shown.
CHAIN, MEMBERS, NOTES, DEPTH = 20, 10, 20, 3
_PLAIN = ATOMS | TEXTS
_MOST_WALKED = 100000  # Frames that are walked to find where an exception came from.
_cause = BaseException.__dict__["__cause__"].__get__
_context = BaseException.__dict__["__context__"].__get__
_trace = BaseException.__dict__["__traceback__"].__get__
_args = BaseException.__dict__["args"].__get__
_suppress = BaseException.__dict__["__suppress_context__"].__get__
_dict = BaseException.__dict__["__dict__"].__get__
_Group = getattr(sys.modules["builtins"], "BaseExceptionGroup", None)
_members = _Group.__dict__["exceptions"].__get__ if _Group is not None else None


class ExceptionDetails(object):
    def __init__(self, probe):
        self.probe = probe
        probe.questions.update(exception=self.ask)

    def ask(self, id, thread, safe=False):
        return self.probe.answers.ask_thread(thread, id, self.report, safe)

    def report(self, id, thread_id, safe):
        held = getattr(self.probe.this_thread, "exception", None)
        if held is None:
            return {"id": id}
        mode = "safe" if safe else self.probe.pages.mode
        maker = ExceptionReport(self.probe.engine, self.probe.texts, mode)
        details = maker.one(held.value, held.kind, maker.journey(held.trace, held.frame))
        chain, is_cut = maker.chain_of(held.value)
        return {
            "id": id,
            "exception": details,
            "how": held.how,
            "chain": chain,
            "chain_truncated": is_cut,
        }


class ExceptionReport(object):
    """Makes one report; `late` is set when no more of the program's code may run."""

    def __init__(self, engine, texts, mode):
        self.engine, self.texts, self.mode = engine, texts, mode
        self.late = False

    def one(self, value, kind, frames, depth=0):
        details = {"type": clean(qualname(kind)), "full_type_name": clean(spelled(kind))}
        details["message"] = self.words(value)
        details["frames"], details["frames_omitted"] = frames
        details["notes"] = self.notes(value)
        if _Group is not None and issubclass(kind, _Group):
            members = _members(value)
            shown = members[:MEMBERS] if depth < DEPTH else ()
            details["members"] = [
                self.one(member, type(member), self.passed(_trace(member)), depth + 1)
                for member in shown
            ]
            details["members_omitted"] = len(members) - len(shown)
        return details

    def chain_of(self, value):
        """The chain of causes, the nearest first, and whether it is cut."""
        chain, seen = [], {id(value)}
        while len(chain) < CHAIN:
            relation, value = origin_of(value)
            if value is None or id(value) in seen:
                return chain, False
            seen.add(id(value))
            details = self.one(value, type(value), self.passed(_trace(value)))
            chain.append(dict(details, relation=relation))
        return chain, origin_of(value)[1] is not None

    # -- words

    def words(self, value):
        if self.late:
            return "<no message: another one took too long>"
        if self.mode == "safe" and not speaks_plainly(value):
            return View("safe", MESSAGE).text(value)
        try:
            return cut(str(value), MESSAGE)
        except Interrupted:
            self.late = True
            return "<no message: str() took too long>"
        except BaseException as error:
            return "<no message: str() raised %s>" % name_of(type(error))

    def notes(self, value):
        try:
            notes = dict.get(_dict(value), "__notes__")
        except (TypeError, AttributeError):
            return []
        if key_of(type(notes)) not in (list, tuple):
            return []
        return [cut(note, NOTE) for note in notes[:NOTES] if type(note) is str]

    # -- frames, the outermost first

    def journey(self, trace, frame):
        """The frames from the thread's beginning to the place of the raise."""
        callers = []
        caller = trace.tb_frame.f_back
        while caller is not None and len(callers) < _MOST_WALKED:
            callers.append((caller, caller.f_lineno))
            caller = caller.f_back
        return self.shown(callers[::-1] + list(walk(trace)))

    def passed(self, trace):
        return self.shown(list(walk(trace)))

    def shown(self, steps):
        steps = [(frame, line) for frame, line in steps if not self.engine.is_own(frame)]
        omitted = max(0, len(steps) - FRAMES)
        if omitted:
            steps = steps[: FRAMES // 2] + steps[-FRAMES // 2 :]
        return [self.row(frame, line) for frame, line in steps], omitted

    def row(self, frame, line):
        path = frame.f_code.co_filename
        real, _ = self.engine.place_of(frame)
        shown = path if path.startswith("<") else real
        text = linecache.getline(shown, line or 0) or self.texts.line(frame, line or 0)
        return [clean(real), line, clean(frame.f_code.co_name), cut(text.strip(), LINE)]


def speaks_plainly(value):
    """Whether `str()` of the exception runs only C code."""
    args = _args(value)
    said = lookup(type(value), "__str__")
    return type(said) is types.WrapperDescriptorType and all(
        key_of(type(arg)) in _PLAIN for arg in args
    )


def walk(trace):
    for _ in range(_MOST_WALKED):
        if trace is None:
            return
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def origin_of(value):
    """The exception before this one, as a traceback shows it: a cause hides the context."""
    cause = _cause(value)
    if cause is not None:
        return "cause", cause
    if _suppress(value):
        return None, None
    return "context", _context(value)


def spelled(kind):
    name = full_name(kind)
    return "builtins." + name if name == qualname(kind) else name


def cut(text, most):
    """The beginning of a text as a plain str: str() may return an instance of a subclass."""
    text = str.__getitem__(text, slice(most))
    return clean(text if type(text) is str else str.__str__(text))
