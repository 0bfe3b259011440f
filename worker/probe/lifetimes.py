"""Threads that have ended are let go: nothing of them is kept alive, by pydevd or by us.

Runs in the program: Python 3.8 to 3.14, standard library only. See `core`.

pydevd tells threads apart by where they lie in memory, and keeps every thread there ever was, so
that none comes to lie where another was: with all that it holds, in a server one for each request.
Here they are counted instead.
"""

import itertools
import sys
import time


class Lifetimes(object):
    def __init__(self, probe):
        self.probe = probe

    def hook(self):
        constants, name = (
            sys.modules["_pydevd_bundle.pydevd_constants"],
            "_get_or_compute_thread_id_with_lock",
        )
        # Counted on from now: what an earlier debugger has counted is still on its threads.
        numbers = itertools.count(time.monotonic_ns())

        def number(thread, is_current_thread):
            with constants._thread_id_lock:
                id = getattr(thread, "__pydevd_id__", None)
                if id is None:
                    id = "pid_%s_id_%d" % (constants.get_pid(), next(numbers))
                    thread.__pydevd_id__ = id
            return id

        self.probe.undo.append((constants, name, getattr(constants, name)))
        setattr(constants, name, number)
        db = self.probe.db
        tell = db.notify_thread_not_alive

        def notify_thread_not_alive(thread_id, *args, **kwargs):
            thread = db._running_thread_ids.get(thread_id)
            tell(thread_id, *args, **kwargs)
            # On 3.8 pydevd takes a thread for ended that is just beginning: it may stand already.
            if thread is not None and not self.probe.threads.is_held(thread):
                self.forget(thread_id)
                _untie(thread)

        self.probe.replace("notify_thread_not_alive", notify_thread_not_alive)

    def forget(self, thread_id):
        db = self.probe.db
        for table in (db._cmd_queue, db._thread_events):
            table.pop(thread_id, None)
        self.probe.reports.forget(thread_id)
        self.probe.deep.forget_ended()


def _untie(thread):
    """A thread that pydevd traces holds its tracers, and they hold the thread: only the garbage
    collector would see that it is gone. Pools of Python 3.8, which do not wait for that, then fail
    at exit."""
    info = thread.__dict__.get("additional_info")
    if info is not None:
        info.thread_tracer = info.top_level_thread_tracer_unhandled = None
        info.top_level_thread_tracer_no_back_frames = []
