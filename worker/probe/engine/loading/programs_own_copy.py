"""Sets a debugpy aside that the program has loaded and does not use, while the relay is attached.

A Jupyter kernel loads a debugpy of its own at its start. That one is compiled, or of another
version: the probe would find other internals than those it is written for.
"""

import os
import sys

_PREFIXES = ("debugpy", "pydevd", "_pydev", "pydev")
# The attribute of the program's module that keeps our debugpy until the next attach.
_OURS = "_relay_own"


def set_aside(parent):
    """Make room for the debugpy in `parent`; returns the function that undoes it."""
    theirs = sys.modules.get("debugpy")
    if theirs is None or _lies_in(theirs, parent) or _is_in_use():
        return _nothing
    others = _take_out()
    sys.modules.update(vars(theirs).get(_OURS, {}))

    def restore():
        if others:  # a child that is forked right after this does it again
            vars(theirs)[_OURS] = _take_out()
            sys.modules.update(others)
            others.clear()

    return restore


def _nothing():
    """Undo nothing: the program has no debugpy of its own."""


def _lies_in(module, parent):
    path = getattr(module, "__file__", None) or ""
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(parent), ""))


def _is_in_use():
    constants = sys.modules.get("_pydevd_bundle.pydevd_constants")
    return constants is not None and constants.get_global_debugger() is not None


def _take_out():
    names = [name for name in list(sys.modules) if name.startswith(_PREFIXES)]
    return {name: sys.modules.pop(name) for name in names}
