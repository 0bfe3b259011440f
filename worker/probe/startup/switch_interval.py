"""Chooses how soon threads must give up the interpreter while we attach and detach.

Executed by the injected code as well; imports no other module of the relay.

A thread that never waits keeps the interpreter for 5 ms when another thread wants it, and two such
threads hand it to each other past a third. Importing the debugger, which gives up the interpreter
at every file, then takes half a minute instead of half a second. So we set the switch interval to
0.1 ms. But a thread in a C function gives up the interpreter only when the function returns: with a
short interval we would have to give it up to that thread as soon, and wait as long for it again.
There we choose a longer interval.

Code that reads what other threads may change needs the opposite: no thread may request the
interpreter meanwhile (`Undisturbed`). Both uses change the same interval, so only one at a time may
read and write it. Otherwise one of them would restore the value that the other had chosen, and that
value would stay.
"""

import _thread
import os
import sys
import threading
import time

QUICK_SECONDS = 0.0001  # Seconds after which we request the interpreter while we attach and detach.
# Seconds for which no other thread requests the interpreter after this one has got it. To get it
# takes as long for each thread that never waits.
UNDISTURBED_SECONDS = 0.03
_LOOKS = 3  # Measurements of how soon a thread gives up the interpreter.
# A thread that keeps the interpreter longer is in a C function; one that gives it up by itself is
# quicker.
_HELD_SECONDS = 0.002
_LONGEST_SECONDS = 0.05  # Seconds of the longest switch interval that we choose.
_PLACE = "relay pace "


class Shared(object):
    """While held, no other code of ours changes the interval.

    Several attachments may begin and end at once, each with a copy of this module. So their shared
    state is among the names of `threading` meanwhile: a lock, the number of users of `Pace`, the
    former interval, and the one that replaces it.
    """

    def __enter__(self):
        # A fork copies it, perhaps locked: hence the pid.
        self.name = _PLACE + str(os.getpid())
        while True:
            shared = vars(threading).setdefault(self.name, [_thread.allocate_lock(), 0, None, None])
            shared[0].acquire()
            if vars(threading).get(self.name) is shared:
                self.shared = shared
                return shared
            shared[0].release()  # its last user has just removed it

    def __exit__(self, *error):
        if not self.shared[1]:
            # In this order, because the next user takes the interval that it finds for the
            # program's.
            _give_back(self.shared)
            del vars(threading)[self.name]
        self.shared[0].release()


class Pace(object):
    """`with Pace():`, in any number of threads; the first and the last change the interval."""

    def __enter__(self):
        self.pid = os.getpid()
        with Shared() as shared:
            if not shared[1]:
                _choose(shared, QUICK_SECONDS)
                held = min(_given_back_after() for _ in range(_LOOKS))
                if held > _HELD_SECONDS:
                    _choose(shared, min(held / 2, _LONGEST_SECONDS))
            shared[1] += 1
        return self

    def __exit__(self, *error):
        if os.getpid() == self.pid:  # else we are in a forked child, where `in_child` has ended it
            with Shared() as shared:
                shared[1] -= 1


class Undisturbed(object):
    """`with Undisturbed():`, for a moment, and not within another one."""

    def __enter__(self):
        self.hold = Shared()
        shared = self.hold.__enter__()
        self.former = shared[3] if shared[1] else None
        _choose(shared, UNDISTURBED_SECONDS)
        time.sleep(0)  # hand over to a thread that waits already by the former interval
        return self

    def __exit__(self, *error):
        shared = self.hold.shared
        if self.former is not None and _is_ours(shared):
            _choose(shared, self.former)
        self.hold.__exit__(*error)


def in_child():
    """Run in the child after a fork, in its only thread: no thread that used `Pace` is here."""
    for name in [name for name in vars(threading) if name.startswith(_PLACE)]:
        _give_back(vars(threading).pop(name))


def _choose(shared, interval):
    if shared[2] is None:
        shared[2] = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    shared[3] = sys.getswitchinterval()


def give_away():
    time.sleep(QUICK_SECONDS)


def _given_back_after():
    began = time.perf_counter()
    give_away()
    return time.perf_counter() - began


def _is_ours(shared):
    """Whether the present interval is the one that we chose, and the program has not set another
    one. Up to 3.9, setting an interval that was read before sets a microsecond less.
    """
    return shared[2] is not None and abs(sys.getswitchinterval() - shared[3]) < shared[3] / 10


def _give_back(shared):
    if _is_ours(shared):
        sys.setswitchinterval(shared[2])
