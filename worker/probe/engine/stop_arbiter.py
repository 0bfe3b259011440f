"""One stop at a time, and none lost, when several threads come to breakpoints at once.

By itself pydevd reports both stops at the same moment and resumes both with one `continue`. Or it
passes over the breakpoint of a thread that another thread's stop has halted just there. Here a
thread that must wait for its turn is halted like all others, and makes its own stop when they
resume.
"""

import _thread
import sys

from debug_relay.worker.probe.engine.frames import SUSPENDED, number_of

# pydevd's modules that decide on exceptions: monitored, traced and compiled.
_ASKS = (
    "_pydevd_sys_monitoring._pydevd_sys_monitoring",
    "_pydevd_bundle.pydevd_frame",
    "_pydevd_bundle.pydevd_cython",
)
# pydevd's functions that handle a line event, and the local variable in which each has the
# breakpoint that it has checked in this event.
_CHECKED = {"_internal_line_event": "bp", "trace_dispatch": "breakpoint"}


class StopArbiter(object):
    def __init__(self, probe):
        self.probe = probe
        self.lock = _thread.allocate_lock()
        self.holder = []  # the thread whose stop is reported and not yet resumed
        self.pausing = []

    def hook(self):
        constants = sys.modules["_pydevd_bundle.pydevd_comm_constants"]
        self.mark = sys.modules["_pydevd_bundle.pydevd_thread_lifecycle"].mark_thread_suspended
        self.halted, self.at_breakpoint = constants.CMD_THREAD_SUSPEND, constants.CMD_SET_BREAK
        self.raising = (constants.CMD_STEP_CAUGHT_EXCEPTION, constants.CMD_ADD_EXCEPTION_BREAK)
        hooks = self.probe.engine.hooks
        hooks.around("set_suspend", "stop_arbiter", self.suspending)
        hooks.around("do_wait_suspend", "stop_arbiter", self.waiting)
        for name in ("_pydevd_bundle.pydevd_api", "_pydevd_bundle.pydevd_comm"):
            module = sys.modules[name]
            hooks.swap(module, "resume_threads", self.gated(module.resume_threads))
        for name in _ASKS:
            module = sys.modules.get(name)
            if module is not None:
                ask = module.should_stop_on_exception
                hooks.swap(module, "should_stop_on_exception", self.once_resumed(ask))

    def suspending(self, suspend):
        self.suspend = suspend
        return self.set_suspend

    def waiting(self, wait):
        self.wait = wait
        return self.do_wait_suspend

    def another_holds(self, thread):
        holder = self.holder
        return (
            self.probe.engine.db.multi_threads_single_notification
            and holder
            and holder[0] is not thread
            and holder[0].additional_info.pydev_state == SUSPENDED
        )

    def set_suspend(self, thread, reason, *args, **kwargs):
        """Replaces pydevd's: a thread is about to stop."""
        this_thread, is_pause = self.probe.this_thread, kwargs.get("is_pause")
        frame = this_thread.__dict__.pop("frame", None) if reason == self.at_breakpoint else None
        if not (self.probe.engine.db.multi_threads_single_notification or is_pause):
            kwargs["suspend_other_threads"] = False  # breakpoints may say otherwise
        while True:
            with self.lock:
                if not ((frame or reason in self.raising) and self.another_holds(thread)):
                    if is_pause:
                        self.pausing.append(True)
                    else:
                        self.holder[:] = [thread]
                    return self.suspend(thread, reason, *args, **kwargs)
                info = self.mark(thread, self.halted, main_suspend=False)
            if frame is None:
                this_thread.put_off = (reason,) + args  # it waits as soon as we return
                return None
            self.wait(thread, frame, "line", None)
            if self.steps(info):
                return None  # a caller has stepped it from here
            if this_thread.hits:
                this_thread.hits = self.probe.points.still(this_thread.hits)
                if not this_thread.hits:
                    return None

    def do_wait_suspend(self, thread, frame, event, arg, exception_type=None):
        """Replaces pydevd's: this thread stops here until it is resumed."""
        info, this_thread = thread.additional_info, self.probe.this_thread.__dict__
        decided = False  # whether this wait has decided on the breakpoint of this line
        while True:
            put_off, hits = this_thread.pop("put_off", None), this_thread.pop("hits", None)
            if hits:
                # pydevd itself knows only one breakpoint for each line.
                info.hit_breakpoint_ids = [number_of(id) for id in hits]
            passing = thread.stop_reason == self.halted and event == "line" and not self.pausing
            if passing:
                passing = not (
                    decided or this_thread.pop("line_decided", False) or self.has_counted(frame)
                )
            self.probe.this_thread.is_stopped = True
            try:
                self.wait(thread, frame, event, arg, exception_type)
            finally:
                self.probe.this_thread.is_stopped = False
            if self.steps(info):
                return
            if put_off and not self.probe.points.suspended:
                self.set_suspend(thread, *put_off)
            elif passing:
                decided = True
                if self.probe.points.hits_now(info, frame):
                    self.set_suspend(thread, self.at_breakpoint, suspend_other_threads=True)
            if info.pydev_state != SUSPENDED:
                return

    def steps(self, info):
        """Whether a caller has let the thread step. Another thread's stop, which may halt it again
        before it has looked, sets a command as well.
        """
        return info.pydev_step_cmd not in (-1, self.halted)

    def has_counted(self, frame):
        """Whether the event that halts this thread has counted its hit of this line before.

        Another thread's stop may come between the check of the breakpoint and pydevd's next look at
        the thread's state, and that thread may be resumed before the look. A mark that the check
        left would be too late in the one case and stay behind in the other. So we look into the
        frames of pydevd that handle the event. A compiled pydevd has no frames; there no other
        thread runs between the end of the check and the look.
        """
        counted = self.probe.this_thread.__dict__.pop("counted", False)
        below = sys._getframe(1)
        while below is not None and below is not frame:
            found = _CHECKED.get(below.f_code.co_name)
            if found is not None:
                return below.f_locals.get(found) is not None
            below = below.f_back
        return counted

    def once_resumed(self, ask):
        """Wrap pydevd's decision about an exception. By itself pydevd passes over an exception in a
        thread that another thread's stop is just halting; here the thread first waits.
        """
        this_thread = self.probe.this_thread

        def should_stop_on_exception(db, info, frame, thread, raised, *rest, **more):
            if info.pydev_state == SUSPENDED and not getattr(this_thread, "is_stopped", False):
                this_thread.line_decided = True  # the breakpoint of its line
                db.do_wait_suspend(thread, frame, "line", None)
            # `exceptions` needs it: pydevd calls that with the traceback only.
            this_thread.raised = raised[1]
            try:
                return ask(db, info, frame, thread, raised, *rest, **more)
            finally:
                this_thread.raised = None

        return should_stop_on_exception

    def free(self):
        """A thread resumes alone: the next stop of any thread is reported."""
        with self.lock:
            del self.pausing[:], self.holder[:]

    def gated(self, resume):
        db = self.probe.engine.db

        def resume_threads(thread_id, except_thread=None):
            with self.lock:  # or this would resume a thread that has just begun to stop
                del self.pausing[:], self.holder[:]
                resume(thread_id, except_thread)
            # pydevd wakes no thread: each would look by itself, every 0.2 s.
            for event in list(db._thread_events.values()):
                event.set()

        return resume_threads
