"""Supports programs whose threads become greenlets of gevent.

gevent replaces the functions behind threads, locks, sockets and clocks for all code in the program.
pydevd and the probe can use copies of the originals, but these must be made before the program's
first line. So we predict the use of gevent from the text and the arguments; where the prediction is
wrong, the session's output says so.
"""

import os
import re
import sys

SETTING = "GEVENT_SUPPORT"  # pydevd's environment variable; the user's own value wins
_IMPORTS = re.compile(rb"\b(?:import|from)[ \t][^#\n]*\bgevent\b")
# Options of gunicorn and celery, or `-m gevent.monkey`.
_OPTION = re.compile(r"(?:^|=|^-[kP])gevent[\w.]*$")
# Modules whose copies have other names.
_COPIED = {"_thread": "thread", "queue": "_queue"}
_WARNING_MODULES = ("_pydevd_bundle.pydevd_comm", "_pydevd_bundle.pydevd_daemon_thread")


def are_expected(text, arguments):
    """Whether the program with this source will use gevent."""
    if SETTING in os.environ:
        return False
    if not (_IMPORTS.search(text) or any(_OPTION.search(one) for one in arguments)):
        return False
    from importlib.util import find_spec

    return find_spec("gevent") is not None


def copies():
    """The debugger's copies of modules, by name; empty if it shares the program's modules."""
    constants = sys.modules["_pydevd_bundle.pydevd_constants"]
    if not getattr(constants, "SUPPORT_GEVENT", False):
        return {}
    saved = sys.modules["_pydev_bundle._pydev_saved_modules"]
    names = ("threading", "_thread", "time", "socket", "select", "queue")
    return {name: getattr(saved, _COPIED.get(name, name)) for name in names}


class GreenletWarning(object):
    """Reports once that gevent has replaced threads without our prediction.

    pydevd would say so on the program's stderr, at each of its commands.
    """

    def __init__(self, probe):
        self.probe = probe
        self.has_warned = False

    def hook(self):
        for name in _WARNING_MODULES:
            module = sys.modules[name]
            self.probe.engine.hooks.swap(module, "notify_about_gevent_if_needed", self.look)

    def look(self, stream=None):
        monkey = sys.modules.get("gevent.monkey")
        if self.has_warned or not getattr(monkey, "saved", None) or copies():
            return
        self.has_warned = True
        self.probe.emit("relayGreenlets", {})
