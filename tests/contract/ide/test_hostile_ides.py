"""What an IDE may send: anything. The session goes on, and so do the other IDEs."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

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
    "a length of many digits": b"Content-Length: " + b"9" * 4000 + b"\r\n\r\n",
    "a length above the bound": b"Content-Length: 5000000\r\n\r\n",
    "no JSON": b"Content-Length: 5\r\n\r\nhello",
    "a list": b"Content-Length: 2\r\n\r\n[]",
    "too deep": b"Content-Length: 100000\r\n\r\n" + b"[" * 100_000,
    "no UTF-8": b"Content-Length: 4\r\n\r\n\xff\xfe\xfd\xfc",
}
# Each is DAP and wrong: it is refused, and the connection stays.
WRONG = [
    ("evaluate", {}),
    ("evaluate", {"expression": 5}),
    ("evaluate", {"expression": "n", "frameId": 10**9}),
    ("evaluate", {"expression": "n", "frameId": "1"}),
    ("evaluate", {"expression": "x" * 100_000}),
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
        assert worker.memory_info().rss < 200 << 20
        assert ide.ask("threads")["threads"]
        assert session.status()["status"] == "paused"


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
