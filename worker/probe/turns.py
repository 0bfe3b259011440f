"""One stop at a time, and none lost, when several threads come to breakpoints at once.

Runs in the program: Python 3.8 to 3.14, standard library only. See `core`.

pydevd tells both at the same moment and resumes both with one `continue`, or passes over the
breakpoint of a thread that another one's stop has halted just there. Here a thread whose turn it is
not stands still like all others, and stops itself when they go on.
"""

import _thread
import sys

SUSPENDED = 2  # pydevd's word for a thread that is to stand still


def hook_turns(probe):
    db, told, turn = probe.db, probe.told, _thread.allocate_lock()
    suspend, wait = db.set_suspend, db.do_wait_suspend
    constants = sys.modules["_pydevd_bundle.pydevd_comm_constants"]
    mark = sys.modules["_pydevd_bundle.pydevd_thread_lifecycle"].mark_thread_suspended
    halted, at_breakpoint = constants.CMD_THREAD_SUSPEND, constants.CMD_SET_BREAK
    raising = (constants.CMD_STEP_CAUGHT_EXCEPTION, constants.CMD_ADD_EXCEPTION_BREAK)
    holder = []  # the thread whose stop is told and not yet resumed
    pausing = []

    def another_holds(thread):
        return (
            db.multi_threads_single_notification
            and holder
            and holder[0] is not thread
            and holder[0].additional_info.pydev_state == SUSPENDED
        )

    def set_suspend(thread, reason, *args, **kwargs):
        frame = told.__dict__.pop("frame", None) if reason == at_breakpoint else None
        while True:
            with turn:
                if not ((frame or reason in raising) and another_holds(thread)):
                    if kwargs.get("is_pause"):
                        pausing.append(True)
                    else:
                        holder[:] = [thread]
                    return suspend(thread, reason, *args, **kwargs)
                info = mark(thread, halted, main_suspend=False)
            if frame is None:
                told.put_off = (reason,) + args  # it is going to wait as soon as we return
                return None
            wait(thread, frame, "line", None)
            if info.pydev_step_cmd != -1:
                return None  # it was stepped on from here

    def do_wait_suspend(thread, frame, event, arg, exception_type=None):
        info = thread.additional_info
        while True:
            put_off = told.__dict__.pop("put_off", None)
            passing = thread.stop_reason == halted and event == "line" and not pausing
            wait(thread, frame, event, arg, exception_type)
            if info.pydev_step_cmd != -1:
                return
            if put_off:
                set_suspend(thread, *put_off)
            elif passing and probe.points.hits_now(info, frame):
                set_suspend(thread, at_breakpoint, suspend_other_threads=True)
            if info.pydev_state != SUSPENDED:
                return

    probe.replace("set_suspend", set_suspend)
    probe.replace("do_wait_suspend", do_wait_suspend)

    def gated(resume):
        def resume_threads(thread_id, except_thread=None):
            with turn:  # or it would set a thread going that has just begun to stop
                del pausing[:], holder[:]
                resume(thread_id, except_thread)
            # pydevd wakes nobody: each would look by itself, every 0.2 s.
            for event in list(db._thread_events.values()):
                event.set()

        return resume_threads

    for name in ("_pydevd_bundle.pydevd_api", "_pydevd_bundle.pydevd_comm"):
        module = sys.modules[name]
        probe.undo.append((module, "resume_threads", module.resume_threads))
        module.resume_threads = gated(module.resume_threads)
