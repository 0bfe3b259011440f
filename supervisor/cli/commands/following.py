"""`wait`, `events`, `logs`: what happens in sessions, as it happens.

Agents run these in the background and read stdout alone: each line is flushed, errors are on stdout
too, and the last line says why there are no more.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from argparse import Namespace
from typing import Any

from debug_relay.supervisor.cli.client import terminal
from debug_relay.supervisor.cli.client.address import Misused
from debug_relay.supervisor.cli.client.calls import Refused
from debug_relay.supervisor.cli.client.following import (
    ENDED,
    FORGOTTEN,
    GONE_SECONDS,
    Follower,
    RelayGone,
)
from debug_relay.supervisor.cli.client.invocation import Choose, Invocation, shown_name
from debug_relay.supervisor.cli.client.parser import Command, Parser, add_fields, add_session
from debug_relay.supervisor.cli.commands import event_lines
from debug_relay.supervisor.cli.exit_codes import FAILED, INTERRUPTED, OK, TIMED_OUT

_WAITED_FOR = {"stop": "stopped", "end": "terminated", "input": "input"}
_DELETED = "the session was deleted"
_ENTRIES = 1000  # Entries of output of one call.


class _Lines:
    """Flushed lines on stdout, the last of which says why it is the last."""

    def __init__(self, invocation: Invocation) -> None:
        self._as_json = invocation.as_json

    def write(self, text: str, **fields: Any) -> None:
        if self._as_json:
            sys.stdout.write(json.dumps(fields, ensure_ascii=False) + "\n")
        else:
            terminal.print_text(text)
        sys.stdout.flush()

    def notice(self, text: str) -> None:
        self.write(f"relay: {text}", type="relay", message=text)

    def end(self, code: int, reason: str, **fields: Any) -> int:
        self.write(f"end: {reason}", type="end", reason=reason, exit_code=code, **fields)
        return code


def _until(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


# -- wait


def _wait_options(parser: Parser) -> None:
    add_session(parser, many=True)
    parser.add_argument(
        "--for",
        dest="what",
        action="append",
        choices=list(_WAITED_FOR),
        help="what to wait for; may be repeated; default: stop and end",
    )
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="then exit with 5")


def _wait(invocation: Invocation, given: Namespace) -> int:
    lines = _Lines(invocation)
    until = _until(given.timeout)
    what = given.what or ["stop", "end"]
    types = ",".join(_WAITED_FOR[one] for one in what)
    ids = [invocation.session_id(named) for named in given.session]
    if not ids and not invocation.sessions():
        raise Choose("there is no session; start one: debug-relay launch SCRIPT")
    follower = Follower(invocation, ids, types, lines.notice, until=until)
    try:
        for _ in follower.kept():
            pass  # only the state that the sessions have now counts
        found = _standing(invocation, follower, what, named=bool(ids))
        with invocation.progress("waiting"):
            while found is None:
                if follower.is_late:
                    return lines.end(TIMED_OUT, f"timed out after {given.timeout:g} s")
                if ids and not follower.ids:
                    return lines.end(OK if "end" in what else FAILED, _DELETED)
                events = follower.next()
                found = events[0]["session_id"] if events else None
    except RelayGone:
        return lines.end(FAILED, f"the relay has been gone for {GONE_SECONDS:g} s")
    except KeyboardInterrupt:
        return lines.end(INTERRUPTED, "interrupted; the programs go on")
    try:
        return _report(invocation, lines, found)
    except Refused as refused:
        if refused.code not in FORGOTTEN:
            raise
        return lines.end(OK if "end" in what else FAILED, _DELETED)


def _standing(
    invocation: Invocation, follower: Follower, what: list[str], named: bool
) -> str | None:
    """A session that is already where it is waited for. Unless it is named, one that has ended is
    no news.
    """
    for id, status in follower.statuses.items():
        if status == "paused" and "stop" in what:
            return id
        if status in ENDED and "end" in what and named:
            return id
        if status == "running" and "input" in what:
            state = invocation.relay.call("session-status", session_id=id).data
            if state.get("waiting_for_input"):
                return id
    if not named and "stop" in what and not set(follower.statuses.values()) - set(ENDED):
        raise Choose("every session has ended; debug-relay sessions lists them")
    return None


def _report(invocation: Invocation, lines: _Lines, id: str) -> int:
    """The stop with its source, or how the program has ended."""
    state = invocation.relay.call("get-session", session_id=id).data
    name = shown_name(state)
    if invocation.as_json:
        sys.stdout.write(invocation.relay.call("session-status", session_id=id).body.decode())
        sys.stdout.flush()
        return OK
    if state["status"] == "paused":
        invocation.show(invocation.call("snapshot", session_id=id))
    else:
        invocation.show(invocation.call("session-status", session_id=id))
    if state.get("waiting_for_input"):
        return lines.end(OK, f"{name} waits for input")
    return lines.end(OK, f"{name} is {state['status']}")


# -- events


def _events_options(parser: Parser) -> None:
    add_session(parser, many=True)
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what happens")
    add_fields(parser, "all-events", "types")
    parser.add_argument("--new", action="store_true", help="leave out what has happened already")
    parser.add_argument("--cursor", help="go on where an earlier call ended")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="then exit with 5")


def _events(invocation: Invocation, given: Namespace) -> int:
    if given.new and given.cursor:
        raise Misused("give one of --new and --cursor")
    lines = _Lines(invocation)
    until = _until(given.timeout)
    ids = [invocation.session_id(named) for named in given.session]
    names = {item["session_id"]: shown_name(item) for item in invocation.sessions()}
    follower = Follower(invocation, ids, given.types, lines.notice, given.cursor, until)

    def show(event: dict[str, Any]) -> None:
        id = event["session_id"]
        if id not in names:
            names.update({item["session_id"]: shown_name(item) for item in invocation.sessions()})
        lines.write(event_lines.line(names.get(id, id), event), **event)

    def end(code: int, reason: str) -> int:
        return lines.end(code, f"{reason}; cursor {follower.cursor}", cursor=follower.cursor)

    try:
        for event in follower.kept():
            if not given.new:
                show(event)
        while given.follow:
            if ids and (over := _over(follower)):
                return end(OK, over)
            if follower.is_late:
                return end(TIMED_OUT, f"timed out after {given.timeout:g} s")
            for event in follower.next():
                show(event)
    except RelayGone:
        return end(FAILED, f"the relay has been gone for {GONE_SECONDS:g} s")
    except KeyboardInterrupt:
        return end(INTERRUPTED, "interrupted; the programs go on")
    return end(OK, "these are all so far")


def _over(follower: Follower) -> str:
    """Why the named sessions have no more events; empty while one may have."""
    if not follower.ids:
        return _DELETED
    living = [id for id in follower.ids if follower.statuses.get(id) not in ENDED]
    if living:
        return ""
    states = ", ".join(f"{id} {follower.statuses[id]}" for id in follower.ids)
    return f"the session has ended ({states})"


# -- logs


def _logs_options(parser: Parser) -> None:
    add_session(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the program ends")
    parser.add_argument("-n", "--tail", type=int, metavar="N", help="only the last N entries")
    add_fields(parser, "output", "category")
    parser.add_argument("-t", "--timestamps", action="store_true", help="when it was printed")


def _logs(invocation: Invocation, given: Namespace) -> int:
    id = invocation.session_id(given.session)
    output = _Output(invocation, id, given)
    if not given.follow:
        output.show()
        return OK

    def notice(text: str) -> None:
        terminal.complain(f"debug-relay logs: {text}")

    follower = Follower(invocation, [id], "output,terminated", notice)
    try:
        for _ in follower.kept():
            pass  # the output itself is read from where it is kept
        output.show()
        while follower.ids and follower.statuses.get(id) not in ENDED:
            follower.next()
            output.show()
    except RelayGone:
        notice(f"the relay has been gone for {GONE_SECONDS:g} s")
        return FAILED
    return OK


class _Output:
    """The program's output, written as the program wrote it."""

    def __init__(self, invocation: Invocation, id: str, given: Namespace) -> None:
        self._here = invocation
        self._id = id
        self._category = given.category
        self._tail = given.tail
        self._with_time = given.timestamps
        self._cursor: str | None = None

    def show(self) -> None:
        """Writes all that has come since the last time."""
        has_more = True
        while has_more:
            first = {"tail": self._tail} if self._tail and self._cursor is None else {}
            reply = self._here.relay.call(
                "output",
                session_id=self._id,
                cursor=self._cursor,
                limit=None if first else _ENTRIES,
                category=self._category,
                **first,
            )
            page = reply.data
            self._cursor, has_more = page["next_cursor"], page.get("has_more") and not first
            if page.get("dropped"):
                terminal.complain(f"debug-relay logs: {page['dropped']} earlier entries are gone")
            for entry in page.get("entries") or ():
                self._write(entry)
        sys.stdout.flush()

    def _write(self, entry: dict[str, Any]) -> None:
        if self._here.as_json:
            sys.stdout.write(json.dumps(entry, ensure_ascii=False) + "\n")
            return
        data = output_bytes(entry)
        stream = sys.stderr if entry["category"] == "stderr" else sys.stdout
        stream.flush()
        if self._with_time:
            data = f"{entry['timestamp']} ".encode() + data
        stream.buffer.write(data)
        stream.buffer.flush()


def output_bytes(entry: dict[str, Any]) -> bytes:
    """The bytes that the program has written."""
    text = entry.get("output", "")
    return base64.b64decode(text) if entry.get("encoding") else text.encode("utf-8", "replace")


COMMANDS = {
    "wait": Command(
        _wait_options,
        _wait,
        "debug-relay wait shop --timeout 60",
        "It answers at once where the program is stopped or has ended already. Without a session "
        "it waits for any. Its last line says what has happened; exit code 5 is the timeout.",
        errors_on_stdout=True,
    ),
    "events": Command(
        _events_options,
        _events,
        "debug-relay events shop --types stopped,terminated",
        "One line for each event, of all sessions if none is named. When the relay is restarted "
        "it goes on where it was. The last line says why it ends, with the cursor for --cursor.",
        errors_on_stdout=True,
    ),
    "logs": Command(
        _logs_options,
        _logs,
        "debug-relay logs shop --tail 20",
        "What the program printed, as it printed it: stderr goes to stderr.",
        interrupted="the program goes on",
    ),
}
