"""Processes of this machine: what the relay shows of one, and the identity that distinguishes it
from a later process with the same pid.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from debug_relay.protocol.errors import Code
from debug_relay.protocol.models.fields import Result

Identity = Annotated[
    str,
    Meta(
        max_length=200,
        description="As `list-processes` returned it; a pid that was reused since is refused.",
    ),
]
ListeningOn = Annotated[
    int, Meta(ge=1, le=65535, description="Find the process by a port on which it listens.")
]
Match = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=1000,
        description="Find the process by a regular expression over its command line.",
        extra_json_schema={"format": "python-regex"},
    ),
]


class Process(Result, kw_only=True):
    """A Python process, and whether it can be attached to."""

    pid: int
    identity: str
    command: list[str]
    cwd: str | None = None
    user: str
    uid: int
    start_time: float  # seconds since the epoch
    executable: str | None = None
    python_version: str | None = None
    venv: str | None = None
    listening_ports: list[int] = []
    debugged_by: str | None = None  # the session of this relay that debugs it
    greenlets: Literal["gevent", "eventlet"] | None = None
    attachable: bool
    code: Code | None = None
    reason: str | None = None
    suggestion: str | None = None
