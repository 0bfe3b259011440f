"""The requests of the worker to the probe inside a program, each once, and what they answer.

Those about breakpoints are in `breakpoint_requests.py`, the events that the probe sends by itself
in `probe_events.py`. A request is a DAP request `relay` whose arguments are one of the `Request`s
here; the type in its brackets is that of its answer. A `Question` is posted to a stopped thread:
pydevd's reading thread replies at once whether that was possible, and the stopped thread answers by
the event `relayAnswer`, with one of the types of `protocol/wire/probe_answers.py`. The probe has
plain functions for these requests (`worker/probe/engine/connection/relay_requests.py`); a test
compares their parameters with these fields.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, Generic, Literal, TypeVar, get_args

from msgspec import Struct, to_builtins

from debug_relay.protocol.wire import live_answers as live
from debug_relay.protocol.wire import probe_answers as answers
from debug_relay.protocol.wire.probe_answers import FrameRow

T = TypeVar("T")
A = TypeVar("A", bound=answers.Answer)
COMMAND: Final = "relay"


def _name(kind: str) -> str:
    """`NoGoal` is sent as `no_goal`."""
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", kind).lower()


class Request(Struct, Generic[T], tag_field="do", tag=_name, omit_defaults=True, kw_only=True):
    """A request that pydevd's command thread answers with a T."""


class Reply(Struct, Generic[T]):
    result: T


class Posted(Struct):
    """Whether the question was posted. `gone`: the thread, frame or reference does not exist any
    more.
    """

    gone: bool
    busy: bool = False  # too many evaluations hang


class Question(Request[Posted], Generic[A], kw_only=True):
    """A question that a stopped thread answers with an A."""

    id: int = 0  # set by the sender


@cache
def reply_to(kind: type[Request[Any]]) -> Any:
    """The type of the answer to a request of that kind."""
    if issubclass(kind, Question):
        return Reply[Posted]
    (answer,) = get_args(kind.__orig_bases__[0])  # type: ignore[attr-defined]
    return Reply[answer]  # type: ignore[valid-type]


@cache
def answer_to(kind: type[Question[A]]) -> type[A]:
    """The type of the stopped thread's answer."""
    (answer,) = get_args(kind.__orig_bases__[0])  # type: ignore[attr-defined]
    return answer  # type: ignore[no-any-return]


def arguments_of(request: Request[Any]) -> Any:
    """The fields, and as `do` the name of the request."""
    return to_builtins(request, str_keys=True)


# -- threads


ThreadRow = tuple[int, bool, bool, FrameRow | None]


class Threads(Request[list[ThreadRow]]):
    """Returns for each thread: its number, whether it is stopped, whether it will stop before its
    next line, its top frame.
    """


class LiveStack(Struct):
    rows: list[FrameRow] = []
    total: int = 0
    gone: bool = False
    stands: bool = False  # the thread is stopped: DAP gives its stack


class Live(Request[LiveStack]):
    """Returns the stack of a running thread."""

    thread: int
    start: int
    levels: int


class Look(Request[live.LookPage]):
    """The stacks of threads, running or not, with locals and what each waits for."""

    threads: list[int]
    frames: int
    locals: int
    width: int
    every: bool


class Peek(Request[live.PeekPage]):
    """A page of a running frame's scope, or of a value inside it."""

    thread: int
    frame: int
    scope: str
    way: list[Any]
    start: int
    count: int
    filter: str | None
    bounds: str


class PeekSizes(Request[live.PeekedSizes]):
    """How many variables the scopes of a running frame have."""

    thread: int
    frame: int


class Alone(Request[None]):
    """Resume or step these threads and leave the others as they are."""

    threads: list[int]
    how: str


class Halt(Request[bool]):
    thread: int


class StopAll(Request[bool]):
    on: bool


class WatchCalls(Request[bool]):
    """Note the function in C that the next step of this thread enters."""

    thread: int


class Native(Request[str | None]):
    """Returns the name of the C function that the last step entered."""

    thread: int


class Returns(Request[bool]):
    """Set whether the values that functions return are kept for `Returned`."""

    on: bool


# -- evaluations


class Interrupt(Request[int]):
    """Interrupt evaluations, or stop reports; returns how many."""

    reports: bool = False
    after: float = 0.0
    drop: int | None = None
    only: str | None = None


class Running(Request[int]):
    """Returns how many threads evaluate for us."""


class Evaluate(Question[answers.Evaluated]):
    frame: int
    text: str
    context: str


class EvaluateAside(Question[answers.Evaluated]):
    """Evaluate in a frame of a running thread: in a thread of the debugger's, with a copy of the
    frame's locals."""

    thread: int
    frame: int
    text: str
    context: str


class Returned(Question[answers.ReturnedValue]):
    """The value that was returned into a stopped frame."""

    frame: int


class Complete(Question[answers.Completions]):
    frame: int
    text: str


class Assign(Question[answers.Assigned]):
    reference: int
    name: str
    text: str
    scope: str | None


# -- stop reports


class Watches(Request[int]):
    watches: list[tuple[str, str]]  # id, expression


class Show(Request[str]):
    """Set how stop reports render values."""

    mode: Literal["full", "safe"]


class Report(Question[answers.StopReport]):
    thread: int
    frames: int
    locals: int
    width: int
    fold: answers.Fold = "top"
    safe: bool = False


class Raised(Question[answers.ExceptionReport], tag="exception"):
    """The exception at which a thread is stopped."""

    thread: int
    safe: bool = False


class Sizes(Question[answers.ScopeSizes]):
    """How many variables the scopes of a frame have."""

    frame: int


class Page(Question[answers.VariablePage]):
    """A page of the contents of a value."""

    reference: int
    scope: str | None
    start: int
    count: int
    filter: str | None
    bounds: str
    safe: bool = False


class PageAside(Page):
    """The page of that question, read by another thread: the stopped one hangs in C."""


# -- the program


class ModulePage(Struct):
    total: int
    rows: list[tuple[str, str | None]]  # name, path


class Modules(Request[ModulePage]):
    start: int
    count: int


class Loaded(Request[bool]):
    """Returns whether a module is loaded from this file."""

    path: str


class Tasks(Request[live.TaskPage]):
    """The tasks of asyncio; with `locals` as many of each frame, and what each task waits for."""

    locals: int
    width: int
    every: bool


class Text(Request[list[str] | None]):
    """Returns the source from which a frame was compiled, if the probe has it."""

    frame: int


class Decompiled(Request[bool]):
    """Returns whether pydevd has rebuilt that source from byte code."""

    number: int


class FunctionLines(Struct):
    path: str
    lines: list[int]
    resumes: bool  # a generator, coroutine or module: it does not return once


class Function(Request[FunctionLines | None]):
    frame: int


class Spot(Struct, kw_only=True):
    """The values that a trace records at a line, and when."""

    condition: str | None = None
    capture: list[str]
    changes: bool
    label: str | None = None
    function: str | None = None  # only where a call of this function begins


class Trace(Request[bool]):
    """Record rows into a ring file at these lines."""

    ring: str
    rows: int
    pause: bool
    spots: list[Spot]
    lines: dict[str, dict[int, list[int]]]  # path → line → indexes of the spots there
    until: str | None = None
    frame: int | None = None
    entry: bool = False
    changed: bool = False  # only rows in which a captured value differs from before
    ends: bool = False  # with `changed`: functions are looked at where they return, too
    returns: bool = False  # also what the functions return


class Untrace(Request[bool]):
    pass


# -- its processes

Category = Literal["stdout", "stderr", "console"]


class Streams(Request[list[Category]]):
    """Move a child's output from the session's pipes (by inode) to its own; returns those that it
    uses.
    """

    known: dict[str, Category]
    pipes: dict[Category, str]


class Leave(Request[bool]):
    """Detach, and remove the probe and pydevd from the program."""
