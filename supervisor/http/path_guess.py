"""Guesses the call that an unknown path means, from the words that other debuggers use.

It knows the words of pdb, gdb, DAP and other APIs. The router handles spelling mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.version import API_PREFIX

_WORDS: Final[Mapping[str, str]] = {
    "step-over": "next n over step s step-next",
    "step-into": "into in si step-in stepi",
    "step-out": "out finish fin up return until-return",
    "run-to": "until run-until run-to-line run-to-cursor jump goto advance",
    "continue": "resume go cont c proceed unpause run",
    "pause": "stop break-all interrupt suspend halt",
    "terminate": "kill end exit quit abort",
    "restart": "rerun reload relaunch",
    "launch": "start exec debug",
    "attach": "connect join",
    "detach": "disconnect release",
    "input": "write send-input type keys",
    "set-breakpoints": "break bp b tbreak breakpoint set-breakpoint set-breakpoints logpoint",
    "set-exception-breakpoints": "exceptions catch exception-filters set-exception-breakpoints",
    "stacktrace": "stack stacks bt backtrace where w frames frame callstack call-stack traceback",
    "frame-variables": "locals vars args local-variables",
    "scopes": "scope globals",
    "evaluate": "eval p print pp expression expr repl",
    "add-watch": "display watches watch-expressions",
    "threads": "thread",
    "modules": "loaded loaded-sources",
    "source": "list l ll code file sources listing",
    "snapshot": "context report stop stop-report wait",
    "tasks": "asyncio coroutines",
    "completions": "complete autocomplete",
    "output": "log console stdout stderr prints",
    "events": "poll stream notifications",
    "session-status": "state",
    "ping": "heartbeat keepalive keep-alive touch",
    "take-lease": "lock drive",
    "resources": "usage stats memory cpu",
    "export-session": "save dump",
    "clone-session": "copy duplicate",
    "delete-session": "delete close remove destroy",
    "list-sessions": "session ls",
    "create-session": "create new new-session",
    "list-processes": "ps process pids",
    "health": "healthz ready readyz livez ping alive",
    "info": "version about",
    "openapi": "swagger schema spec openapi-json",
    "llms": "help guide recipes readme llms howto manual",
    "list-profiles": "profiles",
}  # fmt: skip
# The suggestion adds this query to the path: `wait` is no operation but a field of this one.
_QUERY: Final = {"wait": "?wait=30"}
# A launch or attach needs a session: one call does both.
_FIRST: Final = {
    "attach": ' {"mode": "attach", "pid": PID}',
    "launch": ' {"mode": "launch", "script": "/path/to/program.py"}',
}


class Meant(NamedTuple):
    operation: str
    template: str
    body: str = ""


def meant(method: str, segments: Sequence[str]) -> Meant | None:
    """The call that a path without prefix means; None if it has no known word."""
    words = [_plain(segment) for segment in segments]
    in_session = words[:1] in (["sessions"], ["session"]) and len(words) > 1
    if not words or (in_session and len(words) == 2):  # the last word is an id
        return None
    names = list(_NAMES.get(words[-1], ()))
    # A word may belong to several operations: the method decides.
    rows = OPERATIONS
    names.sort(key=lambda name: (rows[name].verb != method, rows[name].on_session != in_session))
    if not names:
        return None
    name = names[0]
    if not in_session and name in _FIRST:
        return Meant("create-session", OPERATIONS["create-session"].path, _FIRST[name])
    return Meant(name, _template(name, words), _QUERY.get(words[-1], ""))


def _template(name: str, words: list[str]) -> str:
    """The operation's path; the one for a single thread if the unknown path names one."""
    paths = OPERATIONS[name].paths
    of_thread = [path for path in paths if "/threads/{thread_id}/" in path]
    return of_thread[0] if of_thread and "threads" in words[2:3] else paths[0]


def _plain(segment: str) -> str:
    """`stepOver` and `step_over` as `step-over`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_. ]", "-", segment[:40]).lower()


def _names() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, row in OPERATIONS.items():
        last = _plain(row.path.rpartition("/")[2])
        for word in (name, *last.split(), *_WORDS.get(name, "").split()):
            if name not in found.setdefault(word, []):
                found[word].append(name)
    return found


_NAMES: Final = _names()


def segments_of(path: str) -> list[str]:
    """The path's segments without the API prefix, or what looks like one."""
    parts = path.strip("/").split("/")
    prefix = API_PREFIX.strip("/").split("/")
    if parts[:1] == prefix[:1]:
        del parts[0]
    if parts and re.fullmatch(r"v\d", parts[0]):
        del parts[0]
    return parts
