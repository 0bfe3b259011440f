"""What an IDE may send: anything. The session goes on, and so do the other IDEs."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from debug_relay.worker.joining.listener import MOST_CONNECTIONS
from tests.kit.client import Client
from tests.kit.ide import Ide, connected
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

PROGRAM = """
    n = 1  # @first
    n = 2  # @second
"""
# Each is no DAP: the connection is closed, and nothing in it was believed.
NOT_DAP = {
    "a browser's POST": b"POST / HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 20\r\n\r\n",
    "no header": b"x" * 5000,
    "a header without an end": b"Content-Length: 1\r\n" + b"A" * 5000,
    "a negative length": b"Content-Length: -5\r\n\r\n",
    "a message without an end": b"Content-Length: 1000000000000000000\r\n\r\n" + b"x" * 5000,
    "a length of many digits": b"Content-Length: " + b"9" * 4000 + b"\r\n\r\n",
}
# Each has the length that it says and is no message: it is refused, and the next one is read. With
# the number and the command of the refusal.
UNREADABLE: list[tuple[bytes, int, str]] = [
    (b"", 0, ""),
    (b"hello", 0, ""),
    (b"[]", 0, ""),
    (b"[" * 100_000, 0, ""),
    (b"\xff\xfe\xfd\xfc", 0, ""),
    (b"x" * 5_000_000, 0, ""),
    (b'{"seq": "7", "type": "request", "command": "threads"}', 0, "threads"),
    (b'{"seq": 1.5, "type": "request", "command": "threads"}', 0, "threads"),
    (b'{"seq": 7, "type": "request", "command": null}', 7, ""),
    (b'{"seq": 7, "type": "request", "command": "evaluate\xff"}', 7, "evaluate\ufffd"),
    (b'{"seq": 7, "type": "request", "command": "x", "arguments": ["\xff"]}', 7, "x"),
]
LARGE: Final = 400  # answers that are larger together than what an IDE may leave unread
# Each is DAP and wrong: it is refused, and the connection stays.
WRONG = [
    ("evaluate", {}),
    ("evaluate", {"expression": 5}),
    ("evaluate", {"expression": "n", "frameId": 10**9}),
    ("evaluate", {"expression": "n", "frameId": "1"}),
    ("evaluate", {"expression": "x" * 100_000}),
    ("initialize", {}),
    ("exceptionInfo", {"threadId": 1}),
    ("source", {}),
    ("variables", {"variablesReference": -1}),
    ("variables", {"variablesReference": 10**18}),
    ("variables", {"variablesReference": 10**30}),
    ("scopes", {"frameId": 0}),
    ("stackTrace", {"threadId": 99}),
    ("stackTrace", {"threadId": -1}),
    ("next", {"threadId": 99}),
    ("continue", {}),
    ("source", {"sourceReference": 7}),
    ("source", {"source": {"path": "/etc/shadow"}}),
    ("setBreakpoints", {"source": None}),
    ("restart", {}),
    ("pydevdSystemInfo", {}),
    ("pydevdAuthorize", {"debugServerAccessToken": "x"}),
    ("runInTerminal", {}),
    ("x" * 10_000, {}),
]


def test_wrong_requests_are_refused(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with relay.session(stop_on_entry=True) as session, Ide(session) as ide:
        session.launch(program)
        early = ide.refused("threads")
        assert early["message"] == "initialize first"
        ide.join()
        ide.event("stopped")
        for command, arguments in WRONG:
            assert ide.refused(command, **arguments)["body"]["error"]["format"]
        words = {
            "variables": "Expected `int` >= 1 - at `$.variablesReference`",
            "exceptionInfo": "Thread 1 is not stopped at an exception: it stopped for entry",
        }
        for command, expected in words.items():
            assert expected in ide.refused(command, threadId=1, variablesReference=0)["message"]
        # What is paused already needs no pause, and whoever asked for one drives nothing.
        assert ide.ask("pause", threadId=1) == {}
        for raw, seq, command in UNREADABLE:
            before = len(ide.messages)
            ide.send_raw(raw)
            answer = ide.until(lambda m: m["type"] == "response", before)
            assert (answer["success"], answer["request_seq"], answer["command"]) == (
                False,
                seq,
                command,
            ), raw[:60]
        ide.send_raw(json.dumps({"seq": 1, "type": "event", "event": "stopped"}).encode())
        ide.send_raw(json.dumps({"seq": 2, "type": "response", "request_seq": 1}).encode())
        rows = [{"line": 1}]
        relative = ide.ask("setBreakpoints", source={"path": "relative.py"}, breakpoints=rows)
        assert [one["verified"] for one in relative["breakpoints"]] == [False]
        # Lines that cannot be are answered each by itself; the good one is set.
        rows = [{"line": 10**6}, {"line": program["second"]}, {"line": -4, "condition": "n =="}]
        answered = ide.ask("setBreakpoints", source={"path": str(program.path)}, breakpoints=rows)[
            "breakpoints"
        ]
        assert [one["verified"] for one in answered] == [False, True, False]
        assert "has no line 1000000" in answered[0]["message"]
        assert "does not compile" in answered[2]["message"]
        assert session.resume()["current_location"]["line"] == program["second"]


def test_what_is_no_dap_is_closed(
    relay: Client, source: Callable[..., Source], shared_relay: Relay
) -> None:
    program = source(PROGRAM)
    with relay.session(stop_on_entry=True) as session, Ide(session) as ide:
        session.launch(program)
        ide.join()
        worker = shared_relay.worker(session.id)
        for said in NOT_DAP.values():
            with connected(session) as peer:
                peer.sendall(said)
                received = b""
                with suppress(ConnectionResetError):
                    while piece := peer.recv(65536):
                        received += piece
                assert received == b"", said[:60]
        # An IDE that breaks off in the middle of its session takes only itself away.
        with Ide(session) as other:
            other.join()
            other._peer.sendall(b"Content-Length: zero\r\n\r\n")
            other.until_closed()
        # Nor does the worker read for ever what is no request.
        with Ide(session) as other:
            other.join()
            for _ in range(50):
                other.send_raw(b"garbage")
                other.send_raw(b'{"seq": 1, "type": "event", "event": "stopped"}')
            assert not other.closed
            other.send_raw(b"garbage")
            other.until_closed()
        assert worker.memory_info().rss < 200 << 20
        assert ide.ask("threads")["threads"]
        assert session.status()["status"] == "paused"


def test_a_slow_reader_gets_every_answer(
    relay: Client, source: Callable[..., Source], shared_relay: Relay
) -> None:
    program = source("n = 1  # " + "x" * 100_000)
    with relay.session(stop_on_entry=True) as session, connected(session) as peer:
        session.launch(program)
        asked = [{"type": "request", "seq": 1, "command": "initialize", "arguments": {}}]
        read = {"source": {"path": str(program.path)}}
        asked += [
            {"type": "request", "seq": 2 + n, "command": "source", "arguments": read}
            for n in range(LARGE)
        ]
        for request in asked:
            body = json.dumps(request).encode()
            peer.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        worker = shared_relay.worker(session.id)
        used = [0.0]

        def rests() -> bool:
            used.append(sum(worker.cpu_times()[:2]))
            return len(used) > 20 and used[-1] == used[-20]

        eventually(rests, what="a worker that waits for its reader")
        answers = 0
        while answers <= LARGE:
            piece = peer.recv(1 << 20)
            assert piece, f"closed after {answers} answers"
            answers += piece.count(b"Content-Length:")
        assert worker.memory_info().rss < 200 << 20


def test_connections_are_bounded(
    relay: Client, source: Callable[..., Source], shared_relay: Relay
) -> None:
    program = source(PROGRAM)
    with relay.session(stop_on_entry=True) as session, Ide(session) as ide:
        session.launch(program)
        ide.join()
        descriptors = shared_relay.worker(session.id).num_fds
        before = descriptors()
        silent = [connected(session) for _ in range(MOST_CONNECTIONS - 1)]
        with connected(session) as one_too_many:
            assert one_too_many.recv(1) == b""
        for peer in silent:
            peer.close()
        # One more is the log, which was opened for the refusal.
        eventually(lambda: descriptors() <= before + 1, what="descriptors given back")
        with Ide(session) as later:
            later.join()
            assert later.event("stopped")["reason"] == "entry"
