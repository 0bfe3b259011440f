"""Reads modules and asyncio tasks at any time, whether the program runs or not.

The debugger's own thread runs this, so it may not call any code of the program.
"""

import gc
import sys
import types

from debug_relay.worker.probe.engine.engine import is_debuggers_module
from debug_relay.worker.probe.values.class_facts import full_name, key_of
from debug_relay.worker.probe.values.rendering import View, clean

_held = types.ModuleType.__getattribute__
TASKS = 1000  # Tasks of asyncio in one answer.
STACK = 50  # Frames of one task.
GATHERED = 10  # Awaited tasks that a description names.


class ModulesAndTasks(object):
    def __init__(self, probe):
        self.probe = probe
        probe.commands.update(modules=self.modules, loaded=self.loaded, tasks=self.tasks)

    def modules(self, start, count):
        found = [
            (name, module)
            for name, module in list(sys.modules.items())
            if type(name) is str and module is not None and not is_debuggers_module(name)
        ]
        rows = [[clean(name), file_of(module)] for name, module in found[start : start + count]]
        return {"total": len(found), "rows": rows}

    def loaded(self, path):
        """Whether the path is the file of one of the program's modules."""
        return any(file_of(module) == path for module in list(sys.modules.values()))

    def tasks(self):
        found = all_tasks()
        return {"total": len(found), "rows": [task_row(task) for task in found[:TASKS]]}


def file_of(module):
    """The module's file, from its own dict: any other access would load a lazy module."""
    if not issubclass(type(module), types.ModuleType):
        return None
    try:
        path = _held(module, "__dict__").get("__file__")
    except Exception:
        return None
    return clean(path) if type(path) is str else None


def all_tasks():
    """All tasks that asyncio knows, sorted by name, because asyncio keeps them in no order."""
    asyncio = sys.modules.get("asyncio.tasks")
    if asyncio is None:
        return []
    names = vars(asyncio)
    for _ in range(10):
        try:
            kept = names.get("_scheduled_tasks")
            found = list(kept if kept is not None else names.get("_all_tasks", ()))
            found += list(names.get("_eager_tasks", ()))
            found += kept_in_c(asyncio)
            break
        except RuntimeError:  # another thread changed it while we read it
            continue
    else:
        return []
    return sorted({id(task): task for task in found}.values(), key=in_order)


def kept_in_c(asyncio):
    """Tasks that asyncio keeps in C. From 3.14 on it keeps them in lists of each thread, and gives
    only the pending ones of one loop.
    """
    if sys.version_info < (3, 14):
        return []
    kinds, left = set(), [asyncio.Task]
    while left:
        kind = left.pop()
        kinds.add(id(kind))
        left += type.__subclasses__(kind)
    return [one for one in gc.get_objects() if id(type(one)) in kinds]


def in_order(task):
    """A key for sorting: Task-2 comes before Task-10."""
    name = task_name(task)
    words = name.rstrip("0123456789")
    return words, int(name[len(words) :] or 0)


def task_name(task):
    return clean(str(_tasks().Task.get_name(task))[:200])


def task_row(task):
    base = _tasks().Task
    row = {"name": task_name(task), "current": is_current(task)}
    if base.done(task):
        row["state"] = "cancelled" if base.cancelled(task) else "done"
    else:
        row["state"] = "pending"
    error = held(task, "_exception")
    if error is not None and row["state"] == "done":
        row["exception"] = View("safe").text(error)
    awaited = base.get_coro(task)
    row["coroutine"] = named(awaited)
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
    # The innermost coroutine awaits an iterator; the future behind it is in `_fut_waiter`.
    awaited = held(task, "_fut_waiter") or awaited
    row["waiting_for"] = None if awaited is None or not frames else waited_for(awaited)
    return row


def is_current(task):
    """Whether its loop runs this task at this moment."""
    current = vars(_tasks()).get("_current_tasks")
    if type(current) is dict and any(one is task for one in list(current.values())):
        return True
    loop = held(task, "_loop") if sys.version_info >= (3, 14) else None
    return loop is not None and vars(_tasks())["_c_current_task"](loop) is task


def waited_for(awaited):
    """Describes what a task awaits: a task by its name, gathered tasks by theirs, others by
    type.
    """
    tasks = _tasks()
    if issubclass(type(awaited), tasks.Task):
        return "%s %s" % (task_name(awaited), named(tasks.Task.get_coro(awaited)))
    if type(awaited) is vars(tasks).get("_GatheringFuture"):
        parts = [
            task_name(one) if issubclass(type(one), tasks.Task) else full_name(type(one))
            for one in list(getattr(awaited, "_children", ()))
        ]
        more = ", \u2026 %d more" % (len(parts) - GATHERED) if len(parts) > GATHERED else ""
        return "all of " + ", ".join(parts[:GATHERED]) + more
    return full_name(type(awaited))


def named(coroutine):
    return clean(str(getattr(coroutine, "__qualname__", full_name(type(coroutine)))))


def held(task, name):
    """The value of an attribute that asyncio itself keeps in C; runs no code of the program."""
    slot = getattr(_tasks().Task, name, None)
    return slot.__get__(task) if type(slot) is types.GetSetDescriptorType else None


def _tasks():
    return sys.modules["asyncio.tasks"]


PREFIXES = {
    types.CoroutineType: ("cr_frame", "cr_await"),
    types.GeneratorType: ("gi_frame", "gi_yieldfrom"),
    types.AsyncGeneratorType: ("ag_frame", "ag_await"),
}
