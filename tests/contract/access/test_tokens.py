"""Bearer tokens: made by a command, asked for everywhere, each good for its scopes alone."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.scopes import SCOPES
from tests.kit.relay import Relay
from tests.kit.source import Source
from tests.kit.tokens import new_token, token_command, token_process, with_token
from tests.kit.wire import Wire, parsed, received

NOBODY = 65534


def at(relay: Relay) -> tuple[str, str]:
    return "--data-dir", str(relay.data_dir)


def names(relay: Relay) -> list[str]:
    return [one["name"] for one in json.loads(token_command("list", "--json", *at(relay)))]


@pytest.fixture(scope="module")
def shared_guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    relay = Relay(tmp_path_factory.mktemp("guarded") / "data", forked=True).start()
    yield relay
    assert relay.stop() == 0
    assert relay.workers() == []


@pytest.fixture
def guarded(shared_guarded: Relay) -> Iterator[Relay]:
    """A relay without tokens, shared by the tests that leave it so."""
    yield shared_guarded
    for name in names(shared_guarded):
        token_command("revoke", name, *at(shared_guarded))
    client = shared_guarded.client
    for item in client.get("/sessions", limit=1000).ok()["items"]:
        client.delete(f"/sessions/{item['session_id']}", force="true")


def test_from_none_needed_to_needed_and_back(guarded: Relay) -> None:
    guarded.client.get("/sessions").ok()
    text = new_token(guarded, "--scope", "sessions:read", "--name", "reader")
    # At once, on a guarded that runs; what asks about its health needs none.
    guarded.client.get("/health").ok()
    guarded.client.get("/sessions").refused("UNAUTHENTICATED", 401)
    reader = guarded.client.called(Authorization=f"Bearer {text}")
    reader.get("/sessions").ok()
    assert names(guarded) == ["reader"]
    assert token_command("revoke", "reader", *at(guarded)) == ""
    assert token_command("list", *at(guarded)).startswith("no tokens: on loopback none is needed")
    guarded.client.get("/sessions").ok()


def test_just_the_hash_is_kept_and_nothing_is_logged(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay(env={"OPENCODE_DEBUG_LOG__LEVEL": "debug"})
    text = new_token(relay, "--scope", "admin")
    client = relay.client.called(Authorization=f"Bearer {text}")
    client.session().delete().ok()
    wrong = relay.client.called(Authorization=text)
    assert text not in wrong.get("/sessions").raw.decode()
    path = relay.data_dir / "tokens.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    relay.stop()
    for file in [relay.log, *relay.data_dir.rglob("*")]:
        assert not file.is_file() or text.encode() not in file.read_bytes(), file


def test_every_operation_asks_for_its_scope(guarded: Relay) -> None:
    clients = {scope: with_token(guarded, "--scope", scope) for scope in SCOPES}
    wire = Wire(guarded.client)
    for row in OPERATIONS.values():
        path = row.path.format_map(_Filled())
        line = f"{row.verb} {wire.prefix}{path}"
        if not row.scope:
            wire.ask(line).ok()
            continue
        answer = wire.ask(line)
        answer.refused("UNAUTHENTICATED", 401)
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        for scope in SCOPES[:-1]:
            if scope not in row.scopes:
                token = f"Authorization: {clients[scope].headers['Authorization']}"
                error = wire.ask(line, token).refused("INSUFFICIENT_SCOPE", 403)
                assert error["details"]["scope"] == row.scope
                assert error["details"]["scopes"] == [scope]
                break


class _Filled(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "1"


def test_neither_a_wrong_path_nor_a_token_in_the_query_is_told(
    guarded: Relay,
) -> None:
    text = new_token(guarded, "--scope", "admin")
    client = with_token(guarded, "--scope", "sessions:read")
    for path in ("/nothing", "/sessions/x/nothing", "/%zz"):
        guarded.client.get(path).refused("UNAUTHENTICATED", 401)
        assert client.get(path).status in (400, 404), path
    guarded.client.delete("/health").refused("UNAUTHENTICATED", 401)
    # A token in the query is refused, and not repeated.
    client = guarded.client.called(Authorization=f"Bearer {text}")
    for query in ({"token": text}, {"access_token": text}, {"tokn": text}):
        for path in ("/sessions", "/nothing", "/health"):
            for caller in (client, guarded.client):
                answer = caller.get(path, **query)
                assert answer.status in (400, 401, 404)
                assert text not in answer.raw.decode()
    for broken in (f"token={text}&token={text}", f"token={text}&x=%zz", f"token={text}%ff"):
        assert text not in client.get(f"/sessions?{broken}").raw.decode()


def test_a_token_with_admin_may_do_all_and_its_name_is_who_called(
    guarded: Relay, source: Callable[..., Source]
) -> None:
    client = with_token(guarded, "--scope", "admin", "--name", "ann@ci")
    with client.called(X_Agent="somebody").session() as session:
        assert session.get().ok()["created_by"] == "ann@ci"
    with client.session() as session:
        assert session.launch(source("print('on')\n"))["exit_code"] == 0
        assert session.printed() == "on\n"
        client.get("/processes").ok()
        client.patch("/config", {"sessions": {"max_sessions": 11}}).ok()


def test_reading_driving_and_attaching_are_apart(
    guarded: Relay, source: Callable[..., Source]
) -> None:
    writer = with_token(guarded, "--scope", "sessions:write")
    reader = with_token(guarded, "--scope", "sessions:read,artifacts:read")
    id = writer.post("/sessions", {}).ok(201)["session_id"]
    path = f"/sessions/{id}"
    writer.get(path).refused("INSUFFICIENT_SCOPE", 403)
    body = {"script": str(source("print('on')\n")), "wait": 20}
    writer.post(f"{path}/launch", body).ok()
    assert reader.get(f"{path}/output").ok()["entries"][0]["output"] == "on\n"
    reader.post(f"{path}/evaluate", {"expression": "1"}).refused("INSUFFICIENT_SCOPE", 403)
    error = reader.get("/config").refused("INSUFFICIENT_SCOPE", 403)
    assert error["details"]["scope"] == "admin"
    # The way round by another call is closed too.
    attach = {"mode": "attach", "pid": os.getpid()}
    error = writer.post("/sessions", attach).refused("INSUFFICIENT_SCOPE", 403)
    assert error["details"]["scope"] == "processes:attach"
    writer.delete(path).ok()


LOUD = """
    import sys

    class Loud(Exception):
        calls = 0

        def __repr__(self):
            Loud.calls += 1
            print("c4nary of repr")
            return "loud"

        __str__ = __repr__

        @property
        def louder(self):
            return repr(self)

    def work(loud):
        print("c4nary")
        raise loud  # @here

    try:
        work(Loud())
    except Loud:
        pass
    print("c4nary of the end")
    try:
        input("c4nary? ")
    except EOFError:
        pass
"""
# Of the table: these show a session's values, places, events or reports to sessions:read.
SHOWING = {"frame-variables", "variables", "snapshot", "history", "exception", "list-watches",
           "scopes", "stacktrace", "threads", "tasks", "modules", "events"}  # fmt: skip


def test_who_only_reads_runs_no_code_and_reads_no_output(
    guarded: Relay, source: Callable[..., Source]
) -> None:
    program = source(LOUD)
    admin = with_token(guarded, "--scope", "admin")
    reader = with_token(guarded, "--scope", "sessions:read")
    session = admin.session()
    session.post("/exception-breakpoints", {"filters": ["raised"]}).ok()
    stopped = session.launch(program, snapshot=True)
    assert "c4nary" in stopped["stop"]["output"][0]["text"]
    session.post("/watch", {"expression": "repr(loud)"}).ok()
    scope = session.get("/scopes").ok()["scopes"][0]["variables_reference"]
    listed = session.get(f"/variables/{scope}").ok()["variables"]
    [loud] = [one["variables_reference"] for one in listed if one["name"] == "loud"]
    before = session.value("Loud.calls")
    shown = {}
    for row in OPERATIONS.values():
        is_read = row.verb == "GET" and row.scope == "sessions:read" and row.on_session
        if not is_read or row.streams:
            continue
        for pattern in row.paths:
            for reference in (scope, loud):
                filled = {"session_id": session.id, "frame_id": 0, "thread_id": 1,
                          "variables_reference": reference, "breakpoint_id": "bp_1"}  # fmt: skip
                query = {} if "{variables_reference}" in pattern or row.name != "variables" else {
                    "variables_reference": reference}  # fmt: skip
                answer = reader.get(pattern.format_map(filled), **query)
                if answer.status == 200:
                    assert b"c4nary" not in answer.raw.replace(b'print(\\"c4nary', b""), row.name
                    shown[row.name] = answer.body["data"]
                reader.get(pattern.format_map(filled), **query, format="text")
    assert shown.keys() >= SHOWING
    assert session.value("Loud.calls") == before
    for name in ("frame-variables", "variables", "exception"):
        assert shown[name]["repr"] == "safe"
    assert shown["snapshot"]["stop"]["repr"] == "safe"
    for stop in (shown["snapshot"]["stop"], shown["history"]["items"][0]):
        assert "output" not in stop
        assert "artifacts:read" in stop["note"]
    [told] = [one for one in shown["events"]["events"] if one["type"] == "output"][:1]
    assert (told["body"]["output"], "artifacts:read" in told["body"]["note"]) == ("", True)
    # Who may run code is shown what the program says of itself.
    shown = session.get("/frames/0/variables").ok()
    assert "repr" not in shown
    assert session.value("Loud.calls") != before
    writer = with_token(guarded, "--scope", "sessions:write")
    id = writer.post("/sessions", {}).ok(201)["session_id"]
    body = {"script": str(program), "wait": 20, "snapshot": True, "stop_on_exception": True}
    launched = writer.post(f"/sessions/{id}/launch", body).ok()
    assert (launched["status"], launched["stop"]["output"]) == ("paused", [])
    trace = {"at": [{"file": str(program), "line": program["here"]}]}
    ran = writer.post("/run", {"script": str(program), "trace": trace}).ok()
    assert (ran["exit_code"], ran["output"], "artifacts:read" in ran["note"]) == (0, "", True)
    words = writer.post("/run", {"script": str(program)}, format="text").raw.decode()
    assert "c4nary" not in words
    assert "artifacts:read" in words
    writer.delete(f"/sessions/{id}").ok()
    # What the program printed to ask for input is output as well, in whichever answer.
    waits = session.post("/continue", {"wait": 20}).ok()
    assert (waits["waiting_for_input"], waits["prompt"]) == (True, "c4nary? ")
    own = f"/sessions/{session.id}"
    for path in (own, f"{own}/status", f"{own}/events"):
        assert b"c4nary?" in admin.get(path).raw
        answer = reader.get(path)
        assert (answer.status, b"c4nary?" in answer.raw) == (200, False), path
    session.delete().ok()


def test_what_has_expired_is_refused_and_still_closes(guarded: Relay) -> None:
    client = with_token(guarded, "--scope", "admin", "--expires", "1h", "--name", "hour")
    client.get("/sessions").ok()
    [listed] = json.loads(token_command("list", "--json", *at(guarded)))
    ends = datetime.fromisoformat(listed["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=58) < ends <= timedelta(hours=1)
    path = guarded.data_dir / "tokens.json"
    kept = json.loads(path.read_text())
    kept["tokens"][0]["expires"] = 1.5e9
    path.write_text(json.dumps(kept))
    assert "hour expired at 2017-" in client.get("/sessions").refused("UNAUTHENTICATED")["message"]
    guarded.client.get("/sessions").refused("UNAUTHENTICATED", 401)
    assert "expired 2017-07-14T02:40:00.000Z" in token_command("list", *at(guarded))


def test_a_file_in_disorder_closes_the_relay(guarded: Relay) -> None:
    client = with_token(guarded, "--scope", "admin")
    path = guarded.data_dir / "tokens.json"
    good = path.read_bytes()
    for trouble in ("text", "scope", "mode", "folder"):
        client.get("/sessions").ok()
        if trouble == "mode":
            path.chmod(0o666)
        elif trouble == "folder":
            path.unlink()
            path.mkdir()
        else:
            path.write_bytes(b"{" if trouble == "text" else good.replace(b'"admin"', b'"root"'))
        error = client.get("/sessions").refused("UNAUTHENTICATED", 401)
        assert str(path) in error["message"], trouble
        guarded.client.get("/sessions").refused("UNAUTHENTICATED", 401)
        guarded.client.get("/health").ok()
        assert str(path) in token_command("create", "--scope", "admin", *at(guarded), code=1)
        if trouble == "folder":
            path.rmdir()
        path.write_bytes(good)
        path.chmod(0o600)
    client.get("/sessions").ok()


def test_a_file_elsewhere(own_relay: Callable[..., Relay], tmp_path: Path) -> None:
    path = tmp_path / "my tokens" / "t.json"
    relay = own_relay(env={"OPENCODE_DEBUG_AUTH__TOKENS_FILE": str(path)})
    # A link stays one.
    path.parent.mkdir()
    path.symlink_to("real.json")
    text = token_command("create", "--scope", "admin", "--tokens-file", str(path)).strip()
    assert path.is_symlink()
    relay.client.get("/sessions").refused("UNAUTHENTICATED", 401)
    relay.client.called(Authorization=f"Bearer {text}").get("/sessions").ok()


def test_over_a_unix_socket_too(own_relay: Callable[..., Relay], tmp_path: Path) -> None:
    path = tmp_path / "s"
    relay = own_relay("--socket", str(path))
    client = with_token(relay, "--scope", "sessions:read")
    wire = Wire(relay.client)

    def ask(*headers: str) -> int:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(path))
            sock.sendall(wire.request(f"GET {wire.prefix}/sessions", *headers))
            return parsed(received(sock)).status

    assert ask() == 401
    assert ask(f"Authorization: {client.headers['Authorization']}") == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
@pytest.mark.parametrize("let_in", ["ALLOW_OTHER_USERS=true", f"ALLOW_UIDS={NOBODY}"])
def test_another_user_needs_one_always(own_relay: Callable[..., Relay], let_in: str) -> None:
    name, _, value = let_in.partition("=")
    setting = {f"OPENCODE_DEBUG_SERVER__{name}": value}
    relay = own_relay(env=setting)

    def as_nobody(relay: Relay, *headers: str) -> int:
        command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", *headers]
        command.append(f"{relay.url}/sessions")
        return int(subprocess.check_output(command, user=NOBODY, cwd="/", timeout=30))

    relay.client.get("/sessions").ok()
    assert as_nobody(relay) == 401
    client = with_token(relay, "--scope", "sessions:read")
    assert as_nobody(relay, "-H", f"Authorization: {client.headers['Authorization']}") == 200
    trusting = own_relay("--insecure-no-auth", env=setting, name="trusting")
    assert as_nobody(trusting) == 200
    assert "auth.off" in trusting.stderr()


def test_many_at_once_lose_none(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    with ThreadPoolExecutor(4) as pool:
        words = ("create", "--scope", "admin", *at(relay))
        made = [text.strip() for text in pool.map(lambda _: token_process(*words), range(6))]
    assert len(set(made)) == len(set(names(relay))) == 6
    for text in made:
        relay.client.called(Authorization=f"Bearer {text}").get("/sessions").ok()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "required: ACTION"),
        (["make"], 2, "invalid choice"),
        (["create"], 2, "required: --scope"),
        (["create", "--scope", "sessions:raed"], 2, "did you mean sessions:read?"),
        (["create", "--scope", ""], 2, "unknown scope"),
        (["create", "--scope", "admin", "--expires", "soon"], 2, "such as 30d"),
        (["create", "--scope", "admin", "--expires", "0"], 2, "does not lie ahead"),
        (["create", "--scope", "admin", "--expires", "2001-01-01"], 2, "does not lie ahead"),
        (["create", "--scope", "admin", "--name", "a b"], 2, "is not a valid name"),
        (["create", "--scope", "admin", "--nmae", "a"], 2, "did you mean --name?"),
        (["create", "--scope", "admin", "--name", "there"], 1, "debug-relay token revoke there"),
        (["revoke", "gone"], 1, "Name one of these: there."),
    ],
)
def test_what_the_command_refuses(tmp_path: Path, words: list[str], code: int, said: str) -> None:
    where = ("--data-dir", str(tmp_path / "data"))
    token_command("create", "--scope", "admin", "--name", "there", *where)
    assert said in token_command(*words, *(where if words else ()), code=code)
