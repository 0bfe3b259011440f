"""Threads and asyncio tasks: what each does, what it waits for, and who could end that."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from msgspec import Meta

from debug_relay.protocol.models.fields import (
    UNSET,
    Location,
    Result,
    SessionParams,
    ThreadId,
    UnsetType,
)
from debug_relay.protocol.system import py_spy

WithLocals = Annotated[
    bool,
    Meta(
        description="Show the program's frames with their locals, and what waits for what. It is "
        "read from outside and runs none of the program's code."
    ),
]


WhichFrames = Annotated[
    Literal["user", "all"], Meta(description="With `locals`: the program's frames, or all.")
]


class Threads(SessionParams, kw_only=True):
    """List the program's threads; with `locals`, also of those that are blocked: one call shows a
    hang."""

    locals: WithLocals = False
    frames: WhichFrames = "user"


class LiveLocal(Result, kw_only=True):
    name: str
    type: str
    value: str


class LiveFrame(Result, kw_only=True):
    """One frame of a thread or task; `id` is that of `…/frames/{frame_id}/…`."""

    id: int
    name: str
    path: str
    line: int
    locals: list[LiveLocal] = []
    locals_left_out: int = 0


class Holder(Result, kw_only=True):
    """A thread or task that could end a wait."""

    # `holds it`; `acquired it` and may have handed it on; `may hold it`, of several; `is it` (a
    # joined thread or task); `computes it` (a future).
    how: str
    thread_id: int | None = None
    task: str | None = None
    name: str | None = None  # the thread's
    location: Location | None = None


class WaitsFor(Result, kw_only=True):
    """The wait of a thread or task, as far as Python knows what it is for."""

    kind: str  # such as `lock`, `queue`, `thread`, `future`, `sleep`; `call`: a function in C
    what: str | None = None  # the program's own expression for it, or the function's name
    doing: str | None = None  # the function of the library in which it waits
    value: str | None = None  # its state
    held_by: list[Holder] = []


class Thread(Result, kw_only=True):
    id: int
    name: str
    status: Literal["running", "paused"]
    is_current: bool
    current_location: Location | None = None
    # A pause is pending: the thread is in C code and stops as soon as it returns.
    pause_pending: bool = False
    pid: int | None = None
    is_child: bool = False  # whether that process is a child of the program
    last_known: bool = False  # its process does not answer now: all this is from before
    # With `locals`:
    live: bool | UnsetType = UNSET  # it runs, or is blocked in C: all this was read from outside
    waits_for: WaitsFor | UnsetType = UNSET
    frames: list[LiveFrame] | UnsetType = UNSET  # the innermost first
    frames_left_out: int | UnsetType = UNSET
    total_frames: int | UnsetType = UNSET  # with those of libraries


class StackLocal(Result, kw_only=True):
    name: str
    value: str | None = None


class StackFrame(Result, kw_only=True):
    name: str
    filename: str
    line: int
    locals: list[StackLocal] = []


class StackThread(Result, kw_only=True):
    """One thread; its frames with the innermost first."""

    thread_id: int
    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool = False  # it runs, or waits for the interpreter
    owns_gil: bool = False  # it has the interpreter
    frames: list[StackFrame]


class Stacks(Result, kw_only=True):
    """Every thread's stack, as py-spy reads it from the process's memory."""

    pid: int
    threads: list[StackThread]

    @classmethod
    def of(cls, pid: int, found: list[py_spy.Thread]) -> Self:
        return cls(
            pid=pid,
            threads=[
                StackThread(
                    thread_id=thread.thread_id,
                    thread_name=thread.thread_name,
                    os_thread_id=thread.os_thread_id,
                    active=thread.active,
                    owns_gil=thread.owns_gil,
                    frames=[_stack_frame(frame) for frame in thread.frames],
                )
                for thread in found
            ],
        )


def _stack_frame(frame: py_spy.Frame) -> StackFrame:
    found = [StackLocal(name=one.name, value=one.repr) for one in frame.locals or ()]
    return StackFrame(name=frame.name, filename=frame.filename, line=frame.line, locals=found)


class ThreadList(Result, kw_only=True):
    threads: list[Thread]
    stopped_thread_id: int | None
    # Threads that wait for each other, each circle once.
    deadlocks: list[list[int]] | UnsetType = UNSET
    # With `locals`: the stacks of processes that do not answer.
    outside: list[Stacks] | UnsetType = UNSET
    note: str | UnsetType = UNSET


class Tasks(SessionParams, kw_only=True):
    """The program's asyncio tasks; with `thread_id`, those of that thread's process. With `locals`
    also what each waits for, through what it awaits."""

    thread_id: ThreadId | None = None
    locals: WithLocals = False
    frames: WhichFrames = "user"


class TaskFrame(Result, kw_only=True):
    name: str
    path: str
    line: int
    locals: list[LiveLocal] | UnsetType = UNSET
    locals_left_out: int | UnsetType = UNSET


class Task(Result, kw_only=True):
    name: str
    coroutine: str
    state: Literal["pending", "done", "cancelled"]
    frames: list[TaskFrame] = []  # the suspended coroutine first, then what it awaits
    # the task or tasks that it awaits, else the type of what it awaits
    waiting_for: str | None = None
    current: bool = False  # whether its event loop runs it at this moment
    exception: str | None = None  # the exception that ended it
    waits_for: WaitsFor | UnsetType = UNSET  # with `locals`


class TaskList(Result, kw_only=True):
    tasks: list[Task]
    total: int
    # Tasks that wait for each other, each circle once; with `locals`.
    deadlocks: list[list[str]] | UnsetType = UNSET
    note: str | UnsetType = UNSET
