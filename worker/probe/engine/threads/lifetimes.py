"""Frees threads that have ended: neither pydevd nor the probe keeps anything of them.

pydevd identifies threads by their address in memory. So that no thread gets the address of another,
it keeps every thread that ever was, with all its objects: in a server, one for each request. Here
threads get counted numbers instead.
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
        # Starts at the present time, because numbers of an earlier debugger are still on threads.
        numbers = itertools.count(time.monotonic_ns())

        def number(thread, is_current_thread):
            with constants._thread_id_lock:
                id = getattr(thread, "__pydevd_id__", None)
                if id is None:
                    id = "pid_%s_id_%d" % (constants.get_pid(), next(numbers))
                    thread.__pydevd_id__ = id
            return id

        self.probe.engine.hooks.swap(constants, name, number)
        self.probe.engine.hooks.around("notify_thread_not_alive", "lifetimes", self.notifying)
        if tracing.monitors():
            self.hook_beginning()

    def notifying(self, notify):
        db = self.probe.engine.db

        def notify_thread_not_alive(thread_id, *args, **kwargs):
            thread = db._running_thread_ids.get(thread_id)
            # A thread that is just beginning or ending is in no list, and may be suspended there.
            if thread is not None and is_suspended(thread):
                return
            notify(thread_id, *args, **kwargs)
            if thread is not None:
                self.forget(thread_id)
                untie(thread)

        return notify_thread_not_alive

    def hook_beginning(self):
        """Correct pydevd's record of a thread that is just beginning. Such a thread has no entry in
        `threading` yet, but perhaps finds that of a thread that has ended and had the same address.
        pydevd would keep the wrong entry as long as the thread lives, and not find the thread when
        it shall resume. A thread that is ending has no entry any more.
        """
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
                # The locals of pydevd's start function, or of the thread's.
                first = local.f_bootstrap.f_locals
                if all(first.get(name) is not info.thread for name in ("t", "self")):
                    return None  # pydevd tries again at the thread's next event
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
    """Drop the records of an earlier debugger, which each thread keeps from 3.12 on. Otherwise
    steps and pauses would be written into records that are not used any more, and a raw thread
    would be listed by an entry that `threading` has dropped.
    """
    if not tracing.monitors():
        return
    entries = dict(threading._active)
    sys.modules["_pydevd_sys_monitoring._pydevd_sys_monitoring"].reset_thread_local_info()
    # On 3.12 this also drops the entries of raw threads, including those of the program's own.
    for ident, thread in entries.items():
        if isinstance(thread, threading._DummyThread):
            threading._active.setdefault(ident, thread)


def untie(thread):
    """Break the cycle between a thread and its tracers, which only the garbage collector would
    free. Pools of Python 3.8, which do not wait for that, then fail at exit. And pydevd would keep
    its record of a thread for ever, and with it the whole debugger.
    """
    info = thread.__dict__.get("additional_info")
    if info is not None:
        info.thread_tracer = info.top_level_thread_tracer_unhandled = None
        info.top_level_thread_tracer_no_back_frames = []
        sys.modules["_pydevd_bundle.pydevd_additional_thread_info"].remove_additional_info(info)
