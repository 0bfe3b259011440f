"""An IDE joins a running session: it sees the present stop, and both sides see each other act."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.kit.client import Client
from tests.kit.ide import Ide
from tests.kit.source import Source
from tests.meta.documents import block

PROGRAM = """
    def work(n, seen):
        total = n * 2  # @work
        seen.append(total)  # @next
        return total  # @last

    seen = []
    for n in range(100):
        work(n, seen)  # @call
    print("done")  # @done
"""


CAN = {"supportsInvalidatedEvent": True}


def test_an_ide_joins_at_a_stop(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    agent = relay.called(X_Agent="ann")
    with agent.session(name="shared") as session, Ide(session, "vscode", **CAN) as ide:
        session.break_at(program, program["work"], condition="n == 3")
        stopped = session.launch(program)
        ide.join()
        stop, line = ide.stopped()
        assert (stop["reason"], stop["allThreadsStopped"]) == ("breakpoint", True)
        assert stop["threadId"] == stopped["thread_id"]
        assert line == program["work"]
        assert "hitBreakpointIds" not in stop  # the breakpoint is the agent's
        assert stop["description"] == "Paused on breakpoint (bp_1 of an agent)"
        at = f"{program.path}:{program['work']}"
        ide.event("output", output=f"Agents have set:\n  a breakpoint at {at} if n == 3\n")
        added = session.break_at(program, program["last"], log_message="{n}")
        session.delete(f"/breakpoints/{added['id']}").ok()
        for done in ("set", "removed"):
            told = f"ann has {done} a log point at {program.path}:{program['last']}\n"
            ide.event("output", output=told)
        assert session.get().ok()["debugger"]["clients"] == ["ide:vscode (human)"]

        thread = stop["threadId"]
        assert [one["id"] for one in ide.ask("threads")["threads"]] == [thread]
        frames = ide.ask("stackTrace", threadId=thread, startFrame=0, levels=20)
        assert frames["totalFrames"] == 2
        top, caller = frames["stackFrames"]
        assert (top["name"], top["source"]["path"]) == ("work", str(program.path))
        assert caller["line"] == program["call"]
        scope = ide.ask("scopes", frameId=top["id"])["scopes"][0]
        listed = ide.ask("variables", variablesReference=scope["variablesReference"])["variables"]
        values = {one["name"]: one["value"] for one in listed}
        assert values["n"] == "3"
        seen = next(one for one in listed if one["name"] == "seen")
        inner = ide.ask("variables", variablesReference=seen["variablesReference"])["variables"]
        assert [one["value"] for one in inner if one["value"].isdigit()][:3] == ["0", "2", "4"]

        # It sets a value, and the agent reads it.
        place = {"variablesReference": scope["variablesReference"], "name": "n"}
        assert ide.ask("setVariable", value="30 + 1", **place)["value"] == "31"
        assert session.value("n") == "31"
        expression = {"expression": "seen[0]", "value": "'x'", "frameId": top["id"]}
        assert ide.ask("setExpression", **expression)["value"] == "'x'"
        evaluated = ide.ask("evaluate", expression="n + 1", frameId=top["id"], context="watch")
        assert evaluated["result"] == "32"
        refused = ide.refused("evaluate", expression="1 / 0", frameId=top["id"], context="repl")
        assert refused["message"] == "ZeroDivisionError: division by zero"
        completed = ide.ask("completions", text="see", column=4, frameId=top["id"])["targets"]
        assert "seen" in [one["label"] for one in completed]
        typed = {"text": "total\nsee", "line": 2, "column": 4, "frameId": top["id"]}
        assert "seen" in [one["label"] for one in ide.ask("completions", **typed)["targets"]]
        large = ide.ask("evaluate", expression="list(range(1200))", frameId=top["id"])
        shown = ide.ask("variables", variablesReference=large["variablesReference"])["variables"]
        assert (len(shown), shown[-1]["value"]) == (1001, "200 more are not shown")
        text = ide.ask("source", source={"path": str(program.path)}, sourceReference=0)
        assert "def work" in text["content"]

        modules = ide.ask("modules", startModule=0, moduleCount=5)
        assert (len(modules["modules"]), modules["totalModules"] > 5) == (5, True)
        sources = [one["path"] for one in ide.ask("loadedSources")["sources"]]
        assert str(program.path) in sources

        # The agent changes a value: the IDE is told to read values again.
        before = len(ide.messages)
        session.post("/evaluate", {"expression": "n = 7"}).ok()
        assert ide.event("invalidated", before) == {"areas": ["variables"]}
        assert ide.ask("evaluate", expression="n", frameId=top["id"])["result"] == "7"

        # It steps: its answer comes before the stop, and the agent sees who it was.
        before = len(ide.messages)
        ide.ask("next", threadId=thread)
        stop, line = ide.stopped(after=before)
        assert (stop["reason"], line) == ("step", program["next"])
        kinds = [m.get("event") or m["command"] for m in ide.messages[before:]]
        assert kinds.index("next") < kinds.index("stopped")
        assert "continued" not in kinds
        last = session.events("stopped")[-1]["body"]
        assert last["caller"] == "ide:vscode (human)"
        assert session.line() == program["next"]

        # What it was shown before is of a stop that has passed.
        for request in (
            {"command": "scopes", "frameId": top["id"]},
            {"command": "variables", "variablesReference": scope["variablesReference"]},
            {"command": "evaluate", "expression": "n", "frameId": top["id"]},
        ):
            late = ide.refused(**request)
            assert late["message"] == "notStopped"

        # The agent steps, once it has taken the lease over: the IDE hears of it before the stop.
        session.post("/step-over", {}).refused("SESSION_LEASED", 423)
        session.post("/lease", {"take_over": True}).ok()
        before = len(ide.messages)
        session.step()
        stop, line = ide.stopped(after=before)
        assert line == program["last"]
        assert stop["description"].endswith("by ann")
        with Ide(session) as late:
            late.join()
            assert late.event("stopped")["description"] == "Paused on step, by ann"
        heard = [m["event"] for m in ide.messages[before:] if m["type"] == "event"]
        assert heard.index("continued") < heard.index("stopped")
        refused = ide.refused("next", threadId=thread)
        words = refused["body"]["error"]["format"]
        assert refused["body"]["error"]["showUser"] is True
        written = " ".join(block("lease-dialog").split())
        assert re.sub(r"\d+ s", "42 s", words) == written
        ide.ask("evaluate", expression="%takeover", context="repl")
        session.post("/continue", {}).refused("SESSION_LEASED", 423)
        ide.ask("continue", threadId=thread)
        assert ide.event("exited") == {"exitCode": 0}
        ide.event("terminated")
        session.delete("", force="true").ok()
        ide.until_closed()
        assert ide.events.count("terminated") == 1
        printed = [m["body"] for m in ide.messages if m.get("event") == "output"]
        assert {"category": "stdout", "output": "done\n"} in printed


def test_each_has_breakpoints_of_its_own(relay: Client, source: Callable[..., Source]) -> None:
    program = source(PROGRAM)
    path = str(program.path)
    with relay.session(stop_on_entry=True) as session, Ide(session) as ide, Ide(session) as other:
        session.break_at(program, program["work"], condition="n == 50")
        session.launch(program)
        ide.join({path: [program["work"], program["last"]]})
        other.join({path: [program["next"]]})
        own = ide.break_at(path, program["work"], condition="n == 2")
        assert [(one["verified"], one["line"]) for one in own] == [(True, program["work"])]
        listed = session.get("/breakpoints").ok()["breakpoints"]
        assert [(b["owner"], b["line"], b["condition"]) for b in listed] == [
            (None, program["work"], "n == 50"),
            ("ide:test (human)", program["work"], "n == 2"),
            ("ide:test-2 (human)", program["next"], None),
        ]
        owned = listed[1]["id"]
        text = session.get("/breakpoints?format=text").raw.decode()
        assert f"{owned} {path}:{program['work']}  of ide:test (human)  if n == 2\n" in text
        uri = session.get().ok()["debugger"]["uri"]
        assert f"an IDE joins at {uri}\n" in session.get("?format=text").raw.decode()
        session.delete(f"/breakpoints/{owned}").refused("INVALID_REQUEST", 400)
        session.patch(f"/breakpoints/{owned}", {"enabled": False}).refused("INVALID_REQUEST", 400)

        other.break_at(path)  # none any more
        stop = session.resume()
        assert (stop["current_location"]["line"], session.value("n")) == (program["work"], "2")
        hit = ide.event("stopped", reason="breakpoint")
        assert hit["hitBreakpointIds"] == [own[0]["id"]]
        assert "hitBreakpointIds" not in other.event("stopped", reason="breakpoint")

        # The IDE takes its own away. The agent's on the same line stays until the agent clears it.
        ide.break_at(path)
        session.resume()
        assert session.value("n") == "50"
        ide.break_at(path, program["last"])
        assert session.delete("/breakpoints").ok()["deleted"] == 1
        assert session.resume()["current_location"]["line"] == program["last"]
        assert "new" not in str([m for m in ide.messages if m.get("event") == "breakpoint"])

        # It leaves: its breakpoints go with it, and the program stays where it is.
        ide.ask("disconnect")
        ide.until_closed()
        assert session.get("/breakpoints").ok()["breakpoints"] == []
        assert session.status()["status"] == "paused"
        assert session.get().ok()["debugger"]["clients"] == ["ide:test-2 (human)"]
        other.ask("disconnect", terminateDebuggee=True)
        other.until_closed()
        assert session.status()["status"] == "terminated"
