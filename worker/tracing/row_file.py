"""The file with the rows of a trace: made before the trace, and readable while the probe writes it.

The probe in the program writes the rows (`probe/tracing/ring_writer.py`).
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Final

from debug_relay.protocol.models.execution import Execution, TraceRows
from debug_relay.protocol.models.retired_session import TraceRecord
from debug_relay.protocol.trace_pages import Measure, PageSize, ending_of, page_of
from debug_relay.protocol.wire.ring_format import HEADER
from debug_relay.worker.storage.ring_writer import Ring

_LEAST_BYTES: Final = 1 << 20  # The smallest ring of a trace's rows.
_MOST_BYTES: Final = 32 << 20  # The largest ring of a trace's rows.
_ROW_BYTES: Final = 1024  # The room that is reserved for one row.


def make_file(path: Path, max_rows: int) -> None:
    """Create a new, empty file with all blocks allocated. The program maps it, and a hole on a full
    disk would kill the program with SIGBUS.
    """
    capacity = min(max(max_rows * _ROW_BYTES, _LEAST_BYTES), _MOST_BYTES)
    Ring(path, capacity).close()
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.posix_fallocate(fd, 0, HEADER + capacity)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def read_page(
    path: Path,
    session_id: str,
    trace: TraceRecord,
    cursor: str | None,
    most: PageSize,
    now: Execution,
    measure: Measure,
    from_first: bool,
) -> TraceRows:
    """The rows from `cursor` on. Without one: the last rows of a trace that is over, and the first
    ones of a trace that runs, or if they are wanted by `from_first`.
    """
    wants_last = cursor is None and trace.ended is not None and not from_first
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        read = partial(os.pread, fd)
        if wants_last:
            return ending_of(read, session_id, trace, most, now, measure)
        return page_of(read, session_id, trace, cursor, most, now, measure)
    finally:
        os.close(fd)
