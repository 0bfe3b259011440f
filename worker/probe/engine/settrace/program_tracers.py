"""Sets the program's own tracers aside while a debugger is attached, and restores them (up to
3.11).

Coverage, a profiler or a test of tracing sets a tracer by `sys.settrace`; a thread has one at a
time. A tracer that is set aside sees nothing while the debugger is attached, and everything again
afterwards.
"""

import sys

from debug_relay.worker.probe.engine.detaching import tracing_off as tracing
from debug_relay.worker.probe.engine.settrace import interpreter_threads as thread_states
from debug_relay.worker.probe.engine.threads import running_frames as all_frames
from debug_relay.worker.probe.values.rendering import clean

NOTICE = (
    "%s traces thread %s (sys.settrace), and up to Python 3.11 there can be one tracer: it sees "
    "nothing while this session is attached, and all again after the detach.\n"
)


class SetAside(object):
    """One thread's tracer, and the trace functions that it has set in the frames,
    outermost first.
    """

    def __init__(self, tracer, frame):
        self.tracer = tracer
        self.local = [(frame.f_code, frame.f_trace) for frame in _from_the_first(frame)]

    def give_back(self, frame):
        """Restore; runs in the thread itself, which has just reached `frame`."""
        for present, (code, local) in zip(_from_the_first(frame), self.local):
            if present.f_code is not code:
                break
            present.f_trace = local
        sys.settrace(self.tracer)


@all_frames.steady
def tracers():
    """Thread ident → its tracer, for threads with a tracer of the program's own."""
    if tracing.monitors():
        return {}
    frames, ends = all_frames.of_all(), tracing.stopping()
    found = {}
    for ident, tracer in thread_states.tracers().items():
        if tracer is ends and ident in ends.back:
            # The thread has rested since a former session and still has that session's tracer.
            found[ident] = ends.back[ident]
        elif tracing.is_programs(tracer):
            found[ident] = SetAside(tracer, frames.get(ident))
    return found


def report(probe, tracers):
    for ident, one in tracers.items():
        text = NOTICE % (name_of(one.tracer), thread_name(ident))
        probe.emit("output", {"category": "console", "output": text})


def thread_name(ident):
    thread = sys.modules["threading"]._active.get(ident)
    return clean(str(getattr(thread, "name", ident)))


def name_of(tracer):
    """`coverage.CTracer`, `app.trace`."""
    named = tracer if hasattr(tracer, "__qualname__") else type(tracer)
    return clean("%s.%s" % (named.__module__, named.__qualname__))


def _from_the_first(frame):
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return reversed(found)
