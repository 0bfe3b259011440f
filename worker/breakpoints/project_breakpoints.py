"""Writes the session's breakpoint changes into its project's file.

It writes changes and never the whole list, so that several sessions of one project keep each
other's breakpoints. A change that the disk refuses is tried again with the next one.
"""

from __future__ import annotations

import logging
from pathlib import Path

from msgspec import Struct

from debug_relay.protocol.models.breakpoints import BreakpointSpec
from debug_relay.worker.breakpoints.project_file import SavedByNewer, SavedFile
from debug_relay.worker.breakpoints.requests import spec_of
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.state.settings import Settings
from debug_relay.worker.storage.disk import Disk, Job, Keeper

log = logging.getLogger("debug_relay.worker")


class _Change(Struct):
    """A change of one breakpoint that the file does not contain yet."""

    put: BreakpointSpec | None
    dropped: BreakpointSpec | None


class SavedBreakpoints:
    def __init__(self, settings: Settings, breakpoints: Breakpoints, disk: Disk) -> None:
        self._settings = settings
        self._breakpoints = breakpoints
        self._disk = disk
        self._folder = Path(self._settings.params.breakpoints_dir)
        self._keeper = Keeper(disk, "saved breakpoints", self._next_job, self._written)
        self._root = self._settings.config.project_root
        self._known: dict[str, BreakpointSpec] = {}  # id → breakpoint as last written to the file
        # root → id → change: those to write, and those that the present write contains.
        self._waiting: dict[str, dict[str, _Change]] = {}
        self._writing: dict[str, dict[str, _Change]] = {}

    def note(self) -> None:
        """Marks the session's present breakpoints as known to the file."""
        self._root = self._settings.config.project_root
        self._known = self._present()

    async def save(self) -> bool:
        """Bring the file up to date; true if it is, or if there is none to write."""
        root = self._settings.config.project_root
        if root != self._root:
            # The session has another project now, to which all its breakpoints are new.
            self._root, self._known = root, {}
        if root is None:
            return True
        before, self._known = self._known, self._present()
        changes = self._waiting.setdefault(root, {})
        for id, spec in self._known.items():
            if before.get(id) != spec:
                changes[id] = _Change(spec, before.get(id))
        for id in before.keys() - self._known.keys():
            changes[id] = _Change(None, before[id])
        if any(self._waiting.values()):
            self._keeper.ask()
        return await self._keeper.settled()

    async def load(self) -> list[BreakpointSpec]:
        """The breakpoints saved for the project root, whichever session set them."""
        root = self._settings.config.project_root
        if root is None:
            return []
        found: list[BreakpointSpec] = []

        def read() -> None:
            found.extend(SavedFile(self._folder, root).load())

        try:
            await self._disk.run(read)
        except (OSError, SavedByNewer) as error:
            fields = {"project_root": root, "error": str(error)}
            log.error("breakpoints.not_loaded", extra={"fields": fields})
        return found

    async def close(self) -> None:
        await self._keeper.close()

    def _present(self) -> dict[str, BreakpointSpec]:
        return {kept["id"]: spec_of(kept) for kept in self._breakpoints.specs()}

    def _next_job(self) -> Job:
        writing = {root: dict(changes) for root, changes in self._waiting.items() if changes}
        self._writing = writing

        def write() -> None:
            for root, changes in writing.items():
                dropped = [one.dropped for one in changes.values() if one.dropped is not None]
                put = [one.put for one in changes.values() if one.put is not None]
                SavedFile(self._folder, root).change(dropped, put)

        return write

    def _written(self) -> None:
        for root, changes in self._writing.items():
            waiting = self._waiting[root]
            for id, change in changes.items():
                # A breakpoint that changed again meanwhile waits for the next write.
                if waiting.get(id) is change:
                    del waiting[id]
