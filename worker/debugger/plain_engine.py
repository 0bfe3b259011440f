"""The engine without the probe: for a program joined by its port, or whose pydevd lacks a name that
the probe needs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.refusals import needs_scope_to_run_code
from debug_relay.protocol.wire import breakpoint_requests, dap
from debug_relay.protocol.wire import probe_answers as answers
from debug_relay.protocol.wire import probe_messages as probe
from debug_relay.worker.debugger.engine import (
    Capabilities,
    Children,
    evaluate_timeout,
    exception_filters,
)
from debug_relay.worker.debugger.stack_frames import FrameList, frame_list, path_of

if TYPE_CHECKING:
    from debug_relay.worker.debugger.connection import DebugServer

VALUE_CHARACTERS: Final = 65536  # One value that plain DAP gives.
_INFO_SECONDS: Final = 5.0  # debugpy has this long to describe an exception.
# The names that pydevd has for its ways to stop at an exception, by DAP's.
_KINDS: Final = {
    "always": "HANDLED",
    "unhandled": "UNHANDLED",
    "userUnhandled": "USER_UNHANDLED",
}
_FRAME: Final = re.compile(
    r'^  File "(?P<path>.+)", line (?P<line>\d+), in (?P<function>[^\n]+)'
    r"(?:\n    (?P<text>[^\n]*))?",
    re.MULTILINE,
)
# pydevd adds these to what it lists: what functions returned, and the length as a child.
_RETURNED: Final = "(return) "
_NOTES: Final = frozenset({"len()", "more", "Unable to handle:"})
_METHODS: Final = frozenset(
    {"builtin_function_or_method", "method", "method-wrapper", "method_descriptor"}
)
_SYNTAX_ERRORS: Final = frozenset({"SyntaxError", "IndentationError", "TabError"})


class _Seen(Struct, frozen=True):
    """A stop that was reported, for the changes at the next one."""

    resumes: int  # how often we had resumed the process by then
    function: tuple[int, str, str] | None  # DAP's number of the frame, name, path
    values: dict[str, str]


class PlainEngine:
    can = Capabilities(
        decide_stops=False,
        report_stops=False,
        render_safely=False,
        move_single_threads=False,
        read_running_threads=False,
        answer_requests=False,
    )

    def __init__(self, server: DebugServer) -> None:
        self._server = server
        self._watches: list[tuple[str, str]] = []
        self._seen = _Seen(resumes=-1, function=None, values={})
        self._seen_before = self._seen

    def require(self, what: str, suggestion: str, attached: bool, **details: Any) -> None:
        code = Code.ATTACH_UNSUPPORTED if attached else Code.DEBUGPY_ERROR
        raise RelayError(code, what, suggestion, **details)

    def hits_in(self, event: dap.StoppedBody) -> list[str] | None:
        return None  # pydevd's numbers mean nothing to us

    def stops_wrongly_at(self, exception_type: str) -> bool:
        return exception_type == "SystemExit"  # an exit with a code

    def is_untrue(self, output: str) -> bool:
        return False

    async def show_safely(self) -> None:
        pass

    async def watch(self, rows: Sequence[tuple[str, str]]) -> None:
        """Keep them: they are evaluated one by one when a report is wanted."""
        self._watches = list(rows)

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

    # -- stops

    async def stop_at_exceptions(
        self,
        filters: Sequence[str],
        details: breakpoint_requests.Exceptions,
        suspended: bool,
        timeout: float,
    ) -> None:
        """Only the kinds count: debugpy knows no types and no conditions."""
        arguments = exception_filters(() if suspended else filters)
        await self._server.request("setExceptionBreakpoints", arguments, dict, timeout)

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
        """The same as the probe reports, call by call. With `safe` there is nothing: debugpy runs
        the program's code to show values.
        """
        if safe:
            return answers.StopReport()
        stack = await self._stack(thread, max(frames, 1), timeout)
        report = answers.ThreadReport(
            thread=thread,
            frames=[(one.name, path_of(one), one.line, None) for one in stack.frames[:frames]],
            total_frames=stack.total,
        )
        if stack.frames:
            await self._add_variables(report, stack.frames[0], variables, width, timeout)
        return answers.StopReport(report=report)

    async def _stack(self, thread: int, levels: int, timeout: float) -> FrameList:
        # One more than wanted: a hidden frame may be on top.
        arguments = {"threadId": thread, "startFrame": 0, "levels": levels + 1}
        return frame_list(
            await self._server.request("stackTrace", arguments, dap.StackTrace, timeout)
        )

    async def _add_variables(
        self,
        report: answers.ThreadReport,
        top: dap.StackFrame,
        most: int,
        width: int,
        timeout: float,
    ) -> None:
        scopes = await self._server.request("scopes", {"frameId": top.id}, dap.Scopes, timeout)
        rows: list[answers.Variable] = []
        for scope in scopes.scopes:
            if scope.name.lower() == "locals":
                rows += await self._variables(scope.variables_reference, True, timeout, width)
        report.locals, report.total_locals = rows[:most], len(rows)
        now = _Seen(
            resumes=self._server.resumes,
            function=(top.id, top.name, path_of(top)),
            values={row.name: row.value for row in rows},
        )
        if self._seen.resumes != now.resumes:
            self._seen_before = self._seen
        self._seen, before = now, self._seen_before
        report.new_frame = before.resumes != now.resumes - 1 or before.function != now.function
        if not report.new_frame:
            report.changed = _changes(before.values, now.values)
        report.watches = [
            await self._watched(top, id, expression, width, timeout)
            for id, expression in self._watches
        ]

    async def _watched(
        self, frame: dap.StackFrame, id: str, expression: str, width: int, timeout: float
    ) -> answers.Watched:
        try:
            answer = await self.evaluate(frame, expression, "watch", timeout)
        except RelayError as error:
            return answers.Watched(id=id, error=error.message)
        value, raised, refused = answer.value, answer.raised, answer.refused
        if raised is not None:
            short = raised.type.rpartition(".")[2]
            return answers.Watched(id=id, error=f"{short}: {raised.message}")
        if value is None:
            return answers.Watched(id=id, error=refused.message if refused else "it has no value")
        value.value = value.value[:width]
        return answers.Watched(id=id, value=value)

    async def exception(self, thread: int, timeout: float, safe: bool) -> answers.ExceptionReport:
        """debugpy has the exception's words already: it runs none of the program's code for them,
        but it ran that code at the stop.
        """
        if safe:
            raise needs_scope_to_run_code()
        info = await self._server.request(
            "exceptionInfo", {"threadId": thread}, dap.ExceptionInfo, _INFO_SECONDS
        )
        details = info.details or dap.ExceptionDetails()
        # pydevd may append a note: "ValueError       (note: full exception trace is …)".
        full = (details.type_name or info.exception_id).partition(" ")[0]
        message = details.message if details.message is not None else info.description or ""
        return answers.ExceptionReport(
            exception=answers.RaisedException(
                type=full.rpartition(".")[2],
                full_type_name=full if "." in full else f"builtins.{full}",
                message=message,
                frames=_frames_of(details.stack_trace or ""),
            ),
            how=_KINDS.get(info.break_mode or "", ""),
        )

    # -- questions to a stopped thread

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
            reported = error.details.get("debugger_message")
            if error.code is Code.DEBUGPY_TIMEOUT:
                raise evaluate_timeout(text, timeout, still_running=True) from None
            if reported is None:
                raise
            kind, message, is_of_text = _parse_exception(reported)
            if " " in kind:
                raise  # a message of debugpy itself, for example that the program has ended
            if kind in _SYNTAX_ERRORS and is_of_text:
                return answers.Evaluated(refused=answers.Refusal(message))
            return answers.Evaluated(raised=answers.Failure(kind, message, reported))
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
        if safe:
            raise needs_scope_to_run_code()
        rows = [
            row
            for row in await self._variables(reference, scope is not None, timeout)
            if filter is None or row.name.isdigit() == (filter == "indexed")
        ]
        for row in rows if bounds == "outline" else ():
            row.value = ""
        return answers.VariablePage(rows=rows[start : start + count], total=len(rows))

    async def _variables(
        self, reference: int, is_scope: bool, timeout: float, width: int = VALUE_CHARACTERS
    ) -> list[answers.Variable]:
        arguments = {"variablesReference": reference}
        answer = await self._server.request("variables", arguments, dap.Variables, timeout)
        return [
            _variable(listed, width)
            for listed in answer.variables
            if _is_of_the_program(listed, is_scope)
        ]

    async def assign(
        self, reference: int, scope: str | None, name: str, text: str, timeout: float
    ) -> answers.Assigned:
        arguments = {"variablesReference": reference, "name": name, "value": text}
        try:
            done = await self._server.request("setVariable", arguments, dap.VariableSet, timeout)
        except RelayError as error:
            reported = error.details.get("debugger_message")
            if reported is None:
                raise
            kind, _, message = reported.strip().splitlines()[-1].partition(": ")
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

    async def live_stack(
        self, thread: int, start: int, levels: int, timeout: float
    ) -> probe.LiveStack | None:
        return None

    async def modules(self, start: int, count: int, timeout: float) -> probe.ModulePage:
        """The modules that debugpy has met."""
        answer = await self._server.request("modules", {}, dap.Modules, timeout)
        rows = [(module.name, module.path) for module in answer.modules]
        return probe.ModulePage(len(rows), rows[start : start + count])

    async def text(self, frame: int) -> list[str] | None:
        return None

    async def is_decompiled(self, source: int) -> bool:
        return False


def _parse_exception(reported: str) -> tuple[str, str, bool]:
    """Take the exception out of a traceback, or out of its last line alone: the type, the message
    (of one line or several), and whether it is about the text that was evaluated.
    """
    place, _, below = reported.strip("\n").rpartition("  File ")[2].partition("\n")
    lines = below.splitlines() if "  File " in reported else reported.strip().splitlines()
    exception = list(itertools.dropwhile(lambda line: line.startswith(" "), lines)) or lines[-1:]
    kind, _, message = "\n".join(exception).partition(": ")
    return kind, message, place.startswith('"<string>"') or "(<string>, line" in message


def _variable(listed: dap.Variable, width: int) -> answers.Variable:
    is_cut = len(listed.value) > width
    return answers.Variable(
        name=listed.name,
        value=listed.value[: width - 1] + "…" if is_cut else listed.value,
        type=listed.type,
        reference=listed.variables_reference,
        hint=listed.presentation_hint,
        uncounted=True,
        truncated=is_cut,
    )


def _is_of_the_program(listed: dap.Variable, is_scope: bool) -> bool:
    """Whether pydevd has not added it: lengths, returned values, notes about its own limits."""
    if listed.name in _NOTES or listed.name.startswith(_RETURNED):
        return False
    return is_scope or listed.type not in _METHODS


def _changes(old: dict[str, str], new: dict[str, str]) -> list[tuple[str, str | None, str | None]]:
    changed: list[tuple[str, str | None, str | None]] = [
        (name, old.get(name), new[name]) for name in new if old.get(name) != new[name]
    ]
    return changed + [(name, old[name], None) for name in old if name not in new]


def _frames_of(stack: str) -> list[tuple[str, int | None, str, str]]:
    """The frames of pydevd's text, which lists the innermost first; the outermost first."""
    frames: list[tuple[str, int | None, str, str]] = [
        (
            found["path"],
            int(found["line"]),
            found["function"].removesuffix(" (Current frame)"),
            (found["text"] or "").removesuffix(" (Current frame)").strip(),
        )
        for found in _FRAME.finditer(stack)
    ]
    return frames[::-1]
