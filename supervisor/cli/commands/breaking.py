"""`break`: sets, lists and removes breakpoints."""

from __future__ import annotations

from argparse import Namespace

from debug_relay.supervisor.cli.client.invocation import Invocation
from debug_relay.supervisor.cli.client.parser import Command, Parser
from debug_relay.supervisor.cli.commands import places


def _options(parser: Parser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="[SESSION] [PLACE]", help="FILE:LINE, FILE:TEXT or a function"
    )
    parser.add_argument("--if", dest="condition", metavar="EXPRESSION", help="stop only if true")
    parser.add_argument("--hits", metavar="N", help="stop only at these hits: 5, >=5, %%5")
    parser.add_argument("--log", metavar="TEXT", help="print instead of stopping: 'n is {n}'")
    parser.add_argument(
        "-d", "--delete", action="append", metavar="ID", help="remove breakpoint ID"
    )
    parser.add_argument("--clear", action="store_true", help="remove all")


def _break(invocation: Invocation, given: Namespace) -> int:
    words = given.words
    if len(words) > 2:
        given.parser.error("give SESSION and PLACE; quote a place that has blanks")
    place = words[-1] if words else None
    named = words[0] if len(words) == 2 else None
    if place is not None and named is None and not places.is_place(place):
        # One plain name is a session's, or a function's.
        known = {
            name
            for item in invocation.sessions()
            for name in (item["session_id"], item.get("name"))
        }
        if place in known:
            place, named = None, place
    id = invocation.session(named)
    if given.clear:
        invocation.show(invocation.call("clear-breakpoints", session_id=id))
    elif given.delete:
        for point in given.delete:
            invocation.show(
                invocation.call("delete-breakpoint", session_id=id, breakpoint_id=point)
            )
    elif place is None:
        invocation.show(invocation.call("list-breakpoints", session_id=id))
    else:
        more = {
            "condition": given.condition,
            "hit_condition": given.hits,
            "log_message": given.log,
        }
        point = {**places.breakpoint_at(place), **{k: v for k, v in more.items() if v is not None}}
        invocation.show(invocation.call("set-breakpoints", session_id=id, breakpoints=[point]))
    return 0


COMMANDS = {
    "break": Command(
        _options,
        _break,
        "debug-relay break shop shop.py:4 --if 'price < 0'\n"
        "debug-relay break shop total --log 'prices: {prices}'\n"
        "debug-relay break shop\n"
        "debug-relay break shop --delete bp_1",
        "Without a place it lists the breakpoints. FILE:TEXT is the one line that contains TEXT.",
    )
}
