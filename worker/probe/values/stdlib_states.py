"""Renders the standard library's own objects by their states: locks, events, queues, futures.

It reads what their base classes in C say, and the attributes that those in Python keep. No method
is called that a class of the program may override.
"""

import _thread
import collections
import sys
import threading
import types

from debug_relay.worker.probe.values.attributes import own
from debug_relay.worker.probe.values.class_facts import (
    attributes,
    full_name,
    key_of,
    mro,
    name_of,
    names_in,
    printable,
)

_Lock = type(_thread.allocate_lock())
_RLock = _thread.RLock
_GETSET = types.GetSetDescriptorType
# Attributes of the library's own that do not begin with an underscore.
_KEPT_IN_PUBLIC = frozenset(
    ("queue", "maxsize", "mutex", "not_empty", "not_full", "all_tasks_done", "unfinished_tasks",
     "is_shutdown", "acquire", "release")
)  # fmt: skip
_SIZED = (collections.deque, list, dict, set)
NAME = 60  # Characters of a name that the program has given.


def text_of(view, value, kind, depth):
    """The state of a value as text; None if it is none of these objects."""
    for base in mro(kind):
        show = _in_c(base) or _IN_PYTHON.get(_place_of(base))
        if show is not None:
            said = show(view, value, kind, depth)
            if said is None:
                return None
            more = "" if kind is base or not depth else _of_program(view, value, kind, depth)
            return "<%s%s>" % (said, more)
    return None


def _of_program(view, value, kind, depth):
    """The attributes that a class of the program has added."""
    pairs = [
        pair
        for pair in attributes(value, kind)
        if not pair[0].startswith("_") and pair[0] not in _KEPT_IN_PUBLIC
    ]
    if not pairs:
        return ""
    return " " + view.members(
        pairs,
        len(pairs),
        depth,
        lambda pair: "%s=%s" % (printable(pair[0]), view.inside(pair[1], "." + pair[0], depth)),
    )


def _place_of(base):
    module = names_in(base).get("__module__")
    if type(module) is not str or module not in _MODULES:
        return None
    return "%s.%s" % (module, name_of(base))


def _in_c(base):
    """The renderer of a class in C. Its modules may be imported at any time."""
    base = key_of(base)
    if base is _Lock:
        return _lock
    if base is _RLock:
        return _rlock
    for module, name, show in (
        ("_queue", "SimpleQueue", _simple_queue),
        ("_asyncio", "Task", _task),
        ("_asyncio", "Future", _future),
        ("_multiprocessing", "SemLock", _process_lock),
    ):
        if _class_of(module, name) is base:
            return show
    return None


def _class_of(module, name):
    """A class in C, if the program has imported its module."""
    found = sys.modules.get(module)
    return vars(found).get(name) if type(found) is types.ModuleType else None


def _at(value):
    return "at 0x%x" % id(value)


def _title(kind):
    """The name by which programs know the class."""
    module, dot, name = full_name(kind).rpartition(".")
    if module in _MODULES or module == "_asyncio":
        module = _PACKAGES.get(module, module)
    return module + dot + name


def _said(kind, value, *words):
    return " ".join([_title(kind), *(word for word in words if word), _at(value)])


# -- locks


def is_locked(lock):
    """Whether a lock of C is locked; None for anything else, and where Python cannot tell."""
    kind = type(lock)
    if kind is _Lock:
        return _Lock.locked(lock)
    if issubclass(kind, _RLock):
        return _RLock.__repr__(lock).startswith("<locked")
    return None


def owner_of(lock):
    """The ident of the thread that holds a reentrant lock; None if none does."""
    if not issubclass(type(lock), _RLock):
        return None
    words = _RLock.__repr__(lock)
    if not words.startswith("<locked"):
        return None
    _, _, rest = words.partition(" owner=")
    digits = rest.partition(" ")[0]
    return int(digits) if digits.isdigit() and int(digits) else None


def thread_name(ident):
    thread = dict.get(threading._active, ident)
    name = None if thread is None else own(thread, type(thread)).get("_name")
    return printable(name)[:NAME] if type(name) is str else str(ident)


def _lock(view, value, kind, depth):
    return "%s _thread.lock %s" % ("locked" if _Lock.locked(value) else "unlocked", _at(value))


def _rlock(view, value, kind, depth):
    owner = owner_of(value)
    if owner is None:
        return "unlocked %s %s" % (_title(kind), _at(value))
    _, _, rest = _RLock.__repr__(value).partition(" count=")
    count = rest.partition(" ")[0]
    times = " %s times" % count if count != "1" else ""
    return "locked %s by %s%s %s" % (_title(kind), thread_name(owner), times, _at(value))


def _python_rlock(view, value, kind, depth):
    held = own(value, kind)
    owner = held.get("_owner")
    by = " by %s" % thread_name(owner) if type(owner) is int else ""
    return "%s %s%s %s" % ("locked" if by else "unlocked", _title(kind), by, _at(value))


def _process_lock(view, value, kind, depth):
    base = sys.modules["_multiprocessing"].SemLock
    left = base._get_value(value)
    return _said(kind, value, "locked" if not left else "unlocked, value %d" % left)


def _process_lock_of_python(view, value, kind, depth):
    inner = own(value, kind).get("_semlock")
    base = _class_of("_multiprocessing", "SemLock")
    if base is None or type(inner) is not base:
        return None
    left = base._get_value(inner)
    return _said(kind, value, "locked" if not left else "unlocked, value %d" % left)


# -- events, conditions, semaphores


def _event(view, value, kind, depth):
    held = own(value, kind)
    flag = held.get("_flag", held.get("_value"))  # asyncio's has the second
    if type(flag) is not bool:
        return None
    return _said(kind, value, "set" if flag else "not set", _waiting(held.get("_waiters")))


def _condition(view, value, kind, depth):
    held = own(value, kind)
    inner = view.inside(held.get("_lock"), "._lock", depth + 1)
    return _said(kind, value, _waiting(held.get("_waiters")), "with %s" % inner)


def _semaphore(view, value, kind, depth):
    held = own(value, kind)
    left = held.get("_value")
    if type(left) is not int:
        return None
    return _said(kind, value, "%d left" % left, _waiting(held.get("_waiters")))


def _async_lock(view, value, kind, depth):
    held = own(value, kind)
    locked = held.get("_locked")
    if type(locked) is not bool:
        return None
    word = "locked" if locked else "unlocked"
    return "%s %s" % (word, _said(kind, value, _waiting(held.get("_waiters"))))


def _barrier(view, value, kind, depth):
    held = own(value, kind)
    parties, count = held.get("_parties"), held.get("_count")
    if type(parties) is not int or type(count) is not int:
        return None
    broken = "broken" if held.get("_state") == -2 else ""
    return _said(kind, value, "%d of %d waiting" % (count, parties), broken)


def size_of(held):
    """The length of a collection of a builtin type; None for any other."""
    for base in _SIZED:
        if issubclass(type(held), base):
            return base.__len__(held)
    return None


def _waiting(waiters):
    count = size_of(waiters)
    return "%d waiting" % count if count else ""


def _thread_state(view, value, kind, depth):
    held = own(value, kind)
    name, ident = held.get("_name"), held.get("_ident")
    shown = repr(printable(name)[:NAME]) if type(name) is str else ""
    if type(ident) is not int:
        state = "not started"
    else:
        state = "alive" if dict.get(threading._active, ident) is value else "ended"
    daemon = "daemon" if held.get("_daemonic") is True else ""
    return _said(kind, value, shown, state, daemon)


# -- queues


def _queue(view, value, kind, depth):
    held = own(value, kind)
    items = held.get("queue", held.get("_queue"))  # asyncio's has the second
    size = size_of(items)
    if size is None:
        return None
    most = held.get("maxsize", held.get("_maxsize"))
    of = " of %d" % most if type(most) is int and most > 0 else ""
    left = held.get("unfinished_tasks", held.get("_unfinished_tasks"))
    unfinished = "%d unfinished" % left if type(left) is int and left else ""
    waiting = [
        "%d %s" % (size_of(held.get(name)), word)
        for name, word in (("_getters", "getting"), ("_putters", "putting"))
        if size_of(held.get(name))
    ]
    inside = view.inside(items, ".queue", depth) if size and depth else ""
    return _said(kind, value, _items(size, of), unfinished, *waiting, inside)


def _simple_queue(view, value, kind, depth):
    return _said(kind, value, _items(sys.modules["_queue"].SimpleQueue.qsize(value)))


def _items(size, of=""):
    return "%d%s item%s" % (size, of, "" if size == 1 and not of else "s")


# -- futures and tasks


def slot(value, name):
    """An attribute of a future or task that `_asyncio` keeps in C, else one in Python."""
    for base in mro(type(value)):
        found = names_in(base).get(name)
        if type(found) is _GETSET:
            try:
                return found.__get__(value)
            except Exception:
                return None
    return own(value, type(value)).get(name)


def state_of(future):
    """`pending`, `running`, `done`, `cancelled`; None if it says none of these."""
    state = slot(future, "_state")
    if type(state) is not str:
        return None
    state = state.lower().replace("cancelled_and_notified", "cancelled")
    return {"finished": "done"}.get(state, state)


def _future(view, value, kind, depth):
    state = state_of(value)
    if state is None:
        return None
    return _said(kind, value, state, _outcome(view, value, state, depth))


def _outcome(view, value, state, depth):
    if state != "done":
        return ""
    error = slot(value, "_exception")
    if error is not None:
        return "raised %s" % view.inside(error, "._exception", depth)
    return "result=%s" % view.inside(slot(value, "_result"), "._result", depth)


def _task(view, value, kind, depth):
    state = state_of(value)
    if state is None:
        return None
    name = task_name(value)
    coroutine = slot(value, "_coro")
    what = view.inside(coroutine, "._coro", depth + 1) if coroutine is not None else ""
    return _said(kind, value, name, state, what, _outcome(view, value, state, depth))


def task_name(task):
    """The name of a task, without a method that a class of the program may have."""
    base = _class_of("_asyncio", "Task")
    if base is not None and issubclass(type(task), base):
        name = base.get_name(task)
    else:
        name = own(task, type(task)).get("_name")
    return printable(name)[:NAME] if type(name) is str else ""


def _pool(view, value, kind, depth):
    held = own(value, kind)
    size, most = size_of(held.get("_threads")), held.get("_max_workers")
    if size is None or type(most) is not int:
        return None
    pending, queued = held.get("_work_queue"), ""
    base = _class_of("_queue", "SimpleQueue")
    if base is not None and issubclass(type(pending), base):
        queued = "%d queued" % base.qsize(pending)
    ended = "shut down" if held.get("_shutdown") is True else ""
    return _said(kind, value, "%d of %d threads" % (size, most), queued, ended)


# -- processes


def _process(view, value, kind, depth):
    held = own(value, kind)
    pid, code, args = held.get("pid"), held.get("returncode"), held.get("args")
    if type(pid) is not int:
        return None
    state = "ended %d" % code if type(code) is int else "pid %d" % pid
    inside = view.inside(args, ".args", depth) if args is not None and depth else ""
    return _said(kind, value, state, inside)


def _process_of_function(view, value, kind, depth):
    held = own(value, kind)
    name, started = held.get("_name"), held.get("_popen")
    pid = None if started is None else own(started, type(started)).get("pid")
    shown = repr(printable(name)[:NAME]) if type(name) is str else ""
    return _said(kind, value, shown, "pid %d" % pid if type(pid) is int else "not started")


_IN_PYTHON = {
    "threading._RLock": _python_rlock,
    "threading.Event": _event,
    "threading.Condition": _condition,
    "threading.Semaphore": _semaphore,
    "threading.Barrier": _barrier,
    "threading.Thread": _thread_state,
    "queue.Queue": _queue,
    "asyncio.queues.Queue": _queue,
    "asyncio.locks.Lock": _async_lock,
    "asyncio.locks.Event": _event,
    "asyncio.locks.Condition": _condition,
    "asyncio.locks.Semaphore": _semaphore,
    "asyncio.futures.Future": _future,
    "asyncio.tasks.Task": _task,
    "concurrent.futures._base.Future": _future,
    "concurrent.futures.thread.ThreadPoolExecutor": _pool,
    "multiprocessing.synchronize.SemLock": _process_lock_of_python,
    "subprocess.Popen": _process,
    "asyncio.subprocess.Process": _process,
    "multiprocessing.process.BaseProcess": _process_of_function,
}
_PACKAGES = {
    "_asyncio": "asyncio",
    "asyncio.futures": "asyncio",
    "asyncio.locks": "asyncio",
    "asyncio.queues": "asyncio",
    "asyncio.tasks": "asyncio",
    "concurrent.futures._base": "concurrent.futures",
    "concurrent.futures.thread": "concurrent.futures",
    "multiprocessing.synchronize": "multiprocessing",
}
_MODULES = frozenset(place.rpartition(".")[0] for place in _IN_PYTHON)
