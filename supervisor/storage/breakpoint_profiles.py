"""Breakpoint profiles: named lists of breakpoints that any session can apply.

Each profile is a file. If the disk refuses a change, we keep it in memory and try again later. The
session that applies a profile verifies its lines and conditions.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from pathlib import Path
from typing import Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.blueprint import given_fields
from debug_relay.protocol.models.breakpoints import (
    BreakpointSpec,
    ProfileData,
    ProfileItem,
    ProfileKept,
    ProfileList,
)
from debug_relay.protocol.models.fields import Deleted
from debug_relay.protocol.refusals import Problem
from debug_relay.protocol.system import json_file
from debug_relay.protocol.version import API_PREFIX
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.storage.json_files import read_json, set_aside

_log: Final = Log(__name__)
_VERSION: Final = 1
_MOST_SUGGESTED: Final = 10  # Names of existing profiles in a refusal.
_MOST_PROFILES: Final = 1000  # Breakpoint profiles.
_MOST_BYTES: Final = 8 * 1024 * 1024  # One breakpoint profile.
_MOST_BYTES_IN_ALL: Final = 64 * 1024 * 1024  # All breakpoint profiles together.


class Profiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Changes that the disk has refused: a list to write, or None to remove the file.
        self._unwritten: dict[str, list[BreakpointSpec] | None] = {}
        # One call at a time: a listing sees all or nothing of a change.
        self._turn = asyncio.Lock()

    async def listed(self, offset: int, limit: int) -> ProfileList:
        async with self._turn:
            return await asyncio.to_thread(self._page, offset, limit)

    async def shown(self, name: str) -> ProfileData:
        return _shown(name, await self.specs(name))

    async def specs(self, name: str) -> list[BreakpointSpec]:
        """The breakpoints of a profile, as a session is asked to set them."""
        async with self._turn:
            specs = await asyncio.to_thread(self._read, name)
            if specs is None:
                raise self._not_found(name, await asyncio.to_thread(self._names))
        return specs

    async def put(self, name: str, specs: list[BreakpointSpec]) -> ProfileKept:
        kept = [_normal(spec) for spec in specs]
        async with self._turn:
            await asyncio.to_thread(self._require_room, name, kept)
            persisted = await asyncio.to_thread(self._write, name, kept)
        shown = _shown(name, kept)
        return ProfileKept(name=name, breakpoints=shown.breakpoints, persisted=persisted)

    async def delete(self, name: str) -> Deleted:
        async with self._turn:
            if await asyncio.to_thread(self._read, name) is None:
                raise self._not_found(name, await asyncio.to_thread(self._names))
            await asyncio.to_thread(self._write, name, None)
        return Deleted(id=name)

    # -- on disk; these block

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _page(self, offset: int, limit: int) -> ProfileList:
        names = self._names()
        page = names[offset : offset + limit]
        found = [(name, self._read(name)) for name in page]
        items = [
            ProfileItem(name=name, breakpoint_count=len(specs))
            for name, specs in found
            if specs is not None
        ]
        return ProfileList(
            items=items,
            total=len(names) - (len(found) - len(items)),  # damaged ones are set aside now
            offset=offset,
            limit=limit,
            has_more=offset + len(page) < len(names),
        )

    def _require_room(self, name: str, specs: list[BreakpointSpec]) -> None:
        others = [other for other in self._names() if other != name]
        if len(others) >= _MOST_PROFILES:
            raise RelayError(
                Code.INVALID_REQUEST,
                f"There are {len(others)} breakpoint profiles, and no more are kept",
                f"DELETE {API_PREFIX}/breakpoint-profiles/{others[0]}, or another that GET "
                f"{API_PREFIX}/breakpoint-profiles lists.",
                errors=[Problem("name", f"would be one more than {_MOST_PROFILES}", name)],
            )
        size = len(_content(name, specs))
        taken = sum(map(self._size, others))
        if size > _MOST_BYTES or taken + size > _MOST_BYTES_IN_ALL:
            raise RelayError(
                Code.REQUEST_TOO_LARGE,
                f"The profile has {size} bytes; at most {_MOST_BYTES} are kept of one, and "
                f"{_MOST_BYTES_IN_ALL} of all, of which {taken} are taken",
                f"Keep fewer breakpoints in it, or DELETE {API_PREFIX}/breakpoint-profiles/NAME.",
                max_bytes=_MOST_BYTES,
                bytes_of_others=taken,
            )

    def _size(self, name: str) -> int:
        unwritten = self._unwritten.get(name)
        if unwritten is not None:
            return len(_content(name, unwritten))
        with contextlib.suppress(OSError):  # a person has just removed it
            return self._path(name).stat().st_size
        return 0

    def _names(self) -> list[str]:
        there = {path.stem for path in self._folder.glob("[!.]*.json")}
        there.update(name for name, specs in self._unwritten.items() if specs is not None)
        return sorted(there - {name for name, specs in self._unwritten.items() if specs is None})

    def _read(self, name: str) -> list[BreakpointSpec] | None:
        if name in self._unwritten:
            return self._unwritten[name]
        value = read_json(self._path(name))
        if value is None:
            return None
        try:
            return msgspec.convert(value["breakpoints"], list[BreakpointSpec])
        except (msgspec.ValidationError, KeyError, TypeError) as error:
            set_aside(self._path(name), str(error))
            return None

    def _write(self, name: str, specs: list[BreakpointSpec] | None) -> bool:
        """Writes this change and those that the disk refused before; whether it has this one."""
        self._unwritten[name] = specs
        for waiting, content in list(self._unwritten.items()):
            try:
                self._write_one(waiting, content)
            except OSError as error:
                _log.warning("profile.not_written", name=waiting, reason=str(error))
            else:
                del self._unwritten[waiting]
        return name not in self._unwritten

    def _write_one(self, name: str, specs: list[BreakpointSpec] | None) -> None:
        if specs is None:
            self._path(name).unlink(missing_ok=True)
            return
        json_file.write(self._path(name), msgspec.Raw(_content(name, specs)))

    def _not_found(self, name: str, known: list[str]) -> RelayError:
        near = difflib.get_close_matches(name, known, 1, 0.5)
        listed = f"GET {API_PREFIX}/breakpoint-profiles lists them"
        return RelayError(
            Code.PROFILE_NOT_FOUND,
            f"There is no breakpoint profile {name}",
            f"Did you mean {near[0]}? {listed}."
            if near
            else f"{listed}; existing ones: {', '.join(known[:_MOST_SUGGESTED]) or 'none'}.",
            name=name,
            closest=near[0] if near else None,
            profiles=known[:_MOST_SUGGESTED],
        )


def _content(name: str, specs: list[BreakpointSpec]) -> bytes:
    breakpoints = [given_fields(spec) for spec in specs]
    return encode_json({"version": _VERSION, "name": name, "breakpoints": breakpoints})


def _normal(spec: BreakpointSpec) -> BreakpointSpec:
    """The breakpoint with its path in `file`, however it was sent."""
    if spec.source is None:
        return spec
    return msgspec.structs.replace(spec, source=None, file=spec.source.path)


def _shown(name: str, specs: list[BreakpointSpec]) -> ProfileData:
    return ProfileData(name=name, breakpoints=[given_fields(spec) for spec in specs])
