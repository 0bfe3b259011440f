"""`where`, `locals`, `eval`: what a stopped program looks like."""

from __future__ import annotations

from argparse import Namespace
from contextlib import suppress

from debug_relay.supervisor.cli.client.calls import Refused
from debug_relay.supervisor.cli.client.invocation import Invocation
from debug_relay.supervisor.cli.client.parser import Command, Parser, add_fields, add_session


def _where_options(parser: Parser) -> None:
    add_session(parser)
    _thread_option(parser)
    parser.add_argument(
        "-n", "--frames", type=int, default=20, metavar="N", help="how many frames; default: 20"
    )


def _where(invocation: Invocation, given: Namespace) -> int:
    id = invocation.session(given.session)
    try:
        invocation.show(
            invocation.call(
                "stacktrace", session_id=id, thread_id=given.thread_id, levels=given.frames
            )
        )
    except Refused:
        # A program that runs, or hangs, is where its threads are.
        if given.thread_id is not None or invocation.status(id)["status"] != "running":
            raise
        invocation.show(invocation.call("threads", session_id=id, locals=True))
    return 0


def _locals_options(parser: Parser) -> None:
    add_session(parser)
    _frame_option(parser)
    _thread_option(parser)


def _frame_option(parser: Parser) -> None:
    words = "in this frame, as `where` numbers them; default: the one whose source a stop shows"
    parser.add_argument("-f", "--frame", type=int, metavar="N", help=words)


def _thread_option(parser: Parser) -> None:
    words = "of this thread, as `debug-relay call threads` numbers them; it may run"
    parser.add_argument("--thread", dest="thread_id", type=int, metavar="N", help=words)


def _frame(invocation: Invocation, id: str, given: Namespace) -> int:
    """The frame that is meant. A pause may find a thread waiting in a library: the stop shows the
    frame of the program that has called it, and so that one is meant.
    """
    if given.frame is not None or given.thread_id is not None:
        return int(given.frame or 0)
    with suppress(Refused):
        if invocation.status(id).get("stop_reason") == "pause":
            report = invocation.relay.call(
                "snapshot", session_id=id, frames=0, locals=0, source_lines=0, output_bytes=0
            ).data
            return int((report.get("stop") or {}).get("frame_id") or 0)
    return 0


def _locals(invocation: Invocation, given: Namespace) -> int:
    id = invocation.session(given.session)
    fields = {"frame_id": _frame(invocation, id, given), "thread_id": given.thread_id}
    invocation.show(invocation.call("frame-variables", session_id=id, **fields))
    return 0


def _eval_options(parser: Parser) -> None:
    parser.add_argument(
        "words", nargs="+", metavar="[SESSION] EXPRESSION", help="the expression as one argument"
    )
    _frame_option(parser)
    parser.add_argument("-x", "--exec", action="store_true", help="run statements instead")
    _thread_option(parser)
    add_fields(parser, "evaluate", "timeout")


def _eval(invocation: Invocation, given: Namespace) -> int:
    if len(given.words) > 2:
        given.parser.error("give SESSION and EXPRESSION; quote an expression that has blanks")
    id = invocation.session(given.words[0] if len(given.words) == 2 else None)
    reply = invocation.call(
        "evaluate",
        "evaluating",
        session_id=id,
        expression=given.words[-1],
        context="repl" if given.exec else None,
        frame_id=_frame(invocation, id, given),
        thread_id=given.thread_id,
        timeout=given.timeout,
    )
    invocation.show(reply)
    has_raised = reply.data.get("error") if invocation.as_json else reply.text.startswith("raised ")
    return 1 if has_raised else 0


COMMANDS = {
    "where": Command(_where_options, _where, "debug-relay where shop", "The source of the first "
                     "frame is shown, with an arrow at the line that runs next. Of a program that "
                     "runs, or hangs, each thread is shown, and what it waits for."),
    "locals": Command(_locals_options, _locals, "debug-relay locals shop\n"
                      "debug-relay locals shop --frame 1"),
    "eval": Command(_eval_options, _eval, "debug-relay eval shop 'amount + price'\n"
                    "debug-relay eval shop --exec 'amount = 0'",
                    "The exit code is 1 if the expression raises."),
}  # fmt: skip
