"""The probe's answers about threads and tasks that are read from outside, running or not.

The probe builds plain dicts in `worker/probe/inspection/live_threads.py` and
`worker/probe/inspection/modules_and_tasks.py`: a test holds their keys against these fields.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from debug_relay.protocol.wire import probe_answers as answers


class Holder(Struct, kw_only=True):
    """A thread or task that could end a wait: it holds the lock, is joined, or computes the
    future.
    """

    key: int | str | None = None  # a thread's number, or a task's name; none of an ended thread
    how: str
    place: tuple[str, str, int] | None = None  # function, path, line


class WaitRow(Struct, kw_only=True):
    """The wait of a thread or task."""

    kind: str
    text: str | None  # the name that the program's code has for it
    doing: str | None  # the function in which it waits
    value: str | None
    by: list[Holder]


class LiveFrame(Struct, kw_only=True):
    """One frame, and its locals if it is the program's own."""

    number: int  # its place in the whole stack
    name: str
    path: str
    line: int
    module: str | None
    own: bool
    locals: list[answers.Variable]
    total_locals: int


class LookRow(Struct, kw_only=True):
    """One thread from outside."""

    thread: int
    stopped: bool
    native: int | None
    frames: list[LiveFrame]
    own: int  # how many frames there are to show
    total: int
    wait: WaitRow | None


class LookPage(Struct):
    rows: list[LookRow]
    circles: list[list[int]]  # threads that wait for each other


class PeekPage(Struct, kw_only=True):
    rows: list[answers.Variable] = []
    total: int = 0
    function: str = ""
    gone: bool = False


class PeekedSizes(Struct, kw_only=True):
    locals: int = 0
    globals: int = 0
    place: tuple[str, str, int] | None = None
    gone: bool = False


class TaskRow(Struct, kw_only=True):
    name: str
    coroutine: str
    state: Literal["pending", "done", "cancelled"]
    frames: list[tuple[str, str, int]]  # function, path, line
    waiting_for: str | None
    current: bool
    exception: str | None = None
    looked: list[LiveFrame] = []  # its frames with their locals, the outermost first
    wait: WaitRow | None = None


class TaskPage(Struct):
    total: int
    rows: list[TaskRow]
    circles: list[list[str]]  # tasks that wait for each other
