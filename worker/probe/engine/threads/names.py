"""The debugger's threads take no number: the program's first one is `Thread-1`, as without us.

`threading` numbers whoever is made without a name. pydevd's are, and have theirs set afterwards. So
what makes them finds a class here that gives them one.
"""

import builtins

_FROM = "_pydev_bundle._pydev_saved_modules"


class _Instead(object):
    """A module with some of its names replaced."""

    def __init__(self, module, **names):
        self.__dict__.update(names)
        self.__dict__["_module"] = module

    def __getattr__(self, name):
        return getattr(self._module, name)


def _saved(module):
    """The module that pydevd takes its modules from: copies, where greenlets are expected."""
    threading = module.threading

    class Thread(threading.Thread):
        def __init__(self):
            threading.Thread.__init__(self, name="pydevd")

    return _Instead(module, threading=_Instead(threading, Thread=Thread))


def _bring(name, globals=None, locals=None, fromlist=(), level=0):
    found = builtins.__import__(name, globals, locals, fromlist, level)
    return _saved(found) if name == _FROM and "threading" in fromlist else found


# Module of pydevd's → what it imports with.
IMPORTS = dict.fromkeys(
    ("_pydev_bundle.pydev_is_thread_alive", "_pydevd_bundle.pydevd_daemon_thread"), _bring
)
