"""The lease of a session whose worker has retired: a file, until the lease lapses or a worker has
it.

The worker writes the file when it retires. The session's next worker takes over the lease and
removes the file; if the lease lapses before, the supervisor removes it. So the file exists as long
as the lease, and the end of the lease is journaled once.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from debug_relay.protocol.models.retired_session import LEASE_FILE, HeldLease
from debug_relay.protocol.system.procfs import boot_id
from debug_relay.supervisor.storage.json_files import read_json


def read(folder: Path) -> HeldLease | None:
    """The lease in the file; None if there is none, or the file is damaged."""
    value = read_json(folder / LEASE_FILE)
    try:
        return None if value is None else msgspec.convert(value, HeldLease)
    except msgspec.ValidationError:
        return None


def has_lapsed(lease: HeldLease) -> bool:
    return lease.boot_id != boot_id() or lease.until <= time.monotonic()


def remove(folder: Path) -> None:
    """Remove the file; raises OSError if the disk is read-only."""
    (folder / LEASE_FILE).unlink(missing_ok=True)
