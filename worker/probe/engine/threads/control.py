"""Moving the program's threads one by one, and finding them.

Runs in the program: Python 3.8 to 3.15, standard library only.

Over DAP alone, pydevd moves all threads where one stop halts all. What is done here is done to one
thread and leaves the others as they are.
"""

import sys

from debug_relay.worker.probe.engine.frames import RUNNING, SUSPENDED
from debug_relay.worker.probe.engine.threads import running_frames

# No reason of pydevd's: told as a pause, and at once, for no other thread's stop is the cause.
_ASKED = 0
_STEPS = {
    "next": ("CMD_STEP_OVER", "CMD_STEP_OVER_MY_CODE"),
    "stepIn": ("CMD_STEP_INTO", "CMD_STEP_INTO_MY_CODE"),
    "stepOut": ("CMD_STEP_RETURN", "CMD_STEP_RETURN_MY_CODE"),
}


def of_program():
    """(number, thread) of each that is not the debugger's."""
    number = _bundle("constants").get_thread_id
    return [(number(thread), thread) for thread in _bundle("utils").get_non_pydevd_threads()]


def find(engine, dap_thread):
    """(number, thread), or None."""
    try:
        id = engine.inner_id(dap_thread)
    except KeyError:
        return None
    thread = _bundle("thread_lifecycle").pydevd_find_thread_by_id(id)
    return None if thread is None else (id, thread)


def is_suspended(thread):
    """Whether it is, or will be before its next line."""
    info = getattr(thread, "additional_info", None)
    return info is not None and info.pydev_state == SUSPENDED


def stop_all(engine, on):
    """Whether the stop of one thread halts the others too."""
    notification = engine.db.threads_suspended_single_notification
    notification._pause_requested = False  # else the next halt would be told
    engine.db.multi_threads_single_notification = on


def resume(id):
    _bundle("api").resume_threads(id)


def step(engine, id, thread, how):
    """In the stopped thread itself: as pydevd does it, without setting the others going."""
    name = _STEPS[how][1 if engine.db.get_use_libraries_filter() else 0]
    info = thread.additional_info
    info.pydev_original_step_cmd = info.pydev_step_cmd = getattr(_bundle("comm_constants"), name)
    info.pydev_step_stop = None
    info.pydev_state = RUNNING
    info.update_stepping_info()
    # It has done this and waits for the next command before it looks at its state: 0.2 s.
    engine.db.get_internal_queue_and_event(id)[1].set()


@running_frames.steady
def halt(engine, thread):
    """Stop this thread at its next line; its stop is the one that is told."""
    engine.db.set_suspend(thread, _ASKED, suspend_requested=True)
    frame = thread.additional_info.get_topmost_frame(thread)
    if frame is not None:
        engine.db.set_trace_for_frame_and_parents(thread.ident, frame)
    if _bundle("constants").PYDEVD_USE_SYS_MONITORING:
        _bundle("thread_lifecycle").pydevd_sys_monitoring.restart_events()


def _bundle(name):
    return sys.modules["_pydevd_bundle.pydevd_" + name]
