"""Makes stops and steps in deep stacks cheap: pydevd does work for each of their frames.

pydevd registers a variable for every frame at every stop, though hardly any is opened; here the
lower ones are registered when the first of them is requested. And at every step pydevd sets up each
frame's tracing, such that each frame searches the whole stack when it resumes.
"""

import contextlib
import itertools
import sys

from debug_relay.worker.probe.engine.frames import MONITORED
from debug_relay.worker.probe.engine.threads import running_frames as all_frames

# Frames of a stack that pydevd sees at once; the others are added when they are requested.
AT_ONCE = 40
THREADS = 256  # Threads whose tracers are remembered.


class DeepStacks(object):
    def __init__(self, probe, untie):
        self.probe = probe
        self.untie = untie  # called at the resume with each opened variable
        self.tracers = {}  # thread ident → what pydevd's own tracer has, and ours

    def hook(self):
        db = self.probe.engine.db
        manager = db.suspended_frames_manager
        made = tracker_class(
            sys.modules["_pydevd_bundle.pydevd_suspended_frames"]._FramesTracker, self.untie
        )

        @contextlib.contextmanager
        def track_frames(py_db):
            tracker = made(manager, py_db)
            try:
                yield tracker
            finally:
                tracker.untrack_all()

        self.probe.engine.hooks.swap(manager, "track_frames", track_frames)
        self.probe.engine.hooks.around(
            "set_trace_for_frame_and_parents", "deep_stacks", self.tracing
        )

    def tracing(self, trace):
        self.trace = trace
        return all_frames.steady(self.set_trace if MONITORED else self.set_trace_of_frames)

    def set_trace_of_frames(self, ident, frame, disable=False):
        """Up to 3.11 pydevd gives each frame a trace function that looks for the stack's bottom at
        the frame's next event, so returning from n frames takes n² steps. The first frame's look is
        enough, and the bottom frame's, which keeps a separate trace function.
        """
        if disable:
            self.tracers.pop(ident, None)
        tracer = None if disable else self.tracer(ident)
        if tracer is None:
            self.trace(ident, frame, disable=disable)
            return
        db, fresh, traced = self.probe.engine.db, [], {}
        while frame is not None:
            code = getattr(frame, "f_code", None)  # frames of templates are none of Python's
            if code is not None:
                if id(code) not in traced:  # equal code may be of another file
                    traced[id(code)] = db.get_file_type(frame) is None
                if traced[id(code)]:
                    if fresh and frame.f_trace is tracer:
                        break  # so are those below, which have not run since the last step
                    fresh.append(frame)
            frame = frame.f_back
        # From below, so that the rule holds even if this is interrupted.
        while fresh:
            frame = fresh.pop()
            searches = not fresh or frame.f_back is None
            frame.f_trace = db.trace_dispatch if searches else tracer

    def tracer(self, ident):
        """A trace function like pydevd's for all frames of a thread, if the thread has one already.
        A separate object, because `settrace/retracing` counts the references to pydevd's.
        """
        known = tracer_of(ident)
        if known is None or known._args[0] is not self.probe.engine.db:
            return None
        made = self.tracers.get(ident)
        if made is None or made[0] is not known._args:
            kind = type(known)
            # A compiled pydevd wraps each function that Python calls.
            wrapped = getattr(sys.modules[kind.__module__], "SafeCallWrapper", lambda one: one)
            if len(self.tracers) >= THREADS:
                self.tracers.clear()
            made = self.tracers[ident] = known._args, wrapped(kind(known._args))
        return made[1]

    def forget_ended(self):
        """Drop the tracers of ended threads: a tracer holds its thread."""
        for ident, made in list(self.tracers.items()):
            if getattr(tracer_of(ident), "_args", None) is not made[0]:
                self.tracers.pop(ident, None)

    def set_trace(self, ident, frame, disable=False):
        """Trace one frame for each code: only the first frame may be the stepped one."""
        if disable:
            self.trace(ident, frame, disable=True)
            return
        db, enable = self.probe.engine.db, _monitoring().enable_code_tracing
        seen = set()
        while frame is not None:
            code = getattr(frame, "f_code", None)  # frames of templates are none of Python's
            if code is not None and id(code) not in seen:  # equal code may lie in another file
                seen.add(id(code))
                if db.get_file_type(frame) is None:
                    enable(ident, code, frame)
            frame = frame.f_back


def tracer_of(ident):
    """The function with which pydevd traces a thread, after the thread's first event."""
    thread = sys.modules["threading"]._active.get(ident)
    return getattr(getattr(thread, "additional_info", None), "thread_tracer", None)


def tracker_class(base, untie):
    class Tracker(base):
        def __init__(self, *arguments):
            base.__init__(self, *arguments)
            self.later = []  # (thread id, the id that it is shown as, its frames)

        def track(self, thread_id, frames_list, frame_custom_thread_id=None):
            chained = getattr(frames_list, "chained_frames_list", None)
            if len(frames_list) <= AT_ONCE or chained is not None:
                base.track(self, thread_id, frames_list, frame_custom_thread_id)
                return
            top = type(frames_list)()
            for frame in itertools.islice(frames_list, AT_ONCE):
                top.append(frame)
            with self._lock:
                base.track(self, thread_id, top, frame_custom_thread_id)
                shown_as = frame_custom_thread_id or thread_id
                self._thread_id_to_frames_list[shown_as] = frames_list
                self.later.append((thread_id, shown_as, frames_list))

        def complete(self):
            """Register the remaining frames; returns whether there were any."""
            with self._lock:
                later, self.later = self.later, []
                if self._untracked:
                    return False
                for thread_id, shown_as, frames in later:
                    self.add(thread_id, shown_as, itertools.islice(frames, AT_ONCE, None))
                return bool(later)

        def add(self, thread_id, shown_as, frames):
            variable = sys.modules[base.__module__]._FrameVariable
            trackers = self._suspended_frames_manager._variable_reference_to_frames_tracker
            for frame in frames:
                number = id(frame)
                self._frame_id_to_frame[number] = frame
                variable(self.py_db, frame, self._register_variable)
                trackers[number] = self
                self._thread_id_to_frame_ids[shown_as].append(number)
                self._frame_id_to_main_thread_id[number] = thread_id

        def get_variable(self, reference):
            try:
                return base.get_variable(self, reference)
            except KeyError:
                if not self.complete():
                    raise
                return base.get_variable(self, reference)

        def find_frame(self, thread_id, frame_id):
            found = base.find_frame(self, thread_id, frame_id)
            if found is None and self.complete():
                found = base.find_frame(self, thread_id, frame_id)
            return found

        def untrack_all(self):
            with self._lock:
                self.later = []
                for variable in self._variable_reference_to_variable.values():
                    untie(variable)
                base.untrack_all(self)

    return Tracker


def _monitoring():
    return sys.modules["_pydevd_sys_monitoring.pydevd_sys_monitoring"]
