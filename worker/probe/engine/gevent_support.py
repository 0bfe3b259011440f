"""Programs whose threads become greenlets of gevent.

gevent replaces what threads, locks, sockets and clocks are made of, for everybody in the program.
pydevd and the probe can do with copies of their own, but these are made before the program's first
line. So it is guessed from the text and the arguments; where the guess was wrong, it is told.
"""

import os
import re
import sys

SETTING = "GEVENT_SUPPORT"  # pydevd's own name for it; the user's word about it is the last
_IMPORTS = re.compile(rb"\b(?:import|from)[ \t][^#\n]*\bgevent\b")
_OPTION = re.compile(r"(?:^|=|^-[kP])gevent[\w.]*$")  # gunicorn's, celery's; or `-m gevent.monkey`
_COPIED = {"_thread": "thread", "queue": "_queue"}  # under other names than the modules'
_TELLERS = ("_pydevd_bundle.pydevd_comm", "_pydevd_bundle.pydevd_daemon_thread")


def are_expected(text, arguments):
    """Whether the program with this source will use gevent."""
    if SETTING in os.environ:
        return False
    if not (_IMPORTS.search(text) or any(_OPTION.search(one) for one in arguments)):
        return False
    from importlib.util import find_spec

    return find_spec("gevent") is not None


def copies():
    """The modules that the debugger has for itself, by name; none where it shares the program's."""
    constants = sys.modules["_pydevd_bundle.pydevd_constants"]
    if not getattr(constants, "SUPPORT_GEVENT", False):
        return {}
    saved = sys.modules["_pydev_bundle._pydev_saved_modules"]
    names = ("threading", "_thread", "time", "socket", "select", "queue")
    return {name: getattr(saved, _COPIED.get(name, name)) for name in names}


class GreenletWarning(object):
    """Tells once of threads that were replaced under the debugger's feet.

    pydevd would say so on the program's stderr, at each of its commands.
    """

    def __init__(self, probe):
        self.probe = probe
        self.told = False

    def hook(self):
        for name in _TELLERS:
            module = sys.modules[name]
            self.probe.engine.hooks.swap(module, "notify_about_gevent_if_needed", self.look)

    def look(self, stream=None):
        monkey = sys.modules.get("gevent.monkey")
        if self.told or not getattr(monkey, "saved", None) or copies():
            return
        self.told = True
        self.probe.emit("relayGreenlets", {})
