"""Finds the function in C that a step went into. It has no lines, so the step ends after it.

A profile function sees the calls of the frame in which the step begins. It removes itself at the
first call, before the function runs, so the program never finds it.
"""

import _thread
import sys

from debug_relay.worker.probe.engine.engine import is_debuggers_file
from debug_relay.worker.probe.inspection.first_c_call import class_in_c
from debug_relay.worker.probe.values.rendering import clean

_MOST_FRAMES = 100  # Frames that are walked to find the statement that a step is in.


class StepIntoC(object):
    def __init__(self, probe):
        self.probe = probe
        self.watched = {}  # thread ident → Watch, from the step on to the thread's next stop
        self.entered = {}  # The debugger's thread id → the function that its last step went into
        probe.commands.update(watch_calls=self.ask, native=self.callee)

    def ask(self, thread):
        found = self.probe.threads.found(thread)
        if found is None:
            return False
        self.entered.pop(found[0], None)
        self.probe.engine.post(found[0], self.begin, found[0])
        return True

    def begin(self, thread_id):
        """Begin to watch; the stopped thread runs this, and steps next."""
        listed = self.probe.engine.frames(thread_id)
        frame = None if listed is None else next(iter(listed), None)
        if frame is None or sys.getprofile() is not None:
            return  # the program has a profile function of its own
        watch = self.watched[_thread.get_ident()] = Watch(frame, thread_id)
        watch.callee = class_in_c(frame)
        sys.setprofile(watch)

    def hook(self):
        self.probe.engine.hooks.around("do_wait_suspend", "step_into_c", self.waiting)

    def waiting(self, wait):
        def do_wait_suspend(thread, frame, event, arg, exception_type=None):
            watch = self.watched.pop(_thread.get_ident(), None)
            if watch is not None:
                watch.leave()
                if watch.callee is not None and not is_below(frame, watch.frame):
                    self.entered[watch.thread_id] = watch.callee
                watch.frame = None
            wait(thread, frame, event, arg, exception_type)

        return do_wait_suspend

    def callee(self, thread):
        """The function in C that the last step of this thread went into, if it did."""
        found = self.probe.threads.found(thread)
        return None if found is None else self.entered.pop(found[0], None)


class Watch(object):
    """A profile function that notes the first call of a frame."""

    def __init__(self, frame, thread_id):
        self.frame, self.thread_id = frame, thread_id
        self.callee = None

    def __call__(self, frame, event, arg):
        if frame is self.frame:
            if event == "c_call" and self.callee is None:
                self.callee = name_of(arg)
            if event in ("c_call", "return"):
                self.leave()
        elif (
            event == "call"
            and frame.f_back is self.frame
            and not is_debuggers_file(frame.f_code.co_filename)
        ):
            self.leave()

    def leave(self):
        if sys.getprofile() is self:
            sys.setprofile(None)


def name_of(function):
    name = getattr(function, "__qualname__", None)
    module = getattr(function, "__module__", None)
    if type(name) is not str:
        return "?"
    plain = type(module) is not str or module == "builtins"
    return clean(name if plain else "%s.%s" % (module, name))[:200]


def is_below(frame, above):
    """Whether a frame was called, by however many others, from that one."""
    for _ in range(_MOST_FRAMES):
        frame = frame.f_back
        if frame is None:
            return False
        if frame is above:
            return True
    return True
