"""The program's threads one by one: which stand, where the others are, and moving one alone.

Over DAP alone, pydevd moves all threads where one stop halts all. What is asked here is done to one
thread and leaves the others as they are.
"""

import sys

from debug_relay.worker.probe.engine.frames import module_of, stack, visible
from debug_relay.worker.probe.engine.stop_arbiter import SUSPENDED
from debug_relay.worker.probe.engine.threads import running_frames as all_frames
from debug_relay.worker.probe.values.rendering import clean

# No reason of pydevd's: told as a pause, and at once, for no other thread's stop is the cause.
ASKED = 0
RUN = 1  # pydevd's word for a thread that goes on
STEPS = {
    "next": ("CMD_STEP_OVER", "CMD_STEP_OVER_MY_CODE"),
    "stepIn": ("CMD_STEP_INTO", "CMD_STEP_INTO_MY_CODE"),
    "stepOut": ("CMD_STEP_RETURN", "CMD_STEP_RETURN_MY_CODE"),
}


class Threads(object):
    def __init__(self, probe):
        self.probe = probe
        probe.commands.update(
            threads=self.rows,
            live=self.live,
            alone=self.go_on,
            halt=self.halt,
            stop_all=self.stop_all,
        )

    # -- where they are

    @all_frames.steady
    def rows(self):
        """[DAP's number, whether it stands, whether it will before its next line, top frame]."""
        current, known, found = all_frames.of_all(), {}, []
        for thread in _bundle("pydevd_utils").get_non_pydevd_threads():
            id = _bundle("pydevd_constants").get_thread_id(thread)
            held = self.is_held(thread)
            listed = self.probe.db.suspended_frames_manager.get_frames_list(id) if held else None
            if listed is not None:
                frames = stack(self.probe.db, listed, 1, count=False)[0]
            else:
                frames = self.walked(current.get(thread.ident), 0, 1, known)[0]
            dap_id = self.probe.answers.dap_id(id)
            found.append([dap_id, listed is not None, held, frames[0] if frames else None])
        return found

    @all_frames.steady
    def live(self, thread, start, levels):
        """The stack of a thread that does not stand, as it is at this moment."""
        found = self.found(thread)
        if found is None:
            return {"gone": True}
        id, thread = found
        manager = self.probe.db.suspended_frames_manager
        if self.is_held(thread) and manager.get_frames_list(id) is not None:
            return {"stands": True}
        frame = all_frames.of_all().get(thread.ident)
        rows, total = self.walked(frame, start, levels, {})
        return {"rows": rows, "total": total}

    def walked(self, frame, start, levels, known):
        rows, total = [], 0
        while frame is not None:
            path = visible(self.probe.db, frame, known)
            if path is not None:
                if start <= total < start + levels:
                    place = frame.f_code.co_name, clean(path), frame.f_lineno or 0
                    rows.append([*place, module_of(frame)])
                total += 1
            frame = frame.f_back
        return rows, total

    def found(self, dap_thread):
        try:
            id = self.probe.answers.inner_id(dap_thread)
        except KeyError:
            return None
        thread = _bundle("pydevd_thread_lifecycle").pydevd_find_thread_by_id(id)
        return None if thread is None else (id, thread)

    def is_held(self, thread):
        info = getattr(thread, "additional_info", None)
        return info is not None and info.pydev_state == SUSPENDED

    # -- one alone

    def stop_all(self, on):
        """Whether the stop of one thread halts the others too."""
        notification = self.probe.db.threads_suspended_single_notification
        notification._pause_requested = False  # else the next halt would be told
        self.probe.db.multi_threads_single_notification = on
        return on

    def go_on(self, threads, how):
        for found in [self.found(thread) for thread in threads]:
            if found is None:
                continue
            if how == "continue":
                _bundle("pydevd_api").resume_threads(found[0])
            else:
                self.probe.db.post_method_as_internal_command(found[0], self.step, *found, how)

    def step(self, db, id, thread, how):
        """In the stopped thread itself: as pydevd does it, without setting the others going."""
        name = STEPS[how][1 if db.get_use_libraries_filter() else 0]
        self.probe.turns.free()
        info = thread.additional_info
        info.pydev_original_step_cmd = info.pydev_step_cmd = getattr(
            _bundle("pydevd_comm_constants"), name
        )
        info.pydev_step_stop = None
        info.pydev_state = RUN
        info.update_stepping_info()
        # It has done this and waits for the next command before it looks at its state: 0.2 s.
        db.get_internal_queue_and_event(id)[1].set()

    @all_frames.steady
    def halt(self, thread):
        """Stop this thread at its next line; its stop is the one that is told."""
        found = self.found(thread)
        if found is None or self.is_held(found[1]):
            return False
        db, thread = self.probe.db, found[1]
        db.set_suspend(thread, ASKED, suspend_requested=True)
        frame = thread.additional_info.get_topmost_frame(thread)
        if frame is not None:
            db.set_trace_for_frame_and_parents(thread.ident, frame)
        if _bundle("pydevd_constants").PYDEVD_USE_SYS_MONITORING:
            _bundle("pydevd_thread_lifecycle").pydevd_sys_monitoring.restart_events()
        return True


def _bundle(name):
    return sys.modules["_pydevd_bundle." + name]
