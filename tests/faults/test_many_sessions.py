"""Many sessions and many callers at once: nobody sees another's values, and nothing piles up."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil

from tests.kit.client import Client, Session
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

PROGRAM = """
    import sys

    def turn(mine, count):
        secret = f"{mine}:{count}"
        print(secret, flush=True)
        return secret  # @here

    mine = sys.argv[1]
    for count in range(1000):
        turn(mine, count)
"""
CALLS = 20
KINDS = ("locals", "evaluate", "continue", "step", "output", "events", "stack")


def begin(client: Client, program: Source, number: int) -> Session:
    session = client.session(name=f"n{number}", labels={"number": str(number)})
    session.break_at(program, program["here"])
    assert session.launch(program, args=[f"p{number}"])["status"] == "paused"
    return session


def hammer(session: Session, number: int, seed: int) -> None:
    """Calls of all kinds; whatever they tell must be of this session's own program."""
    chance = random.Random(seed)
    mine = f"p{number}"
    for _ in range(CALLS):
        kind = chance.choice(
            ["locals", "evaluate", "continue", "step", "output", "events", "stack"]
        )
        if kind == "locals":
            assert session.locals()["mine"] == repr(mine)
        elif kind == "evaluate":
            assert session.value("mine + '!'") == repr(mine + "!")
        elif kind == "continue":
            assert session.resume()["stop_reason"] == "breakpoint"
        elif kind == "step":
            # Out and back to where `mine` is again.
            assert session.step("out")["status"] == "paused"
            assert session.resume()["status"] == "paused"
        elif kind == "output":
            lines = session.printed("stdout").splitlines()
            assert lines == [f"{mine}:{count}" for count in range(len(lines))]
        elif kind == "events":
            numbers = [event["seq"] for event in session.events()]
            assert numbers == sorted(set(numbers))
        else:
            frames = session.get("/stacktrace").ok()["frames"]
            assert frames[0]["name"] == "turn"


def test_five_sessions_and_eight_threads(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    with ThreadPoolExecutor(8) as pool:
        sessions = list(pool.map(lambda n: begin(relay, program, n), range(5)))
        # A session's own calls come one after the other.
        work = [pool.submit(hammer, one, n, seed=n) for n, one in enumerate(sessions)]
        for one in work:
            one.result(120)
        listed = relay.get("/sessions").ok()["items"]
        assert {item["labels"]["number"] for item in listed} >= {str(n) for n in range(5)}
        assert {answer.status for answer in pool.map(Session.delete, sessions)} == {200}


def test_eight_threads_on_one_session(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    session = begin(relay, program, 1)

    def drive(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(CALLS):
            answer = chance.choice(
                [
                    lambda: session.post("/continue", {"wait": 20}),
                    lambda: session.get("/stacktrace"),
                    lambda: session.get("/frames/0/variables"),
                    lambda: session.post("/evaluate", {"expression": "mine"}),
                    lambda: session.get("/status"),
                ]
            )()
            # Another may have moved the program on: that is said, and nothing else goes wrong.
            allowed = {"INVALID_SESSION_STATE", "VARIABLE_NOT_FOUND", "FRAME_NOT_FOUND"}
            assert answer.status == 200 or answer.body["error"]["code"] in allowed, answer.body

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(drive, range(8)))
    eventually(lambda: session.status()["status"] == "paused")
    assert session.value("mine") == "'p1'"
    lines = session.printed("stdout").splitlines()
    assert lines == [f"p1:{count}" for count in range(len(lines))]
    session.delete().ok()


def test_twelve_sessions_leave_the_relay_as_before(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay(env={"OPENCODE_DEBUG_SESSIONS__MAX_SESSIONS": "40"})
    client = relay.client
    program = source("print('hello')\n")
    process = psutil.Process(relay.pid)

    def live(number: int) -> None:
        session = client.session()
        if number % 4 == 0:
            assert session.launch(program)["exit_code"] == 0
        session.delete().ok()

    # One before the count: what the relay opens once and keeps is no leak.
    live(0)
    before, descriptors = folders(relay), process.num_fds()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(live, range(12)))
    eventually(lambda: relay.below() == [])
    eventually(lambda: process.num_fds() <= descriptors, what="descriptors given back")
    assert folders(relay) == before
    assert client.get("/sessions").ok()["total"] == 0


def folders(relay: Relay) -> list[str]:
    """All files of the relay but its logs."""
    found = [*relay.data_dir.rglob("*"), *relay.run_dir.rglob("*")]
    return sorted(str(path) for path in found if "logs" not in path.parts)
