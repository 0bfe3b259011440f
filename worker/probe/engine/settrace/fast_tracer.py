"""A shorter version of pydevd's tracer, for frames that have breakpoints and do not stop.

Up to 3.10 pydevd traces in Python. At each call, line and return of a function that has a
breakpoint it does everything that stepping, exceptions and plugins may need. For a thread that just
runs, two questions suffice: is there a breakpoint at this line, and does it stop? Everything else
is left to pydevd itself.

pydevd decides once for each frame how to trace it, in Python, while other threads run and
breakpoints may change. A decision that was made with the former breakpoints is made anew, or a loop
that calls nothing would pass its new breakpoint for ever.
"""

import sys

from debug_relay.worker.probe.engine.detaching import tracing_off as tracing

RUNNING = 1  # pydevd's number for the state of a thread that shall not stop
_ROOM = 40  # Frames that pydevd, and an expression at a breakpoint, may need.


def _nested():
    value = ()
    for _ in range(_ROOM):
        value = (value,)
    return value


# Comparing them needs that much room on the stack, and hardly any time.
_DEEP, _AS_DEEP = _nested(), _nested()


def shorten(probe):
    """Replace the tracers that pydevd makes for frames and threads, where they are not compiled."""
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
            # pydevd swallows a RecursionError that it causes itself. The program would continue to
            # call, and Python 3.8 would end it by SIGABRT for having ignored the error.
            _DEEP == _AS_DEEP  # noqa: B015
            return of_now(self._args, whole, self, frame, event, arg)

    return ThreadTracer


def bottom_of(whole_bottom, plain):
    """A faster tracer for the lowest frame of a stack that began before we attached."""
    whole = whole_bottom.trace_dispatch_and_unhandled_exceptions

    class TopLevelThreadTracerNoBackFrame(whole_bottom):
        __module__ = whole_bottom.__module__
        decided_by = None  # the number of the breakpoints' change by which pydevd decided

        def trace_dispatch_and_unhandled_exceptions(self, frame, event, arg):
            breakpoints = self._args[0].mtime
            if self.decided_by != breakpoints:
                # This tracer always sets itself again, so it must itself decide anew.
                self._frame_trace_dispatch = plain.ThreadTracer(self._args)
                self.decided_by = breakpoints
            traces = whole(self, frame, event, arg)
            if self._args[0].pydb_disposed:
                # The next debugger sets its own tracer there, which this one must not overwrite.
                traces = tracing.stopping()
                frame.f_trace = traces if sys.gettrace() is traces else None
            return frame.f_trace

    return TopLevelThreadTracerNoBackFrame


def of_now(args, find, *event):
    """How pydevd traces a frame. If breakpoints changed meanwhile, it decides again at the next
    event.
    """
    db = args[0]
    breakpoints = db.mtime
    found = find(*event)
    if db.mtime == breakpoints or db.pydb_disposed:
        return found
    for skips in args[-2:]:  # pydevd has noted its decision here
        if isinstance(skips, dict):
            skips.clear()
    return db.trace_dispatch


def frame_of(whole_frame, reason):
    whole = whole_frame.trace_dispatch

    class PyDBFrame(whole_frame):
        __module__ = whole_frame.__module__  # code that recognises pydevd's tracers looks at it
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
                # Tables are replaced when they change: pydevd may then stop tracing the frame.
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
