"""How soon the program's threads give the interpreter away while we come and go.

Executed by what the injection has started as well; imports nothing of ours.

A thread that never waits keeps the interpreter for 5 ms when another wants it, and two of them pass
it to each other past a third: to import the debugger, which gives it away at every file, takes half
a minute then instead of half a second. So it is asked for after 0.1 ms. But where a thread keeps it
by a function in C, which no asking ends, it would be asked of us as soon and be gone for as long
again: there we keep it.

And who looks at what other threads may change is not to be asked for it meanwhile. Both change the
same interval, which may be read and written by one at a time: else what one gives back is what the
other had chosen, and stays.
"""

import _thread
import os
import sys
import threading
import time

QUICK = 0.0001  # Seconds after which we ask for the interpreter while we come and go.
# For so many seconds no other thread asks for the interpreter after this one has got it, which
# takes as long for each that never waits.
UNDISTURBED = 0.03
_LOOKS = 3  # Measurements of how soon a thread gives the interpreter away.
# A thread that keeps the interpreter longer is in C; one that gives it away by itself is
# quicker.
_HELD_SECONDS = 0.002
_LONGEST = 0.05  # Seconds of the longest switch interval that we choose.
_PLACE = "relay pace "


class Shared(object):
    """With it in hand nobody else of ours changes the interval.

    Several attachments may come and go at once, each with a copy of this module, so what they share
    is among the names of `threading` meanwhile: a lock, how many hurry, the interval before, and
    the one instead.
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
            shared[0].release()  # its last user has just taken it away

    def __exit__(self, *error):
        if not self.shared[1]:
            # In this order: who comes next takes the interval that he finds for the program's.
            _give_back(self.shared)
            del vars(threading)[self.name]
        self.shared[0].release()


class Pace(object):
    """`with Pace():`, in as many threads as like; the first and the last change the interval."""

    def __enter__(self):
        self.pid = os.getpid()
        with Shared() as shared:
            if not shared[1]:
                _choose(shared, QUICK)
                held = min(_given_back_after() for _ in range(_LOOKS))
                if held > _HELD_SECONDS:
                    _choose(shared, min(held / 2, _LONGEST))
            shared[1] += 1
        return self

    def __exit__(self, *error):
        if os.getpid() == self.pid:  # else a fork's child, in which nobody hurries
            with Shared() as shared:
                shared[1] -= 1


class Undisturbed(object):
    """`with Undisturbed():`, for a moment, and not within another one."""

    def __enter__(self):
        self.hold = Shared()
        shared = self.hold.__enter__()
        self.former = shared[3] if shared[1] else None
        _choose(shared, UNDISTURBED)
        time.sleep(0)  # to whoever waits already, by the former interval
        return self

    def __exit__(self, *error):
        shared = self.hold.shared
        if self.former is not None and _is_ours(shared):
            _choose(shared, self.former)
        self.hold.__exit__(*error)


def in_child():
    """After a fork, in the one thread there is: none of those who hurried is here."""
    for name in [name for name in vars(threading) if name.startswith(_PLACE)]:
        _give_back(vars(threading).pop(name))


def _choose(shared, interval):
    if shared[2] is None:
        shared[2] = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    shared[3] = sys.getswitchinterval()


def give_away():
    time.sleep(QUICK)


def _given_back_after():
    began = time.perf_counter()
    give_away()
    return time.perf_counter() - began


def _is_ours(shared):
    """Unless the program has chosen another meanwhile; who gives back what he has read, up to 3.9,
    gives a microsecond less."""
    return shared[2] is not None and abs(sys.getswitchinterval() - shared[3]) < shared[3] / 10


def _give_back(shared):
    if _is_ours(shared):
        sys.setswitchinterval(shared[2])
