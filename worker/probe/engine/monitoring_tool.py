"""Chooses pydevd's tool number in `sys.monitoring` (3.12 and later): not the debuggers' number.

Python reserves one number for debuggers, and from 3.14 on pdb takes it: `pdb.set_trace()` and
`python -m pdb` would end with "Another debugger is using the monitoring tool". pydevd takes a
number that Python reserves for nobody. So the program's own debugger finds its number free, and
both work.
"""

import sys
import types

NAME = "pydevd"
_MODULE = "_pydevd_sys_monitoring._pydevd_sys_monitoring"
# The last one is the debuggers'. pydevd itself would take it; pdb does.
_NUMBERS = (3, 4, 5, 0)


def choose():
    """Called when pydevd is imported, and before it listens."""
    pydevds = sys.modules.get(_MODULE)
    if pydevds is None or not hasattr(sys, "monitoring") or number() is not None:
        return
    known = sys.monitoring
    # A module, because Python finds a module's names fastest, and pydevd looks it up at each line.
    pydevds.monitor = types.ModuleType(known.__name__)
    vars(pydevds.monitor).update(vars(known), DEBUGGER_ID=free() or known.DEBUGGER_ID)
    pydevds.DEBUGGER_ID = pydevds.monitor.DEBUGGER_ID


def free():
    """A number for one more tool of ours; None if there is none. pydevd takes its number only when
    it starts, and would get no events if another tool had it by then.
    """
    monitoring, pydevds = sys.monitoring, sys.modules.get(_MODULE)
    chosen = getattr(getattr(pydevds, "monitor", None), "DEBUGGER_ID", None)
    for one in _NUMBERS:
        if one != chosen and monitoring.get_tool(one) is None:
            return one
    return None


def request(tool, code, events):
    """Have Python report these events of the code to a tool of ours. Threads of the program call
    this while a detach frees the number in another thread: nothing may be raised into them.
    """
    try:
        sys.monitoring.set_local_events(tool, code, events)
    except (TypeError, ValueError):
        pass  # there is no number any more, and so no event


def holders():
    """The tools that have these numbers, in words."""
    get = sys.monitoring.get_tool
    return ", ".join("%d (%s)" % (one, get(one)) for one in _NUMBERS if get(one) is not None)


def number():
    """pydevd's tool number while it has one."""
    pydevds = sys.modules.get(_MODULE)
    tool = getattr(pydevds, "DEBUGGER_ID", None)
    return tool if tool is not None and sys.monitoring.get_tool(tool) == NAME else None
