"""The file with a project's saved breakpoints, for all sessions that debug it.

This module defines the format and keeps the file safe: it is written as a whole or not at all, one
process at a time changes it, and a corrupt file is moved aside. Everything here blocks and runs in
the disk's thread.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from debug_relay.protocol.models.blueprint import given_fields
from debug_relay.protocol.models.breakpoints import BreakpointSpec
from debug_relay.protocol.system import files, json_file
from debug_relay.protocol.system.json_file import Damaged
from debug_relay.worker.storage.disk import locked

log = logging.getLogger("debug_relay.worker")

# Raise it when you add a field: an older relay must not drop that field.
VERSION: Final = 1
_ASKED_ONLY: Final = frozenset({"source", "text", "must_exist"})


class SavedByNewer(ValueError):
    """A newer relay has written the file: it is whole, and we may neither read nor replace it."""


def path_for(folder: Path, project_root: str) -> Path:
    root = os.path.realpath(project_root)
    return folder / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}.json"


def encode(project_root: str, specs: Iterable[BreakpointSpec]) -> bytes:
    value = {
        "version": VERSION,
        "project_root": project_root,
        "breakpoints": [_kept(spec) for spec in specs],
    }
    return json_file.encode({**value, "checksum": _checksum(value)})


def decode(raw: bytes) -> list[BreakpointSpec]:
    """The breakpoints in the file; raises Damaged or SavedByNewer if it cannot be read."""
    value = json_file.decode(raw)
    if not isinstance(value, dict) or not isinstance(value.get("version"), int):
        raise Damaged("no object with a version")
    if value["version"] > VERSION:
        raise SavedByNewer(f"version {value['version']}; this relay reads up to {VERSION}")
    checksum = value.pop("checksum", None)
    if checksum != _checksum(value):
        raise Damaged("the checksum does not match")
    try:
        return msgspec.convert(value.get("breakpoints"), list[BreakpointSpec])
    except msgspec.ValidationError as error:
        raise Damaged(str(error)) from None


def merged(
    kept: Iterable[BreakpointSpec],
    dropped: Iterable[BreakpointSpec],
    put: Iterable[BreakpointSpec],
) -> list[BreakpointSpec]:
    """One breakpoint per line or function; `put` replaces an existing one in its place."""
    real: dict[str, str] = {}
    result = {_key(spec, real): spec for spec in kept}
    fresh = {_key(spec, real): spec for spec in put}
    for key in (_key(spec, real) for spec in dropped):
        if key not in fresh:
            result.pop(key, None)
    return list({**result, **fresh}.values())


class SavedFile:
    """The file of one project."""

    def __init__(self, folder: Path, project_root: str) -> None:
        self._root = os.path.realpath(project_root)
        self._path = path_for(folder, project_root)

    def load(self) -> list[BreakpointSpec]:
        """The breakpoints in the file; none if there is no file, or a corrupt one, now moved
        aside.
        """
        try:
            return decode(json_file.content(self._path))
        except FileNotFoundError:
            return []
        except Damaged as error:
            _set_aside(self._path, str(error))
            return []

    def change(self, dropped: list[BreakpointSpec], put: list[BreakpointSpec]) -> None:
        """Apply changes; breakpoints of other sessions stay."""
        with locked(self._path.with_name(f".{self._path.stem}.lock")):
            kept = self.load()
            after = merged(kept, dropped, put)
            if after == kept:
                return
            if after:
                files.write_whole(self._path, encode(self._root, after))
            else:
                self._path.unlink(missing_ok=True)
                files.sync_directory(self._path.parent)


def _key(spec: BreakpointSpec, real: dict[str, str]) -> tuple[str, str | int | None]:
    if spec.watch is not None:
        return f"watch {spec.watch}", msgspec.json.encode(spec.scope).decode()
    if spec.function is not None and spec.line is None:
        return f"function {spec.file or ''}", spec.function
    path = spec.file or ""
    if path not in real:
        # A file has one key, whichever of its paths was used.
        real[path] = os.path.realpath(path)
    return real[path], spec.line


def _kept(spec: BreakpointSpec) -> dict[str, Any]:
    given = given_fields(spec)
    return {name: value for name, value in given.items() if name not in _ASKED_ONLY}


def _checksum(value: dict[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def _set_aside(path: Path, reason: str) -> None:
    fields = {"path": str(path), "reason": reason, "moved_to": files.move_aside(path)}
    log.error("breakpoints.corrupt", extra={"fields": fields})
