"""Reports child processes. It changes their starts only with a `family` (`child_debugging`).

A forked child forgets its debugger. It runs without one, or connects anew with a `family`.
"""

import os
import sys

from debug_relay.worker.probe.children import child_streams, fork_warnings
from debug_relay.worker.probe.engine import fork_cleanup
from debug_relay.worker.probe.engine.connection.message_encoding import words_of
from debug_relay.worker.probe.engine.detaching.tracing_off import stop_in_child
from debug_relay.worker.probe.engine.threads import running_frames
from debug_relay.worker.probe.startup import switch_interval

_getpid = os.getpid


class ChildProcesses(object):
    def __init__(self, probe):
        self.probe = probe
        probe.commands["streams"] = child_streams.move

    def watch(self):
        """Report the starts of children, which run without a debugger."""
        os.register_at_fork(after_in_child=self.detach)
        self.report_starts()

    def report_starts(self, family=None):
        import _posixsubprocess

        places = [(_posixsubprocess, "fork_exec"), (os, "posix_spawn"), (os, "posix_spawnp")]
        places += [(os, "fork"), (os, "forkpty")]
        if "subprocess" in sys.modules:
            places.append((sys.modules["subprocess"], "_fork_exec"))
        for module, name in places:
            self.put(
                module, name, lambda original, name=name: self.reporting(original, name, family)
            )

    def put(self, module, name, around):
        """Wrap a function until the probe is removed."""
        original = getattr(module, name, None)
        if original is None:
            return
        ours = around(original)
        ours.__name__ = name
        ours.__doc__ = original.__doc__
        self.probe.engine.hooks.swap(module, name, ours)

    def reporting(self, original, name, family):
        warns = fork_warnings.warns(name, original)
        if warns:
            original = fork_warnings.quiet(original)

        def start(*args, **kwargs):
            pid = _getpid()
            warned = warns and fork_warnings.has_others()
            if family is None:
                result, debugged = original(*args, **kwargs), False
            else:
                result, debugged = family.start(name, original, args, kwargs)
            if warned and _getpid() == pid:
                fork_warnings.warn_of_threads(name)
            if _getpid() == self.probe.pid:
                try:
                    self.report_child(name, result, args, debugged)
                except Exception:  # noqa: S110  a failed report must never break the start
                    pass
            return result

        return start

    def report_child(self, name, result, args, debugged):
        pid = result[0] if isinstance(result, tuple) else result
        if not isinstance(pid, int) or pid <= 0:
            return
        if name in ("fork", "forkpty"):
            command = [sys.executable, "(fork)"]
        else:
            command = words_of(args[0] if "fork_exec" in name else args[1])
        self.probe.emit("relaySubprocess", {"pid": pid, "command": command, "debugged": debugged})

    def detach(self):
        """Run in the child after fork(), in its only thread: forget the debugger. Takes no lock
        that another thread of the parent may have held.
        """
        self.probe.points.table.clear()
        parts = (
            running_frames.in_child,
            switch_interval.in_child,
            stop_in_child,
            self.probe.remove,
            fork_cleanup.forget_exit,
            lambda: fork_cleanup.forget(self.probe.engine),
        )
        for part in parts:
            try:
                part()
            except Exception:  # noqa: S110  the child must run, whichever part fails
                pass
