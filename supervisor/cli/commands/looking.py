"""`where`, `locals`, `eval`: what a stopped program looks like."""

from __future__ import annotations

from argparse import Namespace

from debug_relay.supervisor.cli.client.here import Here
from debug_relay.supervisor.cli.client.parser import Command, Parser, add_fields, add_session


def _where_options(parser: Parser) -> None:
    add_session(parser)
    add_fields(parser, "stacktrace", thread="thread_id")
    parser.add_argument("-n", "--frames", type=int, default=20, help="how many frames; default: 20")


def _where(here: Here, given: Namespace) -> int:
    id = here.session(given.session)
    here.show(
        here.call("stacktrace", session_id=id, thread_id=given.thread_id, levels=given.frames)
    )
    return 0


def _locals_options(parser: Parser) -> None:
    add_session(parser)
    parser.add_argument(
        "-f",
        "--frame",
        type=int,
        default=0,
        metavar="N",
        help="as `where` numbers them; default: 0",
    )
    add_fields(parser, "frame-variables", thread="thread_id")


def _locals(here: Here, given: Namespace) -> int:
    id = here.session(given.session)
    fields = {"frame_id": given.frame, "thread_id": given.thread_id}
    here.show(here.call("frame-variables", session_id=id, **fields))
    return 0


def _eval_options(parser: Parser) -> None:
    parser.add_argument(
        "words", nargs="+", metavar="[SESSION] EXPRESSION", help="the expression as one argument"
    )
    parser.add_argument("-f", "--frame", type=int, metavar="N", help="evaluate in this frame")
    parser.add_argument("-x", "--exec", action="store_true", help="run statements instead")
    add_fields(parser, "evaluate", thread="thread_id")
    add_fields(parser, "evaluate", "timeout")


def _eval(here: Here, given: Namespace) -> int:
    if len(given.words) > 2:
        given.parser.error("give SESSION and EXPRESSION; quote an expression that has blanks")
    named = given.words[0] if len(given.words) == 2 else None
    reply = here.call(
        "evaluate",
        "evaluating",
        session_id=here.session(named),
        expression=given.words[-1],
        context="repl" if given.exec else None,
        frame_id=given.frame,
        thread_id=given.thread_id,
        timeout=given.timeout,
    )
    here.show(reply)
    has_raised = reply.data.get("error") if here.as_json else reply.text.startswith("raised ")
    return 1 if has_raised else 0


COMMANDS = {
    "where": Command(_where_options, _where, "debug-relay where shop", "The source of the "
                     "innermost frame is shown, with an arrow at the line that runs next."),
    "locals": Command(_locals_options, _locals, "debug-relay locals shop\n"
                      "debug-relay locals shop --frame 1"),
    "eval": Command(_eval_options, _eval, "debug-relay eval shop 'amount + price'\n"
                    "debug-relay eval shop --exec 'amount = 0'",
                    "The exit code is 1 if the expression raises."),
}  # fmt: skip
