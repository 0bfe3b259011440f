"""Opens files that only the relay writes, although their paths may hold something else.

If a FIFO or a directory has the name of one of the relay's files, the relay starts all the same: we
move it aside, for a person to look at, and never remove it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from debug_relay.protocol.system.files import FileRefused, move_aside, open_regular

# Errors of opening a directory, a FIFO that nobody reads, or a symbolic link for writing.
_NO_FILE: Final = frozenset({errno.EISDIR, errno.ENXIO, errno.ELOOP})


def open_own(path: Path, flags: int) -> tuple[int, str | None]:
    """A descriptor of the file, and the new name of what lay in its place, if anything did."""
    try:
        return open_regular(path, flags), None
    except OSError as error:
        if not isinstance(error, FileRefused) and error.errno not in _NO_FILE:
            raise
    moved_to = move_aside(path)
    return open_regular(path, flags), moved_to


def is_no_file(path: Path) -> bool:
    """Whether the path holds something that is neither a regular file nor a link to one."""
    return os.path.lexists(path) and not path.is_file()
