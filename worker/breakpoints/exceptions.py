"""Keeps the exceptions at which the program stops, as callers request them, and sends them to debug
servers.

The probe decides at each exception; debugpy only learns which kinds it has to examine.
"""

from __future__ import annotations

import builtins
from typing import Any, Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.breakpoints import ExceptionBreakpoints, SetExceptionBreakpoints
from debug_relay.protocol.refusals import Problem
from debug_relay.protocol.wire import breakpoint_requests
from debug_relay.worker.breakpoints.requests import bad_condition
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.hub import Hub
from debug_relay.worker.debugger.probe_client import ProbeClient
from debug_relay.worker.debugger.program_changes import NO_ANSWER, ProgramChanges
from debug_relay.worker.state.core import Core

_NEVER: Final = frozenset({"SystemExit", "StopIteration", "StopAsyncIteration", "GeneratorExit"})
# The probe's names of the filters.
_TABLES: Final = {"raised": "raised", "uncaught": "uncaught", "user_unhandled": "user"}
_ALL: Final = "exceptions"  # the id of their changes: they are sent together
_NO_PROBE: Final = (
    "This session has no probe (attached by port): only filters work, not types, condition or "
    "raised_in"
)


class ExceptionFilters:
    def __init__(
        self,
        core: Core,
        hub: Hub,
        changes: ProgramChanges,
        probes: ProbeClient,
        breakpoints: Breakpoints,
    ) -> None:
        self._settings = core.settings
        self._log = core.log
        self._publication = core.publication
        self._hub = hub
        self._changes = changes
        self._probes = probes
        self._breakpoints = breakpoints
        self._wanted = ExceptionBreakpoints(filters=["uncaught"], types=[])
        self._also: dict[str, list[str]] = {}  # IDE → the filters that it adds
        self._known: set[str] = set()  # the types that exist in the program
        self._problem: str | None = None

    # -- changing

    def use(self, filters: list[str]) -> None:
        """Sets the short form that a launch or an attach has."""
        self._wanted = ExceptionBreakpoints(filters=filters, types=[])
        self._problem = None

    def spec(self) -> dict[str, Any]:
        """The fields with which a later session can set the same filters."""
        wanted = self._wanted
        spec: dict[str, Any] = {"filters": wanted.filters, "types": wanted.types}
        if wanted.condition is not None:
            spec["condition"] = wanted.condition
        if wanted.raised_in is not None:
            spec["raised_in"] = wanted.raised_in
        return spec

    def take_over(self, spec: dict[str, Any]) -> None:
        """Takes over the filters of an earlier worker, or of another session."""
        self._wanted = msgspec.convert({"types": [], **self.spec(), **spec}, ExceptionBreakpoints)

    async def change(self, params: SetExceptionBreakpoints) -> ExceptionBreakpoints:
        for index, name in enumerate(params.types):
            _require_name(name, index)
        if params.condition is not None:
            code_lines = await self._breakpoints.verifier.code_lines()
            problem = await code_lines.check_expression(params.condition, "condition")
            if problem is not None:
                raise bad_condition(params.condition, problem)
        await self._breakpoints.suspend(False)
        self._wanted = ExceptionBreakpoints(
            filters=list(dict.fromkeys(params.filters)),
            types=list(dict.fromkeys(params.types)),
            condition=params.condition,
            raised_in=params.raised_in,
        )
        return await self._changed()

    async def clear(self) -> ExceptionBreakpoints:
        self._wanted = ExceptionBreakpoints(filters=[], types=[])
        return await self._changed()

    async def also(self, owner: str, filters: list[str]) -> None:
        """Stop at these too, for an IDE that has joined; its filters replace those it had."""
        if filters == self._also.get(owner, []):
            return
        self._also[owner] = filters
        if not filters:
            del self._also[owner]
        await self._changed()

    async def _changed(self) -> ExceptionBreakpoints:
        self._problem = None
        await self._changes.make(self.begin, [_ALL])
        self._publication.changed()
        self._publication.save()
        return await self.shown()

    def failed(self, error: str) -> None:
        """The condition raised in the program; reported once, however many processes there are."""
        if self._problem is not None and error in self._problem:
            return
        self._problem = f"condition raised {error}"
        self._log.say(f"The condition of the exception breakpoints raised {error}")

    # -- reading

    async def shown(self) -> ExceptionBreakpoints:
        wanted = self._wanted
        if wanted.types:
            self._known = {name for name in wanted.types if _is_builtin(name)}

            async def ask(server: DebugServer) -> list[str]:
                return await self._probes.ask(
                    server, breakpoint_requests.KnownTypes(types=wanted.types)
                )

            probed = self._changes.answering(self._probes.probed())
            self._known.update(*await self._hub.each(probed, ask))
        unknown = [name for name in wanted.types if name not in self._known]
        notes = [note for note in (self.untaken(), self._problem) if note]
        if never := [name for name in wanted.types if name.rpartition(".")[2] in _NEVER]:
            notes.append(f"{', '.join(never)} ends a program or a loop: the program never stops")
        if unknown:
            notes.append(
                f"The program has no exception class {', '.join(unknown)} so far;"
                " the breakpoint works as soon as there is one"
            )
        notes += [
            f"{owner} also stops at: {', '.join(filters)}" for owner, filters in self._also.items()
        ]
        if self._is_plain() and (wanted.types or wanted.condition or wanted.raised_in == "all"):
            notes.append(_NO_PROBE)
        return msgspec.structs.replace(
            wanted,
            raised_in=wanted.raised_in or _left_out(wanted),
            unknown_types=unknown,
            message="; ".join(notes) or None,
        )

    def untaken(self) -> str | None:
        """Says so, if the program has not taken the filters yet."""
        return None if self._changes.has_taken(_ALL) else NO_ANSWER.format(what="these filters")

    def _is_plain(self) -> bool:
        return any(not server.engine.can.decide_stops for server in self._hub.taking_changes())

    # -- sending to programs

    async def begin(self, server: DebugServer) -> None:
        """Sends the filters to a debug server that knows none, or outdated ones."""
        wanted = self._wanted
        added = [name for filters in self._also.values() for name in filters]
        filters = list(dict.fromkeys([*wanted.filters, *added]))
        details = breakpoint_requests.Exceptions(
            raised="raised" in filters,
            types=wanted.types,
            everywhere=wanted.raised_in == "all",
            types_everywhere=wanted.raised_in != "user",
            condition=wanted.condition,
            unconditional=sorted({_TABLES[name] for name in added}) if wanted.condition else [],
        )
        await server.engine.stop_at_exceptions(
            filters, details, self._breakpoints.suspended, self._settings.request_timeout
        )


def _left_out(wanted: ExceptionBreakpoints) -> str | None:
    """The default of `raised_in`; None if it differs between `filters` and `types`."""
    if not wanted.types:
        return "user"
    return None if "raised" in wanted.filters else "all"


def _is_builtin(name: str) -> bool:
    found = getattr(builtins, name.removeprefix("builtins."), None)
    return isinstance(found, type) and issubclass(found, BaseException)


def _require_name(name: str, index: int) -> None:
    if all(part.isidentifier() or part == "<locals>" for part in name.split(".")):
        return
    raise RelayError(
        Code.INVALID_REQUEST,
        f"{name!r} is not the name of an exception class",
        'Name it as ["ValueError", "package.module.Error"].',
        errors=[Problem(f"types[{index}]", "no name of a class", name)],
    )
