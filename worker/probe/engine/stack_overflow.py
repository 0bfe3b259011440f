"""Makes a stack overflow in the program look as it does without a debugger.

From 3.12 on pydevd is called in each frame that an exception reaches. At the end of the stack there
is no room for that: pydevd itself raises, and its error would replace the program's, with pydevd's
lines in the traceback and pydevd's errors before it. So where there is no room the frame is not
reported; there is room a few frames further up. `uncaught_exceptions` does the same for each frame
that an exception leaves.
"""

import ast
import inspect
import sys

from debug_relay.worker.probe.engine import monitoring_tool as own_tool
from debug_relay.worker.probe.engine.frames import MONITORED

_MODULE = "_pydevd_sys_monitoring._pydevd_sys_monitoring"
_NAME = "_raise_event"
_ROOM = 60  # Frames that a stop at an exception may need.


def hook(hooks):
    module = sys.modules.get(_MODULE)
    if module is None or not MONITORED:
        return
    callback = getattr(module, _NAME, None)
    quiet = callback and quietened(callback)
    if quiet is not None:
        hooks.swap(module, _NAME, quiet)
        replace(sys.monitoring.events.RAISE, callback, quiet)


def replace(event, callback, quiet):
    """Replace a callback that pydevd has registered already."""
    listen, tool = sys.monitoring.register_callback, own_tool.number()
    if tool is None:
        return
    known = listen(tool, event, quiet)
    if known is not callback:
        listen(tool, event, known)


def has_room(frames=_ROOM):
    """Whether there is room on the stack for a stop."""
    if not MONITORED:
        return True  # Python itself removes a tracer that has no room: see `settrace/retracing`
    try:
        return frames == 0 or has_room(frames - 1)
    except RecursionError:
        return False


def quietened(function):
    """The same function with its whole body in a `try`. A wrapper would be one more frame, and the
    function counts frames.
    """
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse("".join(lines))
        (definition,) = tree.body
        error = definition.args.args[-1].arg
    except (OSError, SyntaxError, ValueError, AttributeError, IndexError):
        return None  # another debugpy has other code: it is left as it is
    ast.increment_lineno(tree, first - 1)
    (body,) = ast.parse(_TRY % error).body
    body.body = definition.body
    ast.copy_location(body, definition.body[0])
    definition.body = [body]
    ast.fix_missing_locations(tree)
    made = {}
    exec(compile(tree, function.__code__.co_filename, "exec"), function.__globals__, made)
    return made.get(function.__name__)


_TRY = """
try:
    pass
except RecursionError:
    if not isinstance(%s, RecursionError):
        raise
"""
