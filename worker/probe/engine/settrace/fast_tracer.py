"""Frames with breakpoints where nothing stops: what pydevd's plain tracer does there, in short.

Up to 3.10 pydevd traces in Python. At each call, line and return of a function that has a
breakpoint it goes through all that stepping, exceptions and plugins may need. A thread that just
runs needs two things of it: is there a breakpoint at this line, and does it stop? All else is left
to pydevd itself.

What is found for a frame holds as long as it runs, and is found in Python, while other threads run
and breakpoints change: what was found by the former ones is found anew, or a loop that calls
nothing would pass its new breakpoint for ever.
"""

import sys

from debug_relay.worker.probe.engine.detaching import tracing_off as tracing

RUNNING = 1  # pydevd's word for a thread that is not to stand still
_ROOM = 40  # Frames that pydevd, and what is evaluated at a breakpoint, may need.


def _nested():
    value = ()
    for _ in range(_ROOM):
        value = (value,)
    return value


# Comparing them needs that much room on the stack, and hardly any time.
_DEEP, _AS_DEEP = _nested(), _nested()


def shorten(probe):
    """In place of what pydevd makes for each frame that it traces, where that is not compiled."""
    tracer = sys.modules.get("_pydevd_bundle.pydevd_trace_dispatch")
    plain = sys.modules.get("_pydevd_bundle.pydevd_trace_dispatch_regular")
    if plain is None or getattr(tracer, "USING_CYTHON", True) or hasattr(sys, "monitoring"):
        return
    reason = sys.modules["_pydevd_bundle.pydevd_comm_constants"].CMD_SET_BREAK
    probe.engine.hooks.swap(plain, "PyDBFrame", frame_of(plain.PyDBFrame, reason))
    probe.engine.hooks.swap(plain, "ThreadTracer", thread_of(plain.ThreadTracer))
    bottom = "TopLevelThreadTracerNoBackFrame"
    probe.engine.hooks.swap(plain, bottom, bottom_of(getattr(plain, bottom), plain))


def thread_of(whole_thread):
    whole = whole_thread.__call__

    class ThreadTracer(whole_thread):
        __module__ = whole_thread.__module__

        def __call__(self, frame, event, arg):
            _, _, info, skips, _ = self._args
            if event == "call" and info.pydev_step_cmd == -1 and frame.f_code in skips:
                return None
            # pydevd swallows the RecursionError that it runs into itself. The program would go on
            # calling, and Python 3.8 ends it by SIGABRT when it has had no error in time.
            _DEEP == _AS_DEEP  # noqa: B015
            return of_now(self._args, whole, self, frame, event, arg)

    return ThreadTracer


def bottom_of(whole_bottom, plain):
    """A faster tracer for the lowest frame of a stack that was there before us."""
    whole = whole_bottom.trace_dispatch_and_unhandled_exceptions

    class TopLevelThreadTracerNoBackFrame(whole_bottom):
        __module__ = whole_bottom.__module__
        found_by = None  # which breakpoints

        def trace_dispatch_and_unhandled_exceptions(self, frame, event, arg):
            breakpoints = self._args[0].mtime
            if self.found_by != breakpoints:
                # It puts itself over whatever is set to have this frame looked at anew.
                self._frame_trace_dispatch = plain.ThreadTracer(self._args)
                self.found_by = breakpoints
            traces = whole(self, frame, event, arg)
            if self._args[0].pydb_disposed:
                # The next debugger sets its own there, and this one must not go over it for ever.
                traces = tracing.stopping()
                frame.f_trace = traces if sys.gettrace() is traces else None
            return frame.f_trace

    return TopLevelThreadTracerNoBackFrame


def of_now(args, find, *event):
    """How pydevd goes on with a frame; anew at its next event if breakpoints changed meanwhile."""
    db = args[0]
    breakpoints = db.mtime
    found = find(*event)
    if db.mtime == breakpoints or db.pydb_disposed:
        return found
    for skips in args[-2:]:  # these have noted the same
        if isinstance(skips, dict):
            skips.clear()
    return db.trace_dispatch


def frame_of(whole_frame, reason):
    whole = whole_frame.trace_dispatch

    class PyDBFrame(whole_frame):
        __module__ = whole_frame.__module__  # pydevd's, for who looks whose it is
        lines = None  # the table of breakpoints for which pydevd wants to see this frame's lines

        def trace_dispatch(self, frame, event, arg):
            db, place, info, thread, skips, code = self._args
            if (
                info.pydev_step_cmd != -1
                or info.pydev_state != RUNNING
                or db.has_plugin_line_breaks
                or db.pydb_disposed
                or db.quitting
            ):
                return whole(self, frame, event, arg)
            lines = db.breakpoints.get(place[1])
            if lines is None or lines is not self.lines:
                # Tables are replaced when they change: pydevd may let the frame go then.
                begins = event == "call" and skips.get(code) == 1
                if not begins or code.co_name in db.function_breakpoint_name_to_breakpoint:
                    traces = of_now(self._args, whole, self, frame, event, arg)
                    if traces == self.trace_dispatch and event != "exception":
                        self.lines = lines
                    return traces
                self.lines = lines
            if event == "line":
                breakpoint = lines.get(frame.f_lineno)
                if breakpoint is None:
                    return self.trace_dispatch
                if breakpoint.has_condition and breakpoint.expression is None:
                    info.is_tracing += 1
                    try:
                        return self.at(breakpoint, frame)
                    finally:
                        info.is_tracing -= 1
            elif event == "call" or event == "return" and not self.exc_info:
                return self.trace_dispatch
            return whole(self, frame, event, arg)

        def at(self, breakpoint, frame):
            db, _, info, thread, _, _ = self._args
            stops = db.handle_breakpoint_condition(info, breakpoint, frame)
            if stops:
                halt = breakpoint.suspend_policy == "ALL"
                db.set_suspend(thread, reason, suspend_other_threads=halt)
            if info.pydev_state != RUNNING:
                if stops:
                    info.hit_breakpoint_ids = [breakpoint.breakpoint_id]
                db.do_wait_suspend(thread, frame, "line", None)
            return self.trace_dispatch

    return PyDBFrame
