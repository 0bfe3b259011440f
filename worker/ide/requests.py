"""DAP's requests, each by the operations that other callers have, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.breakpoints import Breakpoint, BreakpointSpec
from debug_relay.protocol.models.inspection import Thread
from debug_relay.protocol.state import LIVE
from debug_relay.worker.ide import arguments as a
from debug_relay.worker.ide import event_messages
from debug_relay.worker.ide.frame_ids import NotStopped
from debug_relay.worker.ide.joined_ide import JoinedIde
from debug_relay.worker.ide.path_mappings import PathMappings
from debug_relay.worker.ide.shapes import (
    breakpoint_of,
    evaluated,
    existing,
    frames_of,
    variable_of,
)

# An IDE that does not send `configurationDone` is shown the program when it has sent no request for
# this long.
_CONFIGURED_SECONDS: Final = 1.0
_STEP_SECONDS: Final = 30.0  # We wait this long for the rest of a step, such as its return value.
_PAUSE_SECONDS: Final = 5.0  # A pause is answered after this time, also if it is still pending.
_THREADS_SECONDS: Final = 2.0  # The program names its threads within this time.
_MOST_VARIABLES: Final = 1000  # Variables in one answer.
_MOST_FRAMES: Final = 1000  # Frames in one answer.
_MOST_MODULES: Final = 1000  # Modules in one answer.
TAKE_OVER: Final = "%takeover"
_RELEASE: Final = "%release"
_FILTERS: Final = {"raised": "raised", "uncaught": "uncaught", "userUnhandled": "user_unhandled"}

Body = dict[str, Any] | None


# -- joining and leaving


async def attach(ide: JoinedIde, arguments: a.Attach) -> Body:
    """Join the session; `launch` means the same, because the program is the session's."""
    ide.paths = PathMappings(arguments.path_mappings or ())
    if not ide.has_attached:
        ide.has_attached = True
        ide.session.joining.clients.append(ide.name)
        _journal(ide, f"{ide.name} has joined")
        _configure_when_quiet(ide)
    return None


def _configure_when_quiet(ide: JoinedIde) -> None:
    loop = asyncio.get_running_loop()
    if ide.is_configured or ide.left.is_set():
        return
    if loop.time() - ide.asked_at >= _CONFIGURED_SECONDS:
        _configured(ide)
    else:
        loop.call_at(ide.asked_at + _CONFIGURED_SECONDS, _configure_when_quiet, ide)


async def configuration_done(ide: JoinedIde, arguments: a.Arguments) -> Body:
    ide.answer()
    _configured(ide)
    return None


def _configured(ide: JoinedIde) -> None:
    """Show the present stop. Nothing is resumed, and nothing is stopped."""
    if not ide.is_configured and not ide.left.is_set():
        ide.is_configured = True
        event_messages.present(ide)


async def disconnect(ide: JoinedIde, arguments: a.Disconnect) -> Body:
    """Leave; the program stays as it is, unless it is to end."""
    try:
        if arguments.terminate_debuggee:
            await _end(ide)
        ide.answer()
    finally:
        ide.left.set()
    return None


async def terminate(ide: JoinedIde, arguments: a.Arguments) -> Body:
    await _end(ide)
    return None


async def _end(ide: JoinedIde) -> None:
    """End a launched program; detach from an attached one, which belongs to another owner."""
    session = ide.session
    if session.lifecycle.state in LIVE:
        await ide.ask("detach" if session.debuggee.attached else "terminate")


def _journal(ide: JoinedIde, message: str) -> None:
    session = ide.session
    body = {"status": session.lifecycle.state, "message": message, "caller": ide.name}
    session.log.journal("session", body)
    session.publication.changed()


def left(ide: JoinedIde) -> None:
    if ide.has_attached:
        ide.session.joining.clients.remove(ide.name)
        _journal(ide, f"{ide.name} has left")


# -- breakpoints: each IDE has a set of its own, and the session has all of them


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
    return {"breakpoints": [{"verified": name in _FILTERS} for name in arguments.filters]}


# -- running


async def resume(ide: JoinedIde, arguments: a.OnThread) -> Body:
    ide.require_stopped(arguments.thread_id)
    alone = _alone(ide, arguments)
    ide.answer_on("continued", {"allThreadsContinued": not alone})
    await ide.ask("continue", thread_id=arguments.thread_id if alone else None, wait=0)
    return {"allThreadsContinued": not alone}


async def step_over(ide: JoinedIde, arguments: a.OnThread) -> Body:
    return await _step(ide, "step-over", arguments)


async def step_into(ide: JoinedIde, arguments: a.OnThread) -> Body:
    return await _step(ide, "step-into", arguments)


async def step_out(ide: JoinedIde, arguments: a.OnThread) -> Body:
    return await _step(ide, "step-out", arguments)


async def _step(ide: JoinedIde, operation: str, arguments: a.OnThread) -> Body:
    ide.require_stopped(arguments.thread_id)
    current = ide.session.stops.current
    selected = current is not None and current.thread_id == arguments.thread_id
    alone = _alone(ide, arguments) or not selected
    ide.answer_on("continued")
    thread_id = arguments.thread_id if alone else None
    await ide.ask(operation, thread_id=thread_id, wait=_STEP_SECONDS)
    return None


def _alone(ide: JoinedIde, arguments: a.OnThread) -> bool:
    """Whether only this thread is to be resumed."""
    return bool(arguments.single_thread) or not ide.session.settings.config.stop_all


async def pause(ide: JoinedIde, arguments: a.OnThread) -> Body:
    ide.answer_on("stopped")
    stop_all = ide.session.settings.config.stop_all
    thread_id = None if stop_all else arguments.thread_id
    try:
        await ide.ask("pause", thread_id=thread_id, wait=_PAUSE_SECONDS)
    except RelayError as error:
        # The thread may have stopped by itself while the person pressed the button.
        is_stopped = arguments.thread_id in ide.session.stops.stopped_threads()
        if error.code is not Code.INVALID_SESSION_STATE or not is_stopped:
            raise
    return None


# -- looking


async def threads(ide: JoinedIde, arguments: a.Arguments) -> Body:
    session = ide.session
    if session.lifecycle.state not in LIVE:
        return {"threads": []}
    try:
        async with asyncio.timeout(_THREADS_SECONDS):
            listed = (await ide.ask("threads")).threads
    except TimeoutError:
        # The program answers nobody, as in a call in C that keeps the GIL: show those we know.
        known = [session.hub.thread(id) for id in session.hub.thread_ids()]
        listed = [session.views.thread(thread, None) for thread in known]
    return {
        "threads": [
            {
                "id": thread.id,
                "name": _thread_name(thread),
            }
            for thread in listed
        ]
    }


def _thread_name(thread: Thread) -> str:
    name = thread.name or f"Thread {thread.id}"
    return f"{name} (pid {thread.pid})" if thread.is_child else name


async def stack_trace(ide: JoinedIde, arguments: a.StackTrace) -> Body:
    thread_id = arguments.thread_id
    ide.require_stopped(thread_id)
    mark = ide.frame_ids.stop_of(thread_id)
    stack = await ide.ask(
        "stacktrace",
        thread_id=thread_id,
        start_frame=max(arguments.start_frame or 0, 0),
        levels=min(arguments.levels or _MOST_FRAMES, _MOST_FRAMES),
    )
    there = await existing(frame.source.path for frame in stack.frames)
    # The frames get their numbers here and not before: another caller may have resumed meanwhile.
    ide.frame_ids.require(thread_id, mark)
    return {"stackFrames": frames_of(ide, stack, there), "totalFrames": stack.total_frames}


async def scopes(ide: JoinedIde, arguments: a.Scopes) -> Body:
    thread_id, index = ide.frame(arguments.frame_id)
    mark = ide.frame_ids.stop_of(thread_id)
    listed = (await ide.ask("scopes", thread_id=thread_id, frame_id=index)).scopes
    ide.frame_ids.require(thread_id, mark)
    shown = []
    for scope in listed:
        ide.expressions.scope(scope.variables_reference, arguments.frame_id)
        body = {
            "name": scope.name,
            "variablesReference": scope.variables_reference,
            "expensive": scope.expensive,
            "presentationHint": scope.presentation_hint,
        }
        if scope.named_variables is not None:
            body["namedVariables"] = scope.named_variables
        shown.append(body)
    return {"scopes": shown}


async def variables(ide: JoinedIde, arguments: a.Variables) -> Body:
    start, count = max(arguments.start or 0, 0), arguments.count or 0
    listed = await ide.ask(
        "variables",
        variables_reference=arguments.variables_reference,
        start=start,
        count=count if 0 < count < _MOST_VARIABLES else _MOST_VARIABLES,
        filter=arguments.filter if arguments.filter in ("indexed", "named") else None,
    )
    shown = []
    for variable in listed.variables:
        body = variable_of(variable)
        expression = ide.expressions.child(arguments.variables_reference, variable.name)
        if expression is not None:
            body["evaluateName"] = expression
        ide.expressions.value(
            variable.variables_reference,
            expression,
            variable.type,
            arguments.variables_reference,
        )
        shown.append(body)
    if listed.has_more and not 0 < count <= _MOST_VARIABLES:
        left_out = listed.total - start - len(shown)
        row = {"name": "…", "value": f"{left_out} more are not shown", "variablesReference": 0}
        shown.append(row)
    return {"variables": shown}


async def set_variable(ide: JoinedIde, arguments: a.SetVariable) -> Body:
    answer = await ide.ask(
        "set-variable",
        variables_reference=arguments.variables_reference,
        name=arguments.name,
        value=arguments.value,
    )
    return {
        "value": answer.value,
        "type": answer.type or "",
        "variablesReference": answer.variables_reference,
    }


async def evaluate(ide: JoinedIde, arguments: a.Evaluate) -> Body:
    command = arguments.expression.strip()
    if arguments.context == "repl" and command in (TAKE_OVER, _RELEASE):
        return await _lease(ide, command)
    if not command:
        return {"result": "", "variablesReference": 0}
    thread_id, index = ide.frame(arguments.frame_id)
    operation, context = "evaluate", "repl" if arguments.context == "repl" else "watch"
    if arguments.context == "hover":
        operation = "hover"
    fields = {} if operation == "hover" else {"context": context}
    answer = await ide.ask(
        operation, thread_id=thread_id, frame_id=index, expression=arguments.expression, **fields
    )
    _sound(answer)
    expression = f"({command})"
    ide.expressions.value(answer.variables_reference, expression, answer.type)
    return evaluated(answer)


async def _lease(ide: JoinedIde, command: str) -> Body:
    if command == TAKE_OVER:
        await ide.ask("take-lease", take_over=True)
        words = f"You drive this session now; {_RELEASE} gives it back."
    else:
        await ide.ask("drop-lease")
        words = "Any caller may drive this session now."
    return {"result": words, "variablesReference": 0}


def _sound(answer: Any) -> Any:
    """The answer of an evaluation; raises if the expression raised."""
    if answer.error is not None:
        raise RelayError(Code.EVALUATE_ERROR, answer.error, "")
    return answer


async def set_expression(ide: JoinedIde, arguments: a.SetExpression) -> Body:
    thread_id, index = ide.frame(arguments.frame_id)
    place: dict[str, Any] = {"thread_id": thread_id, "frame_id": index}
    assigned = f"{arguments.expression} = {arguments.value}"
    _sound(await ide.ask("evaluate", expression=assigned, context="repl", **place))
    answer = await ide.ask("evaluate", expression=arguments.expression, context="watch", **place)
    shown = evaluated(_sound(answer))
    return {"value": shown.pop("result"), **shown}


async def completions(ide: JoinedIde, arguments: a.Completions) -> Body:
    thread_id, index = ide.frame(arguments.frame_id)
    lines = arguments.text.split("\n")
    number = (arguments.line or ide.first_line) - ide.first_line
    listed = await ide.ask(
        "completions",
        thread_id=thread_id,
        frame_id=index,
        text=lines[min(max(number, 0), len(lines) - 1)],
        column=max(arguments.column + 1 - ide.first_column, 1),
    )
    targets = []
    for item in listed.items:
        target: dict[str, Any] = {"label": item.label}
        if item.type is not None:
            target["type"] = item.type
        if item.start is not None and item.length is not None:
            target |= {"start": item.start, "length": item.length}
        targets.append(target)
    return {"targets": targets}


async def exception_info(ide: JoinedIde, arguments: a.OnThread) -> Body:
    ide.require_stopped(arguments.thread_id)
    report = await ide.ask("exception", thread_id=arguments.thread_id)
    return {
        "exceptionId": report.type,
        "description": report.message,
        "breakMode": report.break_mode,
        "details": {
            "message": report.message,
            "typeName": report.type,
            "fullTypeName": report.full_type_name,
            "stackTrace": report.traceback,
        },
    }


async def source(ide: JoinedIde, arguments: a.GetSource) -> Body:
    given = arguments.source
    reference = (given and given.source_reference) or arguments.source_reference
    if reference:
        thread_id, index = ide.frame_ids.find(reference)
        text = await ide.ask("source", thread_id=thread_id, frame_id=index)
    elif given is not None and given.path:
        text = await ide.ask("source", path=ide.paths.to_session(given.path))
    else:
        raise RelayError(Code.INVALID_REQUEST, "source needs a path or a sourceReference", "")
    return {"content": "\n".join(text.lines) + "\n", "mimeType": "text/x-python"}


async def modules(ide: JoinedIde, arguments: a.Modules) -> Body:
    if ide.session.lifecycle.state not in LIVE:
        return {"modules": [], "totalModules": 0}
    listed = await ide.ask(
        "modules",
        offset=max(arguments.start_module or 0, 0),
        limit=min(arguments.module_count or _MOST_MODULES, _MOST_MODULES),
    )
    return {
        "modules": [
            {
                "id": module.name,
                "name": module.name,
                "isUserCode": module.is_user_code,
                **({"path": ide.paths.to_ide(module.path)} if module.path else {}),
            }
            for module in listed.items
        ],
        "totalModules": listed.total,
    }


async def loaded_sources(ide: JoinedIde, arguments: a.Arguments) -> Body:
    shown = await modules(ide, a.Modules())
    assert shown is not None
    paths = [module["path"] for module in shown["modules"] if "path" in module]
    return {
        "sources": [
            {"name": path.replace("\\", "/").rpartition("/")[2], "path": path}
            for path in paths
            if path.endswith(".py")
        ]
    }


Handler = Callable[[JoinedIde, Any], Awaitable[Body]]
REQUESTS: Final[Mapping[str, tuple[type[a.Arguments], Handler]]] = {
    "attach": (a.Attach, attach),
    "launch": (a.Attach, attach),
    "configurationDone": (a.Arguments, configuration_done),
    "disconnect": (a.Disconnect, disconnect),
    "terminate": (a.Arguments, terminate),
    "setBreakpoints": (a.SetBreakpoints, set_breakpoints),
    "setFunctionBreakpoints": (a.SetFunctionBreakpoints, set_function_breakpoints),
    "dataBreakpointInfo": (a.DataBreakpointInfo, data_breakpoint_info),
    "setDataBreakpoints": (a.SetDataBreakpoints, set_data_breakpoints),
    "setExceptionBreakpoints": (a.SetExceptionBreakpoints, set_exception_breakpoints),
    "continue": (a.OnThread, resume),
    "next": (a.OnThread, step_over),
    "stepIn": (a.OnThread, step_into),
    "stepOut": (a.OnThread, step_out),
    "pause": (a.OnThread, pause),
    "threads": (a.Arguments, threads),
    "stackTrace": (a.StackTrace, stack_trace),
    "scopes": (a.Scopes, scopes),
    "variables": (a.Variables, variables),
    "setVariable": (a.SetVariable, set_variable),
    "evaluate": (a.Evaluate, evaluate),
    "setExpression": (a.SetExpression, set_expression),
    "completions": (a.Completions, completions),
    "exceptionInfo": (a.OnThread, exception_info),
    "source": (a.GetSource, source),
    "modules": (a.Modules, modules),
    "loadedSources": (a.Arguments, loaded_sources),
}
# An IDE shows the refusal of these at once: its user has pressed a button.
PRESSED: Final = frozenset(
    ("continue", "next", "stepIn", "stepOut", "pause", "terminate", "disconnect", "setVariable")
)
