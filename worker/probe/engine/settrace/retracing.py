"""Threads that have lost their tracer: they are found and traced again.

Up to 3.11 a tracer that finds no more room on the stack, or in which a signal's handler raises, is
taken from its thread, silently: no breakpoint there would stop any more, no step would end. Nobody
is told, but the function that traced the thread has one holder less then. pydevd's command thread,
which looks for work every 0.2 s anyhow, looks at that too. What the thread has passed until then is
lost, so it is told.

Or the program has set a tracer of its own: `sys.settrace` tells us; one that is written in C, as
that of coverage, has just taken the place. It is left there, which is told as well, and ours comes
back when the program wants none any more.

And on 3.11 a tracer that was replaced lives on here. The interpreter borrows it when it enters a
function, and only then makes the frame: a garbage collection may come in between and run Python
code, in which that thread, or another, replaces the tracer. It is called all the same.
"""

import _thread
import opcode
import sys

from debug_relay.worker.probe.engine.detaching.tracing_off import is_programs, monitors
from debug_relay.worker.probe.engine.settrace import interpreter_threads as thread_states
from debug_relay.worker.probe.engine.settrace.program_tracers import name_of, thread_name
from debug_relay.worker.probe.engine.threads import running_frames as all_frames

# Holders of such a function besides the thread: `armed` and the copy of it, pydevd's two thread
# locals, and the name and the argument by which it is counted.
_OTHERS = 6
_BORROWS = sys.version_info[:2] == (3, 11)
# Replaced tracers of a thread from which on we look whether they can still be called.
_REPLACED = 16
TOLD = (
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
        self.armed = {}  # thread ident → the function that traces it
        self.aside = {}  # the same, where the program's own traces it meanwhile
        self.own = _thread._local()  # its `replaced`: those of this thread that were
        self.others = []  # those that other threads have taken from it
        self.lock = _thread.allocate_lock()  # while one is traced again; not taken in a fork
        self.told = set()

    def hook(self):
        if monitors():
            return
        hooks = self.probe.engine.hooks
        hooks.around("enable_tracing", "retracing", self.enabling)
        hooks.around("disable_tracing", "retracing", self.disabling)
        hooks.around("process_internal_commands", "retracing", self.working)

    def enabling(self, enable):
        def enable_tracing(thread_trace_func=None, apply_to_all_threads=False):
            self.mind_the_program()
            enable(thread_trace_func, apply_to_all_threads)
            if thread_trace_func is not None and not apply_to_all_threads:
                self.replace(by=thread_trace_func)
                self.armed[_thread.get_ident()] = thread_trace_func

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

    def mind_the_program(self):
        """Let a tracer that the program sets trace until the program sets None, or ours again."""
        tracing = sys.modules["pydevd_tracing"]
        holder = tracing.TracingFunctionHolder
        settrace = holder._original_tracing
        if settrace is None or hasattr(settrace, "wrapped"):
            return
        by_program = tracing._internal_set_trace.__code__

        def chosen(function):
            ident, caller = _thread.get_ident(), sys._getframe(1)
            ours = self.aside.pop(ident, None) or self.armed.get(ident)
            if ours is None or caller.f_code is not by_program:
                self.replace()
                settrace(function)
            elif is_programs(function):
                self.replace()
                self.set_aside(ident, ours, function)  # before that: it would trace this
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
        if text not in self.told:
            self.told.add(text)
            self.probe.emit("output", {"category": "console", "output": text})

    def look(self):
        for ident, tracer in list(self.armed.items()):
            held = _OTHERS + (getattr(self.record(ident), "thread_tracer", None) is tracer)
            if sys.getrefcount(tracer) <= held:
                with self.lock:
                    self.look_at(ident, tracer)
        if self.aside:
            with self.lock:
                self.look_at_those_aside()

    def record(self, ident):
        """pydevd's record of a thread, which holds the plain tracer as well."""
        threads = sys.modules["threading"]._active
        return getattr(threads.get(ident), "additional_info", None)

    @all_frames.steady
    def look_at(self, ident, tracer):
        """It seems to be without it."""
        found = thread_states.tracers()
        if self.armed.get(ident) is not tracer or not found:
            return
        present = found.get(ident)
        if ident not in found:
            del self.armed[ident]  # it has ended
        elif present is tracer:
            return  # on 3.11 one is held by fewer at times
        elif present is None:
            if self.trace_again(ident, tracer):
                text = TOLD % thread_name(ident)
                self.probe.emit("output", {"category": "console", "output": text})
        else:
            self.others.append(self.armed.pop(ident))
            if is_programs(present):
                self.set_aside(ident, tracer, present)

    def look_at_those_aside(self):
        found = thread_states.tracers()
        for ident, tracer in list(self.aside.items()):
            if found.get(ident) is None:
                self.aside.pop(ident, None)
                if ident in found and self.trace_again(ident, tracer):
                    self.armed[ident] = tracer

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
        """This thread is to stay as it is."""
        with self.lock:
            self.replace()

    def replace(self, by=None):
        """In the thread itself. Who holds the new one is counted: it is nowhere else."""
        tracer = self.armed.pop(_thread.get_ident(), None)
        kept = self.own.__dict__.setdefault("replaced", [])
        if by in kept:
            kept.remove(by)
        if _BORROWS and tracer is not None and tracer is not by:
            kept.append(tracer)
            if len(kept) > _REPLACED and not _enters_a_function(sys._getframe()):
                del kept[:-1]

    def stop(self):
        """The program is let go: what is without tracing from now on is to stay so."""
        with self.lock:
            self.others += [*self.armed.values(), *self.aside.values()]
            self.armed.clear()
            self.aside.clear()


def _enters_a_function(frame):
    """Somewhere in this stack, with what runs above it run in between."""
    while frame is not None:
        code = frame.f_code.co_code
        if frame.f_lasti < 0 or code[frame.f_lasti] == opcode.opmap["RESUME"]:
            return True
        frame = frame.f_back
    return False
