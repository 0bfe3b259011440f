"""Lists threads without a lock, and misses no suspended one.

A thread may stop while it holds the lock of the list in `threading`: in code that the garbage
collector or a signal runs there. pydevd would wait for that lock before it resumes the thread, and
would not find the thread if that has just removed itself from the list.
"""

import sys
import threading
import types

from debug_relay.worker.probe.engine.threads.control import is_suspended


def hook(probe):
    hooks, utils = probe.engine.hooks, sys.modules["_pydevd_bundle.pydevd_utils"]
    of_program = utils.get_non_pydevd_threads

    def get_non_pydevd_threads():
        found = of_program()
        known = {id(thread) for thread in found}
        for thread in list(probe.engine.db._running_thread_ids.values()):
            if id(thread) not in known and is_suspended(thread):
                found.append(thread)
        return found

    hooks.swap(utils, "get_non_pydevd_threads", get_non_pydevd_threads)
    _replace_code(hooks)


def _replace_code(hooks):
    """Replace the code with which pydevd hides its own threads."""
    daemon = sys.modules["_pydevd_bundle.pydevd_daemon_thread"]
    # The first call replaces the code of `enumerate`.
    daemon.mark_as_pydevd_daemon_thread(types.SimpleNamespace())
    enumerate, saved = threading.enumerate, sys.modules["_pydev_bundle._pydev_saved_modules"]
    if "pydevd" not in enumerate.__code__.co_filename:
        return
    hooks.swap(enumerate, "__code__", _without_debuggers.__code__)
    hooks.swap(saved, "pydevd_saved_threading_enumerate", _all)


def _all():
    return list(threading._active.values()) + list(threading._limbo.values())


def _without_debuggers():
    """The code that `threading.enumerate` gets. Each list is made in one step."""
    known = list(_active.values()) + list(_limbo.values())  # noqa: F821
    return [one for one in known if not getattr(one, "is_pydev_daemon_thread", False)]
