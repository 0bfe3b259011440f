"""`ps`, `sessions`, `status` and `rm` list processes and sessions, show a session and delete it."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from typing import Any

from debug_relay.supervisor.cli.client.invocation import Invocation, shown_name
from debug_relay.supervisor.cli.client.parser import Command, Parser, add_fields, add_session
from debug_relay.supervisor.cli.client.suggestions import in_commands
from debug_relay.supervisor.cli.client.terminal import table

_ENDED = ("terminated", "failed")
_COMMAND_CHARACTERS = 120  # A command line in a table.


# -- ps


def _ps_options(parser: Parser) -> None:
    parser.add_argument(
        "match", nargs="?", metavar="TEXT", help="only command lines with this text"
    )
    parser.add_argument("-a", "--all", action="store_true", help="also the relay's own processes")


def _ps(invocation: Invocation, given: Namespace) -> int:
    with invocation.progress("looking at the processes"):
        reply = invocation.relay.call("list-processes", limit=1000, match=given.match)
    invocation.rows(reply, lambda data: list(_process_lines(data.get("items") or [], given)))
    return 0


def _process_lines(items: list[dict[str, Any]], given: Namespace) -> list[str]:
    rows = []
    for item in items:
        command = " ".join(item.get("command") or ())
        is_ours = item.get("code") == "ATTACH_SELF" or item["pid"] == os.getpid()
        if is_ours and not given.all:
            continue
        rows.append(
            [
                str(item["pid"]),
                item["user"],
                item.get("python_version") or "?",
                _age(item["start_time"]),
                ",".join(map(str, item.get("listening_ports") or ())),
                _attachable(item),
                _short(command),
            ]
        )
    if not rows:
        return [
            "no Python process" + (f" has {given.match!r} in its command line" * bool(given.match))
        ]
    head = ["PID", "USER", "PYTHON", "AGE", "PORTS", "ATTACH", "COMMAND"]
    return [*table(head, rows, right="PID AGE"), *_reasons(items, rows)]


def _attachable(item: dict[str, Any]) -> str:
    if item.get("debugged_by"):
        return str(item["debugged_by"])
    if item.get("attachable"):
        return f"yes, {item['greenlets']}" if item.get("greenlets") else "yes"
    return "no: " + str(item.get("code", "?")).removeprefix("ATTACH_").replace("_", " ").lower()


def _reasons(items: list[dict[str, Any]], rows: list[list[str]]) -> list[str]:
    """Why the shown processes cannot be attached to, and what mends it: each way once."""
    shown = {row[0] for row in rows}
    ways: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        if str(item["pid"]) in shown and not (item.get("attachable") or item.get("debugged_by")):
            ways.setdefault(item.get("suggestion") or "", []).append(item)
    lines = []
    for way, those in ways.items():
        others = f" (and {len(those) - 1} more)" if len(those) > 1 else ""
        lines.append(f"{those[0]['pid']}: {those[0].get('reason')}{others}")
        lines += [f"  → {in_commands(way)}"] if way else []
    return ["", *lines] if lines else []


def _age(start_time: float) -> str:
    seconds = max(int(time.time() - start_time), 0)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _short(text: str) -> str:
    return text if len(text) <= _COMMAND_CHARACTERS else text[: _COMMAND_CHARACTERS - 1] + "…"


# -- sessions


def _sessions_options(parser: Parser) -> None:
    add_fields(parser, "list-sessions", "status", "label", words={
        "status": "only those in this state", "label": "only those with this KEY=VALUE",
    })  # fmt: skip
    parser.add_argument("-q", "--quiet", action="store_true", help="print the names alone")


def _sessions(invocation: Invocation, given: Namespace) -> int:
    reply = invocation.relay.call(
        "list-sessions", limit=1000, status=given.status, label=given.label
    )
    if given.quiet and not invocation.as_json:
        invocation.rows(reply, lambda data: [shown_name(item) for item in data.get("items") or []])
    else:
        invocation.rows(reply, lambda data: list(_session_lines(data.get("items") or [])))
    return 0


def _session_lines(items: list[dict[str, Any]]) -> list[str]:
    if not items:
        return ["no sessions; start one: debug-relay launch SCRIPT, debug-relay attach PID"]
    rows = [
        [
            item["session_id"],
            item.get("name") or "",
            item["status"],
            item.get("stop_reason") or "",
            _short(item.get("program") or ""),
        ]
        for item in items
    ]
    return list(table(["SESSION", "NAME", "STATUS", "STOP", "PROGRAM"], rows))


# -- status


def _status(invocation: Invocation, given: Namespace) -> int:
    invocation.show(invocation.call("get-session", session_id=invocation.session(given.session)))
    return 0


# -- rm


def _rm_options(parser: Parser) -> None:
    add_session(parser, many=True)
    parser.add_argument("--ended", action="store_true", help="all sessions that have ended")
    parser.add_argument(
        "--force", action="store_true", default=None, help="kill the program: do not let it end"
    )
    parser.add_argument(
        "--terminate",
        dest="terminate_debuggee",
        action="store_true",
        default=None,
        help="end the program too if the session has attached to it",
    )


def _rm(invocation: Invocation, given: Namespace) -> int:
    ids = [invocation.session(named) for named in given.session]
    if given.ended:
        ids += [item["session_id"] for item in invocation.sessions() if item["status"] in _ENDED]
    elif not ids:
        ids = [invocation.session(None)]
    for id in dict.fromkeys(ids):
        reply = invocation.call(
            "delete-session",
            f"ending {id}",
            session_id=id,
            force=given.force,
            terminate_debuggee=given.terminate_debuggee,
        )
        if invocation.as_json:
            invocation.show(reply)
        invocation.say(f"{id} is deleted")
    return 0


COMMANDS = {
    "ps": Command(_ps_options, _ps, "debug-relay ps", "A process that cannot be attached to is "
                  "listed with the reason; below the table is what to do about it."),
    "sessions": Command(_sessions_options, _sessions, "debug-relay sessions --status paused"),
    "status": Command(add_session, _status, "debug-relay status shop"),
    "rm": Command(_rm_options, _rm, "debug-relay rm shop", "A program that the session has "
                  "launched ends with it; one that it has attached to keeps running, as before."),
}  # fmt: skip
