"""Whose process is at the other end: real sockets, real second users."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from debug_relay.protocol.system import peers as peer

NOBODY = 65534
needs_linux = pytest.mark.skipif(not peer.available(), reason="needs NETLINK_SOCK_DIAG (Linux)")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a second user")
pytestmark = needs_linux

Pair = tuple[socket.socket, socket.socket]


def connected(listening: socket.socket, client: socket.socket, address: tuple) -> Pair:
    client.settimeout(5)
    client.connect(address)
    server, _ = listening.accept()
    return client, server


def tcp_pair(
    family: int, host: str, client_family: int | None = None, client_host: str = ""
) -> Pair:
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind((host, 0))
        listening.listen(1)
        client = socket.socket(client_family or family, socket.SOCK_STREAM)
        return connected(listening, client, (client_host or host, listening.getsockname()[1]))


@pytest.fixture(
    params=[
        (socket.AF_INET, "127.0.0.1"),
        (socket.AF_INET6, "::1"),
        (socket.AF_INET6, "::", socket.AF_INET, "127.0.0.1"),  # v4-mapped at the server
        (socket.AF_INET6, "::", socket.AF_INET6, "::ffff:127.0.0.1"),  # and at the client
        (socket.AF_INET, "127.0.0.1", socket.AF_INET6, "::ffff:127.0.0.1"),
    ],
    ids=["v4", "v6", "v4-on-dual", "mapped-on-dual", "mapped-client"],
)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    try:
        client, server = tcp_pair(*request.param)
    except OSError as error:
        pytest.skip(f"this machine has no such loopback: {error}")
    yield client, server
    client.close()
    server.close()


def test_own_uid_over_tcp(pair: Pair) -> None:
    client, server = pair
    assert peer.peer_uid(server) == os.geteuid()
    assert peer.peer_uid(client) == os.geteuid()


def test_a_closed_client_has_no_uid(pair: Pair) -> None:
    client, server = pair
    client.sendall(b"GET / HTTP/1.1\r\n\r\n")
    client.close()
    assert peer.peer_uid(server) is None
    assert peer.kernel_reports(server)  # it is the client that is gone
    assert peer.has_disconnected(server)


def test_a_half_closed_client_is_still_there(pair: Pair) -> None:
    client, server = pair
    client.shutdown(socket.SHUT_WR)
    assert peer.peer_uid(server) == os.geteuid()
    assert not peer.has_disconnected(server)


def test_a_reset_connection_has_no_uid(pair: Pair) -> None:
    client, server = pair
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    assert peer.peer_uid(server) is None


def test_a_listener_on_the_port_of_a_client_that_left_is_not_the_client() -> None:
    for _ in range(20):
        client, server = tcp_pair(socket.AF_INET, "127.0.0.1")
        with server, socket.socket(socket.AF_INET, socket.SOCK_STREAM) as squatter:
            address = client.getsockname()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ends = peer._client_ends(server)
            client.close()
            try:
                squatter.bind(address)
            except OSError:
                continue  # another program was quicker to take the port
            squatter.listen(1)
            assert peer._diagnosis.uid(*ends) is None
            return
    pytest.fail("the port of a client that left was never free")


def test_a_socket_that_is_not_connected_has_no_uid() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as lonely:
        assert peer.peer_uid(lonely) is None


def test_unix(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours:
        assert peer.peer_uid(ours) == os.geteuid()
        theirs.shutdown(socket.SHUT_WR)
        assert not peer.has_disconnected(ours)
        theirs.close()
        assert peer.has_disconnected(ours)


@needs_root
def test_another_user_over_tcp() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # It changes user itself: the interpreter may lie where that user may not look.
        program = (
            "import os, socket\n"
            f"os.setgid({NOBODY}); os.setuid({NOBODY})\n"
            "s = socket.socket()\n"
            f"s.connect(('127.0.0.1', {listening.getsockname()[1]}))\n"
            "s.recv(1)\n"
        )
        stranger = subprocess.Popen([sys.executable, "-ISc", program])
        listening.settimeout(10)
        server, _ = listening.accept()
        with server:
            assert peer.peer_uid(server) == NOBODY
        assert stranger.wait(10) == 0


def test_one_netlink_socket_is_kept() -> None:
    client, server = tcp_pair(socket.AF_INET, "127.0.0.1")
    with client, server:
        assert peer.peer_uid(server) == os.geteuid()
        before = set(os.listdir("/proc/self/fd"))
        for _ in range(100):
            assert peer.peer_uid(server) == os.geteuid()
        assert set(os.listdir("/proc/self/fd")) == before


def test_it_recovers_when_its_netlink_socket_breaks() -> None:
    client, server = tcp_pair(socket.AF_INET, "127.0.0.1")
    with client, server:
        assert peer.peer_uid(server) == os.geteuid()
        assert peer._diagnosis._socket is not None
        peer._diagnosis._socket.close()
        assert peer.peer_uid(server) is None
        assert peer.peer_uid(server) == os.geteuid()
