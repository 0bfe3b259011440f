"""Repairs a program that was joined by its port, as long as we are connected.

Sent as a text with `task` among its names; the debugpy in the program evaluates it. Imports nothing
of ours.

debugpy sends header and body of each message separately, which costs 40 ms. To resume or step a
thread, pydevd wakes any other thread, and the resumed one looks only 0.2 s later. And each child of
the program waits for a client of its own, for ever if none connects.
"""

import socket
import sys

NAME = "_relay_joined"


def settle():
    pydevd = sys.modules["pydevd"]
    db = pydevd.get_global_debugger()
    db.writer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(pydevd, NAME):
        return  # another session has repaired it, and is still connected
    undo = []
    setattr(pydevd, NAME, undo)
    lifecycle = sys.modules["_pydevd_bundle.pydevd_thread_lifecycle"]
    api = sys.modules["_pydevd_bundle.pydevd_api"]
    monkey = sys.modules["_pydev_bundle.pydev_monkey"]
    for module, name, made in (
        (lifecycle, "internal_run_thread", waking),
        (api, "internal_step_in_thread", waking),
        (monkey, "_get_apply_arg_patching", never),
        (monkey, "_on_forked_process", undebugged),
    ):
        former = getattr(module, name)
        undo.append((module, name, former))
        setattr(module, name, made(former))


def leave():
    pydevd = sys.modules["pydevd"]
    for module, name, former in vars(pydevd).pop(NAME, ()):
        setattr(module, name, former)


def waking(move):
    def moved(*args, **kwargs):
        move(*args, **kwargs)
        db = sys.modules["pydevd"].get_global_debugger()
        for event in list(db._thread_events.values()) if db is not None else ():
            event.set()

    return moved


def never(_):
    return lambda: False


def undebugged(forked):
    """Wrap what a forked child does, in its only thread."""

    def freed(setup_tracing=True):
        db = sys.modules["pydevd"].get_global_debugger()
        forked(setup_tracing=False)
        if db is not None:
            db.pydb_disposed = True
        sys.settrace(None)

    return freed


def require_threads():
    """Refuse greenlets: they share one thread of the kernel, so a stop of one would stop all, us
    too.
    """
    monkey = sys.modules.get("gevent.monkey")
    patched = monkey is not None and monkey.is_module_patched("threading")
    if patched and not sys.modules["_pydevd_bundle.pydevd_constants"].SUPPORT_GEVENT:
        raise RuntimeError("relay: greenlets")


if task == "settle":  # noqa: F821  given
    require_threads()
    settle()
else:
    leave()
