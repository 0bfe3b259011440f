"""Child processes are told of; unless they have a `family`, they are never touched.

A forked one forgets its debugger: it runs as without one, or connects anew (`family`).
"""

import os
import sys

from debug_relay.worker.probe.children import child_streams as streams
from debug_relay.worker.probe.children import fork_warnings as forks
from debug_relay.worker.probe.engine import forked
from debug_relay.worker.probe.engine.connection.message_encoding import words_of
from debug_relay.worker.probe.engine.detaching.tracing_off import stop_in_child
from debug_relay.worker.probe.engine.threads import running_frames as all_frames
from debug_relay.worker.probe.startup import switch_interval as pace

_getpid = os.getpid


class Children(object):
    def __init__(self, probe):
        self.probe = probe
        probe.commands["streams"] = streams.move

    def watch(self):
        """Children run as without a debugger; their start is told, nothing else is changed."""
        os.register_at_fork(after_in_child=self.let_go)
        self.tell_starts()

    def tell_starts(self, family=None):
        import _posixsubprocess

        places = [(_posixsubprocess, "fork_exec"), (os, "posix_spawn"), (os, "posix_spawnp")]
        places += [(os, "fork"), (os, "forkpty")]
        if "subprocess" in sys.modules:
            places.append((sys.modules["subprocess"], "_fork_exec"))
        for module, name in places:
            self.put(module, name, lambda original, name=name: self.telling(original, name, family))

    def put(self, module, name, around):
        """A function of ours around one of the program's, until the probe is removed."""
        original = getattr(module, name, None)
        if original is None:
            return
        ours = around(original)
        ours.__name__ = name
        ours.__doc__ = original.__doc__
        self.probe.engine.hooks.swap(module, name, ours)

    def telling(self, original, name, family):
        warns = forks.warns(name, original)
        if warns:
            original = forks.quiet(original)

        def start(*args, **kwargs):
            pid = _getpid()
            warned = warns and forks.has_others()
            if family is None:
                result, debugged = original(*args, **kwargs), False
            else:
                result, debugged = family.start(name, original, args, kwargs)
            if warned and _getpid() == pid:
                forks.warn_of_threads(name)
            if _getpid() == self.probe.pid:
                try:
                    self.tell_child(name, result, args, debugged)
                except Exception:  # noqa: S110  telling must never break what it tells of
                    pass
            return result

        return start

    def tell_child(self, name, result, args, debugged):
        pid = result[0] if isinstance(result, tuple) else result
        if not isinstance(pid, int) or pid <= 0:
            return
        if name in ("fork", "forkpty"):
            command = [sys.executable, "(fork)"]
        else:
            command = words_of(args[0] if "fork_exec" in name else args[1])
        self.probe.emit("relaySubprocess", {"pid": pid, "command": command, "debugged": debugged})

    def let_go(self):
        """After fork(), in the child, in the only thread there is; takes no lock of another."""
        self.probe.points.table.clear()
        parts = (
            all_frames.in_child,
            pace.in_child,
            stop_in_child,
            self.probe.remove,
            forked.forget_exit,
            lambda: forked.forget(self.probe.engine),
        )
        for part in parts:
            try:
                part()
            except Exception:  # noqa: S110  each part stands alone; the child must run
                pass
