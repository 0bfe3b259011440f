"""The TCP ports that processes listen on, as far as the kernel shows them to this user. Blocks."""

from __future__ import annotations

import ipaddress
import os
import sys
from typing import Final

from debug_relay.protocol.system import procfs
from debug_relay.protocol.system.users import user

# The command line of the process that holds our port is shown up to this length.
_SHOWN_CHARACTERS: Final = 200


class Listeners:
    """The ports of many processes; reads the kernel's tables once for all of them."""

    def __init__(self) -> None:
        self._ports: dict[str, dict[str, int]] = {}  # network → inode of the socket → port

    def of(self, pid: int) -> list[int]:
        inodes = procfs.sockets(pid)
        if not inodes:
            return []
        ports = self._listened_on(pid)
        return sorted({ports[inode] for inode in inodes & ports.keys()})

    def _listened_on(self, pid: int) -> dict[str, int]:
        network = procfs.namespace(pid, "net")
        if network is None:
            return {}  # the process has ended, or is another user's
        if network not in self._ports:
            self._ports[network] = {one.inode: one.port for one in procfs.listeners(pid)}
        return self._ports[network]


def port_holder(host: str, port: int) -> str | None:
    """The process that listens on the port, for the message that the port is in use."""
    for listener in procfs.listeners(os.getpid()):
        if listener.port == port and _meets(host, _address(listener.address)):
            pid = _process_with(listener.inode)
            if pid is None:
                return f"a process of {user(listener.uid)} that this user cannot look into"
            return f"pid {pid} ({_command(pid)}) of {user(listener.uid)}"
    return None


def _address(printed: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    # The kernel prints each 32 bits of the address as a number of this machine.
    words = (int(printed[at : at + 8], 16) for at in range(0, len(printed), 8))
    return ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))


def _meets(host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        wanted = ipaddress.ip_address(host)
    except ValueError:
        return True  # a host name: any listener on the port may be the one
    if wanted.is_unspecified or address.is_unspecified:
        return True
    return wanted in (address, getattr(address, "ipv4_mapped", None))


def _process_with(inode: str) -> int | None:
    return next((pid for pid in procfs.pids() if inode in procfs.sockets(pid)), None)


def _command(pid: int) -> str:
    text = " ".join(procfs.command(pid))
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
