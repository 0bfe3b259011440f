"""The breakpoints of a session, found by id, by line and by file.

`verification` decides what a breakpoint means; `sync` sends it to the debugger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.breakpoints import Breakpoint, ValueChange, WatchScope

# The function's name, the only file in which it counts, and the owner.
_FunctionKey = tuple[str, str | None, str | None]


class Entry(Struct):
    id: str
    path: str  # the requested path, made absolute
    real_path: str  # the path under which debugpy knows the file
    line: int  # 0 while the place of its function is unknown
    function: str | None = None  # for a function breakpoint; `path` and `line` are its place
    only_in: str | None = None  # the file in which the function is meant, if one was named
    watch: str | None = None  # for a watchpoint; it has no place of its own
    scope: WatchScope | None = None  # the code that a watchpoint looks at
    watched_lines: dict[str, list[int]] = {}  # real path → the lines of that code
    frame: int | None = None  # DAP's frame whose object alone is watched, until it is sent
    of_frame: bool = False  # it was bound to an object: no other session can set it
    change: ValueChange | None = None  # the last one that a watchpoint has seen
    condition: str | None = None
    hit_condition: str | None = None
    log_message: str | None = None
    expected_text: str | None = None
    enabled: bool = True
    owner: str | None = None  # the IDE that has set it; None for callers of the API
    verified: bool = False
    pending: bool = False  # the file does not exist yet
    message: str | None = None
    suggestion: str | None = None
    outdated_in: frozenset[int] = frozenset()  # pids, where `message` is OUTDATED
    hit_count: int = 0  # hits in programs that have ended
    hit: tuple[str, int] | None = None  # `hit_condition`, parsed for the probe

    @property
    def is_active(self) -> bool:
        """Whether the programs get its line."""
        return self.is_line and self.enabled and (self.verified or self.pending)

    @property
    def is_line(self) -> bool:
        """Whether it is a breakpoint on a line, and not on a function or a value."""
        return self.function is None and self.watch is None

    def shown(self, hit_count: int) -> Breakpoint:
        return Breakpoint(
            id=self.id,
            verified=self.verified,
            source={"path": self.path} if self.path else None,
            line=self.line or None,
            function=self.function,
            condition=self.condition,
            hit_condition=self.hit_condition,
            log_message=self.log_message,
            enabled=self.enabled,
            hit_count=hit_count,
            message=self.message,
            suggestion=self.suggestion,
            owner=self.owner,
            watch=self.watch,
            scope=self.scope,
            change=self.change,
        )

    def spec(self) -> dict[str, Any]:
        """The fields with which a later session can set the same breakpoint."""
        return {
            "id": self.id,
            "file": self.path if self.is_line else self.only_in,
            "line": self.line if self.is_line else None,
            "function": self.function,
            "condition": self.condition,
            "hit_condition": self.hit_condition,
            "log_message": self.log_message,
            "expected_text": self.expected_text,
            "enabled": self.enabled,
            "watch": self.watch,
            "in": msgspec.to_builtins(self.scope),
        }


class BreakpointTable:
    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._at: dict[tuple[str, int], list[str]] = {}
        self._in_file: dict[str, dict[str, Entry]] = {}
        self._of_function: dict[_FunctionKey, str] = {}
        self._next = 1
        self.suspended = False  # no breakpoint stops a program

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    def new_id(self) -> str:
        """A new id; no id is used twice."""
        id = f"bp_{self._next}"
        self._next += 1
        return id

    @property
    def next_number(self) -> int:
        return self._next

    def reserve(self, number: int) -> None:
        """Use no number below this one: an earlier worker has used them."""
        self._next = max(self._next, number)

    def put(self, entry: Entry) -> None:
        """Store the entry under its id; an earlier entry of that id may be on another line."""
        self._unlink(entry.id)
        self._entries[entry.id] = entry
        if entry.is_line:
            self._at.setdefault((entry.real_path, entry.line), []).append(entry.id)
        elif entry.function is not None:
            self._of_function[_key(entry)] = entry.id
        if entry.real_path:
            self._in_file.setdefault(entry.real_path, {})[entry.id] = entry

    def drop(self, id: str) -> None:
        self._unlink(id)
        del self._entries[id]

    def _unlink(self, id: str) -> None:
        old = self._entries.get(id)
        if old is None:
            return
        if old.is_line:
            beside = self._at[old.real_path, old.line]
            beside.remove(id)
            if not beside:
                del self._at[old.real_path, old.line]
        elif old.function is not None:
            self._of_function.pop(_key(old), None)
        others = self._in_file.get(old.real_path, {})
        others.pop(id, None)
        if not others:
            self._in_file.pop(old.real_path, None)

    def at(self, real_path: str, line: int) -> list[Entry]:
        return [self._entries[id] for id in self._at.get((real_path, line), ())]

    def same_as(self, wanted: Entry) -> Entry | None:
        """The existing breakpoint at the same line or function: each owner has one there."""
        if wanted.watch is not None:
            return next((entry for entry in self if _is_same_watch(entry, wanted)), None)
        if wanted.function is None:
            beside = self.at(wanted.real_path, wanted.line)
            return next((entry for entry in beside if entry.owner == wanted.owner), None)
        id = self._of_function.get(_key(wanted))
        return None if id is None else self._entries[id]

    def owned_by(self, owner: str | None) -> list[Entry]:
        return [entry for entry in self if entry.owner == owner]

    def functions(self) -> list[Entry]:
        return [entry for entry in self if entry.function is not None]

    def watchpoints(self) -> list[Entry]:
        return [entry for entry in self if entry.watch is not None]

    def in_file(self, real_path: str) -> list[Entry]:
        return list(self._in_file.get(real_path, {}).values())

    def files(self) -> list[str]:
        return list(self._in_file)

    def one(self, id: str) -> Entry:
        entry = self._entries.get(id)
        if entry is None:
            known = ", ".join(self._entries) or "none"
            raise RelayError(
                Code.BREAKPOINT_NOT_FOUND,
                f"The session has no breakpoint {id}",
                f"Its breakpoints are: {known}.",
                breakpoint_id=id,
                breakpoints=list(self._entries),
            )
        return entry


def _is_same_watch(entry: Entry, other: Entry) -> bool:
    """Whether both watch the same expression in the same code; of a frame each is its own."""
    return (
        entry.watch == other.watch
        and entry.scope == other.scope
        and entry.owner == other.owner
        and not (entry.of_frame or other.of_frame)
    )


def _key(entry: Entry) -> _FunctionKey:
    # `f.<locals>.g` and `f.g` are the same function.
    return (entry.function or "").replace(".<locals>", ""), entry.only_in, entry.owner
