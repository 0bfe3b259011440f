"""How soon the program's threads give the interpreter away while we come and go.

Runs in the program: Python 3.8 to 3.14, standard library only. Executed by what the injection has
started as well; imports nothing of ours.

A thread that never waits keeps the interpreter for 5 ms when another wants it, and two of them pass
it to each other past a third: to import the debugger, which gives it away at every file, takes half
a minute then instead of half a second.
"""

import _thread
import os
import sys
import threading

QUICK = 0.0001
_PLACE = "relay pace "


class Pace(object):
    """`with Pace():`, in as many threads as like; the first and the last change the interval.

    Several attachments may come and go at once, each with a copy of this module, so what they share
    is among the names of `threading` meanwhile: a lock, how many there are, the interval before.
    """

    def __enter__(self):
        # A fork copies it, perhaps locked: hence the pid.
        self.name = _PLACE + str(os.getpid())
        while True:
            shared = vars(threading).setdefault(self.name, [_thread.allocate_lock(), 0, None])
            with shared[0]:
                if vars(threading).get(self.name) is not shared:
                    continue  # its last user has just taken it away
                if not shared[1]:
                    shared[2] = sys.getswitchinterval()
                    sys.setswitchinterval(QUICK)
                shared[1] += 1
                return self

    def __exit__(self, *error):
        shared = vars(threading).get(self.name)
        if shared is None:
            return  # a fork's child
        with shared[0]:
            shared[1] -= 1
            if not shared[1]:
                del vars(threading)[self.name]
                _give_back(shared[2])


def in_child():
    """After a fork, in the one thread there is: none of those who hurried is here."""
    for name in [name for name in vars(threading) if name.startswith(_PLACE)]:
        _give_back(vars(threading).pop(name)[2])


def _give_back(interval):
    # Unless the program has chosen another meanwhile.
    if interval is not None and abs(sys.getswitchinterval() - QUICK) < QUICK / 10:
        sys.setswitchinterval(interval)
