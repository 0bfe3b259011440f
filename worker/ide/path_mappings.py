"""The same files under the IDE's paths and under the session's: `pathMappings` of `attach`."""

from __future__ import annotations

import ntpath
import posixpath
import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

_DRIVE: Final = re.compile(r"[A-Za-z]:[\\/]|\\\\")


class PathMapping(Struct, rename="camel"):
    local_root: str | None = None
    remote_root: str | None = None


class PathMappings:
    """The first mapping whose folder contains the path counts, as in debugpy."""

    def __init__(self, given: Sequence[PathMapping]) -> None:
        self._pairs = [
            (mapping.local_root, mapping.remote_root)
            for mapping in given
            # `.` as the remote folder means none, and `${…}` is a variable the IDE did not know.
            if mapping.local_root
            and mapping.remote_root
            and mapping.remote_root != "."
            and "${" not in mapping.local_root
        ]

    def to_session(self, path: str) -> str:
        for local, remote in self._pairs:
            rest = _below(path, local)
            if rest is not None:
                return posixpath.join(remote, *rest) if rest else remote
        return path

    def to_ide(self, path: str) -> str:
        for local, remote in self._pairs:
            rest = _below(path, remote)
            if rest is not None:
                join = ntpath.join if _DRIVE.match(local) else posixpath.join
                return join(local, *rest)
        return path


def _below(path: str, folder: str) -> list[str] | None:
    """The parts of a path below a folder; None if it is elsewhere."""
    windows = _DRIVE.match(folder) is not None
    parts, head = _parts(path, windows), _parts(folder, windows)
    same = [part.lower() if windows else part for part in parts[: len(head)]]
    wanted = [part.lower() if windows else part for part in head]
    return parts[len(head) :] if same == wanted else None


def _parts(path: str, windows: bool) -> list[str]:
    if windows:
        path = path.replace("\\", "/")
    return [part for part in path.split("/") if part]
