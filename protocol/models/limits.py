"""Limits of a session's process tree: as configured, as changed by a call, and as exceeded by a
program.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from debug_relay.protocol.models.fields import Params, Result

_MemoryBytes = Annotated[
    int, Meta(ge=0, description="Resident memory; memory that processes share counts once.")
]
_CpuSeconds = Annotated[
    float, Meta(ge=0, description="Processor time, including children that have ended.")
]
_Processes = Annotated[int, Meta(ge=0, description="Number of processes at the same time.")]
_WallSeconds = Annotated[
    float, Meta(ge=0, description="Time since the program started, stops included.")
]
_OutputRate = Annotated[int, Meta(ge=0, description="Output rate, averaged over two seconds.")]


class Limits(Params, kw_only=True, frozen=True):  # type: ignore[misc]
    """Limits on the whole process tree of a session; 0 means no limit."""

    memory_bytes: _MemoryBytes = 0
    cpu_seconds: _CpuSeconds = 0
    processes: _Processes = 0
    wall_seconds: _WallSeconds = 0
    output_bytes_per_second: _OutputRate = 0

    def __post_init__(self) -> None:
        # JSON leaves out the default object itself, and a decoder makes another one, 0.0, of it.
        for name in ("cpu_seconds", "wall_seconds"):
            msgspec.structs.force_setattr(self, name, getattr(self, name) or 0)


# The default of a session, which its JSON leaves out; frozen, as msgspec demands of defaults.
NO_LIMITS: Final = Limits()


class LimitChanges(Params, kw_only=True):
    """Limits to set; 0 means no limit, and fields that are left out stay as they are."""

    memory_bytes: _MemoryBytes | UnsetType = UNSET
    cpu_seconds: _CpuSeconds | UnsetType = UNSET
    processes: _Processes | UnsetType = UNSET
    wall_seconds: _WallSeconds | UnsetType = UNSET
    output_bytes_per_second: _OutputRate | UnsetType = UNSET


LIMITS: Final = Limits.__struct_fields__
_BYTES: Final = frozenset({"memory_bytes", "output_bytes_per_second"})


def with_changes(limits: Limits, changes: LimitChanges | None) -> Limits:
    given = {
        name: value
        for name in LIMITS
        if changes is not None and (value := getattr(changes, name)) is not UNSET
    }
    changed = msgspec.structs.replace(limits, **given)
    return NO_LIMITS if changed == NO_LIMITS else changed


class PassedLimit(Result, kw_only=True):
    """The limit that a program has exceeded, and by how much."""

    limit: str
    allowed: int | float
    used: int | float

    def words(self) -> str:
        more = format_amount(self.limit, self.used - self.allowed)
        return (
            f"its limit {self.limit}: {format_amount(self.limit, self.used)} used, "
            f"{format_amount(self.limit, self.allowed)} allowed, {more} too much"
        )


class Use(Struct):
    """The resources that a process tree uses, by the names of the limits."""

    memory_bytes: int = 0
    cpu_seconds: float = 0.0
    processes: int = 0
    wall_seconds: float = 0.0
    output_bytes_per_second: int = 0


def format_amount(limit: str, value: float) -> str:
    """A value as people read it: 1.5 GB, 12.3 s, 40."""
    if limit in _BYTES:
        text = format_bytes(value)
        return f"{text}/s" if limit == "output_bytes_per_second" else text
    return f"{value:.4g} s" if limit.endswith("seconds") else f"{value:g}"


def format_bytes(value: float) -> str:
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.3g} {units[0]}"
