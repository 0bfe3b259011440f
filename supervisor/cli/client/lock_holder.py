"""Finds the relay that holds a data directory, and where it listens, by what the kernel says.

Its disk may have no room for `relay.json`. Only the relay's own user and root may read this, so
what is found is nobody else's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

_LISTENS = "0A"  # the state of a TCP socket
_ACCEPTS = "00010000"  # the flags of a Unix socket that listens
_ANY = ("00000000", "0" * 32)
_LOOPBACK = {"0100007F": "127.0.0.1", "0" * 24 + "01000000": "[::1]"}


def holder(folder: str) -> int | None:
    """The relay's pid. The kernel's list is read: to try the lock would keep a relay from starting
    at this moment.
    """
    try:
        held = os.stat(folder)
        with open("/proc/locks", encoding="ascii") as file:
            locks = [line.split() for line in file]
    except (OSError, ValueError):
        return None
    inode = f"{os.major(held.st_dev):02x}:{os.minor(held.st_dev):02x}:{held.st_ino}"
    return next((int(lock[4]) for lock in locks if lock[1] == "FLOCK" and lock[5] == inode), None)


def address_of(pid: int) -> str | None:
    """The address at which this process accepts connections from here; None if it has none."""
    try:
        links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return None  # another user's, or it ends
    sockets = {link[8:-1] for link in links if link.startswith("socket:[")}
    return next(_addresses(pid, sockets), None)


def _addresses(pid: int, sockets: set[str]) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        for row in _rows(f"/proc/{pid}/net/{table}"):
            host, _, port = row[1].partition(":")
            if row[3] == _LISTENS and row[9] in sockets and host in (*_ANY, *_LOOPBACK):
                yield f"http://{_LOOPBACK.get(host, '127.0.0.1')}:{int(port, 16)}"
    for row in _rows(f"/proc/{pid}/net/unix"):
        if row[6] in sockets and len(row) > 7 and row[7].endswith(".sock"):
            yield f"unix://{row[7]}"


def _rows(path: str) -> list[list[str]]:
    with suppress(OSError), open(path, encoding="utf-8", errors="surrogateescape") as file:
        return [line.split() for line in file][1:]
    return []
