"""Keeps a suspended thread suspended when a signal handler raises in it.

The exception is raised when the thread resumes. Raised at once it would end the stop: the thread
would run and stop again at its next line without any report, and the other threads would stay
halted.
"""

from debug_relay.worker.probe.engine.frames import SUSPENDED
from debug_relay.worker.probe.runtime import deferred_signals as signalled


def keep_suspended(probe):
    """Hold such exceptions while a thread waits, and on its way to the wait, where a stop may be
    reported a second time.
    """
    db = probe.engine.db
    probe.engine.hooks.around("_do_wait_suspend", "signals", _suspended)
    # pydevd has reported the stop once, and perhaps its end: this makes it report the stop again.
    report_again = db._threads_suspended_single_notification.increment_suspend_time
    probe.engine.hooks.around(
        "do_wait_suspend", "signals", lambda wait: _noted(_suspended(wait, report_again))
    )


def _noted(wait):
    def do_wait_suspend(thread, *stop, **more):
        stops = signalled.stops if signalled.is_main() else []
        stops.append(thread)
        try:
            wait(thread, *stop, **more)
        finally:
            stops.pop()
        signalled.give_back()  # while the thread is suspended, pydevd would swallow it

    return do_wait_suspend


def _suspended(wait, again=lambda: None):
    def stay_suspended(thread, *stop, **more):
        while True:
            try:
                return wait(thread, *stop, **more)
            except BaseException as error:
                if thread.additional_info.pydev_state != SUSPENDED or not _kept(error):
                    raise
            again()

    return stay_suspended


def _kept(error):
    """Whether this exception is kept, or one in whose handling it was raised: pydevd may fail to
    clean up after an interrupted beginning.
    """
    while error is not None and not signalled.keep(error):
        error = error.__context__
    return error is not None
