"""Says in commands what the relay suggests as calls: its answers are written for `curl`."""

from __future__ import annotations

import re

from debug_relay.protocol.version import API_PREFIX

_CALL = re.compile(
    rf"\b(GET|POST|PATCH|DELETE) {API_PREFIX}(/[^\s;,?]*[\w}}])(?:\?[^\s;,]*(?:,[^\s;,]+)*)?"
    r"(?: with cursor= set to [^.]*?\))?"  # `wait` keeps no cursor: it looks where the program is
)
_SESSION = re.compile(r"^/sessions/(sess_\w+|\{session_id\}|SESSION_ID)")
_COMMANDS = {
    "GET /processes": "debug-relay ps",
    "GET /sessions": "debug-relay sessions",
    "POST /sessions": "debug-relay launch",
    "GET S": "debug-relay status S",
    "GET S/status": "debug-relay status S",
    "DELETE S": "debug-relay rm S",
    "POST S/launch": "debug-relay launch --session S",
    "POST S/attach": "debug-relay attach --session S",
    "POST S/continue": "debug-relay continue S",
    "POST S/pause": "debug-relay pause S",
    "POST S/step-over": "debug-relay next S",
    "POST S/step-into": "debug-relay step S",
    "POST S/step-out": "debug-relay out S",
    "GET S/breakpoints": "debug-relay break S",
    "POST S/breakpoints": "debug-relay break S PLACE",
    "GET S/stacktrace": "debug-relay where S",
    "GET S/snapshot": "debug-relay where S",
    "GET S/frames/0/variables": "debug-relay locals S",
    "POST S/evaluate": "debug-relay eval S",
    "GET S/output": "debug-relay logs S",
    "GET S/events": "debug-relay wait S",
}


def in_commands(text: str) -> str:
    """The text with each call for which there is a command replaced by it; others stay."""
    return _CALL.sub(_command, text)


def _command(call: re.Match[str]) -> str:
    session = _SESSION.match(call[2])
    path = "S" + call[2][session.end() :] if session else call[2]
    if path == "S/snapshot" and "wait=" in call[0]:
        path = "S/events"  # it is a wait for the next stop
    command = _COMMANDS.get(f"{call[1]} {path}")
    if command is None:
        return call[0]
    name = session[1] if session and session[1].startswith("sess_") else "SESSION"
    return re.sub(r"\bS\b", name, command)
