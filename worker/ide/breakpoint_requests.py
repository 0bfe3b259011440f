"""DAP's requests about breakpoints: each IDE has its own set, and the session has all of them."""

from __future__ import annotations

from typing import Final

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.breakpoints import Breakpoint, BreakpointSpec
from debug_relay.worker.breakpoints import watchpoints
from debug_relay.worker.ide import arguments as a
from debug_relay.worker.ide.frame_ids import NotStopped
from debug_relay.worker.ide.joined_ide import JoinedIde
from debug_relay.worker.ide.shapes import (
    Body,
    breakpoint_of,
)

_FILTERS: Final = {"raised": "raised", "uncaught": "uncaught", "userUnhandled": "user_unhandled"}


async def set_breakpoints(ide: JoinedIde, arguments: a.SetBreakpoints) -> Body:
    rows = arguments.breakpoints or []
    if not arguments.source.path:
        refused = {"verified": False, "message": "A breakpoint needs a file; this text has none"}
        return {"breakpoints": [refused] * len(rows)}
    path = ide.paths.to_session(arguments.source.path)
    specs = [
        BreakpointSpec(
            file=path,
            line=max(row.line + 1 - ide.first_line, 1),
            condition=row.condition or None,
            hit_condition=row.hit_condition or None,
            log_message=row.log_message or None,
        )
        for row in rows
    ]
    return await _replace(ide, path, specs)


async def set_function_breakpoints(ide: JoinedIde, arguments: a.SetFunctionBreakpoints) -> Body:
    specs = [
        BreakpointSpec(
            function=row.name,
            condition=row.condition or None,
            hit_condition=row.hit_condition or None,
        )
        for row in arguments.breakpoints
    ]
    return await _replace(ide, None, specs)


async def data_breakpoint_info(ide: JoinedIde, arguments: a.DataBreakpointInfo) -> Body:
    """Whether a value can be watched. Its id names the expression and the frame."""
    expression: str | None = arguments.name
    number = arguments.frame_id
    if arguments.variables_reference:
        expression = ide.expressions.child(arguments.variables_reference, arguments.name)
        number = ide.expressions.frame(arguments.variables_reference)
    if number is None and not arguments.variables_reference:
        return {"dataId": None, "description": "Only values of a stopped frame can be watched"}
    if expression is None or number is None:
        return {"dataId": None, "description": f"No expression finds {arguments.name} again"}
    thread_id, _ = ide.frame(number)
    current = ide.session.stops.current
    if current is None or current.thread_id != thread_id:
        return {"dataId": None, "description": "Only values of the selected thread can be watched"}
    if not ide.session.hub.thread(thread_id).server.engine.can.decide_stops:
        return {"dataId": None, "description": watchpoints.NO_PROBE}
    return {
        "dataId": f"{number}:{expression}",
        "description": expression,
        "accessTypes": ["write"],
        "canPersist": False,
    }


async def set_data_breakpoints(ide: JoinedIde, arguments: a.SetDataBreakpoints) -> Body:
    """Watch values. One that is watched already stays as it is: its frame may have moved on."""
    async with ide.changing:
        wanted = [(row.data_id, row.condition or None) for row in arguments.breakpoints]
        answers: dict[tuple[str, str | None], Breakpoint | RelayError] = {}
        specs, asked = [], []
        for key in dict.fromkeys(wanted):
            if key in ide.watched:
                continue
            number, _, expression = key[0].partition(":")
            try:
                _, index = ide.frame(int(number))
            except (ValueError, NotStopped):
                answers[key] = RelayError(Code.INVALID_REQUEST, "Its frame has moved on", "")
                continue
            specs.append(BreakpointSpec(watch=expression, frame_id=index, condition=key[1]))
            asked.append(key)
        session = ide.session
        ide.watched = {key: id for key, id in ide.watched.items() if key in wanted}
        with session.access.calling("set-breakpoints", ide.caller, None):
            shown = await session.breakpoints.replace(
                ide.name, None, specs, watchpoints=True, kept=ide.watched.values()
            )
        known = {entry.id: entry for entry in session.breakpoints.owned_by(ide.name)}
        for key, id in ide.watched.items():
            answers[key] = session.breakpoints.show(known[id])
        for key, answer in zip(asked, shown, strict=True):
            answers[key] = answer
            if not isinstance(answer, RelayError):
                ide.watched[key] = answer.id
    return {"breakpoints": [breakpoint_of(ide, answers[key]) for key in wanted]}


async def _replace(ide: JoinedIde, path: str | None, specs: list[BreakpointSpec]) -> Body:
    session = ide.session
    async with ide.changing:
        with session.access.calling("set-breakpoints", ide.caller, None):
            shown = await session.breakpoints.replace(ide.name, path, specs)
    return {"breakpoints": [breakpoint_of(ide, one) for one in shown]}


async def set_exception_breakpoints(ide: JoinedIde, arguments: a.SetExceptionBreakpoints) -> Body:
    session = ide.session
    wanted = [_FILTERS[name] for name in arguments.filters if name in _FILTERS]
    async with ide.changing:
        with session.access.calling("set-exception-breakpoints", ide.caller, None):
            await session.exceptions.also(ide.name, wanted)
    rows: list[Body] = [{"verified": name in _FILTERS} for name in arguments.filters]
    if untaken := session.exceptions.untaken():
        rows = [{"verified": False, "message": untaken} for _ in rows]
    return {"breakpoints": rows}
