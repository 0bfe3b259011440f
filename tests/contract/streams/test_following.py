"""Streams replay what was, then follow live: by `curl -N`, by a WebSocket, at both path forms."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.source import Source
from tests.kit.streams import all_of, connect, curl, needs_curl, received
from tests.meta.documents import block

COUNTS = """
    import sys
    print("before")
    total = 0  # @line
    for n in range(3):
        total += n  # @adds
        print("n", n)
    print("to stderr", file=sys.stderr)
    sys.stdout.buffer.write(b"\\xff\\xfe raw\\n")
"""
PATH_FORMS = ["/api/v1", ""]


@needs_curl
@pytest.mark.parametrize("prefix", PATH_FORMS)
def test_server_sent_events(relay: Client, source: Callable[..., Source], prefix: str) -> None:
    program = source(COUNTS)
    session = relay.session()
    session.break_at(program, program["line"])
    session.launch(program)
    with (
        curl(session, "/output/stream", prefix=prefix) as output,
        curl(session, "/output/stream?category=stderr", prefix=prefix) as errors,
        curl(session, "/events/stream?types=stopped,terminated", prefix=prefix) as events,
    ):
        first, stop = output.next(), events.next()
        assert first is not None
        assert (first.event, first.data["output"]) == ("output", "before\n")
        assert stop is not None
        assert (stop.event, stop.data["body"]["reason"]) == ("stopped", "breakpoint")
        documented = dict(line.split(": ", 1) for line in block("sse-message").splitlines())
        data = json.loads(documented["data"])
        assert (documented.keys(), documented["event"]) == ({"id", "event", "data"}, stop.event)
        assert (data.keys(), data["body"].items() <= stop.data["body"].items()) == (
            stop.data.keys(),
            True,
        )
        session.resume()
        assert [one.event for one in events.until("terminated")] == ["terminated"]
        assert errors.next().data["output"] == "to stderr\n"  # type: ignore[union-attr]
        # One that comes later has the same, from the beginning or from behind an id.
        with (
            curl(session, "/output/stream") as again,
            curl(session, "/output/stream", "-H", f"Last-Event-ID: {first.id}") as behind,
            curl(session, f"/output/stream?cursor={first.id}") as by_cursor,
            curl(session, "/events/stream") as whole,
        ):
            paged = session.get("/events").ok()["events"]
            assert [whole.next().data for _ in paged] == paged  # type: ignore[union-attr]
            assert again.next() == first
            later = behind.next()
            assert by_cursor.next() == later
            session.delete(force="true").ok()
            *rest, end = output.rest()
            assert (end.event, end.data["reason"], end.data["missed"]) == ("end", "deleted", 0)
            assert end.data["cursor"] == rest[-1].id
            assert again.rest()[:-1] == [later, *behind.rest()[:-1]] == rest
            assert by_cursor.rest()[:-1] == rest[1:]
        text = "".join(one.data["output"] for one in (first, *rest) if not one.data.get("encoding"))
        assert sorted(text.splitlines()) == ["before", "n 0", "n 1", "n 2", "to stderr"]
        assert [one.data["output"] for one in rest if one.data.get("encoding")] == ["//4gcmF3Cg=="]
        assert [one.event for one in events.rest()] == ["end"]
        assert (output.exit_code, events.exit_code) == (0, 0)


@pytest.mark.parametrize("prefix", PATH_FORMS)
def test_sockets(relay: Client, source: Callable[..., Source], prefix: str) -> None:
    program = source(COUNTS)
    session = relay.session()
    session.break_at(program, program["line"])
    session.launch(program)
    with (
        connect(session, "/logs", prefix=prefix) as logs,
        connect(session, "/debug", prefix=prefix, headers={"X-Agent": "eve"}) as debug,
    ):
        first = received(logs)
        assert first.keys() == json.loads(block("logs-message")).keys()
        assert (first["stream"], first["text"]) == ("stdout", "before\n")
        debug.send('{"action": "step", "id": "a1"}')
        ack = received(debug)
        assert (ack["kind"], ack["id"], ack["payload"]["action"]) == ("ack", "a1", "step")
        told = [received(debug)]
        while told[-1]["kind"] != "result":
            told.append(received(debug))
        *pushed, result = told
        assert (result["id"], result["payload"]["data"]["stop_reason"]) == ("a1", "step")
        assert [one["event"] for one in pushed] == ["session", "continued", "stopped"]
        assert {one["session_id"] for one in told} == {session.id}
        assert {one["payload"]["caller"] for one in pushed} == {"eve"}
        documented = json.loads(block("debug-event"))
        assert pushed[-1].keys() == documented.keys()
        assert documented["payload"].keys() <= pushed[-1]["payload"].keys()
        for line in block("debug-commands").splitlines():
            debug.send(line)
            while (answer := received(debug))["kind"] != "result":
                pushed += [answer] if answer["kind"] == "event" else []
            assert (answer["id"], answer["payload"]["success"]) == (json.loads(line)["id"], True)
        # Commands that are sent together: the program meets the breakpoint, though setting it takes
        # a while. The echo hides secrets.
        place = {"file": str(program), "line": program["adds"]}
        for action, fields in (("set-breakpoints", place), ("continue", {"wait": 20})):
            debug.send(json.dumps({"action": action, "id": action, "arguments": fields}))
        launch = {"env": {"API_TOKEN": "c4nary"}, "args": ["--password", "c4nary"], "code": "1"}
        debug.send(json.dumps({"action": "launch", "arguments": launch}))
        told: list[Any] = []
        acks: list[Any] = []
        results: dict[str | None, Any] = {}
        while len(acks) < 3 or "continue" not in results:
            told.append(received(debug))
            acks += [told[-1]["payload"]] if told[-1]["kind"] == "ack" else []
            if told[-1]["kind"] == "result":
                results[told[-1].get("id")] = told[-1]["payload"]
        assert results["continue"]["data"]["stop_reason"] == "breakpoint"
        kinds = [one.get("event") for one in told]
        assert kinds.index("breakpoint") < kinds.index("continued")
        assert [ack["arguments"] for ack in acks[2:]] == [
            {"env": {"API_TOKEN": "***"}, "args": ["--password", "***"], "code": "1"}
        ]
        assert "c4nary" not in json.dumps(told)
        session.delete("/breakpoints").ok()
        session.resume()
        with (
            connect(session, f"/logs?cursor={first['cursor']}") as behind,
            connect(session, f"/debug?cursor={pushed[-1]['cursor']}") as later,
        ):
            session.delete(force="true").ok()
            lines, code, reason = all_of(logs)
            assert (code, reason) == (1000, f"{session.id} is deleted")
            assert lines[-1]["end"] == "deleted"
            assert all_of(behind)[0][:-1] == lines[:-1]
            raw = [one["text"] for one in lines if one.get("encoding") == "base64"]
            assert raw == ["//4gcmF3Cg=="]
            pushed, code, _ = all_of(debug)
            events = [one for one in (*told, *pushed) if one["kind"] in ("event", "end")]
            assert (events[-1]["kind"], events[-1]["payload"]["reason"]) == ("end", "deleted")
            assert all_of(later)[0][:-1] == events[:-1]
            assert "terminated" in [one.get("event") for one in events]
