"""The engine without the probe: for a program joined by its port, or whose pydevd lacks a name that
the probe needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.wire import dap
from debug_relay.protocol.wire import probe_answers as answers
from debug_relay.protocol.wire import probe_messages as probe
from debug_relay.worker.debugger.engine import evaluate_timeout

if TYPE_CHECKING:
    from debug_relay.worker.debugger.connection import DebugServer

_SYNTAX_ERRORS: Final = frozenset({"SyntaxError", "IndentationError", "TabError"})


class PlainEngine:
    decides_stops = False
    reports_stops = False
    renders_safely = False
    reads_running_threads = False
    moves_single_threads = False

    def __init__(self, server: DebugServer) -> None:
        self._server = server

    def require(self, what: str, suggestion: str, attached: bool, **details: Any) -> None:
        code = Code.ATTACH_UNSUPPORTED if attached else Code.DEBUGPY_ERROR
        raise RelayError(code, what, suggestion, **details)

    async def show_safely(self) -> None:
        pass

    async def watch(self, rows: Sequence[tuple[str, str]]) -> None:
        """Nothing to send: the worker evaluates watches one by one when a report is wanted."""

    async def stop_all(self, on: bool) -> None:
        pass

    async def move_output(
        self, known: Mapping[str, probe.Category], pipes: Mapping[probe.Category, str]
    ) -> list[probe.Category]:
        return []

    async def watch_calls(self, thread: int) -> None:
        pass

    async def native_callee(self, thread: int) -> str | None:
        return None

    async def evaluate(
        self,
        frame: dap.StackFrame,
        text: str,
        context: str,
        timeout: float,
    ) -> answers.Evaluated:
        """Evaluate by DAP. Nothing interrupts an evaluation that takes too long, and one that calls
        `exit()` gets no answer.
        """
        arguments = {
            "expression": text,
            "frameId": frame.id,
            "context": "repl" if context == "repl" else "watch",
        }
        try:
            answer = await self._server.request("evaluate", arguments, dap.Evaluation, timeout)
        except RelayError as error:
            said = error.details.get("debugger_message")
            if error.code is Code.DEBUGPY_TIMEOUT:
                raise evaluate_timeout(text, timeout, still_running=True) from None
            if said is None:
                raise
            kind, message, is_of_text = _parse_exception(said)
            if " " in kind:
                raise  # a message of debugpy itself, for example that the program has ended
            if kind in _SYNTAX_ERRORS and is_of_text:
                return answers.Evaluated(refused=answers.Refusal(message))
            return answers.Evaluated(raised=answers.Failure(kind, message, said))
        return answers.Evaluated(
            value=answers.Variable(
                name=text,
                value=answer.result,
                type=answer.type,
                reference=answer.variables_reference,
                hint=answer.presentation_hint,
                uncounted=True,
            )
        )

    async def sizes(self, frame: int, timeout: float) -> answers.ScopeSizes:
        return answers.ScopeSizes()

    async def page(
        self, reference: int, scope: str | None, timeout: float, **wanted: Any
    ) -> answers.VariablePage | None:
        return None

    async def assign(
        self, reference: int, scope: str | None, name: str, text: str, timeout: float
    ) -> answers.Assigned:
        arguments = {"variablesReference": reference, "name": name, "value": text}
        try:
            done = await self._server.request("setVariable", arguments, dap.VariableSet, timeout)
        except RelayError as error:
            said = error.details.get("debugger_message")
            if said is None:
                raise
            kind, _, message = said.strip().splitlines()[-1].partition(": ")
            return answers.Assigned(raised=answers.Failure(kind, message))
        return answers.Assigned(
            value=answers.Variable(
                name=name, value=done.value, type=done.type, reference=done.variables_reference
            )
        )

    async def returned(self, frame: int, timeout: float) -> answers.ReturnedValue:
        return answers.ReturnedValue()

    async def complete(
        self, frame: int, text: str, timeout: float
    ) -> tuple[answers.Answer, list[dap.CompletionItem]]:
        answer = await self._server.request(
            "completions",
            {"frameId": frame, "text": text, "column": len(text) + 1},
            dap.Completions,
            timeout,
        )
        return answers.Answer(), answer.targets

    async def modules(self, start: int, count: int, timeout: float) -> probe.ModulePage:
        """The modules that debugpy has met."""
        answer = await self._server.request("modules", {}, dap.Modules, timeout)
        rows = [(module.name, module.path) for module in answer.modules]
        return probe.ModulePage(len(rows), rows[start : start + count])

    async def text(self, frame: int) -> list[str] | None:
        return None

    async def is_decompiled(self, source: int) -> bool:
        return False


def _parse_exception(said: str) -> tuple[str, str, bool]:
    """Take the exception out of a traceback, or out of its last line alone: the type, the message
    (of one line or several), and whether it is about the text that was evaluated.
    """
    place, _, below = said.strip("\n").rpartition("  File ")[2].partition("\n")
    lines = below.splitlines() if "  File " in said else said.strip().splitlines()
    told = list(itertools.dropwhile(lambda line: line.startswith(" "), lines)) or lines[-1:]
    kind, _, message = "\n".join(told).partition(": ")
    return kind, message, place.startswith('"<string>"') or "(<string>, line" in message
