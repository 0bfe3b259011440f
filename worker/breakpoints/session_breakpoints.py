"""The session's breakpoints: verified before a program gets them, and kept under ids of our own.

A line that debugpy would move is never sent to it, so a stop is always on the requested line. This
module sets, changes and removes breakpoints for callers. `verification` verifies, `sync` sends to
programs, `reverification` follows changed files, `program_events` takes in what programs report.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.breakpoints import (
    Breakpoint,
    BreakpointSpec,
    PatchBreakpoint,
    SetBreakpoints,
)
from debug_relay.protocol.models.fields import Location
from debug_relay.protocol.refusals import Problem
from debug_relay.worker.breakpoints.program_events import BreakpointEvents
from debug_relay.worker.breakpoints.published import PublishedBreakpoints
from debug_relay.worker.breakpoints.requests import batch_refusal, kept, problems_of, specs_of
from debug_relay.worker.breakpoints.restored import number_of, restored_entries
from debug_relay.worker.breakpoints.reverification import Reverification
from debug_relay.worker.breakpoints.sync import BreakpointSync
from debug_relay.worker.breakpoints.table import BreakpointTable, Entry
from debug_relay.worker.breakpoints.verification import Batch, Verifier
from debug_relay.worker.breakpoints.watchpoints import WatchedFrames
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.debugging import Debugging
from debug_relay.worker.debugger.program_changes import ProgramChanges
from debug_relay.worker.interpreter.cache import InterpreterCache
from debug_relay.worker.state.core import Core


class Breakpoints:
    def __init__(
        self,
        core: Core,
        debugging: Debugging,
        changes: ProgramChanges,
        interpreters: InterpreterCache,
        send_exceptions: Callable[[DebugServer], Awaitable[None]],
    ) -> None:
        """`send_exceptions` sends the exception breakpoints to a debug server."""
        hub, probes, stops = debugging.hub, debugging.probes, debugging.stops
        self._publication = core.publication
        self._hub = hub
        self._table = BreakpointTable()
        self._frames = WatchedFrames(hub, stops)
        self._sync = BreakpointSync(
            core.settings, hub, changes, probes, self._table, send_exceptions
        )
        self._published = PublishedBreakpoints(
            self._table, self._sync, hub, changes, core.log, core.publication
        )
        self.verifier = Verifier(core.settings, interpreters)
        self.events = BreakpointEvents(self._table, self._published)
        # One change at a time: a verification must still hold when its result is stored.
        self._changing = asyncio.Lock()
        self._files = Reverification(
            self._table, self.verifier, self._sync, self._published, stops, self._changing
        )

    def __len__(self) -> int:
        return len(self._table)

    # -- setting and changing

    async def add(self, params: SetBreakpoints) -> list[Breakpoint]:
        """Set all of the breakpoints, or none; the error names every bad one."""
        specs = specs_of(params)
        async with self._changing:
            batch = await self.verifier.batch()
            specs = [await self._frames.scoped(spec) for spec in specs]
            checked, bad = await _verify_all(batch, specs)
            await self._frames.bind(checked, specs)
            if bad:
                raise batch_refusal(bad, specs, single=params.breakpoints is None)
            await self.suspend(False)
            self._files.seen(batch.seen)
            stored = [self._store(entry) for entry in checked]
            ids = dict.fromkeys(id for id, _ in stored)
            await self._sync.set([self._table.one(id) for id in ids], ids.keys())
            await self._files.mark_outdated([self._table.one(id) for id in ids])
            known = {id for id, updated in stored if updated}
            self._published.journal("new", [self._table.one(id) for id in ids if id not in known])
            self._published.journal("changed", [self._table.one(id) for id in ids if id in known])
            return [
                msgspec.structs.replace(self.show(self._table.one(id)), updated=updated)
                for id, updated in stored
            ]

    async def problems(self, params: SetBreakpoints) -> list[Problem]:
        """The problems of these breakpoints; sets none."""
        specs = specs_of(params)
        _, bad = await _verify_all(await self.verifier.batch(), specs)
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
            entries, batch = await restored_entries(self.verifier, specs)
            if batch is not None:
                self._files.seen(batch.seen)
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
            batch = await self.verifier.batch()
            changed = await batch.changed(
                entry,
                condition=kept(params.condition, entry.condition),
                hit_condition=kept(params.hit_condition, entry.hit_condition),
                log_message=kept(params.log_message, entry.log_message),
                enabled=kept(params.enabled, entry.enabled),
            )
            self._files.seen(batch.seen)
            self._table.put(changed)
            await self._sync.set([changed])
            changed = self._table.one(changed.id)
            await self._files.mark_outdated([changed])
            self._published.journal("changed", [changed])
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
        self._published.journal("removed", entries)

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
            batch = await self.verifier.batch()
            specs = [await self._frames.scoped(spec) for spec in specs]
            checked, bad = await _verify_all(batch, specs, moves=True)
            if not bad:
                await self._frames.bind(checked, specs)
            await self.suspend(False)
            self._files.seen(batch.seen)
            before = {entry.id: entry.spec() for entry in self._table.owned_by(owner)}
            with contextlib.suppress(RelayError):  # a relative path without a project root
                path = self.verifier.absolute(path) if path is not None else None
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
            await self._files.mark_outdated([self._table.one(id) for id in changed])
            self._published.journal(
                "new", [self._table.one(id) for id in changed if id not in before]
            )
            self._published.journal(
                "changed", [self._table.one(id) for id in changed if id in before]
            )
            errors = dict(bad)
            good = iter(stored)
            return [
                errors[index] if index in errors else self.show(self._table.one(next(good)))
                for index in range(len(specs))
            ]

    def owned_by(self, owner: str | None) -> list[Entry]:
        """The breakpoints of one IDE; without a name those of callers of the API."""
        return self._table.owned_by(owner)

    async def disown(self, owner: str) -> None:
        """Remove all breakpoints of an IDE that has left."""
        async with self._changing:
            await self._drop(self._table.owned_by(owner))

    def _spec(self, id: str) -> dict[str, Any]:
        return self._table.one(id).spec()

    # -- reading

    async def listed(self, file: str | None, verified: bool | None) -> list[Breakpoint]:
        await self._sync.refresh_counts()
        await self._find_inherited(list(self._table.functions()))
        wanted = None
        if file:
            wanted = await asyncio.to_thread(os.path.realpath, self.verifier.absolute(file))
        entries = self._table if wanted is None else self._table.in_file(wanted)
        shown = [self.show(entry) for entry in entries]
        return [one for one in shown if verified is None or one.verified is verified]

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
        return self._published.show(entry)

    def specs(self) -> list[dict[str, Any]]:
        """The fields with which a later session can set the same breakpoints; those of joined IDEs
        are theirs to set.
        """
        return [entry.spec() for entry in self._table.owned_by(None) if not entry.of_frame]

    async def outdated(self, paths: Collection[str]) -> dict[str, frozenset[int]]:
        """For each of these files, the processes that run an older version than the one on disk."""
        return await self._files.outdated(paths)

    def skipped_lines(self, server: DebugServer, id: str) -> int:
        """The number of lines of a log point that this process has skipped and not reported."""
        return self._sync.skipped_lines(server, id)

    # -- programs

    def new_run(self) -> None:
        """Reset counts and places: a program is about to begin."""
        self._files.new_run()
        self._sync.new_run()

    async def verify_again(self) -> None:
        """Verify all breakpoints again before a launch: files and the interpreter may have
        changed.
        """
        await self._files.verify_again()

    async def send_all(self, server: DebugServer) -> None:
        """Send all breakpoints to a debug server that has none yet."""
        await self._sync.begin(server)
        self._files.reword(self._published.pids() - {server.pid})

    async def hit(
        self, server: DebugServer, location: Location, named: list[str] | None
    ) -> list[str]:
        """The breakpoints that were hit here: those that the program `named`, or all at this place.

        They are counted for a program without the probe, in which nothing else counts. One that was
        not verified is verified now.
        """
        ids = self.at(location) if named is None else [id for id in named if id in self._table]
        await self._files.before_hit(ids, named is not None)
        if not server.engine.can.decide_stops:
            for id in ids:
                if id in self._table:
                    self._table.one(id).hit_count += 1
        return ids

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
            self._files.server_gone(server)

    async def close(self) -> None:
        await self._files.close()
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
