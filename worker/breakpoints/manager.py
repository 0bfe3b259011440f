"""The session's breakpoints: verified before a program gets them, and kept under ids of our own.

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

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.breakpoints import (
    Breakpoint,
    BreakpointSpec,
    PatchBreakpoint,
    SetBreakpoints,
    ValueChange,
)
from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.refusals import Problem
from debug_relay.protocol.wire.probe_messages import FoundFunction, WatchedChange
from debug_relay.worker.breakpoints import never_found
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
from debug_relay.worker.breakpoints.watchpoints import WatchedFrames
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
    "A loop reaches this line again and again while the condition is false; each evaluation takes "
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
        self._frames = WatchedFrames(hub, stops)
        self._verifier = Verifier(settings, interpreters)
        self._sync = BreakpointSync(settings, hub, probes, self._table, send_exceptions)
        self._watch = SourceWatch(self._watched, self._sources_changed)
        self._loaded = LoadedSources(self._sync.outdated, probes.probed)
        # One change at a time: a verification must still hold when its result is stored.
        self._changing = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._table)

    # -- setting and changing

    async def add(self, params: SetBreakpoints) -> list[Breakpoint]:
        """Set all of the breakpoints, or none; the error names every bad one."""
        specs = specs_of(params)
        async with self._changing:
            batch = await self._verifier.batch()
            specs = [await self._frames.scoped(spec) for spec in specs]
            checked, bad = await _verify_all(batch, specs)
            await self._frames.bind(checked, specs)
            if bad:
                raise batch_refusal(bad, specs, single=params.breakpoints is None)
            await self.suspend(False)
            self._watch.seen(batch.seen)
            stored = [self._store(entry) for entry in checked]
            ids = dict.fromkeys(id for id, _ in stored)
            await self._sync.set([self._table.one(id) for id in ids], ids.keys())
            await self._mark_outdated([self._table.one(id) for id in ids])
            known = {id for id, updated in stored if updated}
            self._journal("new", [self._table.one(id) for id in ids if id not in known])
            self._journal("changed", [self._table.one(id) for id in ids if id in known])
            return [
                msgspec.structs.replace(self.show(self._table.one(id)), updated=updated)
                for id, updated in stored
            ]

    async def problems(self, params: SetBreakpoints) -> list[Problem]:
        """The problems of these breakpoints; sets none."""
        specs = specs_of(params)
        _, bad = await _verify_all(await self._verifier.batch(), specs)
        return problems_of(bad, specs)

    def _store(self, checked: Entry) -> tuple[str, bool]:
        """Store a breakpoint. A line or function has one breakpoint: setting it again updates
        it.
        """
        present = self._table.same_as(checked)
        if present is not None:
            checked.id = present.id
        elif not checked.id:
            checked.id = self._table.new_id()
        self._table.put(checked)
        return checked.id, present is not None

    @property
    def next_number(self) -> int:
        """The number of the next id."""
        return self._table.next_number

    async def inherit(self, specs: list[dict[str, Any]], next_number: int = 1) -> None:
        """Take over earlier breakpoints under their ids. They are verified anew; none is
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
        """Continue the counts of the previous worker."""
        for entry in self._table:
            entry.hit_count = hits.get(entry.id, entry.hit_count)

    async def patch(self, params: PatchBreakpoint) -> Breakpoint:
        async with self._changing:
            entry = self._changeable(params.breakpoint_id)
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
            self._journal("changed", [changed])
            return self.show(changed)

    async def remove(self, id: str) -> None:
        async with self._changing:
            await self._drop([self._changeable(id)])

    async def clear(self) -> int:
        """Remove all breakpoints but those of joined IDEs."""
        async with self._changing:
            entries = self._table.owned_by(None)
            await self._drop(entries)
            return len(entries)

    async def _drop(self, entries: list[Entry]) -> None:
        if not entries:
            return
        for entry in entries:
            entry.hit_count = self._sync.count_of(entry)
            self._table.drop(entry.id)
        await self._sync.forget(entries)
        self._journal("removed", entries)

    def _changeable(self, id: str) -> Entry:
        """The breakpoint, if a caller of the API has set it."""
        entry = self._table.one(id)
        if entry.owner is None:
            return entry
        raise RelayError(
            Code.INVALID_REQUEST,
            f"{id} is a breakpoint of {entry.owner}, which alone changes and removes it",
            "Ask the person at that IDE, or set a breakpoint of your own: a line may have both.",
            breakpoint_id=id,
            owner=entry.owner,
        )

    async def replace(
        self,
        owner: str,
        path: str | None,
        specs: list[BreakpointSpec],
        watchpoints: bool = False,
        kept: Collection[str] = (),
    ) -> list[Breakpoint | RelayError]:
        """Set the owner's breakpoints in one file, or without a path those on functions, or its
        `watchpoints`; others that it has there are removed, but for the `kept`. A bad one is
        answered with its error, and not set.
        """
        async with self._changing:
            batch = await self._verifier.batch()
            specs = [await self._frames.scoped(spec) for spec in specs]
            checked, bad = await _verify_all(batch, specs, moves=True)
            if not bad:
                await self._frames.bind(checked, specs)
            await self.suspend(False)
            self._watch.seen(batch.seen)
            before = {entry.id: entry.spec() for entry in self._table.owned_by(owner)}
            with contextlib.suppress(RelayError):  # a relative path without a project root
                path = self._verifier.absolute(path) if path is not None else None
            for entry in checked:
                entry.owner = owner
            stored = [self._store(entry)[0] for entry in checked]
            await self._drop(
                [
                    entry
                    for entry in self._table.owned_by(owner)
                    if entry.id not in stored
                    and entry.id not in kept
                    and (entry.watch is not None) is watchpoints
                    and (watchpoints or _is_in(entry, path))
                ]
            )
            changed = [id for id in dict.fromkeys(stored) if before.get(id) != self._spec(id)]
            await self._sync.set([self._table.one(id) for id in changed], {*changed})
            await self._mark_outdated([self._table.one(id) for id in changed])
            self._journal("new", [self._table.one(id) for id in changed if id not in before])
            self._journal("changed", [self._table.one(id) for id in changed if id in before])
            errors = dict(bad)
            good = iter(stored)
            return [
                errors[index] if index in errors else self.show(self._table.one(next(good)))
                for index in range(len(specs))
            ]

    def owned_by(self, owner: str) -> list[Entry]:
        return self._table.owned_by(owner)

    async def disown(self, owner: str) -> None:
        """Remove all breakpoints of an IDE that has left."""
        async with self._changing:
            await self._drop(self._table.owned_by(owner))

    def _spec(self, id: str) -> dict[str, Any]:
        return self._table.one(id).spec()

    def _journal(self, reason: str, entries: Iterable[Entry]) -> None:
        journaled = False
        for entry in entries:
            self._log.journal("breakpoint", {"reason": reason, "breakpoint": self.show(entry)})
            journaled = True
        if journaled:
            self._publication.changed()
            self._publication.save()

    # -- reading

    async def listed(self, file: str | None, verified: bool | None) -> list[Breakpoint]:
        await self._sync.refresh_counts()
        await self._find_inherited(list(self._table.functions()))
        wanted = None
        if file:
            wanted = await asyncio.to_thread(os.path.realpath, self._verifier.absolute(file))
        entries = self._table if wanted is None else self._table.in_file(wanted)
        return [
            self.show(entry) for entry in entries if verified is None or entry.verified is verified
        ]

    async def one(self, id: str) -> Breakpoint:
        await self._sync.refresh_counts()
        await self._find_inherited([self._table.one(id)])
        return self.show(self._table.one(id))

    async def _find_inherited(self, entries: list[Entry]) -> None:
        with contextlib.suppress(RelayError):  # the program has ended, or does not answer
            await self._sync.find_inherited(entries)

    def at(self, location: Location) -> list[str]:
        """The enabled breakpoints at this place."""
        found = self._table.at(os.path.realpath(location.path), location.line)
        return [entry.id for entry in found if entry.enabled]

    def show(self, entry: Entry) -> Breakpoint:
        # The entry of a removed breakpoint has its last count.
        known = entry.id in self._table
        shown = entry.shown(self._sync.count_of(entry) if known else entry.hit_count)
        if entry.message == OUTDATED:
            shown.message = outdated_in(entry.outdated_in, self._pids())
        return shown

    def specs(self) -> list[dict[str, Any]]:
        """The fields with which a later session can set the same breakpoints; those of joined IDEs
        are theirs to set.
        """
        return [entry.spec() for entry in self._table.owned_by(None) if not entry.of_frame]

    def appeared(self, id: str, found: FoundFunction) -> None:
        """The program has loaded code with the function, or with one that may be meant."""
        if id not in self._table:
            return
        entry = msgspec.structs.replace(self._table.one(id))
        before = self.show(entry)
        place(entry, found)
        self._table.put(entry)
        if self.show(entry) != before:
            self._journal("changed", [entry])

    def failed(self, id: str, message: str) -> None:
        """An expression of the breakpoint failed in the program; reported once, however many
        processes it is in.
        """
        if id in self._table and self._table.one(id).message != message:
            entry = self._table.one(id)
            entry.message = message
            self._journal("changed", [entry])

    def value_changed(self, news: WatchedChange) -> None:
        """A watchpoint has seen a change; its stop follows."""
        if news.id in self._table:
            entry = self._table.one(news.id)
            entry.hit_count += 1
            entry.change = ValueChange(
                id=entry.id,
                watch=entry.watch or "",
                before=news.before,
                after=news.after,
                location=Location(path=news.path, line=news.line, column=1, function=news.function),
            )

    def changes_at(self, ids: list[str]) -> list[ValueChange]:
        """The changes that the watchpoints among these have seen."""
        found = [self._table.one(id).change for id in ids if id in self._table]
        return [change for change in found if change is not None]

    async def never_found(self, files: Iterable[str]) -> list[str]:
        """The warnings, after the program's end, about functions that it never had. `files` are the
        script and the modules that it has loaded.
        """
        return await never_found.warnings(self._table, files, self._journal)

    def slows(self, id: str) -> None:
        """Warn that a hot loop evaluates the breakpoint's condition, unless it has a message."""
        if id in self._table and self._table.one(id).message is None:
            entry = self._table.one(id)
            entry.message, entry.suggestion = _HOT, _HOT_ADVICE
            self._journal("changed", [entry])

    def find_script(self, script: Callable[[], str | None]) -> None:
        """`script` gives the program's script: functions are there that name no file."""
        self._verifier.script = script

    # -- for other parts that verify lines

    async def verify(self, spec: BreakpointSpec) -> Entry:
        """Verify a breakpoint without setting it."""
        return await (await self._verifier.batch()).verify(spec)

    def absolute(self, path: str) -> str:
        return self._verifier.absolute(path)

    # -- files that appear, disappear and change

    def forget_interpreter(self) -> None:
        """The session's interpreter may be another now."""
        self._verifier.forget_interpreter()

    async def code_lines(self) -> CodeLines:
        """The lines that have code for the session's interpreter."""
        return await self._verifier.code_lines()

    def code_lines_of(self, interpreter: Interpreter, optimize: int = 0) -> CodeLines:
        """The lines that have code for a program with this interpreter."""
        return self._verifier.code_lines_of(interpreter, optimize)

    def use(self, code_lines: CodeLines) -> None:
        """Verify with the program's own interpreter from now on."""
        self._verifier.use(code_lines)

    def skipped_lines(self, server: DebugServer, id: str) -> int:
        """The number of lines of a log point that this process has skipped and not reported."""
        return self._sync.skipped_lines(server, id)

    async def verify_again(self) -> None:
        """Verify all breakpoints again before a launch: files and the interpreter may have
        changed.
        """
        async with self._changing:
            entries = [entry for entry in self._table if entry.function is None]
            await self._reverify(entries, in_programs=False)

    async def hit(self, location: Location, named: list[str] | None) -> list[str]:
        """The breakpoints that were hit here: those that the program `named`, or all at this place.

        A breakpoint that was not verified is verified now: its file must exist.
        """
        ids = self.at(location) if named is None else [id for id in named if id in self._table]
        if any(not self._table.one(id).verified for id in ids):
            # The program has just written this file, and the file watch has not seen it yet.
            await self._watch.look()
        for entry in [self._table.one(id) for id in ids if id in self._table]:
            if named is not None and entry.pending:
                # The code is in an archive, or was never in a file. The program stopped on the
                # requested line, so the line exists.
                found = msgspec.structs.replace(
                    entry, verified=True, pending=False, message=NO_FILE, suggestion=None
                )
                self._table.put(found)
                self._journal("changed", [found])
        await self._look_at_loaded([self._table.one(id) for id in ids if id in self._table])
        return ids

    async def _look_at_loaded(self, entries: list[Entry]) -> None:
        """Ask again about outdated files: the program may have loaded them anew since."""
        marked = [entry for entry in entries if entry.message == OUTDATED]
        if not marked:
            return
        nowhere: dict[str, Pids] = {entry.path: frozenset() for entry in marked}
        self._renew(nowhere | await self.outdated(nowhere.keys(), self._stops.stop_id + 1))

    def _renew(self, where: dict[str, Pids]) -> None:
        """Update the processes in which breakpoints are outdated."""
        renewed = [
            msgspec.structs.replace(entry, message=OUTDATED if pids else None, outdated_in=pids)
            for entry in self._table
            if entry.message == OUTDATED
            and (pids := where.get(entry.path, entry.outdated_in)) != entry.outdated_in
        ]
        for entry in renewed:
            self._table.put(entry)
        self._journal("changed", renewed)

    def count(self, ids: list[str]) -> None:
        """Count hits for a program without the probe, by its stops: nothing counts in it."""
        for id in ids:
            if id in self._table:
                self._table.one(id).hit_count += 1

    def _watched(self) -> dict[str, bool]:
        watched: dict[str, bool] = {}
        for entry in self._table:
            if entry.is_line:
                watched[entry.path] = entry.pending
        return watched

    async def _sources_changed(self, paths: set[str]) -> None:
        async with self._changing:
            changed = [entry for entry in self._table if entry.path in paths and entry.path]
            await self._reverify([entry for entry in changed if entry.function is None])

    async def _reverify(self, entries: list[Entry], in_programs: bool = True) -> None:
        """Verify entries again, and journal those that have changed."""
        if not entries:
            return
        batch = await self._verifier.batch()
        before = {entry.id: self.show(entry) for entry in entries}
        again = []
        for entry in entries:
            checked = msgspec.structs.replace(entry)
            await batch.verify_again(checked)
            again.append(checked)
        self._watch.seen(batch.seen)
        try:
            await self._take_over(again, in_programs)
        finally:
            changed = [entry for entry in again if self.show(entry) != before[entry.id]]
            self._journal("changed", changed)

    async def _take_over(self, checked: list[Entry], in_programs: bool) -> None:
        try:
            if in_programs:
                await self._sync.send_early(checked)
        finally:
            # Stored even if the program ends just now: no later check would verify them again.
            for entry in checked:
                self._table.put(entry)
        if in_programs:
            await self._sync.set(checked)
        await self._mark_outdated(checked)

    async def _mark_outdated(self, entries: list[Entry]) -> None:
        outdated = await self.outdated({entry.path for entry in entries if entry.verified})
        for entry in entries:
            if entry.verified and entry.path in outdated:
                entry.message, entry.outdated_in = OUTDATED, outdated[entry.path]

    async def outdated(self, paths: Collection[str], moment: int | None = None) -> dict[str, Pids]:
        """For each of these files, the processes that run an older version than the one on disk."""
        try:
            moment = self._stops.stop_id if moment is None else moment
            return await self._loaded.outdated(paths, moment)
        except RelayError:
            return {}  # the program has ended, or does not answer: nothing is known of it

    def _pids(self) -> Pids:
        return frozenset(server.pid for server in self._hub.servers)

    # -- programs

    def new_run(self) -> None:
        """Reset counts and places: a program is about to begin."""
        self._loaded.begin()
        self._sync.new_run()

    async def send_all(self, server: DebugServer) -> None:
        """Send all breakpoints to a debug server that has none yet."""
        await self._sync.begin(server)
        self._reword(self._pids() - {server.pid})

    @property
    def suspended(self) -> bool:
        return self._table.suspended

    async def suspend(self, on: bool) -> None:
        """Suspend all breakpoints, so that none stops the program, or end that."""
        if self._table.suspended is not on:
            await self._sync.suspend(on)
            self._publication.changed()

    def server_gone(self, server: DebugServer) -> None:
        self._sync.server_gone(server)
        if self._hub.servers:
            marked = [entry for entry in self._table if entry.message == OUTDATED]
            self._renew({entry.path: entry.outdated_in - {server.pid} for entry in marked})
            self._reword(self._pids() | {server.pid})

    def _reword(self, former: Pids) -> None:
        """Journal outdated breakpoints whose message changed because the list of processes did."""
        now = self._pids()

        def reads_otherwise(pids: Pids) -> bool:
            return outdated_in(pids, former) != outdated_in(pids, now)

        marked = [entry for entry in self._table if entry.message == OUTDATED]
        self._journal("changed", [entry for entry in marked if reads_otherwise(entry.outdated_in)])

    async def close(self) -> None:
        await self._watch.close()
        self._sync.close()


def _is_in(entry: Entry, path: str | None) -> bool:
    """Whether it is in this file, or without a path on a function."""
    if path is None or entry.function is not None:
        return path is None and entry.function is not None
    return path == entry.path


async def _verify_all(
    batch: Batch, specs: list[BreakpointSpec], moves: bool = False
) -> tuple[list[Entry], list[tuple[int, RelayError]]]:
    """The breakpoints as they would be set, and the refused ones."""
    checked: list[Entry] = []
    bad: list[tuple[int, RelayError]] = []
    for index, spec in enumerate(specs):
        try:
            checked.append(await batch.verify(spec, moves))
        except RelayError as error:
            bad.append((index, error))
    return checked, bad
