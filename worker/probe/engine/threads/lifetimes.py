"""Threads that have ended are let go: nothing of them is kept alive, by pydevd or by us.

pydevd tells threads apart by where they lie in memory, and keeps every thread there ever was, so
that none comes to lie where another was: with all that it holds, in a server one for each request.
Here they are counted instead.
"""

import itertools
import sys
import threading
import time

from debug_relay.worker.probe.engine.detaching import tracing_off as tracing
from debug_relay.worker.probe.engine.threads.control import is_suspended
from debug_relay.worker.probe.engine.threads.unlisted import Finalizer, Unlisted


class ThreadLifetimes(object):
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

        self.probe.engine.hooks.swap(constants, name, number)
        self.probe.engine.hooks.around("notify_thread_not_alive", "lifetimes", self.telling)
        if tracing.monitors():
            self.hook_beginning()

    def telling(self, tell):
        db = self.probe.engine.db

        def notify_thread_not_alive(thread_id, *args, **kwargs):
            thread = db._running_thread_ids.get(thread_id)
            # It is in no list when it is just beginning or ending, and may stand there.
            if thread is not None and is_suspended(thread):
                return
            tell(thread_id, *args, **kwargs)
            if thread is not None:
                self.forget(thread_id)
                untie(thread)

        return notify_thread_not_alive

    def hook_beginning(self):
        """A thread that is just beginning has no entry of its own yet, but perhaps that of one that
        has ended and lay in the same place: pydevd would take it for that for as long as it lives,
        and never find it when it is to go on. One that is ending has none any more."""
        facts = sys.modules["_pydevd_sys_monitoring._pydevd_sys_monitoring"]
        create, local = facts._create_thread_info, facts._thread_local_info
        unlisted = Unlisted(facts)

        def create_thread_info(depth):
            if unlisted.is_ending():
                return None
            is_listed = threading.get_ident() in threading._active
            info = create(depth + 1)
            if info is None or not isinstance(info.thread, threading._DummyThread):
                return info
            if not is_listed:
                unlisted.take_over(info.thread)
            if local.is_bootstrap_frame_internal:
                first = local.f_bootstrap.f_locals  # pydevd's own function's, or the thread's
                if all(first.get(name) is not info.thread for name in ("t", "self")):
                    return None  # asked again at its next event
            return info

        self.probe.engine.hooks.swap(facts, "_create_thread_info", create_thread_info)
        self.probe.engine.hooks.swap(facts, "_DeleteDummyThreadOnDel", Finalizer)

    def forget(self, thread_id):
        db = self.probe.engine.db
        for table in (db._cmd_queue, db._thread_events):
            table.pop(thread_id, None)
        self.probe.reports.forget(thread_id)
        self.probe.deep_stacks.forget_ended()


def begin_anew():
    """From 3.12 on each thread keeps what an earlier debugger found out about it, and has parted
    from it since: steps and pauses would be written where nobody looks, and a raw thread would
    stand under an entry that `threading` has no more."""
    if not tracing.monitors():
        return
    entries = dict(threading._active)
    sys.modules["_pydevd_sys_monitoring._pydevd_sys_monitoring"].reset_thread_local_info()
    # On 3.12 the entries of raw threads go with it, also those that are the program's own.
    for ident, thread in entries.items():
        if isinstance(thread, threading._DummyThread):
            threading._active.setdefault(ident, thread)


def untie(thread):
    """A thread that pydevd traces holds its tracers, and they hold the thread: only the garbage
    collector would see that it is gone. Pools of Python 3.8, which do not wait for that, then fail
    at exit. And pydevd keeps what it knows of a thread for ever, with the whole debugger."""
    info = thread.__dict__.get("additional_info")
    if info is not None:
        info.thread_tracer = info.top_level_thread_tracer_unhandled = None
        info.top_level_thread_tracer_no_back_frames = []
        sys.modules["_pydevd_bundle.pydevd_additional_thread_info"].remove_additional_info(info)
