"""Finds the program's threads, and resumes, steps and halts each of them alone.

Runs in the program: Python 3.8 to 3.15, standard library only.

Over DAP alone, pydevd resumes all threads when a stop halts all. These functions change one thread
and leave the others as they are.
"""

import sys

from debug_relay.worker.probe.engine.frames import RUNNING, SUSPENDED
from debug_relay.worker.probe.engine.threads import running_frames

# None of pydevd's stop reasons. pydevd then reports a pause, and at once, because no other thread's
# stop is the cause.
_ON_REQUEST = 0
_STEPS = {
    "next": ("CMD_STEP_OVER", "CMD_STEP_OVER_MY_CODE"),
    "stepIn": ("CMD_STEP_INTO", "CMD_STEP_INTO_MY_CODE"),
    "stepOut": ("CMD_STEP_RETURN", "CMD_STEP_RETURN_MY_CODE"),
}


def of_program():
    """(number, thread) of each thread that is not the debugger's."""
    number = _bundle("constants").get_thread_id
    return [(number(thread), thread) for thread in _bundle("utils").get_non_pydevd_threads()]


def find(engine, dap_thread):
    """(number, thread) of this thread, or None if it has ended."""
    try:
        id = engine.inner_id(dap_thread)
    except KeyError:
        return None
    thread = _bundle("thread_lifecycle").pydevd_find_thread_by_id(id)
    return None if thread is None else (id, thread)


def is_suspended(thread):
    """Whether the thread is suspended, or will be before its next line."""
    info = getattr(thread, "additional_info", None)
    return info is not None and info.pydev_state == SUSPENDED


def stop_all(engine, on):
    """Set whether the stop of one thread halts the others too."""
    notification = engine.db.threads_suspended_single_notification
    notification._pause_requested = False  # else the next halt would be reported
    engine.db.multi_threads_single_notification = on


def resume(id):
    _bundle("api").resume_threads(id)


def step(engine, id, thread, how):
    """Step, as pydevd does, without resuming the other threads. Runs in the stopped
    thread itself.
    """
    name = _STEPS[how][1 if engine.db.get_use_libraries_filter() else 0]
    info = thread.additional_info
    info.pydev_original_step_cmd = info.pydev_step_cmd = getattr(_bundle("comm_constants"), name)
    info.pydev_step_stop = None
    info.pydev_state = RUNNING
    info.update_stepping_info()
    # Wake it. By itself it would look at its state only after 0.2 s, since it waits for the next
    # command first.
    engine.db.get_internal_queue_and_event(id)[1].set()


@running_frames.steady
def halt(engine, thread):
    """Stop this thread at its next line; its stop is the one that pydevd reports."""
    engine.db.set_suspend(thread, _ON_REQUEST, suspend_requested=True)
    frame = thread.additional_info.get_topmost_frame(thread)
    if frame is not None:
        engine.db.set_trace_for_frame_and_parents(thread.ident, frame)
    if _bundle("constants").PYDEVD_USE_SYS_MONITORING:
        _bundle("thread_lifecycle").pydevd_sys_monitoring.restart_events()


def _bundle(name):
    return sys.modules["_pydevd_bundle.pydevd_" + name]
