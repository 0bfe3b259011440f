"""`stdio` and `mcp`: fronts that other programs start, to speak a protocol over two pipes."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from debug_relay.supervisor.cli.client.address import Address, Misused, NoRelay, find, token
from debug_relay.supervisor.cli.client.parser import Command, Parser
from debug_relay.supervisor.cli.exit_codes import FAILED, MISUSED, OK


def _stdio_options(parser: Parser) -> None:
    parser.add_argument("--python", metavar="PATH", help="the interpreter for the program")
    parser.add_argument(
        "--just-my-code", action="store_true", help="do not step into installed packages"
    )
    parser.add_argument(
        "--session", metavar="SESSION", help="drive this session of a running relay, and leave it"
    )
    parser.add_argument("--url", help="make the session in this relay, not in a private one")
    parser.add_argument("--data-dir", metavar="DIR", help="find it by the relay.json in DIR")
    parser.add_argument("--token-file", metavar="FILE", help="default: OPENCODE_DEBUG_TOKEN")
    parser.add_argument("args", nargs="*", metavar="ARG", help="the program's arguments, after --")


def _stdio(given: Namespace) -> int:
    try:
        address = _running_relay(given, needed=given.session is not None)
        secret = token(given.token_file) if address is not None else None
    except Misused as error:
        sys.stderr.write(f"debug-relay stdio: {error}\n")
        return MISUSED
    except NoRelay as error:
        sys.stderr.write(f"debug-relay stdio: {error}\nnext: start one: debug-relay serve\n")
        return FAILED
    from debug_relay.supervisor.cli.stdio.commands import Options
    from debug_relay.supervisor.cli.stdio.front import serve

    options = Options(given.session, given.python, given.args, given.just_my_code)
    return serve(options, address, secret, f"stdio-{os.getpid()}")


def _running_relay(given: Namespace, needed: bool) -> Address | None:
    """The relay that the options name; None means a private one."""
    if not (needed or given.url or given.data_dir):
        return None
    return find(given.url, given.data_dir)


def _mcp_options(parser: Parser) -> None:
    parser.add_argument("--url", help="the relay; default: the running one, or a private one")
    parser.add_argument("--data-dir", metavar="DIR", help="find it by the relay.json in DIR")
    parser.add_argument("--token-file", metavar="FILE", help="default: OPENCODE_DEBUG_TOKEN")
    parser.add_argument("--agent", metavar="NAME", default="mcp", help="who calls, in events")
    parser.add_argument(
        "--era",
        choices=("legacy", "auto"),
        default="legacy",
        help="auto also serves clients that know the protocol of 2026-07-28 alone",
    )


def _mcp(given: Namespace) -> int:
    try:
        from debug_relay.supervisor.cli import mcp_front
    except ImportError as error:
        sys.stderr.write(
            f"debug-relay mcp: the official SDK is missing: {error}\n"
            f"next: {sys.executable} -m pip install 'opencode-debug-relay[mcp]'\n"
        )
        return FAILED
    try:
        secret = token(given.token_file)
        try:
            address: Address | None = find(given.url, given.data_dir)
        except NoRelay:
            address = None  # a private one
    except Misused as error:
        sys.stderr.write(f"debug-relay mcp: {error}\n")
        return MISUSED
    mcp_front.serve(address, secret, given.agent, given.era)
    return OK


COMMANDS = {
    "stdio": Command(_stdio_options, _stdio,
                     "debug-relay stdio < commands.jsonl\n"
                     "debug-relay stdio --python .venv/bin/python -- --port 8000",
                     "One JSON object a line: commands on standard input, events on standard "
                     "output.\nWithout --url or --session it has a relay of its own, which ends "
                     "with it.", in_relay=False),
    "mcp": Command(_mcp_options, _mcp, "debug-relay mcp\ndebug-relay mcp --url http://127.0.0.1:5679",
                   "A server of the Model Context Protocol on standard input and output. It needs "
                   "the extra [mcp].\nWithout a running relay it has one of its own, which ends "
                   "with it.",
                   in_relay=False),
}  # fmt: skip
