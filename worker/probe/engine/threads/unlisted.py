"""Threads without an entry in `threading`: those it has not started, and those that end.

Used on Python 3.12 and later.

pydevd has an entry made for who has none; what takes that away again is one of the thread's own
variables, which goes with them. A thread that ends may run some Python after that: with an entry
made then it would be listed for ever. And at the program's end, when the threads that are left lose
their variables, there is no more of any module: what goes then must not need one.
"""

import _thread
import sys
import threading
import weakref
from collections import deque

# Ended threads that are remembered: threads end one by one, and each needs it only for a moment.
_KEPT = 200


class Unlisted(object):
    def __init__(self, facts):
        self.local = facts._thread_local_info  # pydevd's variables of each thread
        # By the numbers of the kernel: those of `threading` the next thread may have at once.
        self.met = {}
        self.ended = deque()
        forgetting = getattr(getattr(threading, "_dangling", None), "_remove", None)
        self.last_code = getattr(forgetting, "__code__", None)

    def is_ending(self):
        """Whether this thread has lost its variables."""
        if hasattr(self.local, "relay_life"):
            return False
        number = _thread.get_native_id()
        if number in self.met:
            return True
        if _thread.get_ident() not in threading._active and self.begins_with_its_end():
            return True
        life = self.local.relay_life = _Life()
        # Told without running any Python, which would be an event of that thread again.
        end = self.met[number] = _End(life, self.ended.append)
        end.number = number
        if len(self.ended) > _KEPT:
            self.forget()
        return False

    def forget(self):
        try:
            while len(self.ended) > _KEPT:
                self.met.pop(self.ended.popleft().number, None)
        except IndexError:
            pass  # another thread does the same

    def begins_with_its_end(self):
        """It has run nothing that pydevd was told of before; no thread is started with this."""
        frame = sys._getframe()
        while frame.f_back is not None:
            frame = frame.f_back
        return frame.f_code is self.last_code

    def take_over(self, thread):
        """This thread's entry, made by pydevd just now."""
        found = getattr(threading, "_thread_local_info", None)  # from 3.13 on
        finalizer = getattr(found, "_track_dummy_thread_ref", None)
        if getattr(finalizer, "_dummy_thread", None) is thread:
            finalizer.__class__ = Finalizer


class _Life(object):
    """One of the thread's variables, to be seen when they go."""

    __slots__ = ("__weakref__",)


class _End(weakref.ref):
    __slots__ = ("number",)


class Finalizer(object):
    """In place of pydevd's (3.12) and Python's own. No lock: until the thread has ended nobody else
    has its number."""

    def __init__(self, thread):
        self._dummy_thread = thread
        self._tident = thread.ident

    def __del__(self, active=threading._active):
        if active.get(self._tident) is self._dummy_thread:
            active.pop(self._tident, None)
