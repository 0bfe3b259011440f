"""Warnings about the disk for `/health`; none of them ends a session.

It checks the file systems of the relay's directories, and collects the warnings of other parts that
could not write a file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from debug_relay.supervisor.storage.directories import Directories

# With less free space `/health` warns: the files of a new session need more.
LITTLE_BYTES: Final = 64 * 1024

Warner = Callable[[], str | None]


class DiskWatch:
    def __init__(
        self,
        directories: Directories,
        others: Iterable[Warner],
        sessions: Callable[[], list[str]],
    ) -> None:
        self._directories = directories
        self._others = tuple(others)
        self._sessions = sessions

    def warnings(self) -> list[str]:
        others = (self._directories.warning, *self._others)
        said = (warning for other in others if (warning := other()))
        return [*self._file_systems(), *said, *self._sessions()]

    def _file_systems(self) -> Iterator[str]:
        seen = set()
        for folder in (self._directories.data_dir, self._directories.run_dir):
            try:
                device, about = os.stat(folder).st_dev, os.statvfs(folder)
            except OSError as error:
                yield f"{folder} cannot be read: {error.strerror}"
                continue
            if device not in seen:
                seen.add(device)
                yield from _trouble_of(folder, about)


def _trouble_of(folder: Path, about: os.statvfs_result) -> Iterator[str]:
    left = about.f_bavail * about.f_frsize
    if about.f_flag & os.ST_RDONLY:
        yield f"the file system of {folder} is read-only"
    elif left < LITTLE_BYTES:
        yield f"the file system of {folder} has {left} bytes left"
    elif about.f_files and not about.f_favail:
        yield f"the file system of {folder} has no room for another file"
    elif not os.access(folder, os.W_OK):
        yield f"{folder} cannot be written to"
