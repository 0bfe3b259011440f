"""The frames of a stopped thread, as pydevd lists them, without its cost for deep stacks."""

import gc
import operator
import sys
import weakref

from debug_relay.worker.probe.engine.library_files import library_of
from debug_relay.worker.probe.values.rendering import clean

MONITORED = sys.version_info >= (3, 12)
GENERATOR = 0x20 | 0x80 | 0x200  # flags of code with yield, with async def, with both
LIBRARIES = 4  # Libraries that are named where their frames are folded.
WAKE = "<relay wake>"
RUNNING, SUSPENDED = 1, 2  # pydevd's numbers for the state of a thread
state_of = operator.attrgetter("pydev_state")  # of pydevd's record of a thread


def number_of(id):
    """pydevd's number for one of the session's breakpoints."""
    return int(id.rpartition("_")[2])


def visible(db, frame, known):
    """The path of a frame's code, as it is shown; None if the frame is not the program's."""
    code = frame.f_code
    try:
        return known[id(code)]
    except KeyError:
        pass
    files = sys.modules["pydevd_file_utils"]
    place = files.get_abs_path_real_path_and_base_from_frame(frame)
    hidden = (
        code.co_filename == WAKE
        or db.get_file_type(frame, place) == db.PYDEV_FILE
        or (db.is_files_filter_enabled and db.apply_files_filter(frame, place[0], False))
    )
    shown = known[id(code)] = None if hidden else files.map_file_to_client(place[0])[0]
    return shown


def stack(db, listed, most, count=True):
    """[[name, path, line, module]] of the topmost frames, and how many frames there are in all."""
    rows, total, known = [], 0, {}
    for frame in listed:
        try:
            path = known[id(frame.f_code)]
        except KeyError:
            path = visible(db, frame, known)
        if path is None:
            continue
        total += 1
        if total > most and not count:
            break
        if total <= most:
            line = listed.frame_id_to_lineno.get(id(frame), frame.f_lineno)
            rows.append([frame.f_code.co_name, clean(path), line, module_of(frame)])
    return rows, total


class Folded(object):
    """The frames of a stack that are the program's own, and how many of which libraries lie
    between them.

    The top frame counts as the program's own, and so do the frames of its library that have called
    it: the thread has stopped there. With `fold` "own" they do not, because the thread only waits
    there; with "none" no frame is folded.
    """

    def __init__(self, db, listed, most, fold):
        self.rows, self.numbers, self.total = [], [], 0
        self.top = None  # the first frame of the rows
        self.near = None  # the library of the top frame
        self.folds = []  # [number of the first, how many, [libraries]]
        known, libraries = {}, {}
        is_near = fold == "top"
        for frame in listed:
            code = id(frame.f_code)
            path = known[code] if code in known else visible(db, frame, known)
            if path is None:
                continue
            if code not in libraries:
                libraries[code] = None if fold == "none" else library_of(path, frame.f_code.co_name)
            library = libraries[code]
            if self.total == 0 and fold == "top":
                self.near = library
            number, self.total = self.total, self.total + 1
            is_near = is_near and library == self.near
            if library is not None and not is_near:
                self._fold(number, library)
            elif len(self.rows) < most:
                line = listed.frame_id_to_lineno.get(id(frame), frame.f_lineno)
                self.rows.append([frame.f_code.co_name, clean(path), line, module_of(frame)])
                self.numbers.append(number)
                self.top = self.top or frame
        # Folds after the last listed frame are not reported.
        if len(self.rows) == most and self.numbers:
            self.folds = [fold for fold in self.folds if self._is_next(fold)]

    def _fold(self, number, library):
        last = self.folds[-1] if self.folds else None
        if last is None or last[0] + last[1] != number:
            self.folds.append([number, 1, [library]])
            return
        last[1] += 1
        if library not in last[2] and len(last[2]) < LIBRARIES:
            last[2].append(library)

    def _is_next(self, fold):
        return fold[0] <= self.numbers[-1] + 1


def module_of(frame):
    """The name of the frame's module. Its globals may be of a dict class of the program's."""
    name = dict.get(frame.f_globals, "__name__")
    return name if type(name) is str else None


def top_of(db, listed):
    known = {}
    for frame in listed:
        if visible(db, frame, known) is not None:
            return frame
    return None


class FunctionRun(object):
    """One run of a function, distinguished from a later run with the same frame object.

    Frames take no weak references and are reused at once, and keeping one would keep the program's
    objects alive. But each frame has a trace function: that of pydevd, which is a separate object
    for every call; from 3.12 on, where pydevd needs none, one of the probe's, which ends with the
    frame.
    """

    def __init__(self, frame):
        self.frame, self.code = id(frame), id(frame.f_code)
        tracer = frame.f_trace
        if tracer is None and MONITORED:
            tracer = frame.f_trace = Mark()
        self.mark = weakref.ref(tracer) if type(tracer) is Mark else None
        tracer = tracer.get_method_object() if hasattr(tracer, "get_method_object") else tracer
        owner = getattr(tracer, "__self__", None)
        # A generator is called anew each time that it resumes.
        own = type(owner).__name__ == "PyDBFrame" and not frame.f_code.co_flags & GENERATOR
        self.owner = facts_of(owner) if own else None

    @property
    def is_marked(self):
        """Whether this run can be distinguished from a later one with the same frame object."""
        return self.mark is not None or self.owner is not None

    def is_of(self, other):
        if self.frame != other.frame or self.code != other.code:
            return False
        if self.mark is not None or other.mark is not None:
            return self.mark is not None and self.mark() is not None and self.mark == other.mark
        return self.owner is other.owner


def facts_of(tracer):
    """The arguments with which pydevd has made a call's tracer, one tuple for each tracer.

    We keep no reference to the tracer: it keeps an exception, and so all frames that the exception
    passed. A compiled tracer does not show its arguments.
    """
    for held in gc.get_referents(getattr(tracer, "__dict__", tracer)):
        if type(held) is tuple and held and type(held[0]).__name__ == "PyDB":
            return held
    return None


class Mark(object):
    """A trace function that traces nothing; called if the program itself starts to trace."""

    def __call__(self, frame, event, arg):
        return None
