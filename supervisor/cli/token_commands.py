"""`debug-relay token create|list|revoke`: options and output.

The commands change only the tokens file; a running relay notices the change.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from debug_relay.protocol.scopes import SCOPES
from debug_relay.supervisor.cli.client import terminal
from debug_relay.supervisor.cli.client.parser import Command, Parser
from debug_relay.supervisor.cli.serving import configured
from debug_relay.supervisor.config.layers import Loaded
from debug_relay.supervisor.config.settings import KEYS

if TYPE_CHECKING:  # the parser is built for every command, and only one needs this
    from debug_relay.supervisor.access.tokens import Token

_NAME: Final = re.compile(r"[A-Za-z0-9][\w.@:+-]{0,99}", re.ASCII)
_FOR: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_LAST: Final = 253402300799.0  # the end of the year 9999


def _options(parser: Parser) -> None:
    """Adds the three actions; each has the options that determine the tokens file."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    made: list[Parser] = []
    for name, words in (
        ("create", "make a token and print it, this once: only its hash is kept"),
        ("list", "print the tokens' names, scopes and expiry"),
        ("revoke", "make a token worthless at once"),
    ):
        made.append(actions.add_parser(name, help=words, description=words, allow_abbrev=False))
    create, listing, revoke = made
    create.add_argument(
        "--scope",
        action="append",
        required=True,
        type=scopes_of,
        help=f"what it allows, with commas: {', '.join(SCOPES)} (implies the rest)",
    )
    create.add_argument("--name", type=_name, help="what its caller is called in events and logs")
    create.add_argument(
        "--expires",
        type=_moment,
        metavar="WHEN",
        help="12h, 30d, or a time as 2027-01-31T12:00:00Z",
    )
    listing.add_argument("--json", action="store_true", help="as JSON")
    revoke.add_argument("name", help="as `list` shows it")
    for action in made:
        action.set_defaults(parser=action)
        _add_place(action)


def _add_place(action: Parser) -> None:
    action.add_argument("--config", metavar="FILE", help="as for serve")
    action.add_argument("--data-dir", dest="server.data_dir", metavar="DIR", help="as for serve")
    action.add_argument(
        KEYS["auth.tokens_file"].flag,
        dest="auth.tokens_file",
        metavar="FILE",
        help="instead of the configured one",
    )


def _run(loaded: Loaded, known: argparse.Namespace) -> int:
    """Runs the action; raises SetupError if it is not possible."""
    from debug_relay.supervisor.access.tokens import tokens_file

    file = tokens_file(loaded.settings)
    if known.action == "create":
        scopes = [scope for given in known.scope for scope in given]
        print(file.create(scopes, known.name, known.expires))
    elif known.action == "revoke":
        if not file.revoke(known.name):
            sys.stderr.write("debug-relay: that was the last one; calls need no token now\n")
    elif known.json:
        print(json.dumps([_shown(token) for token in file.read()], indent=2))
    else:
        for line in _lines(file.read()):
            terminal.print_text(line)
    return 0


def _lines(tokens: list[Token]) -> Iterator[str]:
    if not tokens:
        yield "no tokens: on loopback none is needed; make one: debug-relay token create"
        return
    rows = []
    for token in tokens:
        end = f"expired {token.expires_at}" if token.is_expired else token.expires_at or "never"
        rows.append([token.name, end, token.created_at, ",".join(token.scopes)])
    yield from terminal.table(["NAME", "EXPIRES", "CREATED", "SCOPES"], rows)


def _shown(token: Token) -> dict[str, object]:
    return {
        "name": token.name,
        "scopes": token.scopes,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "expired": token.is_expired,
    }


def scopes_of(text: str) -> list[str]:
    scopes = [part.strip() for part in text.split(",") if part.strip()]
    for scope in scopes or [text]:
        if scope not in SCOPES:
            near = difflib.get_close_matches(scope, SCOPES, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SCOPES)}"
            raise argparse.ArgumentTypeError(f"unknown scope {scope!r}; {hint}")
    return scopes


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid name: a letter or digit, then up to 99 of these and ._@:+-"
        )
    return text


def _moment(text: str) -> float:
    """The given time as seconds since the epoch."""
    if found := _FOR.fullmatch(text.strip()):
        moment = time.time() + float(found[1]) * _SECONDS[found[2]]
    else:
        try:
            given = datetime.fromisoformat(text.strip())
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is neither a duration such as 30d nor a time as 2027-01-31T12:00:00Z"
            ) from None
        # A time without a zone is UTC, as all times of the relay are.
        moment = (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()
    if not time.time() < moment < _LAST:
        raise argparse.ArgumentTypeError(f"{text!r} does not lie ahead")
    return moment


COMMANDS = {
    "token": Command(
        _options,
        configured(_run),
        "debug-relay token create --scope sessions:read,sessions:write --name ci --expires 30d\n"
        "debug-relay token list\n"
        "debug-relay token revoke ci",
        in_relay=False,
    )
}
