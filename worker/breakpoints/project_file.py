"""The file with a project's saved breakpoints, for all sessions that debug it.

It defines the format and keeps the file safe: written as a whole or not at all, changed by one
process at a time, set aside when it is corrupt. Everything here blocks and runs in the disk's
thread.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from debug_relay.protocol.models.blueprint import given_fields
from debug_relay.protocol.models.breakpoints import BreakpointSpec
from debug_relay.protocol.system.files import FileRefused, read_bounded
from debug_relay.worker.storage.disk import locked, sync_directory, write_atomically

log = logging.getLogger("debug_relay.worker")

# Raise it when you add a field: an older relay must not drop that field.
VERSION: Final = 1
_LARGEST: Final = 64 * 1024 * 1024
_ASKED_ONLY: Final = frozenset({"source", "text", "must_exist"})


class SavedCorrupt(ValueError):
    """The bytes are not what a relay has written."""


class SavedByNewer(ValueError):
    """A newer relay has written it: it is whole, and not ours to read or to write over."""


def path_for(folder: Path, project_root: str) -> Path:
    root = os.path.realpath(project_root)
    return folder / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}.json"


def encode(project_root: str, specs: Iterable[BreakpointSpec]) -> bytes:
    value = {
        "version": VERSION,
        "project_root": project_root,
        "breakpoints": [_kept(spec) for spec in specs],
    }
    return msgspec.json.format(msgspec.json.encode({**value, "checksum": _checksum(value)})) + b"\n"


def decode(raw: bytes) -> list[BreakpointSpec]:
    """The breakpoints in the file; SavedCorrupt or SavedByNewer say why it cannot be read."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SavedCorrupt(str(error)) from None
    if not isinstance(value, dict) or not isinstance(value.get("version"), int):
        raise SavedCorrupt("no object with a version")
    if value["version"] > VERSION:
        raise SavedByNewer(f"version {value['version']}; this relay reads up to {VERSION}")
    checksum = value.pop("checksum", None)
    if checksum != _checksum(value):
        raise SavedCorrupt("the checksum does not match")
    try:
        return msgspec.convert(value.get("breakpoints"), list[BreakpointSpec])
    except msgspec.ValidationError as error:
        raise SavedCorrupt(str(error)) from None


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
        """None when there is no file, or when it was corrupt and is now set aside."""
        try:
            return decode(_content(self._path))
        except FileNotFoundError:
            return []
        except SavedCorrupt as error:
            _set_aside(self._path, str(error))
            return []

    def change(self, dropped: list[BreakpointSpec], put: list[BreakpointSpec]) -> None:
        """Applies changes; breakpoints of other sessions stay."""
        with locked(self._path.with_name(f".{self._path.stem}.lock")):
            kept = self.load()
            after = merged(kept, dropped, put)
            if after == kept:
                return
            if after:
                write_atomically(self._path, encode(self._root, after))
            else:
                self._path.unlink(missing_ok=True)
                sync_directory(self._path.parent)


def _key(spec: BreakpointSpec, real: dict[str, str]) -> tuple[str, str | int | None]:
    if spec.function is not None and spec.line is None:
        return f"function {spec.file or ''}", spec.function
    path = spec.file or ""
    if path not in real:
        # A file has one name here, however its path was spelt.
        real[path] = os.path.realpath(path)
    return real[path], spec.line


def _kept(spec: BreakpointSpec) -> dict[str, Any]:
    given = given_fields(spec)
    return {name: value for name, value in given.items() if name not in _ASKED_ONLY}


def _checksum(value: dict[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def _content(path: Path) -> bytes:
    try:
        return read_bounded(path, _LARGEST)
    except FileRefused as error:
        raise SavedCorrupt(error.words) from None


def _set_aside(path: Path, reason: str) -> None:
    base = f"{path}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    aside, number = base, 1
    while os.path.lexists(aside):
        aside, number = f"{base}-{number}", number + 1
    os.rename(path, aside)
    fields = {"path": str(path), "reason": reason, "moved_to": aside}
    log.error("breakpoints.corrupt", extra={"fields": fields})
