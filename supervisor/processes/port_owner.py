"""Who listens on a port, as far as the kernel tells this user.

For the message that a port is in use. Reads /proc; blocks, briefly.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from debug_relay.supervisor.storage.directories import read_text, user


def port_holder(host: str, port: int) -> str | None:
    """Who listens there, as far as this user can see; for the message that a port is in use."""
    for address, uid, inode in _listening(port):
        if _meets(host, address):
            pid = _process_with(f"socket:[{inode}]")
            if pid is None:
                return f"a process of {user(uid)} that this user cannot look into"
            return f"pid {pid} ({_command(pid)}) of {user(uid)}"
    return None


def _listening(
    port: int,
) -> Iterator[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int, str]]:
    for table in ("tcp", "tcp6"):
        for row in (read_text(Path("/proc/net", table)) or "").splitlines()[1:]:
            _, local, _, state, _, _, _, uid, _, inode, *_ = row.split()
            address, _, at = local.partition(":")
            if state == "0A" and int(at, 16) == port:
                # The kernel prints each 32 bits of the address as a number of this machine.
                words = (int(address[i : i + 8], 16) for i in range(0, len(address), 8))
                packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
                yield ipaddress.ip_address(packed), int(uid), inode


def _meets(host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        asked = ipaddress.ip_address(host)
    except ValueError:
        return True  # a name: any listener on the port may be the one in the way
    if asked.is_unspecified or address.is_unspecified:
        return True
    return asked in (address, getattr(address, "ipv4_mapped", None))


def _process_with(link: str) -> int | None:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            for name in os.listdir(process / "fd"):
                # One descriptor may be closed meanwhile; the next may be the one.
                with contextlib.suppress(FileNotFoundError):
                    if os.readlink(process / "fd" / name) == link:
                        return int(process.name)
    return None


def _command(pid: int) -> str:
    raw = (read_text(Path(f"/proc/{pid}/cmdline")) or "").replace("\0", " ")
    return raw if len(raw) <= 200 else raw[:200] + "…"
