"""Repairs of a program that was joined by its port, for as long as we are there.

Given as a text with `word` among its names, to be evaluated by the debugpy that is there already;
imports nothing of ours.

Header and body of each message, sent apart, wait 40 ms for each other. To resume or step a thread,
pydevd wakes any other thread, and the right one looks for itself only 0.2 s later. And its children
wait for a client of their own, for ever if none comes.
"""

import socket
import sys

NAME = "_relay_joined"


def settle():
    pydevd = sys.modules["pydevd"]
    db = pydevd.get_global_debugger()
    db.writer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(pydevd, NAME):
        return  # another session has repaired it, and is still there
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
    """In the child that was forked, in the one thread there is."""

    def freed(setup_tracing=True):
        db = sys.modules["pydevd"].get_global_debugger()
        forked(setup_tracing=False)
        if db is not None:
            db.pydb_disposed = True
        sys.settrace(None)

    return freed


def require_threads():
    """Greenlets share a thread of the kernel's: one that stops would stop all, us among them."""
    monkey = sys.modules.get("gevent.monkey")
    patched = monkey is not None and monkey.is_module_patched("threading")
    if patched and not sys.modules["_pydevd_bundle.pydevd_constants"].SUPPORT_GEVENT:
        raise RuntimeError("relay: greenlets")


if word == "settle":  # noqa: F821  given
    require_threads()
    settle()
else:
    leave()
