"""The answers of stopped threads to questions, and their reports after each stop.

Each type stands once here; the worker checks what arrives by decoding it. The probe builds plain
dicts below `worker/probe/inspection/`: a test holds their keys against these fields.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

# Function, path, line, module.
# Which frames of libraries a report folds: all, all but those at the top, or none.
Fold = Literal["own", "top", "none"]
FrameRow = tuple[str, str, int, str | None]


class Failure(Struct):
    """An exception that the program's own code raised."""

    type: str
    message: str
    traceback: str = ""


class Refusal(Struct):
    """Why a text does not compile, and where."""

    message: str
    line: int | None = None
    offset: int | None = None


class Answer(Struct, kw_only=True):
    """The part that every answer has: whose it is, or why the thread has none."""

    id: int | None = None  # the question's; None in a report that was not requested
    gone: bool = False  # the thread, frame or reference does not exist any more
    busy: bool = False  # too many evaluations hang: this one did not begin
    interrupted: bool = False
    raised: Failure | None = None


# -- values


class Variable(Struct, kw_only=True):
    """A value under the name by which it was found."""

    name: str
    value: str
    type: str | None
    reference: int = 0  # DAP's number by which it can be opened; 0 for none
    hint: Any = None  # DAP's presentation hint
    uncounted: bool = False  # the number of its children is unknown: plain DAP does not give it
    length: int | None = None
    indexed: bool = False  # its children are elements, else they have names
    more: bool = False  # it may have attributes too
    truncated: bool = False
    circular: bool = False
    base64: str | None = None
    way: list[Any] | None = None  # how it is found again in a frame that runs


class VariablePage(Answer, kw_only=True):
    rows: list[Variable] = []
    total: int = 0
    aside: bool = False  # another thread has read it: the stopped one hangs in C


class ScopeSizes(Answer, kw_only=True):
    """How many variables the scopes of a frame have; None where that is unknown."""

    locals: int | None = None
    globals: int | None = None


class Evaluated(Answer, kw_only=True):
    refused: Refusal | None = None
    value: Variable | None = None  # None after a statement


class ReturnedValue(Answer, kw_only=True):
    value: Variable | None = None


class Assigned(Answer, kw_only=True):
    refused: Refusal | None = None
    unknown: bool = False  # there is no variable of that name
    kept: Failure | None = None  # its container does not allow the change
    unread: Failure | None = None  # it was set, and then it could not be read
    value: Variable | None = None


class Completions(Answer, kw_only=True):
    rows: list[tuple[str, str]] = []  # name, sort
    start: int = 0  # where the text to be completed begins


# -- stop reports


class Watched(Struct, kw_only=True):
    """A watch at a stop: its value, or why it has none."""

    id: str
    error: str | None = None
    value: Variable | None = None


class ThreadReport(Struct, kw_only=True):
    """The report that a stopped thread makes of itself."""

    thread: int
    frames: list[FrameRow] = []
    numbers: list[int] = []  # the frames have these numbers in the stack; empty: from 0 on
    folded: list[tuple[int, int, list[str]]] = []  # first number, count, names of libraries
    in_library: bool = False  # the top frame is a library's
    total_frames: int = 0
    name: str | None = None
    locals: list[Variable] = []
    total_locals: int = 0
    new_frame: bool = False
    changed: list[tuple[str, str | None, str | None]] = []  # name, before, after
    watches: list[Watched] = []
    # The source of code without a file: first line's number, lines in total, lines at the place.
    text: tuple[int, int, list[str]] | None = None
    seconds: float = 0.0  # how long the thread took for it


class StopReport(Answer, kw_only=True):
    report: ThreadReport | None = None


# -- exceptions


class RaisedException(Struct, kw_only=True):
    type: str
    full_type_name: str
    message: str
    frames: list[tuple[str, int | None, str, str]]  # path, line, function, text
    frames_omitted: int = 0
    notes: list[str] = []
    members: list[RaisedException] = []  # a group's own exceptions
    members_omitted: int = 0


class ChainedException(RaisedException, kw_only=True):
    relation: Literal["cause", "context"]


class ExceptionReport(Answer, kw_only=True):
    """The exception at which a thread is stopped, if it is stopped at one."""

    exception: RaisedException | None = None
    how: str = ""  # pydevd's name for this kind of stop
    chain: list[ChainedException] = []  # its causes, the nearest first
    chain_truncated: bool = False
