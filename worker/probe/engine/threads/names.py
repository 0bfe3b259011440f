"""Keeps the debugger's threads from taking numbers: the program's first one is `Thread-1`, as
without us.

`threading` numbers each thread that is created without a name. pydevd creates its threads so and
sets their names afterwards. So its modules get a class here that gives a name at once.
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
    """The module through which pydevd imports standard modules: copies, if greenlets
    are expected.
    """
    threading = module.threading

    class Thread(threading.Thread):
        def __init__(self):
            threading.Thread.__init__(self, name="pydevd")

    return _Instead(module, threading=_Instead(threading, Thread=Thread))


def _bring(name, globals=None, locals=None, fromlist=(), level=0):
    found = builtins.__import__(name, globals, locals, fromlist, level)
    return _saved(found) if name == _FROM and "threading" in fromlist else found


# Module of pydevd's → the module through which it imports.
IMPORTS = dict.fromkeys(
    ("_pydev_bundle.pydev_is_thread_alive", "_pydevd_bundle.pydevd_daemon_thread"), _bring
)
