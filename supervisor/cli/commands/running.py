"""`continue`, `step`, `next`, `out`, `pause`: they run the program, and show where it stops."""

from __future__ import annotations

from argparse import Namespace

from debug_relay.supervisor.cli.client.calls import operations
from debug_relay.supervisor.cli.client.invocation import Invocation
from debug_relay.supervisor.cli.client.parser import Command, Parser, add_fields, add_session

# A person wants to see the next stop, and the prompt again when it does not come.
_CONTINUE_SECONDS = 10.0
_THREADS = {"continue": "resume this thread alone", "pause": "pause this thread alone"}
_STEPS = "the thread that steps; default: the one whose stop is shown"


def _drive(operation: str, doing: str, wait: float | None = None) -> Command:
    def options(parser: Parser) -> None:
        add_session(parser)
        seconds = operations()[operation]["fields"]["wait"]["default"] if wait is None else wait
        words = {
            "thread_id": f"{_THREADS.get(operation, _STEPS)}; debug-relay call threads lists them",
            "wait": f"how long to wait for the next stop or the end; default: {seconds:g}",
        }
        add_fields(parser, operation, "wait", words=words, thread="thread_id")

    def run(invocation: Invocation, given: Namespace) -> int:
        reply = invocation.call(
            operation,
            doing,
            session_id=invocation.session(given.session),
            thread_id=given.thread_id,
            wait=wait if given.wait is None else given.wait,
            snapshot=True,
        )
        invocation.show(reply)
        return 0

    word = {"step-into": "step", "step-over": "next", "step-out": "out"}.get(operation, operation)
    return Command(
        options, run, f"debug-relay {word} shop", _WORDS[word], interrupted="the program goes on"
    )


_WORDS = {
    "continue": "It waits 10 seconds for the next stop, unless --wait says otherwise. A program "
    "that has not stopped by then runs on: debug-relay wait shows its next stop.",
    "pause": "The program stops at its next line of Python.",
    "step": "A line without a call is stepped over.",
    "next": "Calls on the line are run as a whole.",
    "out": "The value that the function returns is shown.",
}
COMMANDS = {
    "continue": _drive("continue", "running", _CONTINUE_SECONDS),
    "step": _drive("step-into", "stepping"),
    "next": _drive("step-over", "stepping"),
    "out": _drive("step-out", "running until the function returns"),
    "pause": _drive("pause", "pausing"),
}
