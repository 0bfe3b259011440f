"""A stack overflow in the program looks as it does without a debugger.

From 3.12 on pydevd is called in each frame that an exception comes to. At the end of the stack
there is no room for that: what it raises itself takes the place of the program's error, with
pydevd's own lines in its traceback and pydevd's own errors before it. So where there is no room
nothing is reported of that frame; there is room a few frames further up. `uncaught_exceptions` does
the same for each frame that an exception leaves.
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
    told = getattr(module, _NAME, None)
    quiet = told and quietened(told)
    if quiet is not None:
        hooks.swap(module, _NAME, quiet)
        replace(sys.monitoring.events.RAISE, told, quiet)


def replace(event, told, quiet):
    """Replace a callback that pydevd has registered already."""
    listen, tool = sys.monitoring.register_callback, own_tool.number()
    if tool is None:
        return
    known = listen(tool, event, quiet)
    if known is not told:
        listen(tool, event, known)


def has_room(frames=_ROOM):
    """Whether there is room on the stack for a stop."""
    if not MONITORED:
        return True  # Python itself takes out a tracer that has none: see `settrace/retracing`
    try:
        return frames == 0 or has_room(frames - 1)
    except RecursionError:
        return False


def quietened(function):
    """The same with all that it does in a `try`: a function around it would be a frame more, and it
    counts frames."""
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse("".join(lines))
        (definition,) = tree.body
        error = definition.args.args[-1].arg
    except (OSError, SyntaxError, ValueError, AttributeError, IndexError):
        return None  # another debugpy's: it is as it was
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
