"""Streams and everything that ends under them: the relay, the worker, the program, slow clients."""

from __future__ import annotations

import itertools
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from debug_relay.protocol.wire.ring_format import output_owner, unpack_cursor
from tests.kit.client import Client, Session
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source
from tests.kit.streams import all_of, connect, curl, needs_curl, received

COUNTS = """
    import time
    for n in range(300):
        if n % 100 == 0:
            input()
        print("n", n, flush=True)
        time.sleep(0.002)
"""
PRINTS = """
    input()
    for n in range(60_000):
        print("line", n, "x" * 80)
    input()
"""


class Logs:
    """A client of `…/logs` that connects again, with its last cursor, whenever it is left."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.cursor: str | None = None
        self.text = ""

    def follow(self, until: str) -> None:
        """Read to the end of a connection, or until this was printed."""
        query = f"?cursor={self.cursor}" if self.cursor else ""
        # A client whose queue is full does not read the answer to its close frame.
        with connect(self.session, f"/logs{query}", max_queue=None) as socket:
            while until not in self.text:
                message = received(socket)
                assert "dropped" not in message
                self.text += message["text"]
                self.cursor = message["cursor"]


@needs_curl
def test_a_relay_is_killed_with_streams_open(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    """Clients resume by cursor: nothing is lost, and nothing comes twice."""
    relay = own_relay()
    port = relay.client.port
    assert port is not None

    def stop() -> None:
        """It leaves its sessions to the next relay."""
        assert relay.stop() == 0

    session = relay.client.session()
    session.launch(source(COUNTS), wait=0)
    logs, seen, last = Logs(session), [], "none"
    for ends, first in ((relay.kill, 0), (stop, 100), (None, 200)):
        since = ("-H", f"Last-Event-ID: {last}") if first else ()
        with curl(session, "/output/stream", *since) as output:
            session.post("/input", {"input": "\n"}).ok()
            logs.follow(f"n {first + 20}\n" if ends else "n 299\n")
            while not seen or f"n {first + 20 if ends else 299}\n" not in seen[-1].data["output"]:
                one = output.next()
                assert one is not None
                seen.append(one)
            if ends is not None:  # in the middle of the output
                ends()
                rest = output.rest()
                seen += [one for one in rest if one.event == "output"]
                assert [one.data["reason"] for one in rest if one.event == "end"] == (
                    ["shutdown"] if ends is stop else []
                )
                last = seen[-1].id
                relay.start("--keep-sessions", port=port)
    whole = "".join(f"n {n}\n" for n in range(300))
    assert logs.text == whole
    assert "".join(one.data["output"] for one in seen) == whole


@needs_curl
def test_a_worker_retires_under_its_streams(
    relay: Client, shared_relay: Relay, source: Callable[..., Source]
) -> None:
    """They hold it up no longer than anybody, and its files stream on."""
    session = relay.session()
    program = source("import sys; print('first' if len(sys.argv) < 2 else 'again')")
    with connect(session, "/logs") as logs, curl(session, "/events/stream") as events:
        session.launch(program)
        assert received(logs)["text"] == "first\n"
        events.until("terminated")
        worker = shared_relay.worker(session.id)
        eventually(lambda: not worker.is_running(), what="the worker has retired")
        with connect(session, "/logs") as later, curl(session, "/events/stream") as replay:
            assert received(later)["text"] == "first\n"
            replay.until("terminated")
            session.post("/restart", {"args": ["x"], "wait": 20}).ok()
            assert received(logs)["text"] == received(later)["text"] == "again\n"
            ended = [one.id for one in events.until("terminated")]
            assert replay.until("terminated")[-1].id == ended[-1]
            session.delete().ok()
            assert all_of(logs)[1:] == all_of(later)[1:] == (1000, f"{session.id} is deleted")


def queued(relay: int, client: int) -> int:
    """Bytes in the kernel that the relay has sent and the client has not taken, by their ports."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ports = [[int(row[side].rpartition(":")[2], 16) for side in (1, 2)] for row in rows]
    [row] = [row for row, ends in zip(rows, ports, strict=True) if ends == [relay, client]]
    return int(row[4].partition(":")[0], 16)


def test_who_does_not_read_costs_nothing(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    """A ring of 512 KB, six megabytes of output, and clients that sleep meanwhile."""
    relay = own_relay(env={"OPENCODE_DEBUG_OUTPUT__MAX_BYTES": str(512 * 1024)})
    session = relay.client.session()
    session.launch(source(PRINTS), wait=0)
    process = psutil.Process(relay.pid)
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.connect((relay.client.host, relay.client.port))
    with connect(session, "/logs", max_queue=1, sock=small) as sleeper:
        before = process.memory_info().rss
        began = time.monotonic()
        session.post("/input", {"input": "\n"}).ok()
        eventually(lambda: "line 59999 " in session.get("/output", tail=5).raw.decode())
        took = time.monotonic() - began
        grown = process.memory_info().rss - before
        print(f"6 MB in {took:.1f} s beside a client that reads nothing, {grown >> 10} KB more")
        assert grown < 8 << 20
        assert 0 < queued(relay.client.port, small.getsockname()[1]) < 1 << 20
        session.get("/status").ok()
        lines, entries, dropped = [], 0, 0
        for _ in itertools.count():
            message = received(sleeper)
            dropped += message.get("dropped", 0)
            # A line that the program's pipe has split is two entries.
            entries += message["text"].count("\n") + (not message["text"].endswith("\n"))
            lines += [int(n) for n in re.findall(r"line (\d+) ", message["text"])]
            if lines[-1:] == [59_999]:
                break
        assert lines == sorted(set(lines))
        assert dropped > 0
        [place] = unpack_cursor(output_owner(session.id), message["cursor"], 1)
        assert entries + dropped == place.entry >= 60_000
        session.post("/terminate").ok()
