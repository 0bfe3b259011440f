"""An IDE that has joined notices nothing of the relay's end, and its session goes on with it."""

from __future__ import annotations

from collections.abc import Callable

from tests.kit.client import Session
from tests.kit.ide import Ide
from tests.kit.relay import Relay
from tests.kit.source import Source

PROGRAM = """
    total = 0
    for n in range(1000):
        total += n  # @add
        total -= 1  # @less
"""


def test_a_killed_supervisor(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    program = source(PROGRAM)
    relay = own_relay()
    session = relay.client.session()
    session.break_at(program, program["add"], condition="n == 5")
    session.launch(program)
    port = session.get().ok()["debugger"]
    with Ide(session) as ide:
        ide.join({str(program.path): [program["less"]]})
        thread = ide.event("stopped")["threadId"]
        relay.kill()
        before = len(ide.messages)
        ide.ask("continue", threadId=thread)
        stop, line = ide.stopped(after=before)
        assert (stop["reason"], line) == ("breakpoint", program["less"])
        assert ide.ask("evaluate", expression="n", context="repl")["result"] == "5"
        before = len(ide.messages)
        ide.ask("next", threadId=thread)
        ide.event("stopped", after=before)

        relay.start()
        again = Session(relay.client, session.id)
        shown = again.get().ok()
        assert shown["debugger"] == {**port, "clients": ["ide:test (human)"]}
        assert again.value("n") == "5"
        # The steps that were made meanwhile are events, each once and by name.
        told = [(e["body"]["reason"], e["body"].get("caller")) for e in again.events("stopped")]
        human = "ide:test (human)"
        assert told == [("breakpoint", None), ("breakpoint", None), ("step", human)]
        again.post("/lease", {"take_over": True}).ok()
        before = len(ide.messages)
        again.step()
        assert ide.stopped(after=before)[1] == again.line()
        again.delete("", force="true").ok()
        ide.event("terminated")
        ide.until_closed()
