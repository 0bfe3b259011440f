"""The session's breakpoints: verified before the debugger is asked, kept under ids of our own.

A line that debugpy would move is never sent to it, so a stop is always on the requested line.
`verification` verifies, `sync` sends to programs; this module combines them: it sets, changes and
removes breakpoints, and reports to callers and events.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models.breakpoints import (
    Breakpoint,
    BreakpointSpec,
    PatchBreakpoint,
    SetBreakpoints,
)
from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.refusals import Problem
from debug_relay.protocol.wire.probe_messages import FoundFunction
from debug_relay.worker.breakpoints.functions import place
from debug_relay.worker.breakpoints.requests import batch_refusal, kept, problems_of, specs_of
from debug_relay.worker.breakpoints.restored import number_of, restored_entries
from debug_relay.worker.breakpoints.source_changes import (
    OUTDATED,
    LoadedSources,
    Pids,
    SourceWatch,
    outdated_in,
)
from debug_relay.worker.breakpoints.sync import BreakpointSync
from debug_relay.worker.breakpoints.table import BreakpointTable, Entry
from debug_relay.worker.breakpoints.verification import NO_FILE, Batch, Verifier
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.debugger.probe_client import ProbeClient
from debug_relay.worker.debugger.stops import Stops
from debug_relay.worker.interpreter.cache import InterpreterCache
from debug_relay.worker.interpreter.resolve import Interpreter
from debug_relay.worker.source.code_lines import CodeLines
from debug_relay.worker.state.log import SessionLog
from debug_relay.worker.state.publication import Publication
from debug_relay.worker.state.settings import Settings

_HOT: Final = (
    "A loop reaches it again and again while its condition is false; each evaluation takes "
    "microseconds, so the program runs many times slower"
)
_HOT_ADVICE: Final = (
    "If that takes too long, write the condition into the program as an `if`, and set a breakpoint "
    "without a condition on its body: that costs nothing until the line is reached."
)


class Breakpoints:
    def __init__(
        self,
        settings: Settings,
        log: SessionLog,
        publication: Publication,
        hub: Hub,
        probes: ProbeClient,
        stops: Stops,
        interpreters: InterpreterCache,
        send_exceptions: Callable[[DebugServer], Awaitable[None]],
    ) -> None:
        """`send_exceptions` sends the exception breakpoints to a debug server."""
        self._log = log
        self._publication = publication
        self._hub = hub
        self._stops = stops
        self._table = BreakpointTable()
        self._verifier = Verifier(settings, interpreters)
        self._sync = BreakpointSync(settings, hub, probes, self._table, send_exceptions)
        self._watch = SourceWatch(self._watched, self._sources_changed)
        self._loaded = LoadedSources(self._sync.outdated, probes.probed)
        # One change at a time: a verification must still hold when its result is stored.
        self._changing = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._table)

    # -- asking and changing

    async def add(self, params: SetBreakpoints) -> list[Breakpoint]:
        """All or none: every bad entry is named."""
        specs = specs_of(params)
        async with self._changing:
            batch = await self._verifier.batch()
            judged, bad = await _verify_all(batch, specs)
            if bad:
                raise batch_refusal(bad, specs, single=params.breakpoints is None)
            await self.suspend(False)
            self._watch.seen(batch.seen)
            stored = [self._store(entry) for entry in judged]
            ids = dict.fromkeys(id for id, _ in stored)
            await self._sync.set([self._table.one(id) for id in ids], ids.keys())
            await self._mark_outdated([self._table.one(id) for id in ids])
            known = {id for id, updated in stored if updated}
            self._tell("new", [self._table.one(id) for id in ids if id not in known])
            self._tell("changed", [self._table.one(id) for id in ids if id in known])
            return [
                msgspec.structs.replace(self.show(self._table.one(id)), updated=updated)
                for id, updated in stored
            ]

    async def problems(self, params: SetBreakpoints) -> list[Problem]:
        """What is wrong with these breakpoints; sets none."""
        specs = specs_of(params)
        _, bad = await _verify_all(await self._verifier.batch(), specs)
        return problems_of(bad, specs)

    def _store(self, judged: Entry) -> tuple[str, bool]:
        """Stores a breakpoint. One line or function has one breakpoint: setting it again updates
        that one.
        """
        present = self._table.same_as(judged)
        if present is not None:
            judged.id = present.id
        elif not judged.id:
            judged.id = self._table.new_id()
        self._table.put(judged)
        return judged.id, present is not None

    @property
    def next_number(self) -> int:
        """The number of the next id."""
        return self._table.next_number

    async def inherit(self, specs: list[dict[str, Any]], next_number: int = 1) -> None:
        """Takes over earlier breakpoints under their ids: they are verified anew, and none is
        refused.
        """
        async with self._changing:
            self._table.reserve(next_number)
            entries, batch = await restored_entries(self._verifier, specs)
            if batch is not None:
                self._watch.seen(batch.seen)
            for entry in entries:
                self._table.reserve((number_of(entry.id) or 0) + 1)
            ids = dict.fromkeys(self._store(entry)[0] for entry in entries)
            await self._sync.set([self._table.one(id) for id in ids], ids.keys())
            self._publication.changed()
            self._publication.save()

    def count_on(self, hits: Mapping[str, int]) -> None:
        """Continues the counts of the previous worker."""
        for entry in self._table:
            entry.hit_count = hits.get(entry.id, entry.hit_count)

    async def patch(self, params: PatchBreakpoint) -> Breakpoint:
        async with self._changing:
            entry = self._table.one(params.breakpoint_id)
            await self.suspend(False)
            batch = await self._verifier.batch()
            changed = await batch.changed(
                entry,
                condition=kept(params.condition, entry.condition),
                hit_condition=kept(params.hit_condition, entry.hit_condition),
                log_message=kept(params.log_message, entry.log_message),
                enabled=kept(params.enabled, entry.enabled),
            )
            self._watch.seen(batch.seen)
            self._table.put(changed)
            await self._sync.set([changed])
            changed = self._table.one(changed.id)
            await self._mark_outdated([changed])
            self._tell("changed", [changed])
            return self.show(changed)

    async def remove(self, id: str) -> None:
        async with self._changing:
            await self._drop([self._table.one(id)])

    async def clear(self) -> int:
        async with self._changing:
            entries = list(self._table)
            await self._drop(entries)
            return len(entries)

    async def _drop(self, entries: list[Entry]) -> None:
        if not entries:
            return
        for entry in entries:
            entry.hit_count = self._sync.count_of(entry)
            self._table.drop(entry.id)
        await self._sync.forget(entries)
        self._tell("removed", entries)

    def _tell(self, reason: str, entries: Iterable[Entry]) -> None:
        told = False
        for entry in entries:
            self._log.journal("breakpoint", {"reason": reason, "breakpoint": self.show(entry)})
            told = True
        if told:
            self._publication.changed()
            self._publication.save()

    # -- reading

    async def listed(self, file: str | None, verified: bool | None) -> list[Breakpoint]:
        await self._sync.refresh_counts()
        await self._find_heirs(list(self._table.functions()))
        wanted = None
        if file:
            wanted = await asyncio.to_thread(os.path.realpath, self._verifier.absolute(file))
        entries = self._table if wanted is None else self._table.in_file(wanted)
        return [
            self.show(entry) for entry in entries if verified is None or entry.verified is verified
        ]

    async def one(self, id: str) -> Breakpoint:
        await self._sync.refresh_counts()
        await self._find_heirs([self._table.one(id)])
        return self.show(self._table.one(id))

    async def _find_heirs(self, entries: list[Entry]) -> None:
        with contextlib.suppress(RelayError):  # it has ended, or does not answer
            await self._sync.find_heirs(entries)

    def at(self, location: Location) -> list[str]:
        """Which breakpoints lie at this place."""
        entry = self._table.at(os.path.realpath(location.path), location.line)
        return [entry.id] if entry is not None and entry.enabled else []

    def show(self, entry: Entry) -> Breakpoint:
        # A removed breakpoint takes its last count with it.
        known = entry.id in self._table
        shown = entry.shown(self._sync.count_of(entry) if known else entry.hit_count)
        if entry.message == OUTDATED:
            shown.message = outdated_in(entry.outdated_in, self._pids())
        return shown

    def specs(self) -> list[dict[str, Any]]:
        """The fields with which a later session can set the same breakpoints."""
        return [entry.spec() for entry in self._table]

    def appeared(self, id: str, found: FoundFunction) -> None:
        """Code has been loaded in which there is the function, or one that may be meant."""
        if id not in self._table:
            return
        entry = msgspec.structs.replace(self._table.one(id))
        before = self.show(entry)
        place(entry, found)
        self._table.put(entry)
        if self.show(entry) != before:
            self._tell("changed", [entry])

    def failed(self, id: str, message: str) -> None:
        """An expression of the breakpoint failed in the program; reported once, however many
        processes it is in.
        """
        if id in self._table and self._table.one(id).message != message:
            entry = self._table.one(id)
            entry.message = message
            self._tell("changed", [entry])

    def slows(self, id: str) -> None:
        """A hot loop runs into it, and its condition is not true; told unless there is worse."""
        if id in self._table and self._table.one(id).message is None:
            entry = self._table.one(id)
            entry.message, entry.suggestion = _HOT, _HOT_ADVICE
            self._tell("changed", [entry])

    # -- for others that look at lines

    async def verify(self, spec: BreakpointSpec) -> Entry:
        """The breakpoint as it would be set; it is not set."""
        return await (await self._verifier.batch()).verify(spec)

    def absolute(self, path: str) -> str:
        return self._verifier.absolute(path)

    # -- files that come, go and change

    def forget_interpreter(self) -> None:
        """The session's may be another now."""
        self._verifier.forget_interpreter()

    async def code_lines(self) -> CodeLines:
        """The lines that have code for the session's interpreter."""
        return await self._verifier.code_lines()

    def code_lines_of(self, interpreter: Interpreter, optimize: int = 0) -> CodeLines:
        """The lines that have code for a program with this interpreter."""
        return self._verifier.code_lines_of(interpreter, optimize)

    def use(self, code_lines: CodeLines) -> None:
        """The program's interpreter turned out to be another."""
        self._verifier.use(code_lines)

    def skipped_lines(self, server: DebugServer, id: str) -> int:
        """How many lines of a log point this process has skipped and not reported."""
        return self._sync.skipped_lines(server, id)

    async def verify_again(self) -> None:
        """Before a launch: files may have come, gone or changed, the interpreter be another."""
        async with self._changing:
            entries = [entry for entry in self._table if entry.function is None]
            await self._reverify(entries, in_programs=False)

    async def hit(self, location: Location, told: list[str] | None) -> list[str]:
        """Which breakpoints were hit here, judged by the file that must be there now."""
        ids = self.at(location) if told is None else [id for id in told if id in self._table]
        if any(not self._table.one(id).verified for id in ids):
            # The program has just written this file itself, and was quicker than the watch.
            await self._watch.look()
        for entry in [self._table.one(id) for id in ids if id in self._table]:
            if told is not None and entry.pending:
                # An archive's, or one that was never a file; its lines are what it was asked for.
                found = msgspec.structs.replace(
                    entry, verified=True, pending=False, message=NO_FILE, suggestion=None
                )
                self._table.put(found)
                self._tell("changed", [found])
        await self._look_at_loaded([self._table.one(id) for id in ids if id in self._table])
        return ids

    async def _look_at_loaded(self, entries: list[Entry]) -> None:
        """The program may have loaded anew what was said to be older than its file."""
        marked = [entry for entry in entries if entry.message == OUTDATED]
        if not marked:
            return
        nowhere: dict[str, Pids] = {entry.path: frozenset() for entry in marked}
        self._renew(nowhere | await self.outdated(nowhere.keys(), self._stops.stop_id + 1))

    def _renew(self, where: dict[str, Pids]) -> None:
        """Updates outdated breakpoints: in which processes they still are outdated."""
        renewed = [
            msgspec.structs.replace(entry, message=OUTDATED if pids else None, outdated_in=pids)
            for entry in self._table
            if entry.message == OUTDATED
            and (pids := where.get(entry.path, entry.outdated_in)) != entry.outdated_in
        ]
        for entry in renewed:
            self._table.put(entry)
        self._tell("changed", renewed)

    def count(self, ids: list[str]) -> None:
        """Counts hits of a program without the probe: nothing counts there, but its stops are
        visible.
        """
        for id in ids:
            if id in self._table:
                self._table.one(id).hit_count += 1

    def _watched(self) -> dict[str, bool]:
        watched: dict[str, bool] = {}
        for entry in self._table:
            if entry.function is None:
                watched[entry.path] = entry.pending
        return watched

    async def _sources_changed(self, paths: set[str]) -> None:
        async with self._changing:
            changed = [entry for entry in self._table if entry.path in paths]
            await self._reverify([entry for entry in changed if entry.function is None])

    async def _reverify(self, entries: list[Entry], in_programs: bool = True) -> None:
        """Tells of those that are not what they were."""
        if not entries:
            return
        batch = await self._verifier.batch()
        before = {entry.id: self.show(entry) for entry in entries}
        again = []
        for entry in entries:
            judged = msgspec.structs.replace(entry)
            await batch.verify_again(judged)
            again.append(judged)
        self._watch.seen(batch.seen)
        try:
            await self._take_over(again, in_programs)
        finally:
            changed = [entry for entry in again if self.show(entry) != before[entry.id]]
            self._tell("changed", changed)

    async def _take_over(self, judged: list[Entry], in_programs: bool) -> None:
        try:
            if in_programs:
                await self._sync.foretell(judged)
        finally:
            # Also where the program ends just now: nobody judges them again.
            for entry in judged:
                self._table.put(entry)
        if in_programs:
            await self._sync.set(judged)
        await self._mark_outdated(judged)

    async def _mark_outdated(self, entries: list[Entry]) -> None:
        outdated = await self.outdated({entry.path for entry in entries if entry.verified})
        for entry in entries:
            if entry.verified and entry.path in outdated:
                entry.message, entry.outdated_in = OUTDATED, outdated[entry.path]

    async def outdated(self, paths: Collection[str], moment: int | None = None) -> dict[str, Pids]:
        """Which processes run of these files what is no more on disk."""
        try:
            moment = self._stops.stop_id if moment is None else moment
            return await self._loaded.outdated(paths, moment)
        except RelayError:
            return {}  # it has ended, or does not answer: then nothing is known of it

    def _pids(self) -> Pids:
        return frozenset(server.pid for server in self._hub.servers)

    # -- programs

    def new_run(self) -> None:
        """A program is about to begin."""
        self._loaded.begin()
        self._sync.new_run()

    async def send_all(self, server: DebugServer) -> None:
        """To a debug server that knows none yet."""
        await self._sync.begin(server)
        self._reword(self._pids() - {server.pid})

    @property
    def suspended(self) -> bool:
        return self._sync.suspended

    async def suspend(self, on: bool) -> None:
        """Whether none of them stops the program."""
        if self._sync.suspended is not on:
            await self._sync.suspend(on)
            self._publication.changed()

    def server_gone(self, server: DebugServer) -> None:
        self._sync.server_gone(server)
        if self._hub.servers:
            marked = [entry for entry in self._table if entry.message == OUTDATED]
            self._renew({entry.path: entry.outdated_in - {server.pid} for entry in marked})
            self._reword(self._pids() | {server.pid})

    def _reword(self, former: Pids) -> None:
        """Other processes are there: "what runs" may be what runs in some of them."""
        now = self._pids()

        def reads_otherwise(pids: Pids) -> bool:
            return outdated_in(pids, former) != outdated_in(pids, now)

        marked = [entry for entry in self._table if entry.message == OUTDATED]
        self._tell("changed", [entry for entry in marked if reads_otherwise(entry.outdated_in)])

    async def close(self) -> None:
        await self._watch.close()
        self._sync.close()


async def _verify_all(
    batch: Batch, specs: list[BreakpointSpec]
) -> tuple[list[Entry], list[tuple[int, RelayError]]]:
    """The breakpoints as they would be set, and the refused ones."""
    judged: list[Entry] = []
    bad: list[tuple[int, RelayError]] = []
    for index, spec in enumerate(specs):
        try:
            judged.append(await batch.verify(spec))
        except RelayError as error:
            bad.append((index, error))
    return judged, bad
