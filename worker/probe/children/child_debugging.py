"""Changes how the program starts children, so that they are debugged in its session.

We intercept a start where the interpreter calls the kernel, below `subprocess`, `multiprocessing`
and `asyncio`, so no start in Python is missed. Only a command line that starts a Python is changed,
also one by a script's first line or by a simple shell command (`shell_commands`): bootstrap and the
file of its settings are put before the program's own words, which stay as they are. An at-fork hook
handles forks, also those of C code.
"""

import _thread
import os
import posix
import sys

from debug_relay.worker.probe.children import shell_commands
from debug_relay.worker.probe.engine import fork_cleanup
from debug_relay.worker.probe.engine.connection.message_encoding import words_of
from debug_relay.worker.probe.startup.python_command_line import is_python, is_python_2, parted

# Before a fork or an exec, pending messages are sent within this time.
_SENT_SECONDS = 0.5
# The indexes of these arguments of `fork_exec`.
_PREEXEC_FN = 16 if sys.version_info < (3, 9) else 20 if sys.version_info < (3, 11) else 21
_UID = None if sys.version_info < (3, 9) else _PREEXEC_FN - 2
_NO_FROZEN = ["-X", "frozen_modules=off"]  # frozen modules have no lines to stop at


class ChildDebugging(object):
    def __init__(self, launched):
        self.launched = launched
        self.probe = None  # this process's probe; forked children have their own
        self.starting = set()  # idents of threads that fork only to execute something else
        os.register_at_fork(after_in_child=self.in_child)

    def joined(self, probe):
        """This process is debugged now: intercept its starts."""
        self.probe = probe
        probe.children.report_starts(self)
        for name in ("execv", "execve"):
            probe.children.put(os, name, self.replacing)
        probe.children.put(os, "system", self.commanding)
        probe.children.put(os, "_exit", self.leaving)

    # -- forks

    def in_child(self):
        """Run in the child after fork(), in its only thread: connect anew."""
        probe, self.probe = self.probe, None
        if probe is not None:
            probe.children.detach()
        if _thread.get_ident() in self.starting:
            self.starting.clear()
            return
        try:
            fork_cleanup.forget_thread()
            self.launched.connect(waits=True).started = True
        except Exception:  # noqa: S110  the child runs without a debugger
            pass

    # -- command lines

    def rewritten(self, path, words, folder=None, environ=None):
        """The file and the command line that start the same program under its debugger; None if it
        is not Python. `folder` and `environ` are those of the start, if it has its own.
        """
        try:
            (path, folder), texts = words_of([path, folder or ""]), words_of(words)
            paths = _paths(environ)
            command = shell_commands.by_shell(path, texts)
            if command is not None:
                return self.for_shell(path, texts, command, paths, folder)
            file = shell_commands.seen_from(folder, path)
            return self.under_debugger(file, path, texts, paths, folder)
        except Exception:
            return None  # the start itself will report what is wrong

    def for_shell(self, shell, words, command, paths, folder):
        """The changed command of a shell. The shell finds the file by its name, and the program
        sees the path that was found.
        """
        file = shell_commands.located(command[0], paths, folder)
        if file is None:
            return None
        called = command[0] if "/" in command[0] else file
        found = self.under_debugger(file, called, command, paths, folder)
        if found is None:
            return None
        path, inner = found
        if path != called:  # a script: its interpreter's own name comes first
            inner = [path] + inner[1:]
        return shell, words[:2] + [shell_commands.spelt(inner)]

    def under_debugger(self, file, path, words, paths, folder):
        """The file and the command line for `file`, which was called as `path`."""
        if not (is_python(file) or file == sys.executable):
            script = shell_commands.by_first_line(file, path, words, paths, folder)
            if script is None or not is_python(script[0]):
                return None
            path, words = script
            file = path
        if is_python_2(file):
            return None  # Python 2 does not know our options, and would not run
        if not os.access(self.launched.setup["bootstrap"], os.R_OK):
            return None  # the session has ended, or this process has changed its user
        parts = parted(words[1:])
        if parts is None or parts.is_tracker:
            return None
        setup = self.launched.setup
        ours = [setup["bootstrap"], setup["family"]]
        return path, [words[0]] + parts.options + _NO_FROZEN + ours + words[1:]

    def start(self, name, original, args, kwargs):
        """Call the function that starts a process, with the command line changed; returns its
        result, and whether the child will be debugged.
        """
        if name in ("fork", "forkpty"):
            return original(*args, **kwargs), True
        args = list(args)
        if "fork_exec" in name:
            called = _first_there(args[1] or args[0], args[4])
            found = self.rewritten(called, args[0], args[4], args[5])
            if found is not None and not self.stays_readable(args, called):
                found = None
            if found is not None:
                args[0] = found[1]
                if found[0] != words_of([called])[0]:
                    args[1] = [os.fsencode(found[0])]
        else:
            found = self.rewritten(args[0], args[1], environ=args[2])
            if found is not None:
                args[:2] = found
        ident = _thread.get_ident()
        # With a preexec_fn the child runs at-fork hooks before it is replaced.
        self.starting.add(ident)
        try:
            return original(*args, **kwargs), found is not None
        finally:
            self.starting.discard(ident)

    def stays_readable(self, args, called):
        """Whether a child of `fork_exec` can read bootstrap when it runs; it cannot as another
        user. Its `preexec_fn` may change the user or the root directory: then the child executes
        the original command.
        """
        if _UID is not None and args[_UID] not in (None, -1, os.geteuid()):
            return False
        prepare = args[_PREEXEC_FN]
        if prepare is not None:
            bootstrap = self.launched.setup["bootstrap"]
            words, closes, kept, env = _plain(args)

            def prepared():
                prepare()
                if os.access(bootstrap, os.R_OK):
                    return
                for descriptor in map(int, os.listdir("/proc/self/fd")) if closes else ():
                    if descriptor > 2 and descriptor not in kept:
                        _not_inherited(descriptor)
                posix.execve(called, words, env)

            args[_PREEXEC_FN] = prepared
        return True

    def replacing(self, original):
        """Wrap `os.execv` and `os.execve`: this process becomes another program."""

        def replace(path, argv, *more):
            if self.probe is not None and os.getpid() == self.probe.pid:
                found = self.rewritten(path, list(argv), None, *more)
                path, argv = found or (path, argv)
                self.probe.engine.until_sent(_SENT_SECONDS)
            return original(path, argv, *more)

        return replace

    def commanding(self, original):
        """Wrap `os.system`, which starts a shell in C where we could not intercept it."""

        def system(command):
            if self.probe is not None and os.getpid() == self.probe.pid:
                found = self.rewritten("/bin/sh", ["sh", "-c", command])
                command = found[1][2] if found else command
            return original(command)

        return system

    def leaving(self, original):
        """Wrap `os._exit`, by which children of `multiprocessing` end: send pending messages
        first.
        """

        def leave(status):
            if self.probe is not None and os.getpid() == self.probe.pid:
                self.probe.engine.until_sent(_SENT_SECONDS)
            original(status)

        return leave


def _plain(args):
    """Plain copies of arguments of `fork_exec`: the words, whether descriptors are closed, those
    that are kept, the environment.
    """
    env = os.environb if args[5] is None else dict(row.split(b"=", 1) for row in args[5])
    return list(args[0]), args[2], frozenset(args[3]), dict(env)


def _not_inherited(descriptor):
    try:
        os.set_inheritable(descriptor, False)
    except OSError:
        pass  # the descriptor of the directory itself


def _first_there(paths, folder):
    """The first of these paths that can be executed, as the kernel would choose it."""
    try:
        here = os.fsdecode(folder or "")
        seen = [shell_commands.seen_from(here, os.fsdecode(path)) for path in paths]
        return next((path for path, file in zip(paths, seen) if os.access(file, os.X_OK)), paths[0])
    except (TypeError, ValueError):
        return paths[0]  # the start itself will report what is wrong


def _paths(environ):
    """The PATH of an environment, which may have several forms."""
    environ = os.environ if environ is None else environ
    environ = getattr(environ, "_data", environ)
    if isinstance(environ, list):
        named = [row[5:] for row in environ if row.startswith(b"PATH=")]
        found = named[0] if named else None
    else:
        found = environ.get(b"PATH") or environ.get("PATH")
    return os.fsdecode(found or os.defpath)
