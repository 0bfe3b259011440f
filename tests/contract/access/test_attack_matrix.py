"""Each route of the OpenAPI document x each way to come without a right: none is let in."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil
import pytest

from debug_relay.protocol.scopes import SCOPES
from debug_relay.protocol.system import peers
from debug_relay.supervisor.http.router import ROOT_OPERATIONS
from tests.kit.client import Session
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source
from tests.kit.tokens import new_token, token_command
from tests.kit.wire import Wire, parsed

NOBODY = 65534
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}
# The answer to a close frame is sent ahead, so that the relay need not wait for it.
GOODBYE = b"\x88\x80\0\0\0\0"
PROGRAM = """
    import os, sys
    print("c4nary-" + "printed")
    here = True  # @here
"""
# Each is secret; "printed" is the program's output.
PRINTED, FROM_ENV = "c4nary-printed", "c4nary-env-7d1f"
LEASE_KEY = "c4nary-key-31aa"


class Route(NamedTuple):
    verb: str
    path: str
    kind: str  # http | sse | websocket
    scopes: tuple[str, ...]


class Scene(NamedTuple):
    relay: Relay
    session: Session
    routes: list[Route]
    good: str  # Authorization
    secrets: list[str]


def routes_of(document: Any, session_id: str) -> Iterator[Route]:
    known = {"session_id": session_id, "pid": str(os.getpid())}
    for template, item in document["paths"].items():
        for verb, node in item.items():
            examples = {
                one["name"]: one.get("example", 1) for one in node["parameters"] if "in" in one
            }
            path = re.sub(
                r"{(\w+)}", lambda m, e=examples: str(known.get(m[1], e.get(m[1]))), template
            )
            replies = node["responses"]
            streams = "text/event-stream" in str(replies.get("200", {}).get("content", {}))
            kind = "sse" if streams else "http"
            if "101" in replies:
                kind = "websocket"
            asked = node["security"][0]["bearer"] if node["security"] else ()
            yield Route(verb.upper(), "/api/v1" + path, kind, tuple(asked))
            if node["operationId"] in ROOT_OPERATIONS:
                yield Route(verb.upper(), path, kind, tuple(asked))


@pytest.fixture
def scene(own_relay: Callable[..., Relay], source: Callable[..., Source]) -> Scene:
    """A relay that needs tokens, and a paused program that has printed."""
    relay = own_relay(env={"OPENCODE_DEBUG_LOG__LEVEL": "debug"}, forked=False)
    token = new_token(relay, "--scope", "admin", "--name", "boss")
    client = relay.client.called(Authorization=f"Bearer {token}")
    session = client.session(name="untouched")
    program = source(PROGRAM)
    session.break_at(program, program["here"])
    session.launch(program, env={"SERVICE_API_KEY": FROM_ENV})
    session.called(X_Lease_Key=LEASE_KEY).post("/lease", {"ttl": 3600}).ok()
    document = json.loads(client.get("/openapi.json").raw)
    routes = list(routes_of(document, session.id))
    assert len(routes) > 90
    return Scene(relay, session, routes, f"Bearer {token}", [token, FROM_ENV, LEASE_KEY])


class Attacks:
    """Sends attacks, and counts them by their kind."""

    def __init__(self, scene: Scene) -> None:
        client = scene.session.client
        assert client.port is not None
        self._wire = Wire(client)
        self._connection = http.client.HTTPConnection(client.host, client.port, timeout=20)
        self.refused: Counter[str] = Counter()
        self.accepted: list[Any] = []

    def plain(self, way: str, verb: str, path: str, headers: dict[str, str], *codes: int) -> None:
        body = b"{}" if verb in ("POST", "PUT", "PATCH") else None
        sent = {"Content-Type": "application/json", **headers}
        self._connection.request(verb, path, body, sent)
        response = self._connection.getresponse()
        self._judge(way, (verb, path, headers), response.status, response.read(), codes)

    def socket(self, way: str, path: str, headers: dict[str, str], *codes: int) -> None:
        host = headers.get("Host")
        lines = [
            f"{name}: {value}" for name, value in {**UPGRADE, **headers}.items() if name != "Host"
        ]
        sent = self._wire.request(f"GET {path}", *lines, host=host)
        raw = self._wire.exchange(sent.replace(b"Connection: close\r\n", b"", 1) + GOODBYE)
        head, _, frames = raw.partition(b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 101"):
            # The first frame closes the socket: there was no data before it.
            status = int.from_bytes(frames[2:4], "big") if frames[:1] == b"\x88" else 101
        else:
            status = parsed(raw).status
        self._judge(way, ("WebSocket", path, headers), status, raw, codes)

    def send(self, way: str, route: Route, headers: dict[str, str], *codes: int) -> None:
        if route.kind == "websocket":
            self.socket(
                way,
                route.path,
                headers,
                *(1008 if c == 401 or way == "scope" else c for c in codes),
            )
        else:
            self.plain(way, route.verb, route.path, headers, *codes)

    def close(self) -> None:
        self._connection.close()

    def _judge(self, way: str, what: Any, status: int, raw: bytes, codes: tuple[int, ...]) -> None:
        text = raw.decode(errors="replace")
        if status not in codes or PRINTED in text or FROM_ENV in text:
            self.accepted.append((way, what, status, text[:300]))
        else:
            self.refused[way] += 1


def as_nobody(addresses: list[tuple[str, int, bytes]]) -> int:
    """How many of these were sent by another user; each must end without a byte of an answer."""
    program = f"""
import os, socket
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
for host, port, sent in {addresses!r}:
    with socket.socket() as sock:
        sock.settimeout(20)
        sock.connect((host, port))
        try:
            sock.sendall(sent)
            assert sock.recv(1) == b"", "there was an answer"
        except (ConnectionResetError, BrokenPipeError):
            pass
"""
    subprocess.run([sys.executable, "-ISc", program], timeout=60, check=True)
    return len(addresses)


def test_nobody_is_let_in_without_every_right(scene: Scene) -> None:
    relay, session = scene.relay, scene.session
    client = session.client
    before = (session.status(), client.get("/config").ok(), session.events())
    attacks, good = Attacks(scene), {"Authorization": scene.good}
    port = client.port
    assert port is not None

    foreign = [
        ("host", {"Host": "evil.example"}),
        ("host", {"Host": f"127.0.0.1.evil.example:{port}"}),
        ("host", {"Host": f"localhost6:{port}"}),
        ("origin", {"Origin": "http://evil.example"}),
        ("origin", {"Origin": "null"}),
        ("origin", {"Origin": f"http://127.0.0.1:{port - 1}"}),
        ("origin", {"Origin": f"https://127.0.0.1:{port}"}),
        ("origin", {"Sec-Fetch-Site": "cross-site"}),
    ]
    for way, headers in foreign:
        for path in dict.fromkeys(route.path for route in scene.routes):
            for method in METHODS:
                attacks.plain(way, method, path, {**good, **headers}, 403)
        for route in scene.routes:
            if route.kind == "websocket":
                attacks.socket(way, route.path, {**good, **headers}, 403)

    revoked = new_token(relay, "--scope", "admin", "--name", "gone")
    token_command("revoke", "gone", "--data-dir", str(relay.data_dir))
    expired = new_token(relay, "--scope", "admin", "--name", "late", "--expires", "1s")
    weak = {scope: new_token(relay, "--scope", scope, "--name", scope) for scope in SCOPES[:-1]}
    listed = ("list", "--data-dir", str(relay.data_dir))
    eventually(lambda: "expired" in token_command(*listed))
    without = [
        {},
        {"Authorization": "Bearer nonsense"},
        {"Authorization": "Basic Ym9zczpib3Nz"},
        {"Authorization": scene.good.removeprefix("Bearer ")},
        {"Authorization": f"Bearer {revoked}"},
        {"Authorization": f"Bearer {expired}"},
        {"X-Agent": "boss", "X-Human-Front": "page"},
        {"Cookie": f"Authorization={scene.good}; token={scene.good[7:]}"},
    ]
    # The session's own token opens its tunnel and nothing else; a ticket is no token over HTTP.
    own_token = {"Authorization": f"Bearer {session.get().ok()['debugger']['token']}"}
    ticket = client.post("/ticket").ok()["ticket"]
    used = {"Sec-WebSocket-Protocol": f"debug-relay, ticket.{ticket}"}
    attacks.plain("token", "GET", "/api/v1/sessions", used, 401)
    without += [used, {"Sec-WebSocket-Protocol": "debug-relay, ticket.nonsense"}]
    attacks.socket("ticket", "/api/v1/sessions/sess_none/logs", used, 1008)  # that was its one use
    twice = [f"Authorization: {scene.good}"] * 2
    for route in scene.routes:
        if not route.scopes:
            continue  # `health`, and the page for people: they show nothing of any session
        for headers in without:
            attacks.send("token", route, headers, 401)
        if not route.path.endswith("/tunnel"):
            attacks.send("token", route, own_token, 401)
        answer = Wire(client).ask(f"{route.verb} {route.path}", *twice)
        assert answer.status == 401, route
        attacks.refused["token"] += 1
        for scope, token in weak.items():
            if set(route.scopes) - {scope}:
                attacks.send("scope", route, {"Authorization": f"Bearer {token}"}, 403)
                if route.kind == "websocket" and scope == "sessions:read":
                    weaker = {"Authorization": f"Bearer {token}"}
                    protocols = client.post("/ticket", headers=weaker).ok()["protocols"]
                    offered = {"Sec-WebSocket-Protocol": ", ".join(protocols)}
                    attacks.socket("ticket", route.path, offered, 1008)

    if os.geteuid() == 0 and peers.available():
        strangers = []
        for route in scene.routes:
            extra = [f"{k}: {v}" for k, v in (UPGRADE if route.kind == "websocket" else {}).items()]
            line = f"{route.verb} {route.path}"
            sent = Wire(client).request(line, f"Authorization: {scene.good}", *extra)
            strangers.append((client.host, port, sent))
        strangers += [(client.host, port, b""), (client.host, port, b"GARBAGE")]
        joining = session.get().ok()["debugger"]
        if joining is not None:  # the worker's listener for IDEs
            dap = urlsplit(joining["uri"])
            body = b'{"seq":1,"type":"request","command":"initialize","arguments":{}}'
            hello = b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            strangers.append((str(dap.hostname), int(dap.port or 0), hello))
            scene.secrets.append(joining["token"])
        attacks.refused["uid"] += as_nobody(strangers)

    attacks.close()
    assert attacks.accepted == []
    kinds = Counter(route.kind for route in scene.routes)
    print(
        f"{attacks.refused.total()} attacks {dict(attacks.refused)} on {len(scene.routes)} routes "
        f"{dict(kinds)}, accepted 0"
    )
    assert attacks.refused.total() > 6900
    after = (session.status(), client.get("/config").ok(), session.events())
    for one in (before[0], after[0]):
        del one["expires_at"], one["held_seconds"]
    assert after == before
    assert client.get("/sessions").ok()["total"] == 1
    no_secret_stays(scene, [*scene.secrets, revoked, expired, *weak.values()])


def no_secret_stays(scene: Scene, secrets: list[str]) -> None:
    """Neither in a reply, nor in an argument of a process of ours, nor in a file or log."""
    relay, session = scene.relay, scene.session
    joining = (session.get().ok()["debugger"] or {}).get("token")
    own = f"/sessions/{session.id}"
    parts = "", "/status", "/events", "/output", "/export", "/resources", "/snapshot", "/history"
    paths = ["/sessions", "/config", "/info", "/processes", *(own + part for part in parts)]
    told = [
        session.client.get(path, format=form).raw.decode()
        for form in ("json", "text")
        for path in paths
    ]
    everyone = psutil.Process(relay.pid).children(recursive=True)
    told += [" ".join(one.cmdline()) for one in (psutil.Process(relay.pid), *everyone)]
    workers_environments = [
        " ".join(one.environ().values())
        for one in (psutil.Process(relay.pid), relay.worker(session.id))
    ]
    session.delete(force="true").ok()
    assert relay.stop() == 0
    files = [relay.log, *relay.data_dir.rglob("*")]
    texts = [file.read_bytes() for file in files if file.is_file()]
    assert len(texts) > 3
    for secret in secrets:
        # A joining IDE is shown its own token, in the session's state alone.
        shown = [text for text in told if secret in text and secret != joining]
        assert shown == []
        assert not any(secret in text for text in workers_environments)
        assert not any(secret.encode() in text for text in texts), secret
    print(f"{len(secrets)} secrets, found in 0 of {len(told)} replies and {len(texts)} files")
