"""Output and events: parameters, pages, and the numbers of their categories on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta

from debug_relay.protocol.models.fields import (
    LABEL_FILTER,
    Cursor,
    Json,
    Limit,
    Params,
    Result,
    SessionParams,
    Time,
    always,
)
from debug_relay.protocol.state import State

Category = Literal["stdout", "stderr", "console"]
EventType = Literal[
    "stopped", "continued", "terminated", "output", "breakpoint", "thread", "module",
    "session", "subprocess", "input", "process", "watch",
]  # fmt: skip
_ONE_TYPE: Final = rf"\s*({'|'.join(get_args(EventType))})\s*"
EventTypes = Annotated[
    str,
    Meta(
        description="Only these types, comma-separated.",
        examples=["stopped,terminated"],
        # Only in the schema: the refusal of what reads it names the types that there are.
        extra_json_schema={"pattern": rf"^({_ONE_TYPE}(,{_ONE_TYPE})*)?$"},
    ),
]


class GetOutput(SessionParams, kw_only=True):
    """The program's output."""

    cursor: Cursor | None = None
    limit: Limit = 100
    category: Annotated[Category | None, Meta(description="Only this kind of output.")] = None
    since: Cursor | None = None
    tail: (
        Annotated[
            int,
            Meta(ge=1, le=1000, description="The last entries, instead of the first `limit`."),
        ]
        | None
    ) = None


class OutputEntry(Result, kw_only=True):
    category: str
    output: str
    timestamp: Time
    source: str | None = always(None)
    line: int | None = always(None)
    encoding: Literal["base64"] | None = None
    pid: int | None = None


class OutputPage(Result, kw_only=True):
    entries: list[OutputEntry]
    next_cursor: str
    has_more: bool
    dropped: int = 0


class ClearOutput(SessionParams, kw_only=True):
    """Forget the output so far."""


class OutputCleared(Result, kw_only=True):
    session_id: str
    next_cursor: str


class StreamOutput(SessionParams, kw_only=True):
    """Follow the output as server-sent events: first everything after the cursor, then live."""

    cursor: Cursor | None = None
    category: Annotated[Category | None, Meta(description="Only this kind of output.")] = None


class GetEvents(SessionParams, kw_only=True):
    """The session's events; waits for the next one if there is none.

    If a call caused an event, `body.caller` names its caller.
    """

    cursor: Cursor | None = None
    limit: Limit = 100
    types: EventTypes | None = None
    timeout: Annotated[float, Meta(ge=0, le=300, description="Seconds to wait for an event.")] = 0


class Event(Result, kw_only=True):
    seq: int
    type: EventType
    timestamp: Time
    body: Json


class EventPage(Result, kw_only=True):
    events: list[Event]
    next_cursor: str
    has_more: bool
    session_status: State
    dropped: int = 0


class StreamEvents(SessionParams, kw_only=True):
    """Follow the events as server-sent events: first those after the cursor, then live."""

    cursor: Cursor | None = None
    types: EventTypes | None = None


class GetAllEvents(Params, kw_only=True):
    """Events of several sessions in one call; waits for the next one of any if there is none."""

    sessions: (
        Annotated[
            str,
            Meta(
                max_length=1000,
                description="Only these sessions, comma-separated; at most 32.",
                examples=["sess_1a2b3c4d,sess_5e6f7a8b"],
            ),
        ]
        | None
    ) = None
    label: (
        Annotated[
            str,
            Meta(
                pattern=LABEL_FILTER,
                description="Only sessions with this label, `key=value`; also later ones.",
                examples=["team=search"],
            ),
        ]
        | None
    ) = None
    cursor: (
        Annotated[
            str,
            Meta(
                max_length=7000, description="Where to continue: `next_cursor` of the last reply."
            ),
        ]
        | None
    ) = None
    limit: Limit = 100
    types: EventTypes | None = None
    timeout: Annotated[float, Meta(ge=0, le=300, description="Seconds to wait for an event.")] = 0


class SessionEvent(Event, kw_only=True):
    session_id: str


class AllEventsPage(Result, kw_only=True):
    events: list[SessionEvent]
    next_cursor: str
    has_more: bool
    statuses: dict[str, State]  # the status of each session that exists
    dropped: int = 0


class StreamBytes(Result, kw_only=True):
    """Not JSON: the stream has its own format."""


class OpenStream(SessionParams, kw_only=True):
    """Upgrade to a WebSocket."""

    cursor: Cursor | None = None


class OpenTunnel(SessionParams, kw_only=True):
    """Carry a debugger's bytes to the session's join port and back over a WebSocket, as
    `debug-relay tunnel` does. Binary messages are bytes; an empty one ends its direction. The token
    may also be the session's own, `debugger.token`.
    """


# The numbers that ring records store as their category. New names go to the end of the Literal,
# because a new supervisor reads the rings of older workers.
CATEGORY_NUMBERS: Final[Mapping[str, int]] = {name: n for n, name in enumerate(get_args(Category))}
EVENT_NUMBERS: Final[Mapping[str, int]] = {name: n for n, name in enumerate(get_args(EventType))}
# The fields of an event's body that hold what the program printed: a caller whose token may not
# read output does not get them. Each type has an entry, so that no new one is forgotten.
PRINTED: Final[Mapping[str, tuple[str, ...]]] = {
    "stopped": (),
    "continued": (),
    "terminated": (),
    "output": ("output",),
    "breakpoint": (),
    "thread": (),
    "module": (),
    "session": (),
    "subprocess": (),
    "input": ("prompt",),
    "process": (),
    "watch": (),
}


def seq_meta(seq: int) -> bytes:
    """The meta of an event's record: the event's number, stored beside the body so that rings can
    be merged without decoding bodies.
    """
    return seq.to_bytes(8, "little")


def seq_of(meta: bytes) -> int:
    return int.from_bytes(meta, "little")
