"""Decides what a trace records, and verifies its files and expressions before anything starts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.breakpoints import BreakpointSpec
from debug_relay.protocol.models.execution import StepFiles, Trace, TraceAt
from debug_relay.protocol.refusals import Problem, wrong_state
from debug_relay.protocol.state import State
from debug_relay.protocol.wire import probe_messages as probe
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.debugging import Debugging
from debug_relay.worker.source.functions import FunctionSpan, find_function
from debug_relay.worker.state.lifecycle import Lifecycle
from debug_relay.worker.state.settings import Settings

LAUNCHED: Final = "<string>"  # launched code, or code that the program compiled from a string
# Real path → line → the indexes of the spots there.
Lines = dict[str, dict[int, list[int]]]


class Plan(Struct):
    server: DebugServer
    spots: list[probe.Spot]
    lines: Lines
    frame: int | None = None  # debugpy's id of the stopped frame whose function is traced
    returns: bool = False  # whether the trace ends with that function


class Planner:
    """Makes the plan of a trace: the process, the lines, and the expressions at them."""

    def __init__(
        self,
        settings: Settings,
        lifecycle: Lifecycle,
        debugging: Debugging,
        breakpoints: Breakpoints,
    ) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._hub = debugging.hub
        self._probes = debugging.probes
        self._stops = debugging.stops
        self._debuggee = debugging.debuggee
        self._breakpoints = breakpoints

    async def plan_of(self, params: Trace) -> Plan:
        server = self._server()
        await self._check_expressions(params)
        if params.at:
            return await self._places(server, params)
        changes = params.when == "always" or not params.capture
        spots = [probe.Spot(capture=params.capture, changes=changes)]
        if isinstance(params.step, StepFiles):
            return Plan(server, spots, await self._files(params.step.files))
        return await self._function(spots)

    def _server(self) -> DebugServer:
        stop = self._stops.current
        server = self._hub.thread(stop.thread_id).server if stop else self._hub.main_server()
        server.engine.require(
            "This session has no probe (attached by port), which would record the rows",
            "Step, or set breakpoints with log_message; a program that the relay launches can be "
            "traced.",
            self._debuggee.attached,
        )
        return server

    async def _places(self, server: DebugServer, params: Trace) -> Plan:
        lines: Lines = {}
        spots: list[probe.Spot] = []
        for index, at in enumerate(params.at):
            path, line = await self._verify(at, f"at[{index}]")
            capture = list(dict.fromkeys([*at.capture, *params.capture]))
            lines.setdefault(path, {}).setdefault(line, []).append(len(spots))
            spots.append(
                probe.Spot(
                    condition=at.condition,
                    capture=capture,
                    changes=not capture,
                    label=at.label,
                    function=at.function.rpartition(".")[2] if at.function else None,
                )
            )
        return Plan(server, spots, lines)

    async def _verify(self, at: TraceAt, field: str) -> tuple[str, int]:
        """The real path and the line of a place that a program can reach."""
        try:
            if at.function is not None:
                path = self._file_of(at, field)
                found = await self._function_in(path, at.function)
                spec = BreakpointSpec(
                    file=path, line=found.first, condition=at.condition, must_exist=True
                )
            else:
                spec = BreakpointSpec(
                    file=at.file,
                    line=at.line,
                    text=at.text,
                    condition=at.condition,
                    must_exist=True,
                )
            entry = await self._breakpoints.verifier.verify(spec)
        except RelayError as error:
            raise RelayError(error.code, f"{field}: {error.message}", **error.details) from None
        if not entry.verified:
            raise RelayError(
                Code.BREAKPOINT_INVALID_LINE,
                f"{field}: line {entry.line} of {entry.path}: {entry.message}",
                entry.suggestion,
                file=entry.path,
                line=entry.line,
            )
        return entry.real_path, entry.line

    def _file_of(self, at: TraceAt, field: str) -> str:
        """The file of a function: the named one, or the program's script."""
        if at.file is not None:
            return self._breakpoints.verifier.absolute(at.file)
        program = self._debuggee.program
        if program is not None and program.script is not None:
            return self._breakpoints.verifier.absolute(program.script)
        raise RelayError(
            Code.INVALID_REQUEST,
            "a function needs its file as well: the program is no script",
            'Send {"function": "Account.withdraw", "file": "/absolute/bank.py"}.',
            errors=[Problem(f"{field}.file", "required field is missing")],
        )

    async def _function_in(self, path: str, name: str) -> FunctionSpan:
        facts = await (await self._breakpoints.verifier.code_lines()).facts(path)
        found, others = find_function(facts, name)
        if found is not None:
            return found
        near = f"Its functions are {', '.join(others[:20])}." if others else "It has none."
        near += ' Name another file beside it: "file": "bank.py".'
        raise RelayError(
            Code.BREAKPOINT_INVALID_LINE,
            f"{path} defines no function {name}",
            near,
            file=path,
            function=name,
            functions=others[:50],
        )

    async def _files(self, files: Iterable[str]) -> Lines:
        code_lines = await self._breakpoints.verifier.code_lines()
        lines: Lines = {}
        for file in files:
            path = self._breakpoints.verifier.absolute(file)
            facts = await code_lines.facts(path)
            if facts.syntax_error is not None or not facts.lines:
                reason = facts.syntax_error.message if facts.syntax_error else "it is empty"
                raise RelayError(
                    Code.BREAKPOINT_INVALID_LINE,
                    f"{path} has no line with code: {reason}",
                    "Name files that the program runs.",
                    file=path,
                )
            lines[await asyncio.to_thread(os.path.realpath, path)] = {
                line: [0] for line in facts.lines
            }
        return lines

    async def _function(self, spots: list[probe.Spot]) -> Plan:
        stop = self._stops.current
        if stop is None:
            raise wrong_state(
                "trace", self._lifecycle.state, frozenset({State.PAUSED}), self._settings.id
            )
        frame = await self._hub.frame(stop.thread_id, 0)
        server = self._hub.thread(stop.thread_id).server
        found = await self._probes.ask(server, probe.Function(frame=frame.id))
        if found is None or not _is_file(found.path):
            raise RelayError(
                Code.BREAKPOINT_FILE_NOT_FOUND,
                f"The function {frame.name} has no file whose lines could be traced",
                "Step out of it first, or trace files by their paths.",
                function=frame.name,
            )
        lines: Lines = {found.path: {line: [0] for line in found.lines}}
        return Plan(server, spots, lines, frame=frame.id, returns=not found.resumes)

    async def _check_expressions(self, params: Trace) -> None:
        expressions = [(f"capture[{index}]", text) for index, text in enumerate(params.capture)]
        for place, at in enumerate(params.at):
            expressions += [
                (f"at[{place}].capture[{i}]", text) for i, text in enumerate(at.capture)
            ]
        if params.until is not None:
            expressions.append(("until", params.until))
        code_lines = await self._breakpoints.verifier.code_lines()
        for field, text in expressions:
            problem = await code_lines.check_expression(text, "condition")
            if problem is not None:
                raise RelayError(
                    Code.EVALUATE_ERROR,
                    f"{field}: {text[:200]!r} does not compile: {problem.message}",
                    f"Correct it at column {problem.offset}; it is an expression, "
                    "such as len(items).",
                    errors=[Problem(field, problem.message, text)],
                    expression=text[:200],
                    error_message=problem.message,
                    offset=problem.offset,
                )


def _is_file(path: str) -> bool:
    """Whether the path is a file, or the name of launched code, which has no file."""
    return path == LAUNCHED or os.path.isfile(path)
