"""Clients that send garbage, stall, flood or come from a web page: others do not notice."""

from __future__ import annotations

import http.client
import itertools
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psutil
import pytest

from debug_relay.protocol.system import peers as peer
from tests.kit.client import Client
from tests.kit.relay import Relay, eventually
from tests.kit.wire import Wire, parsed, received

NOBODY = 65534
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
MEGABYTE = 1024 * 1024
THREADS = 8
REQUESTS = 2_000


@pytest.fixture
def wire(relay: Client) -> Wire:
    return Wire(relay)


GARBAGE = {
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 32 + b"\r\n\r\n",
    "word": b"GARBAGE\r\n\r\n",
    "nul": b"\0" * 1000 + b"\r\n\r\n",
    "random": random.Random(1).randbytes(4096) + b"\r\n\r\n",
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "redis": b"*1\r\n$4\r\nPING\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    "name with space": b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "folded": b"GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n",
    "negative length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "smuggled": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / ",
    "long line": b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "long header": b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 1000 + b"\r\n",
}


@pytest.mark.parametrize("sent", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_http(relay: Client, wire: Wire, sent: bytes) -> None:
    answer = parsed(wire.exchange(sent, shut=True))
    answer.refused("INVALID_REQUEST", 400)
    assert answer.headers["Connection"] == "close"
    relay.get("/health").ok()


@pytest.mark.parametrize("version", ["HTTP/0.9", "HTTP/1.0", "HTTP/1.2", "HTTP/9.9"])
def test_a_request_without_host(wire: Wire, version: str) -> None:
    answer = parsed(wire.exchange(f"GET /api/v1/health {version}\r\n\r\n".encode(), shut=True))
    assert answer.status in (400, 403)
    assert answer.body["success"] is False


@pytest.mark.parametrize("hosts", [("127.0.0.1",) * 2, ("", ""), ("127.0.0.1", "evil.example")])
def test_two_hosts(wire: Wire, hosts: tuple[str, str]) -> None:
    lines = [f"Host: {host}" for host in hosts]
    sent = "\r\n".join(["GET /api/v1/health HTTP/1.1", *lines, "", ""]).encode()
    assert parsed(wire.exchange(sent, shut=True)).status in (400, 403)


# -- large


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
def test_a_body_of_11_megabytes(relay: Client, wire: Wire, chunked: bool) -> None:
    head = f"POST {wire.prefix}/sessions HTTP/1.1\r\nHost: {wire.host}\r\n"
    head += "Content-Type: application/json\r\n"
    if chunked:
        chunk = b"100000\r\n" + b" " * MEGABYTE + b"\r\n"
        sent = f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk * 11 + b"0\r\n\r\n"
    else:
        sent = f"{head}Content-Length: {11 * MEGABYTE}\r\n\r\n".encode() + b" " * 11 * MEGABYTE
    answer = parsed(wire.exchange(sent))
    error = answer.refused("REQUEST_TOO_LARGE", 413)
    assert error["details"]["max_bytes"] == 10 * MEGABYTE
    assert answer.headers["Connection"] == "close"
    assert relay.get("/sessions").ok()["total"] == 0


def test_a_body_of_almost_10_megabytes_is_read(relay: Client) -> None:
    body = b'{"name": "large"' + b" " * (10 * MEGABYTE - 17) + b"}"
    assert len(body) == 10 * MEGABYTE
    assert relay.post("/sessions", body).ok(201)["name"] == "large"


# -- slow and half


def test_half_a_request_and_gone(relay: Client, wire: Wire) -> None:
    whole = wire.request(f"POST {wire.prefix}/sessions", body=b'{"name": "half"}')
    for end in range(1, len(whole), 7):
        with wire.connect() as sock:
            sock.sendall(whole[:end])
    assert relay.get("/sessions").ok()["total"] == 0


def test_half_a_body_and_the_end(relay: Client, wire: Wire) -> None:
    whole = wire.request(f"POST {wire.prefix}/sessions", body=b'{"name": "half"}')
    for end in (len(whole) - 5, whole.index(b"{"), whole.index(b"{") + 1):
        answer = parsed(wire.exchange(whole[:end], shut=True))
        error = answer.refused("INVALID_REQUEST", 400)
        assert "before its announced end" in error["details"]["problem"]
    with wire.connect() as sock:
        sock.sendall(whole[:-5])
        # Not both in one turn of the relay's loop.
        relay.get("/health").ok()
        sock.shutdown(socket.SHUT_WR)
        parsed(received(sock)).refused("INVALID_REQUEST", 400)
    assert relay.get("/sessions").ok()["total"] == 0


def test_a_half_closed_client_gets_its_reply(wire: Wire) -> None:
    parsed(wire.exchange(wire.request(f"GET {wire.prefix}/health"), shut=True)).ok()


def test_a_target_in_absolute_form(relay: Client, wire: Wire) -> None:
    line = f"GET http://{wire.host}{wire.prefix}/health?pretty"
    answer = wire.ask(line)
    assert answer.ok()["status"] == "healthy"
    assert b'\n  "success"' in answer.raw
    session = relay.session().id
    found = wire.ask(f"GET HTTP://{wire.host}{wire.prefix}/sessions?limit=1&offset=0").ok()
    assert [item["session_id"] for item in found["items"]] == [session]
    # Of two names the foreign one counts, whichever it is.
    for name in ("evil.example", f"evil.example@{wire.host}"):
        wire.ask(f"GET http://{name}{wire.prefix}/health").refused("FORBIDDEN_HOST", 403)
        wire.ask(line, host=name).refused("FORBIDDEN_HOST", 403)
    assert wire.ask(f"GET http://{wire.host}").body["name"] == relay.get("/info").ok()["name"]


def test_stalled_clients_hold_up_nobody(relay: Client, wire: Wire) -> None:
    whole = wire.request(f"POST {wire.prefix}/sessions", body=b'{"name": "slow"}')
    with ExitStack() as open_ones:
        for end in range(100):
            sock = open_ones.enter_context(wire.connect())
            sock.sendall(whole[: (end % 4) * len(whole) // 4])
        started = time.monotonic()
        for _ in range(20):
            relay.get("/health").ok()
        assert time.monotonic() - started < 5
    assert relay.get("/sessions").ok()["total"] == 0


@pytest.mark.long
@pytest.mark.slow
def test_a_head_that_never_ends_is_answered(wire: Wire) -> None:
    with wire.connect() as sock:
        sock.sendall(f"GET /api/v1/health HTTP/1.1\r\nHost: {wire.host}\r\nX-".encode())
        parsed(received(sock)).refused("REQUEST_TIMEOUT", 408)


def test_a_client_that_never_reads(relay: Client, wire: Wire) -> None:
    one = f"GET {wire.prefix}/openapi.json HTTP/1.1\r\nHost: {wire.host}\r\n\r\n".encode()
    with wire.connect() as sock:
        sock.sendall(one * 50)
        for _ in range(5):
            relay.get("/health").ok()


def test_pipelined_requests_behind_a_refusal_are_answered(wire: Wire) -> None:
    bad = f"GET /nothing HTTP/1.1\r\nHost: {wire.host}\r\n\r\n".encode()
    raw = wire.exchange(bad * 3 + wire.request(f"GET {wire.prefix}/health"))
    assert raw.count(b"HTTP/1.1 404") == 3
    assert raw.count(b"HTTP/1.1 200") == 1


# -- other users


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not peer.available(), reason="peer uids are known on Linux only")
def test_another_user_gets_no_byte(relay: Client, wire: Wire) -> None:
    request = wire.request(f"POST {wire.prefix}/sessions", body=b"{}")
    program = f"""
import os, socket
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
for sent in ({request!r}, b"", b"GARBAGE"):
    with socket.socket() as sock:
        sock.settimeout(20)
        sock.connect(({relay.host!r}, {relay.port}))
        try:
            sock.sendall(sent)
            assert sock.recv(1) == b"", "there was an answer"
        except (ConnectionResetError, BrokenPipeError):
            pass
"""
    subprocess.run([sys.executable, "-ISc", program], timeout=60, check=True)
    assert relay.get("/sessions").ok()["total"] == 0


# -- many


def mixture(session_id: str) -> Iterator[tuple[str, str, bytes | None, dict[str, str]]]:
    json_type = {"Content-Type": "application/json"}
    base = f"/api/v1/sessions/{session_id}"
    return itertools.cycle(
        [
            ("GET", "/api/v1/health", None, {}),
            ("GET", base, None, {}),
            ("GET", base + "/status?pretty", None, {}),
            ("GET", base + "/events?limit=5", None, {}),
            ("GET", base + "/output?limit=x", None, {}),
            ("GET", base + "/breakpoints", None, {}),
            ("POST", base + "/breakpoints", b'{"file": "/none.py", "line": 3}', json_type),
            ("POST", base + "/breakpoints", b'{"breakpoints": [{"line": 0}]}', json_type),
            ("POST", base + "/continue", b"{}", json_type),
            ("POST", base + "/launch", b'{"script": "/none.py"}', json_type),
            ("POST", base + "/evaluate", b'{"expression": ', json_type),
            ("PATCH", base, b'{"nme": 1}', json_type),
            ("DELETE", base + "/breakpoints/bp_999", None, {}),
            ("GET", "/api/v1/sessions?limit=1001", None, {}),
            ("GET", "/api/v1/sessions/%00/status", None, {}),
            ("GET", "/api/v1/sessions/%ff", None, {}),
            ("GET", "/nothing/at/all", None, {}),
            ("PUT", "/api/v1/health", None, {}),
            ("OPTIONS", base, None, {}),
            ("HEAD", "/api/v1/openapi.json", None, {}),
            ("POST", "/api/v1/sessions", b"[" * 2000, json_type),
            ("POST", "/api/v1/sessions", b"{}", {"Content-Type": "text/plain"}),
            ("GET", "/api/v1/info", None, {"Origin": "null"}),
            ("GET", "/api/v1/info", None, {"X-Agent": "x" * 101}),
            ("POST", base + "/pause", None, {"If-Stop": "x"}),
        ]
    )


def drive(client: Client, session_id: str, count: int) -> tuple[list[int], list[float]]:
    """On one connection, as long as the relay keeps it."""
    statuses, took = [], []
    connection = http.client.HTTPConnection(client.host, client.port, timeout=30)
    for method, path, body, headers in itertools.islice(mixture(session_id), count):
        started = time.monotonic()
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
        if path.endswith("/status?pretty"):
            took.append(time.monotonic() - started)
    connection.close()
    return statuses, took


@pytest.mark.slow
def test_thousands_of_mixed_requests(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    client = relay.client
    session = client.session(name="target")
    processes = [psutil.Process(relay.pid), relay.worker(session.id)]

    def flood(count: int) -> tuple[list[int], list[float]]:
        with ThreadPoolExecutor(THREADS) as pool:
            share = count // THREADS
            done = list(pool.map(lambda _: drive(client, session.id, share), range(THREADS)))
        return [s for part, _ in done for s in part], sorted(t for _, part in done for t in part)

    flood(REQUESTS // 10)  # what is made once and kept is no growth
    fds = [process.num_fds() for process in processes]
    memory = [process.memory_info().rss for process in processes]
    statuses, took = flood(REQUESTS)
    assert len(statuses) == REQUESTS
    assert [status for status in statuses if status >= 500] == []
    assert {200, 201, 400, 403, 404, 405, 409, 415} - set(statuses) <= {201}
    p99 = took[len(took) * 99 // 100]
    print(f"{REQUESTS} requests on {THREADS} connections; p99 of a status {p99 * 1000:.1f} ms")
    for process, most, before in zip(processes, fds, memory, strict=True):
        eventually(lambda p=process, n=most: p.num_fds() <= n, what="descriptors given back")
        grown: Any = process.memory_info().rss - before
        assert grown < 8 * MEGABYTE, f"{process} has grown by {grown} bytes"
