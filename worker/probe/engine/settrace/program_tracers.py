"""Tracers of the program's own, up to 3.11: an attached debugger takes their place, and gives it
back.

Coverage, a profiler or a test of tracing sets one by `sys.settrace`; a thread has one at a time.
What happens while the debugger is there it does not see; after that it sees all again.
"""

import sys

from debug_relay.worker.probe.engine.detaching import tracing_off as tracing
from debug_relay.worker.probe.engine.settrace import interpreter_threads as thread_states
from debug_relay.worker.probe.engine.threads import running_frames as all_frames
from debug_relay.worker.probe.values.rendering import clean

TOLD = (
    "%s traces thread %s (sys.settrace), and up to Python 3.11 there can be one tracer: it sees "
    "nothing while this session is attached, and all again after the detach.\n"
)


class SetAside(object):
    """One thread's, with what it has set in the frames that stood there, from the first."""

    def __init__(self, tracer, frame):
        self.tracer = tracer
        self.local = [(frame.f_code, frame.f_trace) for frame in _from_the_first(frame)]

    def give_back(self, frame):
        """In the thread itself, which has just come to `frame`."""
        for stands, (code, local) in zip(_from_the_first(frame), self.local):
            if stands.f_code is not code:
                break
            stands.f_trace = local
        sys.settrace(self.tracer)


@all_frames.steady
def tracers():
    """Thread ident → what its tracer is, where that is the program's own."""
    if tracing.monitors():
        return {}
    frames, ends = all_frames.of_all(), tracing.stopping()
    found = {}
    for ident, tracer in thread_states.tracers().items():
        if tracer is ends and ident in ends.back:
            # It has rested since a former session, which it has not noticed the end of.
            found[ident] = ends.back[ident]
        elif tracing.is_programs(tracer):
            found[ident] = SetAside(tracer, frames.get(ident))
    return found


def tell(probe, tracers):
    for ident, one in tracers.items():
        text = TOLD % (name_of(one.tracer), thread_name(ident))
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
