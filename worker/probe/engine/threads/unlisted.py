"""Handles threads without an entry in `threading`: those that it has not started, and those that
end.

Used on Python 3.12 and later.

pydevd has an entry made for a thread that has none. One of the thread's local variables removes the
entry again when the thread loses its variables. A thread that ends may run some Python code after
that: an entry that is made then would be listed for ever. And at the program's end, when the
remaining threads lose their variables, no module exists any more: a finalizer that runs then must
not need one.
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
        # By the kernel's thread ids: the next thread may get the same id of `threading` at once.
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
        # The callback runs no Python code, which would be another event of that thread.
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
        """Whether the first code that pydevd sees of this thread is the last that it runs: no
        thread starts with that code.
        """
        frame = sys._getframe()
        while frame.f_back is not None:
            frame = frame.f_back
        return frame.f_code is self.last_code

    def take_over(self, thread):
        """Replace the finalizer of this thread's entry, which pydevd has just made."""
        found = getattr(threading, "_thread_local_info", None)  # from 3.13 on
        finalizer = getattr(found, "_track_dummy_thread_ref", None)
        if getattr(finalizer, "_dummy_thread", None) is thread:
            finalizer.__class__ = Finalizer


class _Life(object):
    """One of the thread's local variables: its end shows that the thread has lost them."""

    __slots__ = ("__weakref__",)


class _End(weakref.ref):
    __slots__ = ("number",)


class Finalizer(object):
    """Replaces pydevd's (3.12) and Python's own. Takes no lock: until the thread has ended no other
    has its id.
    """

    def __init__(self, thread):
        self._dummy_thread = thread
        self._tident = thread.ident

    def __del__(self, active=threading._active):
        if active.get(self._tident) is self._dummy_thread:
            active.pop(self._tident, None)
