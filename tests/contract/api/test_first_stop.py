"""From nothing to the first stop in one call, and sessions that are addressed by their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.kit.client import Client
from tests.kit.source import Source

PROGRAM = """
    import time
    def total(items):
        amount = 0
        for price in items:
            amount += price  # @add
        return amount
    print(total([5, 7, -3]))
    try:
        {}["lost"]  # @raise
    except KeyError:
        pass
    time.sleep(0.05)
    done = total([1])  # @last
"""


def test_one_call_to_the_first_stop(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    body = {
        "name": "shop",
        "mode": "launch",
        "script": str(program),
        "breakpoints": [
            {"file": str(program), "text": "amount += price", "condition": "price < 0"},
            {"file": "/no/such.py", "line": 1},
        ],
        "exceptions": {"filters": ["raised"]},
        "snapshot": {"frames": 1, "locals": 5},
        "wait": 30,
    }
    made = relay.post("/sessions", body).ok(201)
    try:
        assert (made["status"], made["stop_reason"]) == ("paused", "breakpoint")
        assert made["stop"]["stop_id"] == made["stop_id"] == 1
        assert {one["name"]: one["value"] for one in made["stop"]["locals"]}["price"] == "-3"
        assert [one["verified"] for one in made["breakpoints"]] == [True, False]
        # The name is the address, in paths and where several sessions are named.
        raised = relay.post("/sessions/shop/continue", {"wait": 20}).ok()
        assert raised["stop_reason"] == "exception"
        assert raised["current_location"]["line"] == program["raise"]
        assert relay.get("/events", sessions="shop").ok()["statuses"] == {
            made["session_id"]: "paused"
        }
        with relay.session(name="shop"):
            both = relay.get("/sessions/shop/status").refused("SESSION_NOT_FOUND", 404)
            assert made["session_id"] in both["details"]["suggestion"]
        # The next stop in one call: at once where the program stands, else when it comes.
        assert relay.get("/sessions/shop/snapshot", wait=20).ok()["stop"]["stop_id"] == 2
        relay.post("/sessions/shop/breakpoints", {"file": str(program), "line": program["last"]})
        relay.post("/sessions/shop/continue", {"wait": 0}).ok()
        stop = relay.get("/sessions/shop/snapshot", wait=20).ok()["stop"]
        assert stop["current_location"]["line"] == program["last"]
        relay.post("/sessions/shop/continue", {"wait": 0}).ok()
        for _ in range(2):  # by the worker, and by the files that it leaves
            ended = relay.get("/sessions/shop/snapshot", wait=20).ok()
            assert (ended["stop"], ended["status"], ended["exit_code"]) == (None, "terminated", 0)
            relay.post(f"/sessions/{made['session_id']}/ping").ok()
        relay.get("/sessions/shop/snapshot").refused("INVALID_SESSION_STATE", 409)
    finally:
        relay.delete(f"/sessions/{made['session_id']}").ok()
    relay.get("/sessions/shop").refused("SESSION_NOT_FOUND", 404)


def test_text_of_the_first_stop(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    body = {
        "name": "shop-text",
        "mode": "launch",
        "script": str(program),
        "cwd": str(Path(str(program)).parent),
        "breakpoints": [{"file": Path(str(program)).name, "text": "amount += price"}],
        "wait": 30,
    }
    shown = relay.post("/sessions?format=text", body)
    try:
        lines = shown.raw.decode().splitlines()
        assert shown.status == 201
        assert lines[0].endswith(" shop-text: paused (breakpoint, stop 1)")
        assert "price: int = 5" in lines
        assert len(shown.raw) < 700
        assert b"tcp://" not in shown.raw  # only who joins needs the port: `get-session` has it
    finally:
        relay.delete("/sessions/shop-text").ok()


def test_a_start_that_is_refused_leaves_nothing(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source(PROGRAM)
    launch = {"name": "gone", "mode": "launch", "script": str(program)}
    wrong = {**launch, "breakpoints": [{"file": str(program), "line": 999}]}
    relay.post("/sessions", wrong).refused("BREAKPOINT_INVALID_LINE", 400)
    relay.get("/sessions/gone").refused("SESSION_NOT_FOUND", 404)
    relative = {**launch, "breakpoints": [{"file": "a.py", "line": 1}]}
    error = relay.post("/sessions", relative).refused("INVALID_REQUEST", 400)
    assert error["details"]["errors"][0]["field"] == "breakpoints[0].file"
    relay.post("/sessions", {"snapshot": True}).refused("INVALID_REQUEST", 400)
