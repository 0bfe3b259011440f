"""The supervisor dies as by `kill -9`; the next one finds every session as it was."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.kit.client import Session
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

COUNTING = """
    def main():
        values = {"a": [1, 2]}
        for i in range(100):
            print("line", i, flush=True)  # @loop
            total = i * 2
        print("done")  # @done

    main()
"""
WAITING = """
    import pathlib, sys, time

    def main():
        mark = 7
        print("waits", flush=True)
        while not pathlib.Path(sys.argv[1]).exists():  # @wait
            time.sleep(0.01)
        print("goes on", mark)  # @after

    main()
"""


def reborn(relay: Relay, *sessions: Session) -> list[Session]:
    """Kill the supervisor, start the next, and the same sessions there."""
    relay.kill()
    relay.start()
    return [Session(relay.client, session.id) for session in sessions]


def members(session: Session, reference: int) -> dict[str, str]:
    listed = session.get(f"/variables/{reference}").ok()["variables"]
    return {variable["name"]: variable["value"] for variable in listed}


def test_a_paused_session_is_there_again_as_it_was(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    program = source(COUNTING)
    session = relay.client.session(name="survivor", labels={"team": "search"})
    session.break_at(program, program["loop"], condition="i >= 3")
    session.launch(program)
    before, known = session.status(), session.locals()
    whole = session.get().ok()
    breakpoints = session.get("/breakpoints").ok()
    first = session.get("/output").ok()
    seen = session.get("/events", limit=1000).ok()
    reference = next(
        variable["variables_reference"]
        for variable in session.get("/frames/0/variables").ok()["variables"]
        if variable["name"] == "values"
    )
    inside = members(session, reference)

    (session,) = reborn(relay, session)

    after = session.status()
    passing = {"expires_at", "held_seconds"}
    assert {**after, **{k: before[k] for k in passing}} == before
    again = session.get().ok()
    assert {name: again[name] for name in again if name not in passing} == {
        name: whole[name] for name in whole if name not in passing
    }
    assert session.locals() == known
    assert session.get("/breakpoints").ok() == breakpoints
    assert members(session, reference) == inside
    assert session.get("/output", cursor=first["next_cursor"]).ok()["entries"] == []
    assert session.get("/events", cursor=seen["next_cursor"]).ok()["events"] == []
    # Steps go on, and the cursors with them.
    stepped = session.step("over")
    assert stepped["current_location"]["line"] == program["loop"] + 1
    assert stepped["stop_id"] == before["stop_id"] + 1
    printed = session.get("/output", cursor=first["next_cursor"]).ok()["entries"]
    assert [entry["output"] for entry in printed] == ["line 3\n"]
    events = session.get("/events", cursor=seen["next_cursor"]).ok()["events"]
    numbers = [event["seq"] for event in seen["events"] + events]
    assert numbers == list(range(1, len(numbers) + 1))
    gone = session.get(f"/variables/{reference}").refused("VARIABLE_NOT_FOUND", 404)
    assert gone["details"]["from_earlier_stop"] is True
    session.delete("/breakpoints").ok()
    assert session.resume()["exit_code"] == 0
    assert session.printed("stdout") == "".join(f"line {i}\n" for i in range(100)) + "done\n"


def test_killed_again_and_again(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    program = source(COUNTING)
    session = relay.client.session()
    session.break_at(program, program["loop"])
    session.launch(program)
    for i in range(3):
        assert session.value("i") == str(i)
        (session,) = reborn(relay, session)
        assert session.resume()["stop_reason"] == "breakpoint"
    # A worker that is not this relay's child: how it ended is known all the same.
    worker_log = relay.run_dir / session.id / "worker.log"
    with worker_log.open("a") as file:
        file.write("a warning\n")
    relay.worker(session.id).kill()
    eventually(lambda: session.status()["status"] == "failed")
    error = session.post("/continue").refused("SESSION_CRASHED", 500)
    assert "was ended by SIGKILL" in error["message"]
    assert f"the worker wrote last is in {worker_log}." in error["details"]["suggestion"]


def test_a_program_that_runs_meanwhile(
    own_relay: Callable[..., Relay], source: Callable[..., Source], tmp_path
) -> None:
    relay = own_relay()
    program = source(WAITING)
    gate = tmp_path / "gate"
    session = relay.client.session()
    session.break_at(program, program["after"])
    session.launch(program, wait=0, args=[str(gate)])
    eventually(lambda: session.printed("stdout") == "waits\n")
    seen = session.get("/events", limit=1000).ok()["next_cursor"]

    relay.kill()
    gate.touch()  # it stops while nobody is there
    relay.start()
    session = Session(relay.client, session.id)

    eventually(lambda: session.status()["status"] == "paused")
    stopped = session.events("stopped", cursor=seen)
    assert [event["body"]["current_location"]["line"] for event in stopped] == [program["after"]]
    assert session.locals()["mark"] == "7"
    assert session.resume()["exit_code"] == 0
    assert session.printed("stdout") == "waits\ngoes on 7\n"


def test_a_program_that_ends_meanwhile(
    own_relay: Callable[..., Relay], source: Callable[..., Source], tmp_path
) -> None:
    relay = own_relay()
    gate = tmp_path / "gate"
    session = relay.client.session()
    launched = session.launch(source(WAITING), wait=0, args=[str(gate)])
    relay.kill()
    gate.touch()
    eventually(lambda: not psutil.pid_exists(launched["pid"]))
    relay.start()
    session = Session(relay.client, session.id)
    shown = session.status()
    assert (shown["status"], shown["exit_code"]) == ("terminated", 0)
    assert session.printed("stdout").endswith("goes on 7\n")
    assert [event["body"]["exit_code"] for event in session.events("terminated")] == [0]


def test_while_a_step_waits(
    own_relay: Callable[..., Relay], source: Callable[..., Source], tmp_path
) -> None:
    relay = own_relay()
    program = source("""
        import pathlib, sys, time

        def slow(path):
            while not pathlib.Path(path).exists():
                time.sleep(0.01)

        slow(sys.argv[1])  # @slow
        print("stepped")  # @next
    """)
    gate = tmp_path / "gate"
    session = relay.client.session()
    session.break_at(program, program["slow"])
    session.launch(program, args=[str(gate)])
    with ThreadPoolExecutor(1) as pool:
        step = pool.submit(session.step, "over", wait=30)
        eventually(lambda: session.status()["status"] == "running")
        relay.kill()
        with pytest.raises(OSError):
            step.result(20)
    relay.start()
    session = Session(relay.client, session.id)
    assert session.status()["status"] == "running"
    seen = session.get("/events", limit=1000).ok()["next_cursor"]
    gate.touch()
    # A long-poll simply connects again.
    (stopped,) = session.events("stopped", cursor=seen, timeout=20)
    assert stopped["body"]["current_location"]["line"] == program["next"]
    assert session.line() == program["next"]


def test_with_four_sessions_at_once(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay(env={"OPENCODE_DEBUG_MAX_SESSIONS": "4"})
    program = source("""
        import sys

        mine = sys.argv[1]
        print("I am", mine, flush=True)
        after = mine * 2  # @here
        last = 1  # @last
    """)

    def begin(number: int) -> tuple[int, Session]:
        session = relay.client.session(name=f"s{number}")
        session.break_at(program, program["here"])
        assert session.launch(program, args=[str(number)])["status"] == "paused"
        return number, session

    def check(number: int, id: str) -> None:
        session = Session(relay.client, id)
        assert session.value("mine") == repr(str(number))
        assert session.get().ok()["name"] == f"s{number}"
        assert session.printed("stdout") == f"I am {number}\n"
        assert session.step("over")["current_location"]["line"] == program["last"]
        assert session.value("after") == repr(str(number) * 2)
        assert session.resume()["exit_code"] == 0

    with ThreadPoolExecutor(4) as pool:
        begun = list(pool.map(begin, range(4)))
        relay.kill()
        relay.start()
        assert relay.client.get("/sessions").ok()["total"] == 4
        relay.client.post("/sessions", {}).refused("SESSION_LIMIT_REACHED", 429)
        list(pool.map(lambda one: check(one[0], one[1].id), begun))
