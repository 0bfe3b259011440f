"""An agent by HTTP and an IDE by DAP drive one session at the same time, at random.

Both always see the same stop; each event reaches both, once and in order; and a thread runs only
because one of them resumed it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.kit.client import Client, Session
from tests.kit.ide import Ide, Message, connected
from tests.kit.relay import eventually
from tests.kit.source import Source

PROGRAM = """
    def work(n):
        total = 0  # @first
        for part in range(3):
            total += n * part  # @inner
        return total  # @last

    n = 0
    while True:
        n += 1  # @loop
        work(n)
"""
MARKS: Final = ("first", "inner", "last", "loop")
ACTIONS: Final = 200  # of each side

RUNS: Final = ("continue", "over", "into", "out")
HUMAN: Final = "ide:test (human)"
DEEDS: Final = (
    *RUNS * 3,
    *("pause", "look", "look", "evaluate", "take", "drop"),
    *(f"break {mark}" for mark in MARKS),
)
REFUSED: Final = {"SESSION_LEASED", "INVALID_SESSION_STATE", "STOP_CHANGED", "VARIABLE_NOT_FOUND"}


class Agent:
    """Counts what it resumes; a refusal must be one of those that others' acts can cause."""

    def __init__(self, session: Session, program: Source) -> None:
        self.session, self.program = session, program
        self.refused: list[str] = []
        self.resumed = 0

    def act(self, what: str) -> None:
        kind, _, mark = what.partition(" ")
        if kind in RUNS:
            path = "/continue" if kind == "continue" else f"/step-{kind}"
            self.resumed += self.tolerant("post", path, {"wait": 0.05})
        elif kind == "pause":
            self.tolerant("post", "/pause", {"wait": 2})
        elif kind == "break":
            self.session.delete("/breakpoints").ok()
            self.session.break_at(self.program, self.program[mark])
        elif kind == "look":
            self.tolerant("get", "/snapshot", None)
        elif kind == "evaluate":
            self.tolerant("post", "/evaluate", {"expression": "n + 1"})
        elif kind == "take":
            self.session.post("/lease", {"ttl": 0.3, "take_over": True}).ok()
        else:
            self.tolerant("delete", "/lease", None)

    def tolerant(self, verb: str, path: str, body: Any) -> bool:
        arguments = (path,) if body is None else (path, body)
        answer = getattr(self.session, verb)(*arguments)
        if answer.status == 200:
            return True
        assert answer.body["error"]["code"] in REFUSED, answer.body
        self.refused.append(f"{path}: {answer.body['error']['message']}")
        return False


class Person:
    """The same through an IDE."""

    COMMANDS: Final = {"continue": "continue", "over": "next", "into": "stepIn", "out": "stepOut"}

    def __init__(self, ide: Ide, program: Source) -> None:
        self.ide, self.program = ide, program
        self.thread = ide.ask("threads")["threads"][0]["id"]
        self.resumed = 0

    def act(self, what: str) -> None:
        kind, _, mark = what.partition(" ")
        if kind in RUNS:
            self.resumed += self.tolerant(self.COMMANDS[kind], threadId=self.thread)["success"]
        elif kind == "pause":
            self.tolerant("pause", threadId=self.thread)
        elif kind == "break":
            self.ide.break_at(self.program.path, self.program[mark])
        elif kind == "take":
            self.tolerant("evaluate", expression="%takeover", context="repl")
        elif kind == "drop":
            self.tolerant("evaluate", expression="%release", context="repl")
        else:
            stack = self.tolerant("stackTrace", threadId=self.thread)
            if stack["success"]:
                frame = stack["body"]["stackFrames"][0]["id"]
                self.tolerant("evaluate", expression="n + 1", frameId=frame, context="watch")
                self.tolerant("scopes", frameId=frame)

    def tolerant(self, command: str, **arguments: Any) -> Message:
        answer = self.ide.answer(self.ide.send(command, **arguments))
        if not answer["success"]:
            words = answer["body"]["error"]["format"]
            assert answer["message"] == "notStopped" or "drives this session" in words, answer
        return answer


def told(ide: Ide) -> list[str]:
    """What the IDE knows of the run, in order: the reasons of stops, and resumes. Its own resumes
    have an answer and no event.
    """
    own = {m["seq"]: m["command"] for m in ide.sent}
    found = []
    for message in ide.messages:
        if message["type"] == "event" and message["event"] in ("stopped", "continued"):
            found.append(message["body"].get("reason", "continued"))
        elif (
            message["type"] == "response"
            and message["success"]
            and own[message["request_seq"]] in Person.COMMANDS.values()
        ):
            found.append("continued")
    return found


@settings(
    max_examples=1,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 2**32).filter(lambda seed: seed.bit_count() > 5))
def together(relay: Client, program: Source, seed: int) -> None:
    chance = random.Random(seed)
    with relay.session() as session, Ide(session) as ide, connected(session) as silent:
        session.break_at(program, program["loop"])
        session.launch(program)
        ide.join({str(program.path): [program["inner"]]})
        ide.event("stopped")
        cursor = session.resume(wait=5)["events_cursor"]
        begun = session.events("stopped", "continued")[-1]["seq"]
        before = len(ide.messages)
        agent, person = Agent(session, program), Person(ide, program)
        failed: list[BaseException] = []

        def drive(side: Agent | Person, deeds: list[str]) -> None:
            try:
                for deed in deeds:
                    side.act(deed)
            except BaseException as error:
                failed.append(error)

        sides = [
            threading.Thread(target=drive, args=(agent, chance.choices(DEEDS, k=ACTIONS))),
            threading.Thread(target=drive, args=(person, chance.choices(DEEDS, k=ACTIONS))),
        ]
        for side in sides:
            side.start()
        for side in sides:
            side.join(300)
        assert failed == []
        assert cursor

        # Both come to rest at the same stop.
        session.post("/lease", {"take_over": True}).ok()
        if session.status()["status"] == "running":
            session.post("/pause", {"wait": 10}).ok()
        status = session.status()
        assert status["status"] == "paused"
        top = eventually(lambda: ide.answer(ide.send("stackTrace", threadId=person.thread)))
        assert isinstance(top, dict)
        frame = top["body"]["stackFrames"][0]
        place = status["current_location"]
        assert (frame["line"], frame["name"]) == (place["line"], place["function"])
        assert ide.ask("evaluate", expression="n", context="repl")["result"] == session.value("n")

        # No event is lost or doubled, and they have one order.
        journaled = [e for e in all_events(session) if e["seq"] > begun]
        seqs = [event["seq"] for event in journaled]
        assert seqs == sorted(set(seqs))
        expected = [e["body"].get("reason", "continued") for e in journaled]
        heard = told(ide)[-len(expected) :] if expected else []
        assert heard == expected, (len(told(ide)), len(expected))
        assert before <= len(ide.messages)

        # Nobody resumed what nobody resumed: each resume is one that a side asked for.
        resumes = [e["body"].get("caller") for e in journaled if e["type"] == "continued"]
        assert resumes.count(HUMAN) == person.resumed
        others = len(resumes) - resumes.count(HUMAN)
        assert others == agent.resumed, (resumes, agent.refused)
        # A connection that says nothing is closed after ten seconds, most of which are over.
        assert silent.recv(1) == b""
        print(f"{agent.resumed} + {person.resumed} resumes, {len(expected)} events")
        assert person.resumed > 5
        assert agent.resumed > 5


def all_events(session: Session) -> list[Any]:
    found: list[Any] = []
    query: dict[str, Any] = {"limit": 1000, "types": "stopped,continued"}
    while True:
        page = session.get("/events", **query).ok()
        found += page["events"]
        if not page["has_more"]:
            return found
        query["cursor"] = page["next_cursor"]


@pytest.mark.long
def test_an_agent_and_a_person(relay: Client, source: Callable[..., Source]) -> None:
    together(relay, source(PROGRAM))
