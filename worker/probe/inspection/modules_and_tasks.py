"""Reads modules and asyncio tasks at any time, whether the program runs or not.

The debugger's own thread runs this, so it may not call any code of the program.
"""

import gc
import sys
import types

from debug_relay.worker.probe.engine.engine import is_debuggers_module
from debug_relay.worker.probe.engine.library_files import is_library
from debug_relay.worker.probe.engine.threads import running_frames
from debug_relay.worker.probe.inspection.call_sites import CallSites
from debug_relay.worker.probe.inspection.live_threads import live_view, wait_row
from debug_relay.worker.probe.inspection.waits import AWAITED, Level, Wait, Waits
from debug_relay.worker.probe.values.class_facts import full_name, key_of
from debug_relay.worker.probe.values.rendering import View, clean
from debug_relay.worker.probe.values.stdlib_states import slot

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

    def tasks(self, locals, width, every):
        """All tasks; with `locals` the program's own frames of each with so many locals, and what
        the tasks wait for.
        """
        found = all_tasks()
        shown = [(task, task_row(task)) for task in found[:TASKS]]
        circles = self.look(shown, locals, width, every) if locals else []
        return {"total": len(found), "rows": [row for _, row in shown], "circles": circles}

    @running_frames.steady
    def look(self, shown, most, width, every):
        """Add frames and waits to the rows of pending tasks; returns the circles of waits."""
        live, known, view = self.probe.live_threads, {}, live_view(width)
        names = {id(task): row["name"] for task, row in shown}
        stacks = {
            id(task): coroutine_levels(live, task, known)
            for task, row in shown
            if row["state"] == "pending"
        }
        waits = TaskWaits(live, stacks, {id(task): task for task, _ in shown})
        for task, row in shown:
            if id(task) not in stacks:
                continue
            stack = stacks[id(task)]
            levels = [level for level in stack if every or level.is_own] or stack[-1:]
            row["looked"] = [live.frame_row(level, most, view) for level in levels[::-1]]
            row["wait"] = wait_row(waits, id(task), view, lambda key: names.get(key, key))
        return [[names[key] for key in circle] for circle in waits.cycles()]


class TaskWaits(Waits):
    """The waits of tasks: for other tasks, locks and queues of asyncio, futures of threads."""

    def __init__(self, live, stacks, tasks):
        self.live, self.tasks = live, tasks
        self._of_threads = None
        self.running = {}  # task → ident of the thread that runs it, and so not its loop
        super().__init__(stacks, present=CallSites.awaited)
        for key in stacks:
            self.found[key] = self.awaiting(key) or self.found[key] or self.blocking(key)

    def blocked(self, reached):
        """None: a suspended coroutine calls nothing."""

    def blocking(self, key):
        """The wait of the thread that runs the task just now: nothing else of its loop runs."""
        if not is_current(self.tasks[key]):
            return None
        frames = {id(level.frame) for level in self.stacks[key]}
        for ident, stack in self.threads().stacks.items():
            if any(id(level.frame) in frames for level in stack):
                self.running[key] = ident
                return self.threads().found.get(ident)
        return None

    def holders(self, key):
        ident = self.running.get(key)
        if ident is None:
            return super().holders(key)
        ids = self.live.ids()
        found = [*self.threads().holders(ident), (ident, None, "runs it")]
        return [(ids.get(one), level, how) for one, level, how in found]

    def awaiting(self, key):
        """The wait for another task, for gathered ones, or for a future of a thread."""
        future = held(self.tasks[key], "_fut_waiter")
        if future is None:
            return None
        if id(future) in self.tasks:
            return Wait("task", future)
        if type(future) is vars(_tasks()).get("_GatheringFuture"):
            wait = Wait("tasks", None)
            wait.needed = list(getattr(future, "_children", ()))[:AWAITED]
            return wait
        if self.found[key] is not None:
            return self.found[key]
        of_thread = chained_future(future)
        if of_thread is not None:
            return Wait("future", of_thread)
        reached = None
        for level in self.stacks[key]:
            if level.is_own:
                reached = CallSites(level, self.known).awaited()
                break
        return Wait("future", future, reached and reached.value is future and reached.text or None)

    def _holders_of(self, subject, wait):
        if id(subject) in self.tasks:
            return [(id(subject), None, "is it")] if id(subject) in self.stacks else []
        if full_name(type(subject)) == "concurrent.futures._base.Future":
            found = self.threads().all_holders().get(id(subject), ())
            ids = self.live.ids()
            return [(ids[ident], level, how) for ident, level, how in found if ident in ids]
        return super()._holders_of(subject, wait)

    def threads(self):
        if self._of_threads is None:
            self._of_threads = self.live.waits()
        return self._of_threads


def coroutine_levels(live, task, known):
    """The frames of a task's coroutine and of what it awaits, the innermost first."""
    found, awaited = [], slot(task, "_coro")
    while awaited is not None and len(found) < STACK:
        prefix = PREFIXES.get(key_of(type(awaited)))
        frame = prefix and getattr(awaited, prefix[0])
        if not frame:
            break
        path = frame.f_code.co_filename
        found.append(Level(frame, clean(path), len(found), not is_library(path)))
        awaited = getattr(awaited, prefix[1])
    return found[::-1]


def chained_future(future):
    """The future of a thread that completes this one: asyncio links them by a callback."""
    for entry in list(slot(future, "_callbacks") or ()):
        callback = entry[0] if type(entry) is tuple else entry
        if type(callback) is not types.FunctionType:
            continue
        for cell in callback.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            if full_name(type(value)) == "concurrent.futures._base.Future":
                return value
    return None


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
