"""Imports pydevd into the program, and leaves no other trace of that.

Used for launched and for attached programs. `connection.connect` connects it.
"""

import builtins
import os
import sys

from debug_relay.worker.probe.engine import monitoring_tool, names
from debug_relay.worker.probe.engine.loading import trimmed_imports
from debug_relay.worker.probe.engine.threads import names as thread_names

# pydevd reads these when it is imported. With them it never lets other threads run because a value
# is slow to show (the program would change during a stop), and prints nothing about slow values, or
# about frozen modules, into the program's output.
_SETTINGS = {
    "PYDEVD_UNBLOCK_THREADS_ON_VARIABLES_TIMEOUT": "-1",
    "PYDEVD_WARN_SLOW_RESOLVE_TIMEOUT": "86400",
    "PYDEVD_WARN_EVALUATION_TIMEOUT": "86400",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
}
if sys.version_info >= (3, 12):
    # debugpy's build has the compiled part for the relay's own Python only. A program must not be
    # debugged differently because the relay happens to run on the same version.
    _SETTINGS["PYDEVD_USE_CYTHON"] = "NO"
_MODULES = ("debugpy", "pydev", "_pydev")  # how the names of the debugger's modules begin


def keep_bytecode(parent, bytecode):
    """Import the debugger in `parent` from its kept byte code, until `bytecode.leave`."""
    bytecode.watch(os.path.join(parent, "debugpy"), _MODULES)


def import_debugger(parent, bytecode, switch=None):
    """Import pydevd of the debugpy in `parent`, unless the program has loaded one.

    `switch` is one more of pydevd's settings to turn on.
    """
    keep_bytecode(parent, bytecode)
    settings = dict(_SETTINGS, **{switch: "True"}) if switch else _SETTINGS
    kept = {name: os.environ.get(name) for name in ("PYDEVD_USE_FRAME_EVAL", *settings)}
    known = set(vars(builtins))
    os.environ.update(settings)
    try:
        with trimmed_imports.ModuleImports(dict(trimmed_imports.IMPORTS, **thread_names.IMPORTS)):
            _find_debugpy(parent)
            import debugpy._vendored.force_pydevd  # noqa: F401
            import pydevd  # noqa: F401
    finally:
        for name in set(vars(builtins)) - known:
            delattr(builtins, name)  # pydevd's `runfile` and `execfile` are not the program's
        for name, value in kept.items():
            # the program's children must not inherit this
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    if not names.missing():
        monitoring_tool.choose()
        _silence()


def _find_debugpy(parent):
    """Import only debugpy from there: its neighbours are the relay's packages, of
    another Python.
    """
    sys.path.insert(0, parent)
    try:
        import debugpy  # noqa: F401
    finally:
        sys.path.remove(parent)


def _silence():
    """Keep pydevd from printing to the program's stderr."""
    import pydevd_tracing
    from _pydev_bundle import pydev_log
    from _pydevd_bundle.pydevd_constants import NULL

    pydevd_tracing.TracingFunctionHolder._warn = False
    pydev_log._LoggingGlobals._debug_stream = NULL
    pydev_log._LoggingGlobals._debug_stream_initialized = True


def forget():
    """Drop a debugger that has never connected: pydevd has created only the object."""
    sys.modules["_pydevd_bundle.pydevd_constants"].set_global_debugger(None)


def install_breakpointhook():
    """Make `breakpoint()` in the program stop from now on."""
    hook = sys.modules["debugpy._vendored.force_pydevd"].debugpy_breakpointhook
    if sys.breakpointhook is not hook:
        sys.modules["pydevd"].install_breakpointhook(hook)
