"""The handlers that set variables, and that read source, modules, tasks and completions; and how
they find a thread that is read from outside.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from msgspec import Struct

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import inspection as i
from debug_relay.protocol.models import sources
from debug_relay.protocol.models import threads as t
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.protocol.state import State
from debug_relay.protocol.wire import dap
from debug_relay.protocol.wire import probe_answers as answers
from debug_relay.protocol.wire import probe_messages as probe
from debug_relay.worker.debugger.connection import LOOK_SECONDS, DebugServer
from debug_relay.worker.debugger.hub import KnownThread
from debug_relay.worker.operations.call import Call
from debug_relay.worker.session.session import Session
from debug_relay.worker.source.colouring import tokens_of

_PAUSED: Final = frozenset({State.PAUSED})
_LIBRARY = ("site-packages", "dist-packages", "/lib/python")


async def live_thread(
    session: Session, operation: str, thread_id: int | None
) -> KnownThread | None:
    """The named thread if it is not stopped and is to be read from outside. Without a name the call
    means the selected thread, and the session must be paused.
    """
    session.access.require(operation, _PAUSED if thread_id is None else None)
    return await session.views.live.find(thread_id)


async def set_variable(call: Call, params: i.SetVariable) -> Struct:
    session = call.session
    session.access.require("set-variable")
    entry = session.hub.resolve(params.variables_reference)
    timeout = session.settings.evaluate_timeout
    answer = await session.probes.assign(
        params.variables_reference, params.name, params.value, timeout
    )
    if answer.unknown:
        raise RelayError(
            Code.VARIABLE_NOT_FOUND,
            f"Reference {params.variables_reference} has no variable {params.name!r}",
            f"GET /api/v1/sessions/{session.settings.id}/variables/{params.variables_reference} "
            "lists its variables.",
            name=params.name,
            variables_reference=params.variables_reference,
        )
    session.views.require_answer(answer)
    value = _set_value(session, params, answer)
    return i.VariableSet(
        name=params.name,
        value=value.value,
        type=value.type,
        variables_reference=session.hub.reference(entry.server, value.reference, entry.thread_id),
    )


def _set_value(
    session: Session, params: i.SetVariable, answer: answers.Assigned
) -> answers.Variable:
    """The variable as it is now; raises if it could not be set, or not be read again."""
    if (refused := answer.refused) is not None:
        raise _not_set(
            params,
            f"The value does not compile: {refused.message}",
            f"Correct the value at column {refused.offset or 1}; it is an expression.",
        )
    if answer.raised is not None:
        raise _not_set(params, _words_of(answer.raised))
    if answer.kept is not None:
        raise _not_set(
            params,
            _words_of(answer.kept),
            "Its container does not allow that. Set the variable that contains it to another "
            f"object, or run a statement: {call_of('evaluate', session.settings.id)} with context "
            "repl.",
        )
    if (unread := answer.unread) is not None:
        raise RelayError(
            Code.EVALUATE_ERROR,
            f"{params.name} was set, but reading it again raised {_words_of(unread)}",
            f"GET /api/v1/sessions/{session.settings.id}/variables/{params.variables_reference} "
            "shows the variables that can be read.",
            expression=params.value[:200],
            error_message=_words_of(unread),
        )
    assert answer.value is not None
    return answer.value


def _words_of(raised: answers.Failure) -> str:
    return f"{raised.type}: {raised.message}" if raised.message else raised.type


def _not_set(
    params: i.SetVariable,
    what: str,
    suggestion: str = "Send an expression that the program can evaluate at this stop.",
) -> RelayError:
    return RelayError(
        Code.EVALUATE_ERROR,
        f"{params.name} was not set: {what}",
        suggestion,
        expression=params.value[:200],
        error_message=what,
    )


async def completions(call: Call, params: i.Completions) -> Struct:
    session = call.session
    live = await live_thread(session, "completions", params.thread_id)
    if live is not None:
        raise RelayError(
            Code.INVALID_SESSION_STATE,
            f"Thread {live.id} is not stopped, and only a stopped thread completes",
            f'{call_of("evaluate")} {{"thread_id": {live.id}, "expression": "dir()"}} lists the '
            "names in its frame, and dir(NAME) the attributes of a value.",
            thread_id=live.id,
            current_state="running",
            required_state="paused",
        )
    thread_id = session.views.thread_of(params.thread_id)
    frame = await session.hub.frame(thread_id, params.frame_id)
    column = params.column or len(params.text) + 1
    text, timeout = params.text[: column - 1], session.settings.evaluate_timeout
    answer, items = await session.probes.complete(thread_id, frame, text, timeout)
    session.views.require_answer(answer)
    return i.CompletionList(
        items=[
            i.Completion(label=one.label, type=one.type, start=one.start, length=one.length)
            for one in items
        ]
    )


async def modules(call: Call, params: sources.Modules) -> Struct:
    session = call.session
    session.access.require("modules")
    server = _process(session, params.thread_id)
    found = await server.engine.modules(params.offset, params.limit, LOOK_SECONDS)
    rows, total = found.rows, found.total
    return sources.ModuleList(
        items=[
            sources.Module(
                name=name,
                path=path,
                is_user_code=path is not None and not any(part in path for part in _LIBRARY),
            )
            for name, path in rows
        ],
        total=total,
        offset=params.offset,
        limit=params.limit,
        has_more=params.offset + len(rows) < total,
    )


def _process(session: Session, thread_id: int | None) -> DebugServer:
    """The process of the named or the selected thread; otherwise the program itself."""
    if thread_id is None and session.stops.current is not None:
        thread_id = session.stops.current.thread_id
    if thread_id is None:
        return session.hub.main_server()
    return session.hub.thread(thread_id).server


async def tasks(call: Call, params: t.Tasks) -> Struct:
    session = call.session
    session.access.require("tasks")
    server = _process(session, params.thread_id)
    server.engine.require(
        "This session has no probe (attached by port), which would read the tasks",
        "Evaluate asyncio.all_tasks() in a frame of the event loop's thread.",
        session.debuggee.attached,
    )
    return await session.views.live.tasks(server, params)


async def source(call: Call, params: sources.GetSource) -> Struct:
    session = call.session
    if params.path is not None:
        path, decompiled = await _readable(session, params.path), False
        lines = await session.sources.lines(path)
        if lines is None:
            raise _bad_path("path", f"{path} cannot be read as source", path)
    else:
        session.access.require("source", OPERATIONS["scopes"].states)
        path, lines, decompiled = await _of_frame(session, params)
    start, end = params.start or 1, min(params.end or len(lines), len(lines))
    if start > max(end, 1):
        raise RelayError(
            Code.INVALID_PARAMETER,
            f"{path} has {len(lines)} lines: none from {start} to {params.end or 'its end'}",
            f"Send a start from 1 to {max(end, 1)}, and an end that is not before it.",
            errors=[{"field": "start", "message": f"above {max(end, 1)}", "value": start}],
        )
    return sources.SourceText(
        path=path,
        start=start,
        end=end,
        total_lines=len(lines),
        lines=lines[start - 1 : end],
        tokens=await asyncio.to_thread(tokens_of, lines, start, end) if params.tokens else None,
        decompiled=decompiled,
    )


async def _of_frame(session: Session, params: sources.GetSource) -> tuple[str, list[str], bool]:
    """The path and the lines of a frame's code, from its file or from memory; the third value says
    whether the lines are decompiled.
    """
    thread_id = session.views.thread_of(params.thread_id)
    frame = await session.hub.frame(thread_id, params.frame_id or 0)
    path = frame.source.path if frame.source and frame.source.path else "<unknown>"
    lines = await session.sources.lines(path)
    server = session.hub.thread(thread_id).server
    if lines is None:
        lines = await server.engine.text(frame.id)
    if lines is not None:
        return path, lines, False
    number = frame.source.source_reference if frame.source else None
    if not number:
        raise _no_text(params.frame_id or 0, path)
    answer = await server.request(
        "source", {"sourceReference": number}, dap.SourceText, session.settings.request_timeout
    )
    guessed = await server.engine.is_decompiled(number)
    return path, answer.content.removesuffix("\n").split("\n"), guessed


def _no_text(frame_id: int, path: str) -> RelayError:
    message = f"Frame {frame_id} runs {path}, which is not a file, and its text was not kept"
    return RelayError(
        Code.INVALID_PARAMETER,
        message,
        f"{call_of('frame-variables', frame_id=frame_id)} shows its variables, and "
        f"{call_of('source')}?frame_id={frame_id + 1} its caller's source. "
        "The relay can show the text if the program puts it into linecache.cache.",
        errors=[{"field": "frame_id", "message": message, "value": frame_id}],
    )


async def _readable(session: Session, path: str) -> str:
    """The real path of a file that the caller may read: it is below the project root, or the
    program has loaded it. Links are followed first.
    """
    if not os.path.isabs(path):
        root = session.settings.config.project_root
        if root is None:
            raise _bad_path("path", f"{path} is relative and the session has no project_root", path)
        path = os.path.join(root, path)
    program = session.debuggee.program
    script = (program.script or program.program) if program is not None else None
    real, is_ours = await asyncio.to_thread(
        _real_place, path, session.settings.config.project_root, script
    )
    if is_ours:
        return real
    for server in session.probes.probed():
        for spelling in (path, real):
            if await session.probes.ask(server, probe.Loaded(path=spelling)):
                return real
    if program is not None and program.is_native:
        message = f"{path} is not below the session's project_root"
        advice = f'{call_of("patch-session")} {{"project_root": …}} lets it show the files below.'
        raise _bad_path("path", message, path, advice)
    raise _bad_path(
        "path",
        f"{path} is neither below the project root nor a file that the program has loaded",
        path,
    )


def _real_place(path: str, root: str | None, script: str | None) -> tuple[str, bool]:
    """The real path, and whether it is below the root or is the program's script."""
    real = os.path.realpath(path)
    if script is not None and os.path.realpath(script) == real:
        return real, True
    if root is None:
        return real, False
    real_root = os.path.realpath(root)
    return real, os.path.commonpath([real, real_root]) == real_root


def _bad_path(
    field: str, message: str, value: str | None, suggestion: str | None = None
) -> RelayError:
    return RelayError(
        Code.INVALID_PARAMETER,
        message,
        suggestion
        or f"{call_of('modules')} lists the files that the program has loaded; "
        "send frame_id for a frame's own source.",
        errors=[{"field": field, "message": message, "value": value}],
    )
