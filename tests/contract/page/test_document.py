"""The page as it is sent, the tickets that open its WebSocket, and the token that it forgets."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.page.conftest import Page
from tests.kit.client import Client
from tests.kit.relay import Relay
from tests.kit.source import Source
from tests.kit.streams import all_of, received, socket_url
from tests.kit.tokens import new_token, token_command
from tests.kit.wire import Wire
from tests.meta.documents import block

BROWSER = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
PROGRAM = """
    print("c4nary printed")
    here = 1  # @here
    there = 2
"""


def test_the_document(relay: Client) -> None:
    wire = Wire(relay)
    answer = wire.ask("GET /", BROWSER)
    text = answer.raw.decode()
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-store"
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "http" not in policy
    for tag in ("script", "style"):
        [inside] = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        hashed = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{hashed}'" in policy
    assert re.findall(r"https?://|//[a-z]+\.|@import|url\(", text) == []  # nothing from elsewhere
    assert re.findall(r"innerHTML|insertAdjacent|document\.write|eval\(|Storage|cookie", text) == []
    assert wire.ask("HEAD /", BROWSER).headers["Content-Length"] == str(len(answer.raw))
    # The guard stands before it, and programs get the overview as before.
    for bad in ("Origin: http://evil.example", "Sec-Fetch-Site: cross-site"):
        assert wire.ask("GET /", BROWSER, bad).status == 403
    assert wire.ask("GET /", BROWSER, host="evil.example").status == 403
    # Somebody who follows another site's link is asked first, and nothing else is shown so.
    links = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
    for path in ("/", "/docs", "/api/v1/docs"):
        asked = wire.ask(f"GET {path}", BROWSER, *links)
        assert asked.status == 403
        assert '<a href="">' in asked.raw.decode()
        assert "script-src 'none'" in asked.headers["Content-Security-Policy"]
    for foreign in ("Origin: http://evil.example", "Sec-Fetch-Dest: iframe"):
        others = [one for one in links if one.partition(":")[0] != foreign.partition(":")[0]]
        refused = wire.ask("GET /", BROWSER, *others, foreign)
        assert refused.body["error"]["code"] == "FORBIDDEN_ORIGIN"
    assert wire.ask("GET /sessions", BROWSER, *links).body["error"]["code"] == "FORBIDDEN_ORIGIN"
    assert wire.ask("GET /", BROWSER, *links, host="evil.example").body["error"]["code"] == (
        "FORBIDDEN_HOST"
    )
    for accept in ("*/*", "application/json", "application/json, text/html"):
        assert "links" in wire.ask("GET /", f"Accept: {accept}").body
    assert wire.ask("POST /", BROWSER).status == 405
    assert wire.ask("GET /nothing", BROWSER).status == 404


def commands(client: Client, *protocols: str, **options: Any) -> Any:
    sync = pytest.importorskip("websockets.sync.client")
    return sync.connect(
        socket_url(client, "/commands"), subprotocols=list(protocols) or None, compression=None,
        **options,
    )  # fmt: skip


def result(socket: Any, action: str, **arguments: Any) -> Any:
    socket.send(json.dumps({"action": action, "id": action, "arguments": arguments}))
    while (told := received(socket))["kind"] != "result":
        assert told["kind"] in ("ack", "hello")
    return told["payload"]


def test_one_socket_drives_every_session(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with (
        relay.session(name="first") as first,
        relay.session(name="second") as second,
        commands(relay, additional_headers={"X-Agent": "ann"}) as socket,
    ):
        hello = received(socket)
        assert hello["kind"] == "hello"
        assert (hello["payload"]["driver"], hello["session_id"]) == ("ann", None)
        for session in (first, second):
            body = {"file": str(program), "line": program["here"]}
            assert result(socket, "set-breakpoints", session_id=session.id, **body)["success"]
            launch = {"script": str(program), "wait": 20}
            assert result(socket, "launch", session_id=session.id, **launch)["data"]["stop_id"] == 1
        assert {one["name"] for one in result(socket, "list-sessions")["data"]["items"]} == {
            "first",
            "second",
        }
        for line in block("commands").splitlines():
            socket.send(line.replace("sess_1a2b3c4d", second.id))
            while (told := received(socket))["kind"] != "result":
                pass
            assert (told["id"], told["payload"]["success"]) == (json.loads(line)["id"], True)
        for wrong in ({}, {"session_id": 3}, {"session_id": ""}):
            error = result(socket, "step-over", **wrong)["error"]
            assert error["code"] == "MISSING_PARAMETER"
        assert result(socket, "step-over", session_id="sess_none")["error"]["code"] == (
            "SESSION_NOT_FOUND"
        )
        text = result(
            socket, "source", session_id=first.id, path=str(program), start=2, end=3, tokens=True
        )["data"]
        assert [[one["kind"] for one in line] for line in text["tokens"]] == [
            ["number", "comment"],
            ["number"],
        ]

        # The socket's leases belong to the key that came with the request for its ticket.
        def fresh(key: str) -> Any:
            headers = {"X-Lease-Key": key, "X-Agent": "ann"}
            told = relay.post("/ticket", headers=headers).ok()
            return commands(relay, *told["protocols"], additional_headers={"X-Agent": "ann"})

        with fresh("one") as own, fresh("one") as again, fresh("other") as foreign:
            ids = [received(one)["payload"]["key_id"] for one in (own, again, foreign)]
            assert ids[0] == ids[1] != ids[2]
            assert result(own, "take-lease", session_id=first.id)["data"]["key_id"] == ids[0]
            assert result(again, "step-over", session_id=first.id)["success"]
            for other in (foreign, socket):
                error = result(other, "step-over", session_id=first.id)["error"]
                assert error["code"] == "SESSION_LEASED"


@pytest.fixture
def guarded(own_relay: Callable[..., Relay]) -> Relay:
    return own_relay(env={"OPENCODE_DEBUG_LOG__LEVEL": "debug"})


def test_a_ticket_is_good_once(guarded: Relay) -> None:
    token = new_token(guarded, "--scope", "sessions:read", "--name", "reader")
    greedy_token = new_token(guarded, "--scope", "sessions:read", "--name", "greedy")
    client = guarded.client
    bearer = {"Authorization": f"Bearer {token}"}
    client.post("/ticket").refused("UNAUTHENTICATED", 401)
    told = client.post("/ticket", headers=bearer).ok()
    assert told["protocols"] == ["debug-relay", f"ticket.{told['ticket']}"]
    with commands(client, *told["protocols"]) as socket:
        hello = received(socket)["payload"]
        assert (hello["caller"], hello["scopes"]) == ("reader", ["sessions:read"])
        assert socket.subprotocol == "debug-relay"
        assert result(socket, "list-sessions")["success"]
        assert result(socket, "create-session")["error"]["code"] == "INSUFFICIENT_SCOPE"
        # A second use, an unknown one, none, and a ticket that is no token.
        for protocols in (told["protocols"], ["debug-relay", "ticket.x"], ["debug-relay"]):
            with commands(client, *protocols) as other:
                assert all_of(other)[:2] == ([], 1008)
        again = client.post("/ticket", headers=bearer).ok()["ticket"]
        bad = {"Authorization": f"Bearer {again}"}
        client.get("/sessions", headers=bad).refused("UNAUTHENTICATED", 401)
        client.get("/sessions", headers={"Sec-WebSocket-Protocol": f"ticket.{again}"}).refused(
            "UNAUTHENTICATED", 401
        )
        # Another caller's tickets push out nobody's but its own.
        greedy = {"Authorization": f"Bearer {greedy_token}"}
        others = [client.post("/ticket", headers=greedy).ok()["protocols"] for _ in range(65)]
        with commands(client, *others[0]) as socket_of_first:
            assert all_of(socket_of_first)[:2] == ([], 1008)
        with commands(client, *others[1]) as socket_of_second:
            assert received(socket_of_second)["payload"]["caller"] == "greedy"
        # The socket ends with its token, and so does a ticket that nobody has used.
        token_command("revoke", "reader", "--data-dir", str(guarded.data_dir))
        new_token(guarded, "--scope", "admin", "--name", "reader")
        socket.send('{"action": "list-sessions"}')
        assert all_of(socket)[1] == 1008
        with commands(client, "debug-relay", f"ticket.{again}") as other:
            assert all_of(other)[:2] == ([], 1008)
    guarded.stop()
    for file in [guarded.log, *guarded.data_dir.rglob("*")]:
        content = file.read_bytes() if file.is_file() else b""
        assert not any(one.encode() in content for one in (token, told["ticket"], again)), file


def test_a_token_is_typed_once(
    guarded: Relay, source: Callable[..., Source], page: Callable[[Client], Page]
) -> None:
    admin = new_token(guarded, "--scope", "admin", "--name", "ann")
    reader = new_token(guarded, "--scope", "sessions:read", "--name", "looker")
    program = source(PROGRAM)
    client = guarded.client.called(Authorization=f"Bearer {admin}")
    session = client.session(name="guarded")
    session.break_at(program, program["here"])
    session.launch(program)

    one = page(guarded.client)
    one.until("#gate", "asks for a token")
    assert "guarded" not in one.tab.js("document.body.innerText")  # nothing is shown before
    one.fill("#token", "nonsense")
    one.until("#refused", "unknown")
    one.fill("#token", admin)
    one.at_line(program["here"])
    one.until("#me", "ann (human)")
    one.tab.press("t")
    one.until("#driver", "you drive it")
    one.tab.press("n")
    one.at_line(program["here"] + 1)
    assert one.tab.js(
        "[localStorage.length, sessionStorage.length, document.cookie, location.href]"
    ) == [0, 0, "", f"{one.origin}/"]
    assert not any(admin in url for url in one.tab.requested)
    one.tab.open(f"{one.origin}/")
    one.until("#gate", "asks for a token")

    one.fill("#token", reader)
    one.until("#me", "looker (human)")
    one.at_line(program["here"] + 1)
    one.until("#output pre", "lacks artifacts:read")
    assert "c4nary" not in one.text("#output pre")
    assert one.allowed() == set()
    one.tab.press("t")
    assert one.tab.js("document.querySelector('#attach').hidden")
    token_command("revoke", "looker", "--data-dir", str(guarded.data_dir))
    session.post("/lease", {"take_over": True}).ok()  # the page sees it, and its token is gone
    one.until("#refused", "revoked")
    one.tab.complaints.clear()  # Chromium logs each 401
