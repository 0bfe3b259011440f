"""Every setting: its name, type, bounds and default, and which of them may change at run time.

This module does not know where values come from, nor what a setting does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, get_type_hints

import msgspec
from msgspec import Meta, Struct, field

from debug_relay.protocol.models.fields import Seconds
from debug_relay.protocol.models.limits import Limits
from debug_relay.protocol.version import MAX_BODY_BYTES, MAX_FRAME_BYTES

# The most that `max_body_bytes` allows: a body travels to a worker inside one frame, beside the
# frame's own head.
_LARGEST_BODY_BYTES: Final = MAX_FRAME_BYTES - 1024 * 1024

Deadline = Annotated[float, Meta(gt=0, le=3600)]
Uid = Annotated[int, Meta(ge=0, le=2**32 - 2)]
HostName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:\[\]-]+$", max_length=255)]
PathText = Annotated[str, Meta(min_length=1, max_length=4096)]


class Server(Struct, frozen=True, kw_only=True):
    host: HostName = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 5679
    socket: PathText | None = None
    data_dir: PathText = "~/.opencode-debugger"
    run_dir: PathText | None = None
    allow_hosts: list[HostName] = []
    allow_uids: list[Uid] = []
    allow_other_users: bool = False
    max_body_bytes: Annotated[int, Meta(ge=1024, le=_LARGEST_BODY_BYTES)] = MAX_BODY_BYTES


class Sessions(Struct, frozen=True, kw_only=True):
    max_sessions: Annotated[int, Meta(ge=1, le=10_000)] = 10
    max_sessions_per_caller: Annotated[int, Meta(ge=0, le=10_000)] = 0
    idle_timeout: Seconds = 3600
    max_lifetime: Seconds = 14400
    orphan_timeout: Seconds = 600
    tombstone: Seconds = 3600
    pause_budget: Seconds = 300


class Output(Struct, frozen=True, kw_only=True):
    max_bytes: Annotated[int, Meta(ge=65536, le=2**34)] = 52_428_800
    max_events: Annotated[int, Meta(ge=100, le=10_000_000)] = 10_000


class Dap(Struct, frozen=True, kw_only=True):
    request_timeout: Deadline = 30
    launch_timeout: Deadline = 60
    evaluate_timeout: Deadline = 10


class Python(Struct, frozen=True, kw_only=True):
    default_path: PathText = "python3"


class Auth(Struct, frozen=True, kw_only=True):
    tokens_file: PathText | None = None


class Log(Struct, frozen=True, kw_only=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "text"] = "json"
    audit_file: PathText | None = None


class Settings(Struct, frozen=True, kw_only=True):
    server: Server = Server()
    sessions: Sessions = Sessions()
    output: Output = Output()
    dap: Dap = Dap()
    limits: Limits = field(default_factory=Limits)
    python: Python = Python()
    auth: Auth = Auth()
    log: Log = Log()


class Key(Struct, frozen=True):
    """One setting, as `section.name`."""

    name: str
    kind: Any  # the annotated type that msgspec converts to
    info: msgspec.inspect.Type
    default: Any

    @property
    def flag(self) -> str:
        return "--" + self.name.partition(".")[2].replace("_", "-")


def _keys() -> Iterator[Key]:
    defaults = Settings()
    for section, struct in get_type_hints(Settings).items():
        for name, kind in get_type_hints(struct, include_extras=True).items():
            info = msgspec.inspect.type_info(kind)
            if isinstance(info, msgspec.inspect.Metadata):  # wraps types that have a description
                info = info.type
            default = getattr(getattr(defaults, section), name)
            yield Key(f"{section}.{name}", kind, info, default)


KEYS: Final[Mapping[str, Key]] = {key.name: key for key in _keys()}
SECTIONS: Final[tuple[str, ...]] = Settings.__struct_fields__
RUNTIME_CHANGEABLE: Final = frozenset(
    name
    for name in KEYS
    if name.startswith(("sessions.", "output.", "dap.", "limits.")) or name == "log.level"
)
