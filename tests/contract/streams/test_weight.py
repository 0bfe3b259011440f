"""What many idle clients weigh: long-polls and sockets, and the calls beside them."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

import psutil

from tests.kit.relay import Relay, eventually
from tests.kit.wire import Wire

COUNT = 240
UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)
# A thousand take 12, 17, 21 and 22 KB each. Of fewer, what is allocated once counts for more.
KINDS = {
    "long-poll": ("/events?timeout=120&types=stopped", (), 14),
    "SSE": ("/events/stream", (), 18),
    "/logs": ("/logs", UPGRADE, 24),
    "/debug": ("/debug", UPGRADE, 25),
}


def test_of_idle_clients(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay(forked=False)
    sessions = [relay.client.session() for _ in range(2)]
    wire = Wire(relay.client)
    process = psutil.Process(relay.pid)

    def opened(ends: ExitStack, kind: str, count: int) -> list[socket.socket]:
        path, headers, _ = KINDS[kind]
        found = []
        for n in range(count):
            sock = ends.enter_context(wire.connect())
            line = f"GET {wire.prefix}/sessions/{sessions[n % 2].id}{path}"
            request = wire.request(line, f"X-Agent: a{n % 4}", *headers)
            sock.sendall(request.replace(b"Connection: close\r\n", b""))
            if kind != "long-poll":
                assert sock.recv(12) in (b"HTTP/1.1 101", b"HTTP/1.1 200")
            found.append(sock)
        return found

    def used() -> int:
        return int(process.memory_full_info().uss)

    def cpu() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    with ExitStack() as ends:
        for kind in KINDS:  # what is loaded with the first of them
            opened(ends, kind, 4)
        # All stay open: what one kind gives back would be the next one's.
        for kind, (_, _, most) in KINDS.items():
            before, connections = used(), relay.calls()
            opened(ends, kind, COUNT)
            eventually(lambda n=connections: relay.calls() >= n + COUNT)
            sessions[0].status()
            each = (used() - before) / COUNT / 1024
            taken, spent = [], cpu()
            for _ in range(40):
                began = time.perf_counter()
                sessions[0].status()
                taken.append(time.perf_counter() - began)
            # The relay's own time: other processes of the machine may delay each answer.
            spent, median = (cpu() - spent) * 1000 / len(taken), statistics.median(taken) * 1000
            print(
                f"{COUNT} of {kind}: {each:.1f} KB each; "
                f"status in {median:.1f} ms, {spent:.1f} of it the relay's"
            )
            assert each <= most, kind
            assert spent < 5, kind
        began = time.monotonic()
        assert relay.stop() == 0
        took = time.monotonic() - began
        print(f"stops in {took:.1f} s beside {4 * COUNT} of them that do not answer")
        assert took < 10
