"""Brings the program's children into its session: what is done to their starts.

Runs in the program: Python 3.8 to 3.14, standard library only. See `launched`.

A start is looked at where the interpreter asks the kernel, below `subprocess`, `multiprocessing`
and `asyncio`, so there is no way round it in Python. Only a command line that starts a Python is
changed: bootstrap and the setup's file are put before its own words, which stay as they are. Forks
are met by an at-fork hook, also those of C code.
"""

import _thread
import os
import sys
import threading

from debug_relay.worker.probe.arguments import is_python, is_python_2, parted
from debug_relay.worker.probe.encoding import words_of

_SENT_SECONDS = 0.5
_NO_FROZEN = ["-X", "frozen_modules=off"]  # frozen modules have no lines to stop at


class Family(object):
    def __init__(self, launched):
        self.launched = launched
        self.probe = None  # of this process; its forks have their own
        self.starting = set()  # idents of threads that fork only to execute something else
        os.register_at_fork(after_in_child=self.in_child)

    def joined(self, probe):
        """This process has its debugger: what it starts is to get one."""
        self.probe = probe
        probe.children.tell_starts(self)
        for name in ("execv", "execve"):
            probe.children.put(os, name, self.replacing)
        probe.children.put(os, "_exit", self.leaving)

    # -- forks

    def in_child(self):
        """After fork(), in the child, in the only thread there is."""
        probe, self.probe = self.probe, None
        if probe is not None:
            probe.children.let_go()
        if _thread.get_ident() in self.starting:
            self.starting.clear()
            return
        _forget_thread()
        try:
            self.launched.connect(waits=True).started = True
        except Exception:  # noqa: S110  it runs as without a debugger
            pass

    # -- command lines

    def rewritten(self, path, words):
        """The command line that starts the same program under its debugger."""
        try:
            (path,), texts = words_of([path]), words_of(words)
        except TypeError:
            return words  # the start itself will say what is wrong with it
        if not (is_python(path) or path == sys.executable):
            return words
        if is_python_2(path):
            return words  # it does not know our options, and would not run
        parts = parted(texts[1:])
        if parts is None or parts.is_tracker:
            return words
        setup = self.launched.setup
        ours = [setup["bootstrap"], setup["family"]]
        return [texts[0]] + parts.options + _NO_FROZEN + ours + texts[1:]

    def start(self, name, original, args, kwargs):
        """Call what starts a process, with its command line changed; and whether the child is to
        come to the relay."""
        if name in ("fork", "forkpty"):
            return original(*args, **kwargs), True
        args = list(args)
        given = args[0 if "fork_exec" in name else 1]
        if "fork_exec" in name:
            words = args[0] = self.rewritten(_first_there(args[1] or given), given)
        else:
            words = args[1] = self.rewritten(args[0], given)
        ident = _thread.get_ident()
        # With a preexec_fn the child runs at-fork hooks before it is replaced.
        self.starting.add(ident)
        try:
            return original(*args, **kwargs), words is not given
        finally:
            self.starting.discard(ident)

    def replacing(self, original):
        """`os.execv` and its kind: this process becomes another program."""

        def replace(path, argv, *more):
            if self.probe is not None and os.getpid() == self.probe.pid:
                argv = self.rewritten(path, list(argv))
                _until_sent(self.probe.db)
            return original(path, argv, *more)

        return replace

    def leaving(self, original):
        """Children of `multiprocessing` end by `os._exit`: what they have to tell is sent first."""

        def leave(status):
            if self.probe is not None and os.getpid() == self.probe.pid:
                _until_sent(self.probe.db)
            original(status)

        return leave


def _first_there(paths):
    """Of the places where the kernel is to look for a program."""
    try:
        return next((path for path in paths if os.access(path, os.X_OK)), paths[0])
    except (TypeError, ValueError):
        return paths[0]  # the start itself will say what is wrong with it


def _until_sent(db):
    try:
        pause = threading.Event().wait
        for _ in range(int(_SENT_SECONDS / 0.005)):
            if db.writer is None or db.writer.empty():
                break
            pause(0.005)
        pause(0.001)  # what was taken from the queue is written
    except Exception:  # noqa: S110  an end must come whatever is left of the debugger
        pass


def _forget_thread():
    """What pydevd knows of the thread that forked is of the parent's."""
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
