"""Finds the processes of this machine behind a port on which debugpy listens.

With `debugpy --listen` the listener is debugpy's adapter, a process of its own. The program is
neither its parent nor its child: it is at the other end of one of the adapter's connections. The
kernel knows these ends even while the program hangs and cannot report its pid.
"""

from __future__ import annotations

import os
import time
from itertools import islice
from typing import Final

from debug_relay.protocol.system import procfs

_MOST_CONNECTIONS: Final = 20_000  # Connections of this machine that are looked at.
_MOST_PROCESSES: Final = 20  # Processes that are named behind a port.
_LOOK_SECONDS: Final = 1.0  # The search for the processes behind a port.


def processes_behind(port: int) -> list[int]:
    """The listeners on the port and the processes connected to them, as far as we may see them.

    Blocks for up to a second on a machine with many processes.
    """
    deadline = time.monotonic() + _LOOK_SECONDS
    own = os.getpid()
    inodes = {one.inode for one in procfs.listeners(own) if one.port == port}
    listening = _owners(inodes, deadline)
    theirs = {inode for pid in listening for inode in procfs.sockets(pid)}
    connections = list(islice(procfs.connections(own), _MOST_CONNECTIONS))
    # The two ends of a connection are matched by their ports alone: one end may have an IPv4
    # address that is mapped to IPv6, and the other the plain one.
    ends = {(one.peer_port, one.port) for one in connections if one.inode in theirs}
    other = {one.inode for one in connections if (one.port, one.peer_port) in ends} - theirs
    found = [*listening, *_owners(other, deadline)]
    return [pid for pid in found if pid != own][:_MOST_PROCESSES]


def _owners(inodes: set[str], deadline: float) -> list[int]:
    """The processes that have one of these sockets open."""
    if not inodes:
        return []
    found: list[int] = []
    for pid in procfs.pids():
        if time.monotonic() > deadline:
            break
        if inodes & procfs.sockets(pid):
            found.append(pid)
    return found
