"""`tunnel`: a local port, or stdin and stdout, that lead to a session elsewhere."""

from __future__ import annotations

import ipaddress
from argparse import Namespace

from debug_relay.supervisor.cli.client import address as addresses
from debug_relay.supervisor.cli.client.address import Misused
from debug_relay.supervisor.cli.client.invocation import Invocation
from debug_relay.supervisor.cli.client.parser import Command, Parser, add_session


def _options(parser: Parser) -> None:
    add_session(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--listen", metavar="[HOST]:PORT", help="accept debuggers here; port 0 is any free one"
    )
    where.add_argument("--stdio", action="store_true", help="be one debugger's connection")
    parser.add_argument(
        "--any-user",
        action="store_true",
        help="let other users and other machines connect; without it only you, on this machine",
    )


def _run(invocation: Invocation, given: Namespace) -> int:
    # No other command may wait for these.
    import asyncio

    from debug_relay.supervisor.cli.tunnelling import carry

    place = None if given.stdio else _place(given.listen, given.any_user)
    at = invocation.relay.address
    token = addresses.token(given.token_file)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if given.agent:
        headers["X-Agent"] = given.agent
    session = invocation.session(given.session)
    return asyncio.run(carry(at, headers, session, place, given.any_user))


def _place(text: str, any_user: bool) -> tuple[str, int]:
    """Host and port of `--listen`. Whoever connects there has the rights of the token."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise Misused(f"--listen {text}: the port is a number up to 65535, as in --listen :1234")
    if host == "localhost":
        host = "127.0.0.1"
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise Misused(f"--listen {text}: the host is an IP address") from None
    if not is_loopback and not any_user:
        raise Misused(
            f"--listen {text} is not loopback: any machine could debug the program through it; "
            "--any-user allows that"
        )
    return host, int(port)


COMMANDS = {
    "tunnel": Command(
        _options,
        _run,
        "debug-relay tunnel shop --listen :1234",
        "A debugger or an IDE connects to the local port as if the session were on this machine: "
        "gdb -ex 'target remote :1234', or an IDE's attach to localhost:1234. With --stdio, gdb "
        "starts it itself: target remote | debug-relay tunnel shop --stdio. The token is that of "
        "OPENCODE_DEBUG_TOKEN or --token-file: one with sessions:write, or the session's own.",
    )
}
