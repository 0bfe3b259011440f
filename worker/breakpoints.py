"""The session's breakpoints: judged before the debugger is asked, kept under ids of our own.

A line that debugpy would move is never sent to it, so a stop is always on the line that was asked
for. Condition and hit count are decided by the probe: every breakpoint goes to debugpy with the
condition `'relay:bp_7'`, and what bp_7 does is a row in the probe's table.
"""

from __future__ import annotations

import os
from collections.abc import Set
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from debug_relay.protocol import dap
from debug_relay.protocol.breakpoints import (
    Breakpoint,
    BreakpointSpec,
    PatchBreakpoint,
    SetBreakpoints,
)
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.fields import Location
from debug_relay.worker.breakpoint_requests import (
    bad_condition,
    batch_refusal,
    check_template,
    kept,
    not_yet,
    specs_of,
)
from debug_relay.worker.connection import DebugServer
from debug_relay.worker.lines import LineBook, judge, parse_hit_condition

if TYPE_CHECKING:
    from debug_relay.worker.session import Session

_PENDING: Final = "pending: the file does not exist yet"


class Entry(Struct):
    id: str
    path: str  # as it was asked for, absolute
    real_path: str  # what debugpy calls it
    line: int
    condition: str | None = None
    hit_condition: str | None = None
    log_message: str | None = None
    enabled: bool = True
    verified: bool = False
    message: str | None = None
    suggestion: str | None = None
    hit_count: int = 0
    # What was judged and would be sent: the probe's part of it.
    hit: tuple[str, int] | None = None


class Breakpoints:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._entries: dict[str, Entry] = {}
        self._next = 1
        self._book: LineBook | None = None

    def __len__(self) -> int:
        return len(self._entries)

    # -- asking and changing

    async def add(self, params: SetBreakpoints) -> list[Breakpoint]:
        """All or none: every bad entry is named."""
        specs = specs_of(params)
        judged: list[Entry] = []
        bad: list[tuple[int, RelayError]] = []
        for index, spec in enumerate(specs):
            try:
                judged.append(await self._judge(spec))
            except RelayError as error:
                bad.append((index, error))
        if bad:
            raise batch_refusal(bad, single=params.breakpoints is None)
        shown = [self._store(entry) for entry in judged]
        await self._send({entry.real_path for entry in judged}, {id for id, _ in shown})
        self._session.changed()
        self._session.record.save()
        return [
            msgspec.structs.replace(self.show(self._entries[id]), updated=updated)
            for id, updated in shown
        ]

    def _store(self, judged: Entry) -> tuple[str, bool]:
        """One line has one breakpoint: another for it is the same one, set anew."""
        for entry in self._entries.values():
            if entry.line == judged.line and entry.real_path == judged.real_path:
                judged.id = entry.id
                self._entries[entry.id] = judged
                return entry.id, True
        judged.id = f"bp_{self._next}"
        self._next += 1
        self._entries[judged.id] = judged
        return judged.id, False

    async def patch(self, params: PatchBreakpoint) -> Breakpoint:
        entry = self._entry(params.breakpoint_id)
        spec = BreakpointSpec(
            file=entry.path,
            line=entry.line,
            condition=kept(params.condition, entry.condition),
            hit_condition=kept(params.hit_condition, entry.hit_condition),
            log_message=kept(params.log_message, entry.log_message),
            enabled=kept(params.enabled, entry.enabled),
        )
        judged = await self._judge(spec)
        judged.id, judged.hit_count = entry.id, entry.hit_count
        self._entries[entry.id] = judged
        await self._send({judged.real_path})
        self._changed("changed", judged)
        return self.show(judged)

    async def remove(self, id: str) -> None:
        entry = self._entry(id)
        await self._drop([entry])

    async def clear(self) -> int:
        entries = list(self._entries.values())
        await self._drop(entries)
        return len(entries)

    async def _drop(self, entries: list[Entry]) -> None:
        for entry in entries:
            del self._entries[entry.id]
        await self._send({entry.real_path for entry in entries})
        for server in self._session.hub.probed():
            await self._session.hub.probe(server, "points", remove=[entry.id for entry in entries])
        for entry in entries:
            self._changed("removed", entry)

    def _changed(self, reason: str, entry: Entry) -> None:
        self._session.journal("breakpoint", {"reason": reason, "breakpoint": self.show(entry)})
        self._session.changed()
        self._session.record.save()

    # -- reading

    async def listed(self, file: str | None, verified: bool | None) -> list[Breakpoint]:
        await self.count_hits()
        wanted = self._real(file) if file else None
        return [
            self.show(entry)
            for entry in self._entries.values()
            if (wanted is None or entry.real_path == wanted)
            and (verified is None or entry.verified is verified)
        ]

    async def one(self, id: str) -> Breakpoint:
        entry = self._entry(id)
        await self.count_hits()
        return self.show(entry)

    async def count_hits(self) -> None:
        """The probe counts; it tells at stops and at the end, and when it is asked."""
        for server in self._session.hub.probed():
            self.counted(await self._session.hub.probe(server, "hits"))

    def counted(self, counts: dict[str, int]) -> None:
        for id, hits in counts.items():
            if id in self._entries:
                self._entries[id].hit_count = hits

    def at(self, location: Location) -> list[str]:
        """Which breakpoints lie at this place."""
        real = os.path.realpath(location.path)
        return [
            entry.id
            for entry in self._entries.values()
            if entry.line == location.line and entry.enabled and entry.real_path == real
        ]

    def show(self, entry: Entry) -> Breakpoint:
        return Breakpoint(
            id=entry.id,
            verified=entry.verified,
            source={"path": entry.path},
            line=entry.line,
            condition=entry.condition,
            hit_condition=entry.hit_condition,
            log_message=entry.log_message,
            enabled=entry.enabled,
            hit_count=entry.hit_count,
            message=entry.message,
            suggestion=entry.suggestion,
        )

    def specs(self) -> list[dict[str, Any]]:
        """What it takes to set them again."""
        return [
            {
                "id": entry.id,
                "file": entry.path,
                "line": entry.line,
                "condition": entry.condition,
                "hit_condition": entry.hit_condition,
                "log_message": entry.log_message,
                "enabled": entry.enabled,
            }
            for entry in self._entries.values()
        ]

    def failed(self, id: str, error: str) -> None:
        """A condition raised in the program; told once."""
        entry = self._entries.get(id)
        if entry is not None:
            entry.message = f"condition raised {error}"
            self._changed("changed", entry)

    def _entry(self, id: str) -> Entry:
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

    # -- judging

    async def book(self) -> LineBook:
        """Line facts as the session's interpreter sees them."""
        if self._book is None:
            config = self._session.params.config
            interpreter = await self._session.interpreters.find(
                config.python_path, None, config.project_root, self._session.params.python_default
            )
            self._book = LineBook(interpreter, project_root=config.project_root)
        return self._book

    def forget_interpreter(self) -> None:
        """The session's may be another now."""
        self._book = None

    def use(self, book: LineBook) -> None:
        """The program's interpreter turned out to be another."""
        self._book = book

    async def _judge(self, spec: BreakpointSpec) -> Entry:
        for field in ("function", "text", "expected_text"):
            if getattr(spec, field) is not None:
                raise not_yet(field)
        asked = spec.source.path if spec.source is not None else spec.file
        if asked is None or spec.line is None:
            missing = "line" if asked is not None else "source.path"
            raise RelayError(
                Code.INVALID_REQUEST,
                f"A breakpoint needs {missing}",
                'Send {"source": {"path": "/absolute/file.py"}, "line": 12}.',
                errors=[{"field": missing, "message": "required", "value": None}],
            )
        entry = self._unjudged(spec, self._absolute(asked), spec.line)
        if spec.hit_condition is not None:
            entry.hit = parse_hit_condition(spec.hit_condition)
        book = await self.book()
        if spec.condition is not None:
            problem = await book.check_expression(spec.condition, "condition")
            if problem is not None:
                raise bad_condition(spec.condition, problem)
        if spec.log_message is not None:
            check_template(spec.log_message)
        await self._judge_line(entry, book, spec.must_exist)
        return entry

    @staticmethod
    def _unjudged(spec: BreakpointSpec, path: str, line: int) -> Entry:
        return Entry(
            "",
            path,
            os.path.realpath(path),
            line,
            condition=spec.condition,
            hit_condition=spec.hit_condition,
            log_message=spec.log_message,
            enabled=spec.enabled,
        )

    async def _judge_line(self, entry: Entry, book: LineBook, must_exist: bool) -> None:
        entry.verified, entry.message, entry.suggestion = False, None, None
        try:
            facts = await book.facts(entry.path)
        except RelayError as error:
            if error.details.get("reason") != "missing" or must_exist:
                raise
            entry.message, entry.suggestion = _PENDING, error.details["suggestion"]
            return
        if entry.line > facts.total_lines:
            raise RelayError(
                Code.BREAKPOINT_INVALID_LINE,
                f"{entry.path} has no line {entry.line}: it ends with line {facts.total_lines}",
                f"Use a line from 1 to {facts.total_lines}.",
                file=entry.path,
                line=entry.line,
                max_line=facts.total_lines,
            )
        judgement = judge(facts, entry.line)
        entry.verified = judgement.ok
        if not judgement.ok:
            entry.message = f"No executable code: {judgement.message}"
            entry.suggestion = judgement.suggestion

    async def judge_again(self) -> None:
        """Before a launch: files may have come, gone or changed."""
        book = await self.book()
        for entry in list(self._entries.values()):
            before = self.show(entry)
            try:
                await self._judge_line(entry, book, must_exist=False)
            except RelayError as error:
                entry.verified, entry.message = False, error.message
            if self.show(entry) != before:
                self._changed("changed", entry)

    def _real(self, path: str) -> str:
        return os.path.realpath(self._absolute(path))

    def _absolute(self, path: str) -> str:
        path = os.path.expanduser(path)
        if os.path.isabs(path):
            return os.path.normpath(path)
        root = self._session.params.config.project_root
        if root is None:
            raise RelayError(
                Code.INVALID_REQUEST,
                f"The path {path} is relative and the session has no project_root",
                "Send an absolute path, or create the session with project_root.",
                errors=[{"field": "source.path", "message": "must be absolute", "value": path}],
            )
        return os.path.normpath(os.path.join(root, path))

    # -- to the debugger

    async def send_all(self, server: DebugServer) -> None:
        """To a debug server that knows none yet."""
        await self._send_points(server, list(self._entries.values()), set(self._entries))
        for path in {entry.real_path for entry in self._entries.values()}:
            await self._send_file(server, path)

    async def _send(self, paths: set[str], fresh: Set[str] = frozenset()) -> None:
        """What lies in these files; only the `fresh` begin to count anew."""
        for server in self._session.hub.servers:
            entries = [entry for entry in self._entries.values() if entry.real_path in paths]
            await self._send_points(server, entries, fresh)
            for path in paths:
                await self._send_file(server, path)

    async def _send_points(
        self, server: DebugServer, entries: list[Entry], fresh: Set[str]
    ) -> None:
        rows = [
            {
                "id": entry.id,
                "condition": entry.condition,
                "hit": entry.hit,
                "log": entry.log_message,
                "enabled": entry.enabled,
                "fresh": entry.id in fresh,
            }
            for entry in entries
            if entry.verified
        ]
        if rows and server.has_probe:
            await self._session.hub.probe(server, "points", set=rows)

    async def _send_file(self, server: DebugServer, path: str) -> None:
        entries = [
            entry
            for entry in self._entries.values()
            if entry.real_path == path and entry.verified and entry.enabled
        ]
        answer = await server.request(
            "setBreakpoints",
            {
                "source": {"path": path},
                "breakpoints": [_sent(entry, server.has_probe) for entry in entries],
            },
            dap.SetBreakpoints,
            self._session.params.request_timeout,
        )
        moved = [
            entry
            for entry, told in zip(entries, answer.breakpoints, strict=False)
            if not told.verified or told.line != entry.line
        ]
        if moved:
            # Judged otherwise than we do: a stop elsewhere than asked for would be a lie.
            for entry in moved:
                entry.verified = False
                entry.message = f"the debugger finds no code on line {entry.line}"
            await self._send_file(server, path)


def _sent(entry: Entry, has_probe: bool) -> dict[str, Any]:
    if has_probe:
        return {"line": entry.line, "condition": f"'relay:{entry.id}'"}
    # Plain DAP takes condition *or* count where both mean "and": the condition alone stops too
    # often rather than never.
    sent: dict[str, Any] = {"line": entry.line, "logMessage": entry.log_message}
    if entry.condition is not None:
        return {**sent, "condition": entry.condition}
    return {**sent, "hitCondition": entry.hit_condition}
