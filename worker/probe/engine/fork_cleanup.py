"""Makes a forked child forget the debugger in its memory, whose threads the child does not have.

Runs in the program: Python 3.8 to 3.15, standard library only.
"""

import atexit
import sys
import threading


def forget_exit():
    """Take back the debugger's exit function and its patches of thread starts."""
    atexit.unregister(sys.modules["pydevd"].stoptrace)
    sys.modules["_pydev_bundle.pydev_monkey"].undo_patch_thread_modules()


def forget(engine):
    constants = sys.modules["_pydevd_bundle.pydevd_constants"]
    constants.after_fork()
    constants.GlobalDebuggerHolder.global_dbg = None
    db = engine.db
    db.pydb_disposed = True
    db.created_pydb_daemon_threads = {}
    # Closes the child's copy of the connection; the parent's stays open.
    db._client_socket.close()


def forget_thread():
    """Drop pydevd's facts about the thread that forked: they belong to the parent."""
    thread = threading.current_thread()
    thread.__dict__.pop("additional_info", None)
    thread.__dict__.pop("__pydevd_id__", None)
    modules = sys.modules
    modules["_pydevd_bundle.pydevd_custom_frames"].custom_frames_container_init()
    clear = modules["_pydevd_frame_eval.pydevd_frame_eval_main"].clear_thread_local_info
    if clear is not None:
        clear()
    monitoring = modules.get("_pydevd_sys_monitoring.pydevd_sys_monitoring")
    if monitoring is not None and getattr(monitoring, "reset_thread_local_info", None):
        monitoring.reset_thread_local_info()
