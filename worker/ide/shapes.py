"""Results of the session's operations in DAP's shapes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import Any, Final

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models import inspection as i
from debug_relay.protocol.models.breakpoints import Breakpoint
from debug_relay.worker.ide.joined_ide import JoinedIde

Body = dict[str, Any] | None  # an answer's; None if DAP wants none

CAPABILITIES: Final = {
    "supportsConfigurationDoneRequest": True,
    "supportsFunctionBreakpoints": True,
    "supportsConditionalBreakpoints": True,
    "supportsHitConditionalBreakpoints": True,
    "supportsLogPoints": True,
    "supportsDataBreakpoints": True,
    "supportsEvaluateForHovers": True,
    "supportsClipboardContext": True,
    "supportsSetVariable": True,
    "supportsSetExpression": True,
    "supportsCompletionsRequest": True,
    "completionTriggerCharacters": ["."],
    "supportsExceptionInfoRequest": True,
    "supportsModulesRequest": True,
    "supportsLoadedSourcesRequest": True,
    "supportsDelayedStackTraceLoading": True,
    "supportsSingleThreadExecutionRequests": True,
    "supportsTerminateRequest": True,
    "supportTerminateDebuggee": True,
    "exceptionBreakpointFilters": [
        {
            "filter": "raised",
            "label": "Raised Exceptions",
            "default": False,
            "description": "Break whenever any exception is raised.",
        },
        {
            "filter": "uncaught",
            "label": "Uncaught Exceptions",
            "default": True,
            "description": "Break when the program ends because of an exception.",
        },
        {
            "filter": "userUnhandled",
            "label": "User Uncaught Exceptions",
            "default": False,
            "description": "Break when an exception leaves the user's own code.",
        },
    ],
}


def number_of(id: str) -> int:
    """DAP's number of a breakpoint: 7 for `bp_7`."""
    return int(id.rpartition("_")[2])


def breakpoint_of(ide: JoinedIde, shown: Breakpoint | RelayError) -> dict[str, Any]:
    if isinstance(shown, RelayError):
        return {"verified": False, "message": shown.message}
    body: dict[str, Any] = {"id": number_of(shown.id), "verified": shown.verified}
    if shown.line is not None:
        body["line"] = ide.line(shown.line)
    if shown.source:
        path = shown.source["path"]
        body["source"] = {"name": os.path.basename(path), "path": ide.paths.to_ide(path)}
    if shown.message:
        body["message"] = (
            f"{shown.message}. {shown.suggestion}" if shown.suggestion else shown.message
        )
    return body


def frames_of(ide: JoinedIde, stack: i.Stack, there: set[str]) -> list[dict[str, Any]]:
    """The frames; `there`: the paths of those whose files exist."""
    shown = []
    for frame in stack.frames:
        number = ide.frame_ids.number(stack.thread_id, frame.id)
        path = frame.source.path
        source: dict[str, Any] = {"name": frame.source.name, "path": ide.paths.to_ide(path)}
        if path not in there:
            source["sourceReference"] = number  # its text comes from the program's memory
        shown.append(
            {
                "id": number,
                "name": frame.name,
                "source": source,
                "line": ide.line(frame.line),
                "column": frame.column - 1 + ide.first_column,
                "presentationHint": frame.presentation_hint,
            }
        )
    return shown


async def existing(paths: Iterable[str]) -> set[str]:
    """The paths that are files. It runs in a thread: a disk may be slow."""
    asked = set(paths)
    return await asyncio.to_thread(lambda: {path for path in asked if os.path.isfile(path)})


def variable_of(variable: i.ListedVariable) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": variable.name,
        "value": variable.value,
        "type": variable.type,
        "variablesReference": variable.variables_reference,
    }
    return _with_counts(body, variable)


def evaluated(answer: i.Evaluated) -> dict[str, Any]:
    body: dict[str, Any] = {
        "result": answer.result or "",
        "variablesReference": answer.variables_reference,
    }
    if answer.type:
        body["type"] = answer.type
    return _with_counts(body, answer)


def _with_counts(body: dict[str, Any], value: i.ListedVariable | i.Evaluated) -> dict[str, Any]:
    if value.variables_reference:
        if value.named_variables is not None:
            body["namedVariables"] = value.named_variables
        if value.indexed_variables is not None:
            body["indexedVariables"] = value.indexed_variables
    if isinstance(value.presentation_hint, dict):
        body["presentationHint"] = value.presentation_hint
    return body
