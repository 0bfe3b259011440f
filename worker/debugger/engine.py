"""The abilities of a debug server: all with the probe, fewer with plain DAP.

Code that needs more than DAP calls `DebugServer.engine`. Without the probe a method does nothing
where that is right, does as much as DAP can, or raises an error for the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.wire import breakpoint_requests, dap
from debug_relay.protocol.wire import probe_answers as answers
from debug_relay.protocol.wire import probe_messages as probe

Children = Literal["indexed", "named"]
_DAP_FILTERS: Final = {
    "raised": "raised",
    "uncaught": "uncaught",
    "user_unhandled": "userUnhandled",
}


def exception_filters(filters: Sequence[str]) -> dict[str, list[str]]:
    """The arguments of DAP's `setExceptionBreakpoints`."""
    return {"filters": [_DAP_FILTERS[name] for name in filters]}


class Capabilities(Struct, frozen=True, kw_only=True):
    """Abilities of an engine on which the worker's own part depends."""

    decide_stops: bool  # the program decides them: conditions, exact hit counts, exception types
    report_stops: bool  # variables and the exception come with each stop
    render_safely: bool  # values are shown without running the program's code
    move_single_threads: bool  # one thread can stop, and can be resumed alone
    read_running_threads: bool  # stacks and variables of threads that are not stopped
    answer_requests: bool  # those of `protocol/wire/probe_messages.py`


class Engine(Protocol):
    @property
    def can(self) -> Capabilities: ...

    def require(self, what: str, suggestion: str, attached: bool, **details: Any) -> None:
        """Refuse what plain DAP cannot do. `attached`: the program was not launched by us."""

    # -- settings, sent in the handshake and when they change

    async def show_safely(self) -> None: ...

    async def watch(self, rows: Sequence[tuple[str, str]]) -> None: ...

    async def stop_all(self, on: bool) -> None: ...

    async def move_output(
        self, known: Mapping[str, probe.Category], pipes: Mapping[probe.Category, str]
    ) -> list[probe.Category]:
        """Give a child pipes of its own in place of the program's; returns those that it uses."""

    # -- steps

    async def watch_calls(self, thread: int) -> None:
        """Note the C function that the next step enters."""

    async def native_callee(self, thread: int) -> str | None: ...

    # -- stops

    def hits_in(self, event: dap.StoppedBody) -> list[str] | None:
        """The ids of the breakpoints that the event names; None if it names none by our ids."""

    def stops_wrongly_at(self, exception_type: str) -> bool:
        """Whether the debugger takes an end of the program for an uncaught exception."""

    def is_untrue(self, output: str) -> bool:
        """Whether the debugger's own output does not hold for this engine."""

    async def stop_at_exceptions(
        self,
        filters: Sequence[str],
        details: breakpoint_requests.Exceptions,
        suspended: bool,
        timeout: float,
    ) -> None:
        """Stop at these kinds of exceptions. `suspended`: nothing stops until that is over."""

    async def report(
        self,
        thread: int,
        frames: int,
        variables: int,
        width: int,
        timeout: float,
        safe: bool,
        fold: answers.Fold,
    ) -> answers.StopReport:
        """The report of a stopped thread as it is now. With `safe` none of the program's code runs,
        and there are no watches and no changes.
        """

    async def exception(self, thread: int, timeout: float, safe: bool) -> answers.ExceptionReport:
        """The exception at which a thread is stopped; parts that take too long are left out."""

    # -- questions to a stopped thread

    async def evaluate(
        self, frame: dap.StackFrame, text: str, context: str, timeout: float
    ) -> answers.Evaluated: ...

    async def sizes(self, frame: int, timeout: float) -> answers.ScopeSizes:
        """The number of variables in each scope of the frame."""

    async def page(
        self,
        reference: int,
        scope: str | None,
        timeout: float,
        *,
        start: int,
        count: int,
        filter: Children | None,
        bounds: Literal["row", "outline"],
        safe: bool,
    ) -> answers.VariablePage:
        """A page of a value's parts. With `safe` none of the program's code runs."""

    async def assign(
        self, reference: int, scope: str | None, name: str, text: str, timeout: float
    ) -> answers.Assigned: ...

    async def returned(self, frame: int, timeout: float) -> answers.ReturnedValue: ...

    async def complete(
        self, frame: int, text: str, timeout: float
    ) -> tuple[answers.Answer, list[dap.CompletionItem]]:
        """Completions for the end of the text; the answer says why there are none."""

    # -- the program

    async def live_stack(
        self, thread: int, start: int, levels: int, timeout: float
    ) -> probe.LiveStack | None:
        """The present stack of a running thread; None if only stopped threads can be read."""

    async def modules(self, start: int, count: int, timeout: float) -> probe.ModulePage: ...

    async def text(self, frame: int) -> list[str] | None:
        """The source of code that is in no file, if the probe kept it."""

    async def is_decompiled(self, source: int) -> bool: ...


def evaluate_timeout(text: str, timeout: float, still_running: bool) -> RelayError:
    shown = text if len(text) <= 80 else text[:80] + "…"
    if still_running:
        suggestion = (
            "It blocks in C code, where nothing can interrupt it, until it ends by itself. "
            f"{call_of('session-status')} shows the session's state, "
            f"{call_of('delete-session')} ends the session."
        )
    else:
        suggestion = "It was interrupted and the session is as before; give a larger timeout."
    return RelayError(
        Code.DEBUGPY_TIMEOUT,
        f"Evaluating {shown!r} took longer than {timeout:g} s",
        suggestion,
        operation="evaluate",
        timeout=timeout,
        evaluating=still_running,
    )
