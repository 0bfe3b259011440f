"""The relay that a command calls, the session it means, and how answers are shown."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

from debug_relay.protocol.version import VERSION
from debug_relay.supervisor.cli.client import address, terminal
from debug_relay.supervisor.cli.client.calls import Refused, Relay, Reply
from debug_relay.supervisor.cli.client.suggestions import in_commands

_ID = re.compile(r"sess_[0-9a-f]{8,}")
_ADDRESS = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_ENDED = ("terminated", "failed")
_NOT_LIVE = ("created", *_ENDED)
_LISTED = 1000  # Sessions that are read to find one by its name; as many as the relay gives.


class Choose(Exception):
    """There is not just one session, and none was named: exit code 2."""


class Invocation:
    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._asked: tuple[str, dict[str, Any]] | None = None  # the last call of the command
        self.as_json: bool = given.json

    def find_again(self) -> None:
        """Forgets the relay: one that comes back may listen elsewhere."""
        self.__dict__.pop("relay", None)

    @cached_property
    def relay(self) -> Relay:
        """The relay; with `--start` it is started if none answers."""
        given = self._given
        token = address.token(given.token_file)

        def find() -> Relay:
            found = address.find(given.url, given.data_dir)
            return Relay(found, token, given.agent, given.data_dir)

        if not given.start:
            return find()
        from debug_relay.supervisor.cli.client.starting import started

        return started(find, given)

    def session(self, named: str | None) -> str:
        """The session as a call names it; without a name, the only session."""
        if named is not None and _ADDRESS.fullmatch(named):
            return named  # the relay knows it by its id and by its name
        return self.session_id(named)

    def session_id(self, named: str | None) -> str:
        """The id of the session with this name or id; without one, of the only session."""
        if named is not None and _ID.fullmatch(named):
            return named
        items = self.sessions()
        if named is not None:
            found = [item for item in items if item.get("name") == named]
            # Ended sessions do not count beside a living one of that name, as in the relay.
            living = [item for item in found if item["status"] not in _ENDED]
            ids = [str(item["session_id"]) for item in (living or found)]
            if len(ids) == 1:
                return ids[0]
            if ids:
                raise Choose(f"{len(ids)} sessions are called {named}: {', '.join(ids)}")
            return named  # the relay says that it does not know it, and which there are
        if not items:
            raise Choose(
                "there is no session; start one: debug-relay launch SCRIPT, debug-relay attach PID"
            )
        if len(items) > 1:
            # Ended sessions are kept for a while, and restored ones wait; the live one is meant.
            for without in (_NOT_LIVE, _ENDED):
                left = [item for item in items if item["status"] not in without]
                if len(left) == 1:
                    return str(left[0]["session_id"])
            names = ", ".join(shown_name(item) for item in items[:20])
            raise Choose(f"there are {len(items)} sessions, name one of them: {names}")
        return str(items[0]["session_id"])

    def sessions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] | None
        found = self.relay.call("list-sessions", limit=_LISTED).data.get("items")
        return found or []

    def status(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.relay.call("session-status", session_id=id).data
        return found

    def call(self, name: str, waiting: str = "", /, **fields: Any) -> Reply:
        """Calls an operation in the form that the command prints."""
        form = "json" if self.as_json else "text"
        self._asked = name, fields
        with self.progress(waiting or name):
            return self.relay.call(name, form=form, **fields)

    def progress(self, words: str) -> AbstractContextManager[Callable[[], None]]:
        return terminal.progress(words)

    def show(self, reply: Reply) -> None:
        """Prints the answer: JSON as it came, text with colour on a terminal."""
        if self.as_json:
            sys.stdout.write(reply.body.decode())
        else:
            text = in_commands(reply.text.rstrip("\n"), self._asked)
            terminal.print_text(terminal.painted(text))

    def say(self, line: str) -> None:
        """Prints a line that the relay's answer lacks; `--json` prints answers alone."""
        if not self.as_json:
            terminal.print_text(line)

    def rows(self, reply: Reply, lines: Callable[[Any], list[str]]) -> None:
        """Prints a JSON answer, as columns unless `--json`."""
        if self.as_json:
            sys.stdout.write(reply.body.decode())
        else:
            for line in lines(reply.data):
                terminal.print_text(line)


def shown_name(item: dict[str, Any]) -> str:
    return str(item.get("name") or item["session_id"])


def refusal_text(refused: Refused) -> str:
    """The error as text, also when the command asked for JSON."""
    reply = refused.reply
    if reply.kind.startswith("text/html"):
        return f"what answers is no relay, but a page with status {reply.status}"
    if not reply.is_json:
        # The details behind the suggestion are for programs.
        text = re.sub(r"^(next: .*)(?s:\n.*)", r"\1", reply.text, count=1, flags=re.MULTILINE)
        if text.strip():
            message, *more = text.rstrip("\n").split("\n")
            # A single wrong field is what the message says already.
            more = [line for line in more if line.partition(": ")[2] not in message]
            return "\n".join([message, *_next(refused, "\n".join(more))])
        return f"the relay answers with status {reply.status}"
    try:
        error = reply.json["error"]
        suggestion = (error.get("details") or {}).get("suggestion")
    except (ValueError, KeyError, TypeError, AttributeError):
        return (
            f"the answer is not a relay's (status {reply.status}): {json.dumps(reply.text[:200])}"
        )
    message = f"error {error['code']}: {error['message']}"
    return "\n".join([message, *_next(refused, f"next: {suggestion}" if suggestion else "")])


def _next(refused: Refused, suggested: str) -> list[str]:
    if refused.code == "NOT_FOUND":  # each command calls what a relay of its version has
        return [f"next: Restart the relay: it is of another version than this command ({VERSION})."]
    return [in_commands(suggested)] if suggested else []
