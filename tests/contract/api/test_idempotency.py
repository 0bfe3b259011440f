"""`Idempotency-Key`: what is sent twice is done once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

import msgspec
import pytest

from debug_relay.supervisor.operations.idempotency_store import KeptReply
from tests.kit.client import Answer, Client, Session
from tests.kit.relay import Relay, eventually

KEY = {"Idempotency-Key": "one-and-the-same"}


def test_the_same_request_again_gets_the_first_reply(relay: Client) -> None:
    first = relay.post("/sessions", {"name": "once"}, headers=KEY)
    again = relay.post("/sessions", {"name": "once"}, headers={**KEY, "X-Request-ID": "second"})
    assert again.ok(201) == first.ok(201)
    assert again.headers["X-Request-ID"] == again.body["meta"]["request_id"] == "second"
    assert first.body["meta"]["request_id"] == first.headers["X-Request-ID"] != "second"
    assert relay.get("/sessions").ok()["total"] == 1


@pytest.mark.parametrize("kept", ["json", "text"])
def test_a_reply_that_was_kept_has_the_format_that_is_asked_for_now(
    relay: Client, kept: str
) -> None:
    key = {"Idempotency-Key": f"shown-{kept}"}
    relay.post(f"/sessions?format={kept}", {"name": "shown"}, headers=key)
    said = relay.post("/sessions", {"name": "shown"}, headers=key)
    id = said.ok(201)["session_id"]
    indented = relay.post("/sessions?pretty", {"name": "shown"}, headers=key)
    assert indented.ok(201)["session_id"] == id
    assert b'\n  "data": {\n' in indented.raw
    text = relay.post("/sessions?format=text", {"name": "shown"}, headers=key)
    assert text.headers["Content-Type"].startswith("text/plain")
    assert id in text.raw.decode()
    asked = {"script": "/nowhere/at/all.py"}
    for _ in range(2):  # a refusal that is made, and one that is kept
        path = f"/sessions/{id}/launch?format={kept}"
        refused = relay.post(path, asked, headers=key)
    assert refused.status == 400
    assert ("json" in refused.headers["Content-Type"]) == (kept == "json")
    refused = relay.post(f"/sessions/{id}/launch?format=markdown", asked, headers=key)
    assert refused.raw.startswith(b"error LAUNCH_SCRIPT_NOT_FOUND: ")
    again = relay.post(f"/sessions/{id}/launch", asked, headers={**key, "X-Request-ID": "mine"})
    assert again.refused("LAUNCH_SCRIPT_NOT_FOUND", 400)["details"]["script"] == asked["script"]
    assert again.body["meta"]["request_id"] == "mine"


def test_another_body_under_the_key_is_refused(relay: Client) -> None:
    relay.post("/sessions", {"name": "mine"}, headers={"Idempotency-Key": "k2"}).ok(201)
    answer = relay.post("/sessions", {"name": "other"}, headers={"Idempotency-Key": "k2"})
    answer.refused("IDEMPOTENCY_CONFLICT", 409)
    assert relay.get("/sessions").ok()["total"] == 1


def test_keys_are_per_caller_and_path(relay: Client) -> None:
    key = {"Idempotency-Key": "k3"}
    for agent in ("a", "b"):
        relay.post("/sessions", {}, headers={**key, "X-Agent": agent}).ok(201)
    assert relay.get("/sessions").ok()["total"] == 2


def test_refusals_are_kept_too(relay: Client) -> None:
    with relay.session() as session:
        key = {"Idempotency-Key": "k4"}
        asked = {"script": "/nowhere/at/all.py"}
        first = session.post("/launch", asked, headers=key)
        told = first.refused("LAUNCH_SCRIPT_NOT_FOUND", 400)
        assert session.post("/launch", asked, headers=key).body["error"] == told


def test_at_once_is_once(relay: Client) -> None:
    key = {"Idempotency-Key": "k5"}
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda _: relay.post("/sessions", {"name": "x"}, headers=key), range(8))
        )
    assert len({answer.ok(201)["session_id"] for answer in answers}) == 1
    assert len({answer.body["meta"]["request_id"] for answer in answers}) == len(answers)
    assert relay.get("/sessions").ok()["total"] == 1


def test_keys_outlive_a_relay_that_is_killed(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    key = {"Idempotency-Key": "k6"}
    first = relay.client.post("/sessions", {"name": "é"}, headers=key)
    session = Session(relay.client, first.ok(201)["session_id"])
    refused = session.post("/launch", {"script": "/none.py"}, headers=key)
    for damage in (b"", b'["caller", "/path", "torn'):
        relay.kill()
        with open(relay.data_dir / "idempotency.jsonl", "ab") as file:
            file.write(damage)
        relay.start()
        again = relay.client.post("/sessions", {"name": "é"}, headers=key)
        assert again.ok(201) == first.ok(201)
        path = f"/sessions/{session.id}/launch"
        same = relay.client.post(path, {"script": "/none.py"}, headers=key)
        assert (same.status, same.body["error"]) == (400, refused.body["error"])
        other = relay.client.post("/sessions", {"name": "e"}, headers=key)
        other.refused("IDEMPOTENCY_CONFLICT", 409)
        assert relay.client.get("/sessions").ok()["total"] == 1
    assert (relay.data_dir / "idempotency.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_session_that_was_not_answered_for_is_not_made_twice(
    own_relay: Callable[..., Relay], tmp_path: Path
) -> None:
    """The relay is killed while the program runs and the reply is held for its first stop."""
    relay = own_relay()
    ran, key = tmp_path / "ran", {"Idempotency-Key": "k7"}
    code = f"open({str(ran)!r}, 'a').write('x'); import time; time.sleep(600)"
    body = {"mode": "launch", "code": code, "wait": 60}
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(relay.client.post, "/sessions", body, headers=key)
        eventually(lambda: ran.exists() and ran.read_text())
        relay.kill()
        with pytest.raises((OSError, HTTPException)):
            lost.result(20)
    relay.start()
    [one] = relay.client.get("/sessions").ok()["items"]
    for _ in range(2):  # found, and then kept
        made = relay.client.post("/sessions", body, headers=key).ok(201)
        assert (made["session_id"], made["status"]) == (one["session_id"], "running")
    # Another request under the key is refused, as one under another key is done.
    relay.client.post("/sessions", {}, headers=key).refused("IDEMPOTENCY_CONFLICT", 409)
    relay.client.post("/sessions", {}, headers={"Idempotency-Key": "k8"}).ok(201)
    assert relay.client.get("/sessions").ok()["total"] == 2
    assert ran.read_text() == "x"


def test_replies_that_an_earlier_version_has_kept(own_relay: Callable[..., Relay]) -> None:
    """As text, and as JSON without the fields of today: never an error of the relay."""
    relay = own_relay()
    for key in ("text", "json", "odd"):
        relay.client.post("/sessions", {"name": key}, headers={"Idempotency-Key": key}).ok(201)
    relay.kill()
    file = relay.data_dir / "idempotency.jsonl"
    lines = [msgspec.json.decode(line, type=KeptReply) for line in file.read_bytes().splitlines()]
    by_key = {reply.key: reply.finished for reply in lines}
    by_key["text"].body, by_key["text"].content_type = b"made sess_1\n", "text/plain; charset=utf-8"
    by_key["json"].body = b'{"success":true,"data":{"id":"sess_1"},"error":null}'
    by_key["odd"].status = 400
    error = b'{"code":"OF_THE_PAST","message":"m","details":{}}'
    by_key["odd"].body = b'{"success":false,"data":null,"error":' + error + b"}"
    file.write_bytes(b"".join(msgspec.json.encode(reply) + b"\n" for reply in lines))
    relay.start()

    def again(key: str, query: str = "") -> Answer:
        body, headers = {"name": key}, {"Idempotency-Key": key}
        return relay.client.post(f"/sessions{query}", body, headers=headers)

    for format in ("text", "markdown"):
        said = again("text", f"?format={format}")
        assert (said.status, said.raw) == (201, b"made sess_1\n")
        assert said.headers["Content-Type"].startswith("text/plain")
        assert again("json", f"?format={format}").raw.startswith(b"id: sess_1")
        odd = again("odd", f"?format={format}")
        assert (odd.status, odd.body["error"]["code"]) == (400, "OF_THE_PAST")
    assert again("json").body["data"] == {"id": "sess_1"}
    details = again("text").refused("IDEMPOTENCY_CONFLICT", 409)["details"]
    assert (details["kept_status"], details["kept_reply"]) == (201, "made sess_1\n")
    assert relay.client.get("/sessions").ok()["total"] == 3


def test_a_key_that_is_none(relay: Client) -> None:
    relay.post("/sessions", {}, headers={"Idempotency-Key": "x" * 300}).refused(
        "INVALID_PARAMETER", 400
    )
