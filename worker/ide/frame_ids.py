"""Numbers for the frames that IDEs are shown: unique in the session, and never used twice.

DAP names a frame by one number. The session names it by its thread and its index, which mean
another frame after the next stop; so a number is forgotten when its thread resumes.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count


class NotStopped(Exception):
    """The request is about a stop that has passed."""


class FrameIds:
    def __init__(self) -> None:
        self._next = count(1)
        self._places: dict[int, tuple[int, int]] = {}  # number → thread and index
        self._numbers: dict[tuple[int, int], int] = {}
        self._resumes: dict[int, int] = {}  # thread → how often it has resumed since we first asked

    def number(self, thread_id: int, index: int) -> int:
        place = thread_id, index
        if place not in self._numbers:
            self._numbers[place] = number = next(self._next)
            self._places[number] = place
        return self._numbers[place]

    def find(self, number: int) -> tuple[int, int]:
        """The frame's thread and its index; raises NotStopped after its thread has resumed."""
        if number not in self._places:
            raise NotStopped
        return self._places[number]

    def stop_of(self, thread_id: int) -> int:
        """A mark of the thread's present stop: it differs once the thread has resumed."""
        return self._resumes.setdefault(thread_id, 0)

    def require(self, thread_id: int, mark: int) -> None:
        """Raise NotStopped if the thread has resumed since the mark was taken; it may have stopped
        again.
        """
        if self.stop_of(thread_id) != mark:
            raise NotStopped

    def keep(self, stopped: Collection[int]) -> None:
        """Threads have resumed: forget the frames of all but these."""
        for thread_id in self._resumes:
            if thread_id not in stopped:
                self._resumes[thread_id] += 1
        for number, place in list(self._places.items()):
            if place[0] not in stopped:
                del self._places[number], self._numbers[place]
