"""The uid of the process at the other end of a local connection, as the kernel knows it.

Loopback TCP: one exact NETLINK_SOCK_DIAG query for the client's socket. Unix sockets: SO_PEERCRED.
This module identifies the peer and says whether it is still connected; the access guard decides
whether it is admitted.
"""

from __future__ import annotations

import atexit
import select
import socket
import struct
import sys
import threading
from asyncio.trsock import TransportSocket
from typing import Final, NamedTuple

AnySocket = socket.socket | TransportSocket

_LINUX: Final = sys.platform == "linux"
_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_NO_COOKIE: Final = 0xFFFFFFFF
_ALL_STATES: Final = 0xFFFFFFFF
# The kernel answers within the send itself; this bounds what should never happen.
_ANSWER_SECONDS: Final = 0.05

_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_QUERY: Final = struct.Struct("=BBBxI")  # family, protocol, extensions, states
_ENDS: Final = struct.Struct("!HH16s16s")  # own port, the peer's port, both addresses
_TAIL: Final = struct.Struct("=III")  # interface, cookie
_COUNTS: Final = struct.Struct("=IIIII")  # expires, receive queue, send queue, uid, inode
_LOOPBACK_6: Final = socket.inet_pton(socket.AF_INET6, "::1")
_FIXED: Final = 4  # family, state, timer, retransmits
_ANSWER_LENGTH: Final = _HEADER.size + _FIXED + _ENDS.size + _TAIL.size + _COUNTS.size
_CREDENTIALS: Final = struct.Struct("=iII")  # pid, uid, gid


class _Ends(NamedTuple):
    """A TCP connection as the client's socket sees it; addresses packed, never v4-mapped."""

    port: int
    peer_port: int
    address: bytes
    peer_address: bytes


def available() -> bool:
    """Whether this system can report the uid behind a loopback TCP connection."""
    return _LINUX


def peer_uid(sock: AnySocket) -> int | None:
    """The uid of the process at the other end; None if the kernel knows of none."""
    if sock.family == socket.AF_UNIX:
        return _unix_uid(sock)
    if not _LINUX or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        return _diagnosis.uid(*_client_ends(sock))
    except OSError:  # The client has reset the connection, or netlink is unavailable: refuse.
        return None


def kernel_reports(sock: AnySocket) -> bool:
    """Whether the kernel reports on this connection at all, tested with our own end of it.

    Some sandboxes (gVisor) have no NETLINK_SOCK_DIAG: there no peer has a uid.
    """
    try:
        client, interface = _client_ends(sock)
        own = _Ends(client.peer_port, client.port, client.peer_address, client.address)
        return _diagnosis.uid(own, interface) is not None
    except OSError:
        return False


def comes_from_elsewhere(sock: AnySocket) -> bool:
    """Whether a TCP connection uses no loopback address at either end.

    The kernel names the user only behind connections over loopback. A packet from another machine
    that was redirected to our loopback address has one such end, and so does not count here.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        client, _ = _client_ends(sock)
    except OSError:
        return False
    return not (_is_loopback(client.address) or _is_loopback(client.peer_address))


def has_disconnected(sock: AnySocket) -> bool:
    """Distinguishes a client that closed from one that only shut its sending half.

    Where the kernel cannot say, a client that has shut its sending half counts as gone.
    """
    if sock.family != socket.AF_UNIX:
        return peer_uid(sock) is None
    poll = select.poll()
    poll.register(sock.fileno(), 0)
    return any(
        event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0)
    )


def _unix_uid(sock: AnySocket) -> int | None:
    if not _LINUX:
        return None
    try:
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return None
    _pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return int(uid)


def _client_ends(sock: AnySocket) -> tuple[_Ends, int]:
    client, own = sock.getpeername(), sock.getsockname()
    interface = client[3] if len(client) == 4 else 0
    return _Ends(client[1], own[1], _packed(client[0]), _packed(own[0])), interface


def _packed(address: str) -> bytes:
    if ":" not in address:
        return socket.inet_pton(socket.AF_INET, address)
    return _unmapped(socket.inet_pton(socket.AF_INET6, address.partition("%")[0]))


def _unmapped(packed: bytes) -> bytes:
    """The v4 address of a v4-mapped one: the kernel keeps such connections in its v4 table."""
    mapped = packed[:12] == b"\0" * 10 + b"\xff\xff"
    return packed[12:] if mapped else packed


def _is_loopback(packed: bytes) -> bool:
    return packed[0] == 127 if len(packed) == 4 else packed == _LOOPBACK_6


class _Diagnosis:
    """One netlink socket, opened with the first query and kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._sequence = 0

    def uid(self, ends: _Ends, interface: int) -> int | None:
        with self._lock:
            try:
                answer = self._ask(ends, interface)
            except OSError:
                # A late answer would be read as the next query's answer, so we start with a new
                # socket.
                self.close()
                raise
        return _uid_in(answer, ends)

    def _ask(self, ends: _Ends, interface: int) -> bytes:
        if self._socket is None:
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
            )
            self._socket.settimeout(_ANSWER_SECONDS)
            self._socket.connect((0, 0))  # accept answers from the kernel only
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        family = socket.AF_INET if len(ends.address) == 4 else socket.AF_INET6
        query = (
            _QUERY.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES)
            + _ENDS.pack(*ends)
            + _TAIL.pack(interface, _NO_COOKIE, _NO_COOKIE)
        )
        length = _HEADER.size + len(query)
        header = _HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, self._sequence, 0)
        self._socket.send(header + query)
        answer = self._socket.recv(4096)
        if len(answer) < _HEADER.size or _HEADER.unpack_from(answer)[3] != self._sequence:
            raise OSError("netlink answered another question")
        return answer

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _uid_in(answer: bytes, wanted: _Ends) -> int | None:
    if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY or len(answer) < _ANSWER_LENGTH:
        return None  # an error message: there is no such socket
    at = _HEADER.size
    family = answer[at]
    port, peer_port, address, peer_address = _ENDS.unpack_from(answer, at + _FIXED)
    if family == socket.AF_INET:
        address, peer_address = address[:4], peer_address[:4]
    found = _Ends(port, peer_port, _unmapped(address), _unmapped(peer_address))
    # If there is no such connection, the kernel falls back to a listener on the client's port.
    if found != wanted:
        return None
    *_, uid, inode = _COUNTS.unpack_from(answer, at + _FIXED + _ENDS.size + _TAIL.size)
    # A socket that its process has closed has no inode, and its uid then reads as 0: root.
    return int(uid) if inode else None


_diagnosis: Final = _Diagnosis()
atexit.register(_diagnosis.close)
