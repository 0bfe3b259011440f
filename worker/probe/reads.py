"""What can be read from the program at any time, running or not, without a line of its code.

Runs in the program: Python 3.8 to 3.14, standard library only. See `core`. The debugger's own
thread asks, so nothing here may call what the program has written.
"""

import sys
import types

from debug_relay.worker.probe.shapes import full_name, key_of
from debug_relay.worker.probe.values import clean

_held = types.ModuleType.__getattribute__
OURS = ("pydevd", "_pydev", "debugpy")
TASKS = 1000
STACK = 50


class Reads(object):
    def __init__(self, probe):
        self.probe = probe
        probe.commands.update(modules=self.modules, loaded=self.loaded, tasks=self.tasks)

    def modules(self, start, count):
        found = [
            (name, module)
            for name, module in list(sys.modules.items())
            if type(name) is str and module is not None and not name.startswith(OURS)
        ]
        rows = [[clean(name), file_of(module)] for name, module in found[start : start + count]]
        return {"total": len(found), "rows": rows}

    def loaded(self, path):
        """Whether it is the file of one of the program's modules."""
        return any(file_of(module) == path for module in list(sys.modules.values()))

    def tasks(self):
        found = all_tasks()
        return {"total": len(found), "rows": [task_row(task) for task in found[:TASKS]]}


def file_of(module):
    """As the module itself holds it: a lazy one would import at any other question."""
    if not issubclass(type(module), types.ModuleType):
        return None
    try:
        path = _held(module, "__dict__").get("__file__")
    except Exception:
        return None
    return clean(path) if type(path) is str else None


def all_tasks():
    asyncio = sys.modules.get("asyncio.tasks")
    if asyncio is None:
        return []
    names = vars(asyncio)
    for _ in range(10):
        try:
            kept = names.get("_scheduled_tasks")
            found = list(kept if kept is not None else names.get("_all_tasks", ()))
            return found + list(names.get("_eager_tasks", ()))
        except RuntimeError:  # it changed while it was read
            continue
    return []


def task_row(task):
    base = sys.modules["asyncio.tasks"].Task
    row = {"name": clean(str(base.get_name(task))[:200])}
    if base.done(task):
        row["state"] = "cancelled" if base.cancelled(task) else "done"
    else:
        row["state"] = "pending"
    awaited = base.get_coro(task)
    row["coroutine"] = clean(str(getattr(awaited, "__qualname__", full_name(type(awaited)))))
    frames = []
    while awaited is not None and len(frames) < STACK:
        prefix = PREFIXES.get(key_of(type(awaited)))
        frame = prefix and getattr(awaited, prefix[0])
        if not frame:
            break
        code = frame.f_code
        frames.append([code.co_name, clean(code.co_filename), frame.f_lineno or 0])
        awaited = getattr(awaited, prefix[1])
    row["frames"] = frames
    row["waiting_for"] = None if awaited is None or not frames else full_name(type(awaited))
    return row


PREFIXES = {
    types.CoroutineType: ("cr_frame", "cr_await"),
    types.GeneratorType: ("gi_frame", "gi_yieldfrom"),
    types.AsyncGeneratorType: ("ag_frame", "ag_await"),
}
