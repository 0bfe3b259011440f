"""Files that the relay alone writes, where something else may lie in their place.

A FIFO or a directory under the name of a file of ours holds up no start and is not removed: it is
kept under another name, for a person to look at.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from debug_relay.protocol.system.files import FileRefused, move_aside, open_regular

# Of what cannot be opened for writing as a file: directories, FIFOs that nobody reads, links.
_NO_FILE: Final = frozenset({errno.EISDIR, errno.ENXIO, errno.ELOOP})


def open_own(path: Path, flags: int) -> tuple[int, str | None]:
    """A descriptor of the file, and where that was moved to which lay in its place."""
    try:
        return open_regular(path, flags), None
    except OSError as error:
        if not isinstance(error, FileRefused) and error.errno not in _NO_FILE:
            raise
    moved_to = move_aside(path)
    return open_regular(path, flags), moved_to


def is_no_file(path: Path) -> bool:
    """Whether something lies there that is no regular file, nor leads to one."""
    return os.path.lexists(path) and not path.is_file()
