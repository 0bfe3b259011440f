"""A thread that stands at a stop stands on, whatever a signal's handler raises in it meanwhile.

It is raised when the thread is sent on. At once it would end the stop: nobody is told that the
thread runs, it stands again at its next line, untold, and the other threads stay halted.
"""

from debug_relay.worker.probe.engine.frames import SUSPENDED
from debug_relay.worker.probe.runtime import deferred_signals as signalled


def withstand(probe):
    """While it waits, and on the way to that, where what is told of the stop may be told again."""
    db = probe.engine.db
    probe.engine.hooks.around("_do_wait_suspend", "signals", _standing)
    # Told once, and perhaps as over: it is to be told again.
    untold = db._threads_suspended_single_notification.increment_suspend_time
    probe.engine.hooks.around(
        "do_wait_suspend", "signals", lambda wait: _noted(_standing(wait, untold))
    )


def _noted(wait):
    def do_wait_suspend(thread, *stop, **more):
        stops = signalled.stops if signalled.is_main() else []
        stops.append(thread)
        try:
            wait(thread, *stop, **more)
        finally:
            stops.pop()
        signalled.give_back()  # pydevd would swallow it while the thread stands

    return do_wait_suspend


def _standing(wait, again=lambda: None):
    def stand(thread, *stop, **more):
        while True:
            try:
                return wait(thread, *stop, **more)
            except BaseException as error:
                if thread.additional_info.pydev_state != SUSPENDED or not _kept(error):
                    raise
            again()

    return stand


def _kept(error):
    """Itself, or what it came up after: pydevd fails to tidy up what it had only half begun."""
    while error is not None and not signalled.keep(error):
        error = error.__context__
    return error is not None
