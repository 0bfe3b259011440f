"""Finds threads that have lost their tracer, and traces them again.

Up to 3.11 Python silently removes a tracer from its thread if the tracer finds no more room on the
stack, or a signal handler raises in it: no breakpoint there would stop any more, and no step would
end. Python reports this to nobody, but the function that traced the thread has one reference less
then. pydevd's command thread, which looks for work every 0.2 s anyway, checks that too. Breakpoints
that the thread has passed until then are lost, so the session's console output says so.

Or the program has set a tracer of its own. We see its calls of `sys.settrace`; a tracer that is
written in C, such as coverage's, simply takes the place. We leave it there and report that as well.
Our tracer returns when the program removes its own.

On 3.11 a tracer that was replaced is kept alive here. The interpreter borrows the tracer when it
enters a function, and only then creates the frame: a garbage collection may come in between and run
Python code, in which that thread, or another one, replaces the tracer. The interpreter still calls
the old one.
"""

import _thread
import opcode
import sys

from debug_relay.worker.probe.engine.detaching.tracing_off import is_programs, monitors
from debug_relay.worker.probe.engine.settrace import interpreter_threads as thread_states
from debug_relay.worker.probe.engine.settrace.program_tracers import name_of, thread_name
from debug_relay.worker.probe.engine.threads import running_frames as all_frames

# References to such a function besides the thread's: `tracers` and its copy, pydevd's two thread
# locals, and the variable and the argument with which it is counted.
_OTHERS = 6
_BORROWS = sys.version_info[:2] == (3, 11)
# From this many replaced tracers of a thread on, we check whether they can still be called.
_REPLACED = 16
TRACED_AGAIN = (
    "A stack overflow in thread %s ended its tracing, or what a signal's handler raised while its "
    "tracer ran, as Python does up to 3.11. It is traced "
    "again; breakpoints that it passed in between, for 0.2 s or so, did not stop.\n"
)
TAKEN = (
    "%s traces thread %s from here on, as the program wants it, and up to Python 3.11 there can be "
    "one tracer: no breakpoint stops that thread until it has ended.\n"
)


class Retracing(object):
    def __init__(self, probe):
        self.probe = probe
        self.tracers = {}  # thread ident → the function that traces it
        self.aside = {}  # the same, for threads that the program's own tracer traces meanwhile
        self.own = _thread._local()  # `replaced`: tracers of this thread that were replaced
        self.others = []  # tracers that other threads have removed
        self.lock = _thread.allocate_lock()  # held while a thread is traced again; not in a fork
        self.reported = set()

    def hook(self):
        if monitors():
            return
        hooks = self.probe.engine.hooks
        hooks.around("enable_tracing", "retracing", self.enabling)
        hooks.around("disable_tracing", "retracing", self.disabling)
        hooks.around("process_internal_commands", "retracing", self.working)

    def enabling(self, enable):
        def enable_tracing(thread_trace_func=None, apply_to_all_threads=False):
            self.follow_the_programs_tracer()
            enable(thread_trace_func, apply_to_all_threads)
            if thread_trace_func is not None and not apply_to_all_threads:
                self.replace(by=thread_trace_func)
                self.tracers[_thread.get_ident()] = thread_trace_func

        return enable_tracing

    def disabling(self, disable):
        def disable_tracing():
            disable()
            self.replace()

        return disable_tracing

    def working(self, work):
        def process_internal_commands(*arguments):
            work(*arguments)
            if arguments == (("*",),):
                self.look()

        return process_internal_commands

    def follow_the_programs_tracer(self):
        """Let a tracer that the program sets trace until the program sets None, or pydevd's."""
        tracing = sys.modules["pydevd_tracing"]
        holder = tracing.TracingFunctionHolder
        settrace = holder._original_tracing
        if settrace is None or hasattr(settrace, "wrapped"):
            return
        by_program = tracing._internal_set_trace.__code__

        def chosen(function):
            ident, caller = _thread.get_ident(), sys._getframe(1)
            ours = self.aside.pop(ident, None) or self.tracers.get(ident)
            if ours is None or caller.f_code is not by_program:
                self.replace()
                settrace(function)
            elif is_programs(function):
                self.replace()
                self.set_aside(ident, ours, function)  # before the next line: it would trace this
                settrace(function)
            else:
                settrace(None)
                self.probe.engine.db.enable_tracing(ours)
                self.probe.engine.db.set_trace_for_frame_and_parents(ident, caller.f_back)

        chosen.wrapped = settrace
        holder._original_tracing = chosen

    def set_aside(self, ident, ours, by):
        self.aside[ident] = ours
        text = TAKEN % (name_of(by), thread_name(ident))
        if text not in self.reported:
            self.reported.add(text)
            self.probe.emit("output", {"category": "console", "output": text})

    def look(self):
        for ident, tracer in list(self.tracers.items()):
            held = _OTHERS + (getattr(self.record(ident), "thread_tracer", None) is tracer)
            if sys.getrefcount(tracer) <= held:
                with self.lock:
                    self.look_at(ident, tracer)
        if self.aside:
            with self.lock:
                self.look_at_those_aside()

    def record(self, ident):
        """pydevd's record of a thread, which may hold the tracer as well."""
        threads = sys.modules["threading"]._active
        return getattr(threads.get(ident), "additional_info", None)

    @all_frames.steady
    def look_at(self, ident, tracer):
        """This thread seems to have lost this tracer."""
        found = thread_states.tracers()
        if self.tracers.get(ident) is not tracer or not found:
            return
        present = found.get(ident)
        if ident not in found:
            del self.tracers[ident]  # it has ended
        elif present is tracer:
            return  # on 3.11 a tracer sometimes has fewer references
        elif present is None:
            if self.trace_again(ident, tracer):
                text = TRACED_AGAIN % thread_name(ident)
                self.probe.emit("output", {"category": "console", "output": text})
        else:
            self.others.append(self.tracers.pop(ident))
            if is_programs(present):
                self.set_aside(ident, tracer, present)

    def look_at_those_aside(self):
        found = thread_states.tracers()
        for ident, tracer in list(self.aside.items()):
            if found.get(ident) is None:
                self.aside.pop(ident, None)
                if ident in found and self.trace_again(ident, tracer):
                    self.tracers[ident] = tracer

    @all_frames.steady
    def trace_again(self, ident, tracer):
        frame = all_frames.of_all().get(ident)
        if frame is None:
            return False  # it has ended
        trace = sys.modules["pydevd_tracing"].set_trace_to_threads
        trace(tracer, thread_idents=[ident], create_dummy_thread=False)
        self.probe.engine.db.set_trace_for_frame_and_parents(ident, frame)
        return True

    def leave(self):
        """Do not trace this thread again."""
        with self.lock:
            self.replace()

    def replace(self, by=None):
        """Run in the thread itself. Keeps no reference to the new tracer: its references are
        counted.
        """
        tracer = self.tracers.pop(_thread.get_ident(), None)
        kept = self.own.__dict__.setdefault("replaced", [])
        if by in kept:
            kept.remove(by)
        if _BORROWS and tracer is not None and tracer is not by:
            kept.append(tracer)
            if len(kept) > _REPLACED and not _enters_a_function(sys._getframe()):
                del kept[:-1]

    def stop(self):
        """The debugger detaches: threads that lose their tracer from now on stay untraced."""
        with self.lock:
            self.others += [*self.tracers.values(), *self.aside.values()]
            self.tracers.clear()
            self.aside.clear()


def _enters_a_function(frame):
    """Whether a frame of this stack is still being entered, so that the frames above it run in
    between.
    """
    while frame is not None:
        code = frame.f_code.co_code
        if frame.f_lasti < 0 or code[frame.f_lasti] == opcode.opmap["RESUME"]:
            return True
        frame = frame.f_back
    return False
