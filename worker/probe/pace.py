"""How soon the program's threads give the interpreter away while we come and go.

Runs in the program: Python 3.8 to 3.14, standard library only. Executed by what the injection has
started as well; imports nothing of ours.

A thread that never waits keeps the interpreter for 5 ms when another wants it, and two of them pass
it to each other past a third: to import the debugger, which gives it away at every file, takes half
a minute then instead of half a second. So it is asked for after 0.1 ms. But where a thread keeps it
by a function in C, which no asking ends, it would be asked of us as soon and be gone for as long
again: there we keep it.
"""

import _thread
import os
import sys
import threading
import time

QUICK = 0.0001
_LOOKS = 3
_HELD_SECONDS = 0.002  # who gives it away by himself is quicker
_LONGEST = 0.05
_PLACE = "relay pace "


class Pace(object):
    """`with Pace():`, in as many threads as like; the first and the last change the interval.

    Several attachments may come and go at once, each with a copy of this module, so what they share
    is among the names of `threading` meanwhile: a lock, how many there are, the interval before,
    and the one instead.
    """

    def __enter__(self):
        # A fork copies it, perhaps locked: hence the pid.
        self.name = _PLACE + str(os.getpid())
        while True:
            shared = vars(threading).setdefault(self.name, [_thread.allocate_lock(), 0, None, None])
            with shared[0]:
                if vars(threading).get(self.name) is not shared:
                    continue  # its last user has just taken it away
                if not shared[1]:
                    shared[2] = sys.getswitchinterval()
                    shared[3] = _set(QUICK)
                    held = min(_given_back_after() for _ in range(_LOOKS))
                    if held > _HELD_SECONDS:
                        shared[3] = _set(min(held / 2, _LONGEST))
                shared[1] += 1
                return self

    def __exit__(self, *error):
        shared = vars(threading).get(self.name)
        if shared is None:
            return  # a fork's child
        with shared[0]:
            shared[1] -= 1
            if not shared[1]:
                # In this order: who comes next takes the interval that he finds for the program's.
                _give_back(shared)
                del vars(threading)[self.name]


def in_child():
    """After a fork, in the one thread there is: none of those who hurried is here."""
    for name in [name for name in vars(threading) if name.startswith(_PLACE)]:
        _give_back(vars(threading).pop(name))


def _set(interval):
    sys.setswitchinterval(interval)
    return sys.getswitchinterval()


def give_away():
    time.sleep(QUICK)


def _given_back_after():
    began = time.perf_counter()
    give_away()
    return time.perf_counter() - began


def _give_back(shared):
    _, _, before, instead = shared
    # Unless the program has chosen another meanwhile; who gives back what he has read, up to 3.9,
    # gives a microsecond less.
    if before is not None and abs(sys.getswitchinterval() - instead) < instead / 10:
        sys.setswitchinterval(before)
