"""The lease of a session whose worker has retired: in a file, until it lapses or a worker has it.

The worker writes the file when it retires. The session's next worker carries the lease on and
removes the file; if the lease lapses before, the supervisor does. So the file exists as long as the
lease has not ended, and its end is told once.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from debug_relay.protocol.models.retired_session import LEASE_FILE, HeldLease
from debug_relay.protocol.system.procfs import boot_id
from debug_relay.supervisor.storage.json_files import read_json


def read(folder: Path) -> HeldLease | None:
    """None if there is none; a damaged file is as good as none."""
    value = read_json(folder / LEASE_FILE)
    try:
        return None if value is None else msgspec.convert(value, HeldLease)
    except msgspec.ValidationError:
        return None


def has_lapsed(lease: HeldLease) -> bool:
    return lease.boot_id != boot_id() or lease.until <= time.monotonic()


def remove(folder: Path) -> None:
    """Raises OSError where the disk is read-only."""
    (folder / LEASE_FILE).unlink(missing_ok=True)
