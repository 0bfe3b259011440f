"""One wait for several sessions: by their ids, by a label, or all."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.kit.client import Client
from tests.kit.relay import eventually
from tests.kit.source import Source
from tests.kit.tokens import new_token

STOPS = """
    print("here")
    x = 1  # @line
    print("there")
"""


def test_the_next_stop_of_any(relay: Client, source: Callable[..., Source]) -> None:
    program = source(STOPS)
    ann, bob = relay.session(labels={"team": "a"}), relay.session(labels={"team": "a"})
    other = relay.session(labels={"team": "b"})
    wanted = {"types": "stopped,terminated", "timeout": 30}
    both = f"{ann.id},{bob.id}"
    empty = relay.get("/events", sessions=both, types="stopped").ok()
    assert (empty["events"], empty["statuses"]) == ([], {ann.id: "created", bob.id: "created"})

    def waiting(**query: Any) -> Any:
        return pool.submit(relay.get, "/events", **query)

    def seen(page: Any) -> list[tuple[str, str]]:
        return [(one["session_id"], one["type"]) for one in page["events"]]

    with ThreadPoolExecutor(3) as pool:
        by_id = waiting(sessions=both, cursor=empty["next_cursor"], **wanted)
        by_label = waiting(label="team=a", **wanted)
        other.launch(program)  # is nobody's business
        bob.break_at(program, program["line"])
        bob.launch(program)
        first = by_id.result(60).ok()
        assert seen(first) == seen(by_label.result(60).ok()) == [(bob.id, "stopped")]
        assert first["statuses"][bob.id] == "paused"
        # From there on: the other one, and a third that comes while the call waits.
        later = waiting(label="team=a", cursor=by_label.result().ok()["next_cursor"], **wanted)
        third = relay.session(labels={"team": "a"})
        third.launch(program)
        assert seen(later.result(60).ok()) == [(third.id, "terminated")]
        whole = relay.get("/events", limit=1000).ok()
        assert {id for id, _ in seen(whole)} >= {bob.id, other.id, third.id}
        times = [one["timestamp"] for one in whole["events"]]
        assert times == sorted(times)
        ended = waiting(sessions=both, cursor=first["next_cursor"], types="watch", timeout=30)
        ann.delete().ok()
        left = ended.result(60)
        # The call may come after the deletion.
        assert left.status == 404 or left.ok()["statuses"].keys() == {bob.id}
    text = relay.get("/events", sessions=bob.id, types="stopped", format="text").raw.decode()
    assert text.startswith(f"{bob.id} ")
    relay.get("/events", sessions=ann.id).refused("SESSION_NOT_FOUND", 404)
    relay.get("/events", cursor="nonsense").refused("INVALID_PARAMETER", 400)
    relay.get("/events", types="nonsense").refused("INVALID_PARAMETER", 400)


def test_a_wait_for_all_keeps_none_alive(relay: Client) -> None:
    """It is like a list: somebody who watches the relay does not use each session."""
    named, unnamed = relay.session(idle_timeout=1), relay.session(idle_timeout=1)

    def there() -> set[str]:
        return {item["session_id"] for item in relay.get("/sessions").ok()["items"]}

    with ThreadPoolExecutor(2) as pool:
        wait = {"types": "terminated", "timeout": 20}
        pool.submit(relay.get, "/events", **wait)
        pool.submit(relay.get, "/events", sessions=named.id, **wait)
        eventually(lambda: unnamed.id not in there())  # in less time than they wait
        unnamed.get().refused("SESSION_EXPIRED", 410)
        assert named.id in there()
        named.delete().ok()
        relay.session().try_launch(code="1").ok()  # the first wait ends with this program


def test_output_is_for_those_who_may_read_it(
    own_relay: Callable[..., Any], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    admin, reader = (new_token(relay, "--scope", scope) for scope in ("admin", "sessions:read"))
    client = relay.client.called(Authorization=f"Bearer {admin}")
    client.get("/events", types="nonsense").refused("INVALID_PARAMETER", 400)  # without a session
    session = client.session()
    session.launch(source(STOPS))
    page = relay.client.called(Authorization=f"Bearer {reader}").get("/events", types="output").ok()
    assert {one["body"]["output"] for one in page["events"]} == {""}
