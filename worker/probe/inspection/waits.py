"""Finds what each thread waits for, and which thread could end that.

Python knows the owner of a reentrant lock by its number only, the target of a `join`, and the work
item that completes a future. A plain lock has no owner: the thread with a frame inside `with lock`
holds it. A thread that has called `lock.acquire()` in a function that goes on, and has not released
it there, has acquired it; it may have handed it on.
"""

import _thread
import sys
import threading
import types

from debug_relay.worker.probe.engine import fast_locals
from debug_relay.worker.probe.inspection.call_sites import CallSites
from debug_relay.worker.probe.values.attributes import own
from debug_relay.worker.probe.values.class_facts import full_name, lookup, mro, names_in
from debug_relay.worker.probe.values.parts import names_of
from debug_relay.worker.probe.values.stdlib_states import is_locked, owner_of

LEVELS = 60  # Frames of one thread that are searched for the locks that it holds.
_Lock = type(_thread.allocate_lock())
_RLock = _thread.RLock
_FUTURES = "concurrent.futures._base"
# The functions of the library in which threads wait: what for, and its name in their frames.
_WAITS = {
    ("threading", "join"): ("thread", "self"),
    ("threading", "wait"): (None, "self"),
    ("threading", "acquire"): (None, "self"),
    ("threading", "__enter__"): (None, "self"),
    ("threading", "_shutdown"): ("exit", None),
    ("queue", "get"): ("queue", "self"),
    ("queue", "put"): ("queue", "self"),
    ("queue", "join"): ("queue", "self"),
    (_FUTURES, "result"): ("future", "self"),
    (_FUTURES, "exception"): ("future", "self"),
    (_FUTURES, "wait"): ("futures", "fs"),
    (_FUTURES, "as_completed"): ("futures", "fs"),
    ("concurrent.futures.thread", "_worker"): ("work", "work_queue"),
    ("concurrent.futures.thread", "shutdown"): ("pool", "self"),
    ("subprocess", "wait"): ("process", "self"),
    ("subprocess", "communicate"): ("process", "self"),
    ("multiprocessing.process", "join"): ("process", "self"),
    ("multiprocessing.queues", "get"): ("queue", "self"),
    ("multiprocessing.connection", "recv"): ("connection", "self"),
    ("multiprocessing.connection", "recv_bytes"): ("connection", "self"),
    ("multiprocessing.connection", "wait"): ("connection", None),
    ("multiprocessing.synchronize", "__enter__"): ("lock", "self"),
    ("socket", "accept"): ("connection", "self"),
    ("socketserver", "serve_forever"): ("connection", "self"),
    ("selectors", "select"): ("io", "self"),
    ("asyncio.base_events", "run_forever"): ("event loop", None),
    ("asyncio.locks", "acquire"): (None, "self"),
    ("asyncio.locks", "wait"): (None, "self"),
    ("asyncio.locks", "__aenter__"): (None, "self"),
    ("asyncio.queues", "get"): ("queue", "self"),
    ("asyncio.queues", "put"): ("queue", "self"),
    ("asyncio.queues", "join"): ("queue", "self"),
    ("asyncio.tasks", "sleep"): ("sleep", "delay"),
    ("asyncio.tasks", "_wait"): ("futures", "fs"),
    ("asyncio.taskgroups", "__aexit__"): ("tasks", "self"),
    ("asyncio.streams", "read"): ("stream", "self"),
    ("asyncio.streams", "readline"): ("stream", "self"),
    ("asyncio.streams", "readuntil"): ("stream", "self"),
    ("asyncio.streams", "readexactly"): ("stream", "self"),
    ("asyncio.streams", "drain"): ("stream", "self"),
    ("asyncio.subprocess", "wait"): ("process", "self"),
    ("asyncio.subprocess", "communicate"): ("process", "self"),
    ("asyncio.base_events", "sock_recv"): ("io", None),
}
# The classes of `threading` and `asyncio.locks` that are distinguished by `self`.
_KINDS = {"Event": "event", "Condition": "condition", "Semaphore": "semaphore",
          "Barrier": "barrier", "Lock": "lock", "_RLock": "rlock"}  # fmt: skip
# Functions of the library that run code of others: what is around them does not wait.
_RUN_OTHERS = frozenset(
    (("concurrent.futures.thread", "run"), ("concurrent.futures._base", "_invoke_callbacks"),
     ("asyncio.events", "_run"), ("socketserver", "_handle_request_noblock"))
)  # fmt: skip
_ENTERED = ("lock", "rlock", "condition", "semaphore")
_PROCESS_LOCK = "multiprocessing.synchronize.SemLock"
_TAKES_BACK = ("_acquire_restore", "acquire")  # methods by which `Condition.wait` ends
_COLLECTIONS = (set, frozenset, list, tuple)
AWAITED = 50  # Futures of one wait that are looked at.
HOLDS, ACQUIRED, MAY_HOLD = "holds it", "acquired it", "may hold it"
COMPUTES = "computes it"  # the result of a future
IS_OWNER = "holds it, or a thread that has ended and had the same number"
HAS_ENDED = "a thread that has ended holds it"


class Level(object):
    """One frame of a thread or task, with its place in the stack as callers count it."""

    def __init__(self, frame, path, number, is_own, line=None):
        self.frame, self.path, self.number, self.is_own = frame, path, number, is_own
        self.line = line  # if it is not the frame's own
        self._values = None

    @property
    def values(self):
        """The frame's locals, read once."""
        if self._values is None:
            found = fast_locals.values_of(self.frame)
            self._values = dict(names_of(self.frame)) if found is None else found
        return self._values

    @property
    def function(self):
        """Its module and name."""
        return module_of(self.frame), self.frame.f_code.co_name

    def place(self):
        return [self.frame.f_code.co_name, self.path, self.line or self.frame.f_lineno or 0]


class Wait(object):
    """The wait of a thread: `kind`, the object, and how the program's code names it."""

    def __init__(self, kind, subject, text=None):
        self.kind, self.subject, self.text = kind, subject, text
        self.doing = None  # the method that it waits in
        self.subjects = [subject]  # with those of the library's functions inside
        self.needed = []  # the futures or tasks that it waits for together
        self.given = None  # the condition whose lock it has given away
        self.takes_back = False  # the condition was notified


class Waits(object):
    """The waits of some stacks: {key: [Level]}, from the top. The keys are of threads or tasks.

    A stopped thread waits for nothing, but may hold what others wait for.
    """

    def __init__(self, stacks, stopped=(), present=CallSites.present):
        """`present` reads what a frame does: a coroutine awaits, a thread's frame calls."""
        self.stacks = stacks
        self.present = present
        self.known = {}  # byte code that was read
        self.found = {key: self._of(stack) for key, stack in stacks.items() if key not in stopped}
        self._holders = None

    # -- what for

    def _of(self, stack):
        found = None
        for level in stack:
            said = _of_library(level)
            if said is not None:
                said.needed = _needed(said)
                if said.kind == "condition":
                    said.given = said.subject
                    reached = self.present(CallSites(level, self.known))
                    if reached is not None and reached.method in _TAKES_BACK:
                        said.kind, said.takes_back = "lock", True
                if found is not None:
                    said.subjects += found.subjects
                    if said.given is None:
                        said.given, said.takes_back = found.given, found.takes_back
                found = said
            if level.is_own:
                reached = self.present(CallSites(level, self.known))
                if found is None:
                    return self.blocked(reached) if level is stack[0] else None
                if reached is not None and reached.value in _Same(found.subjects):
                    found.text, found.doing = reached.text, reached.method
                return found
            if found is None and level is stack[0]:
                found = self.blocked(self.present(CallSites(level, self.known)))
            if level.function in _RUN_OTHERS:
                return found
        return found

    def blocked(self, reached):
        """The wait in a function in C that the top frame calls."""
        return _in_c(reached)

    # -- who could end it

    def holders(self, key):
        """[(key of a thread or task, its Level or None, what it does)] for a wait. The key is None
        for a thread that has ended.
        """
        wait = self.found.get(key)
        if wait is None:
            return []
        if wait.needed:
            return [one for subject in wait.needed for one in self._holders_of(subject, wait)]
        for subject in wait.subjects:
            found = self._holders_of(subject, wait)
            if found:
                return found
        return []

    def _holders_of(self, subject, wait):
        if subject is None or (subject is wait.given and not wait.takes_back):
            return []
        owner = owner_of(subject)
        if owner is not None:
            return [self._owner(owner, subject)]
        kind = type(subject)
        if issubclass(kind, threading.Thread):
            ident = own(subject, kind).get("_ident")
            return [(ident, None, "is it")] if ident in self.stacks else []
        lock = inner_lock(subject)
        if lock is not subject and owner_of(lock) is not None:
            return self._holders_of(lock, wait)
        if is_locked(lock) is False:
            return []  # it has just been released
        known = self.all_holders()
        found = known.get(id(subject)) or known.get(id(lock)) or []
        if not _is_lock(subject):
            return [one for one in found if one[2] == COMPUTES]
        return found if _kind_of(subject) == "semaphore" else _only_one(found)

    def _owner(self, ident, lock):
        """Python gives the number of a thread that has ended to another one."""
        for key, level, _ in self.all_holders().get(id(lock), ()):
            if key == ident:
                return ident, level, HOLDS
        return (ident, None, IS_OWNER) if ident in self.stacks else (None, None, HAS_ENDED)

    def all_holders(self):
        """id of a lock or future → the threads that hold it, or compute it."""
        if self._holders is None:
            self._holders = {}
            for key, stack in self.stacks.items():
                for level in stack[:LEVELS]:
                    self._note(key, level)
        return self._holders

    def _note(self, key, level):
        if level.function == ("concurrent.futures.thread", "run"):
            future = attribute_of(level.values.get("self"), "future")
            if future is not None:
                own_level = next((one for one in self.stacks[key] if one.is_own), level)
                self._add(id(future), key, own_level, COMPUTES)
        sites = CallSites(level, self.known)
        if not sites.may_hold():
            return
        held = [(address, reached, HOLDS) for address, reached in sites.entered()]
        held += [(id(reached.value), reached, ACQUIRED) for reached in sites.acquired()]
        wait = self.found.get(key)
        given = None if wait is None else wait.given
        for address, reached, how in held:
            if given is not None and address in (id(given), id(inner_lock(given))):
                continue
            self._add(address, key, level, how)
            if reached is not None and inner_lock(reached.value) is not reached.value:
                self._add(id(inner_lock(reached.value)), key, level, how)

    def _add(self, address, key, level, how):
        known = self._holders.setdefault(address, [])
        if all(one[0] != key for one in known):
            known.append((key, level, how))

    def cycles(self):
        """Threads that wait for each other, each circle once."""
        follows = {key: self._follows(key) for key in self.found}
        found, done = [], set()
        for first in follows:
            path, ways = [], [iter((first,))]
            while ways:
                here = next(ways[-1], None)
                if here is None:
                    ways.pop()
                    done.update(path[-1:])
                    del path[-1:]
                elif here in path:
                    found.append(path[path.index(here) :])
                elif here not in done:
                    path.append(here)
                    ways.append(iter(follows.get(here, ())))
        return found

    def _follows(self, key):
        """The threads that must all continue before this one does, as far as that is certain."""
        found = [one for one in self.holders(key) if one[0] is not None]
        if any(how in (MAY_HOLD, IS_OWNER) for _, _, how in found):
            return []
        wait = self.found[key]
        is_sure = len(found) == 1 or (wait is not None and wait.kind == "tasks")
        if wait is not None and wait.kind == "futures":
            is_sure = False  # one of them may be enough
        return [one[0] for one in found] if is_sure else []


def _only_one(found):
    """The holders of a lock that are certain: one thread at most holds it."""
    certain = [one for one in found if one[2] == HOLDS] or found
    if len(certain) == 1:
        return certain
    return [(key, level, MAY_HOLD) for key, level, _ in certain]


def _needed(wait):
    """The futures that a wait needs all of."""
    if wait.kind == "futures" and type(wait.subject) in _COLLECTIONS:
        return list(wait.subject)[:AWAITED]
    if wait.kind == "tasks":
        held = attribute_of(wait.subject, "_tasks")
        return list(held)[:AWAITED] if type(held) is set else []
    return []


class _Same(object):
    """Whether a value is among others, by identity: no `__eq__` runs."""

    def __init__(self, values):
        self.ids = {id(value) for value in values}

    def __contains__(self, value):
        return id(value) in self.ids


def inner_lock(value):
    """The lock inside a condition or semaphore; else the value itself."""
    kind = type(value)
    if _kind_of(value) == "condition":
        return own(value, kind).get("_lock", value)
    return value


def _is_lock(value):
    """Whether entering the value with `with` acquires it."""
    kind = type(value)
    if kind is _Lock or issubclass(kind, _RLock) or _kind_of(value) in _ENTERED:
        return True
    return any(full_name(base) == _PROCESS_LOCK for base in mro(kind))


def attribute_of(value, name):
    return own(value, type(value)).get(name)


def module_of(frame):
    name = dict.get(frame.f_globals, "__name__")
    return name if type(name) is str else None


def _of_library(level):
    """A wait in one of the library's functions."""
    if level.is_own:
        return None
    place = level.function
    found = _WAITS.get(place)
    if found is None:
        return None
    kind, name = found
    subject = level.values.get(name) if name is not None else None
    if kind is None:
        kind = _kind_of(subject)
        if kind is None:
            return None
    wait = Wait(kind, subject)
    wait.doing = place[1]
    if place[1] == "__enter__" and kind == "condition":
        wait.kind = "lock"
    return wait


def _kind_of(subject):
    for base in mro(type(subject)):
        module = names_in(base).get("__module__")
        if type(module) is str and module in ("threading", "asyncio.locks"):
            kind = _KINDS.get(base.__name__)
            if kind is not None:
                return kind
    return None


def _in_c(reached):
    """A wait in a function in C, that the byte code names; None for one in Python."""
    if reached is None:
        return None
    value, kind = reached.value, type(reached.value)
    if kind is _Lock or issubclass(kind, _RLock):
        if reached.method not in ("__enter__", "acquire"):
            return None
        return Wait("lock" if kind is _Lock else "rlock", value, reached.text)
    if full_name(kind) == "_queue.SimpleQueue" and reached.method == "get":
        return Wait("queue", value, reached.text)
    if reached.method == "acquire" and _is_lock(value):
        return Wait("lock", value, reached.text)  # it is stored in the object of multiprocessing's
    called = value
    if reached.method is not None:
        called = lookup(kind, reached.method)
        if issubclass(kind, types.ModuleType):
            called = dict.get(types.ModuleType.__getattribute__(value, "__dict__"), reached.method)
    if type(called) is types.FunctionType or issubclass(type(called), type) or called is None:
        return None  # it is in Python, or about to be
    text = reached.text if reached.method is None else "%s.%s" % (reached.text, reached.method)
    is_sleep = called is vars(sys.modules["time"]).get("sleep")
    return Wait("sleep" if is_sleep else "call", None, text)
