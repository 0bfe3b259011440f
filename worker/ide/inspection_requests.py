"""DAP's requests that look at the program: threads, stacks, variables, expressions, sources."""

from __future__ import annotations

from typing import Any, Final

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.threads import Thread
from debug_relay.protocol.state import LIVE
from debug_relay.worker.ide import arguments as a
from debug_relay.worker.ide.joined_ide import JoinedIde
from debug_relay.worker.ide.shapes import (
    Body,
    evaluated,
    existing,
    frames_of,
    variable_of,
)

_MOST_VARIABLES: Final = 1000  # Variables in one answer.
_MOST_FRAMES: Final = 1000  # Frames in one answer.
_MOST_MODULES: Final = 1000  # Modules in one answer.
TAKE_OVER: Final = "%takeover"
_RELEASE: Final = "%release"


async def threads(ide: JoinedIde, arguments: a.Arguments) -> Body:
    session = ide.session
    if session.lifecycle.state not in LIVE:
        return {"threads": []}
    listed = (await ide.ask("threads")).threads
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
    return f"{thread.name} (pid {thread.pid})" if thread.is_child else thread.name


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
    _checked(answer)
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


def _checked(answer: Any) -> Any:
    """The answer of an evaluation; raises if the expression raised."""
    if answer.error is not None:
        raise RelayError(Code.EVALUATE_ERROR, answer.error, "")
    return answer


async def set_expression(ide: JoinedIde, arguments: a.SetExpression) -> Body:
    thread_id, index = ide.frame(arguments.frame_id)
    place: dict[str, Any] = {"thread_id": thread_id, "frame_id": index}
    assigned = f"{arguments.expression} = {arguments.value}"
    _checked(await ide.ask("evaluate", expression=assigned, context="repl", **place))
    answer = await ide.ask("evaluate", expression=arguments.expression, context="watch", **place)
    shown = evaluated(_checked(answer))
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
