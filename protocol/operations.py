"""The operations table: every operation of the relay is one row here and nowhere else.

Routes, validation, 409s, the worker's dispatch, OpenAPI and every other front are derived from it.
`operation_row.py` says what a row consists of. The rows stay in one module, however long: whoever
looks for an operation, or compares two, finds all of them by one search.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from debug_relay.protocol.errors import Code
from debug_relay.protocol.models import (
    breakpoints,
    creation,
    execution,
    export_import,
    inspection,
    output_events,
    processes,
    program,
    relay,
    run,
    sessions,
    sources,
    stop_report,
    threads,
)
from debug_relay.protocol.models.fields import Count, Deleted, Empty, Params, Result, SessionParams
from debug_relay.protocol.operation_row import Deadline, Operation, Verb, path_variables
from debug_relay.protocol.state import ANY, LIVE, State

_PAUSED: Final = frozenset({State.PAUSED})
# in `paused`, other threads may still run
_RUNNING: Final = frozenset({State.RUNNING, State.PAUSED})
_CREATED: Final = frozenset({State.CREATED})
_S: Final = "/sessions/{session_id}"
_FRAME: Final = frozenset({Code.THREAD_NOT_FOUND, Code.FRAME_NOT_FOUND})
_DEBUGGER: Final = frozenset({Code.DEBUGPY_ERROR, Code.DEBUGPY_TIMEOUT})
_DRIVE: Final = _DEBUGGER | {Code.SESSION_LEASED, Code.THREAD_NOT_FOUND}
_LAUNCH: Final = frozenset(
    {
        Code.LAUNCH_FAILED, Code.LAUNCH_SCRIPT_NOT_FOUND, Code.LAUNCH_MODULE_NOT_FOUND,
        Code.LAUNCH_INTERPRETER_NOT_FOUND, Code.LAUNCH_CWD_NOT_FOUND, Code.LAUNCH_SYNTAX_ERROR,
        Code.ATTACH_NO_DEBUGGER,
    }
)  # fmt: skip
_MISSING: Final = frozenset({Code.LAUNCH_ENV_MISSING, Code.LAUNCH_FIELDS_MISSING})
_ATTACH: Final = frozenset(code for code in Code if code.value.startswith("ATTACH_"))
# A launched program cannot be detached from, and a joined one has its own standard input.
_UNSUPPORTED: Final = frozenset({Code.ATTACH_UNSUPPORTED})
_BREAKPOINT: Final = frozenset(
    {
        Code.BREAKPOINT_INVALID_LINE, Code.BREAKPOINT_INVALID_CONDITION,
        Code.BREAKPOINT_FILE_NOT_FOUND, Code.BREAKPOINT_TEXT_MISMATCH,
    }
)  # fmt: skip
# Lines and expressions are verified with the session's interpreter.
_VERIFIED: Final = _BREAKPOINT | {Code.LAUNCH_INTERPRETER_NOT_FOUND}
_NO_BREAKPOINT: Final = frozenset({Code.BREAKPOINT_NOT_FOUND})
_IDEMPOTENT: Final = frozenset({Code.IDEMPOTENCY_CONFLICT})
_START: Final = Deadline("launch_timeout")
_START_AND_WAIT: Final = Deadline("launch_timeout", ("wait",))
_EVALUATE: Final = Deadline(fields=("timeout",), otherwise="evaluate_timeout")
# Fields by which a caller asks for time: a deadline that left one out would cut the call short.
_SECONDS_FIELDS: Final = frozenset({"wait", "timeout", "connect_timeout"})
_CROWDED: Final = frozenset({Code.TOO_MANY_STREAMS})
_SOCKET: Final = _CROWDED | {Code.UPGRADE_REQUIRED}
_MADE: Final = _IDEMPOTENT | {Code.SESSION_LIMIT_REACHED, Code.WORKER_START_FAILED}


def _server(name: str, verb: Verb, path: str, result: type[Result], **more: object) -> Operation:
    fields = {"params": Empty, "group": "server", "scope": "sessions:read", "side": "supervisor"}
    return Operation(name=name, verb=verb, path=path, result=result, **{**fields, **more})  # type: ignore[arg-type]


def _session(
    name: str, verb: Verb, path: str, params: type[Params], result: type[Result], **more: object
) -> Operation:
    read = verb == "GET"
    fields: dict[str, object] = {
        "group": "sessions",
        "scope": "sessions:read" if read else "sessions:write",
        "safe": read,
    }
    return Operation(
        name=name,
        verb=verb,
        path=path,
        params=params,
        result=result,
        **{**fields, **more},  # type: ignore[arg-type]
    )


_SERVER_ROWS: Final = (
    _server(
        "index", "GET", "/", relay.Document, safe=True, kind="document",
        words="Where to begin: version, links and three calls. Also served at the root.",
    ),
    _server(
        "health", "GET", "/health", relay.Health, scope="", safe=True, also=(503,),
        words="Show whether the relay is healthy: 503 if it is not. Needs no token.",
    ),
    _server(
        "ticket", "POST", "/ticket", relay.Ticket,
        words="Get a one-time ticket with which a page opens a WebSocket in place of its token.",
    ),
    _server(
        "commands", "GET", "/commands", output_events.StreamBytes, params=relay.OpenCommands,
        kind="websocket", safe=True, errors=_SOCKET,
    ),
    _server(
        "info", "GET", "/info", relay.Info, safe=True,
        words="Show versions, capabilities and endpoints.",
    ),
    _server(
        "get-config", "GET", "/config", relay.Configuration, scope="admin", safe=True,
        words="Show the settings in force and which of them can be changed at run time.",
    ),
    _server(
        "patch-config", "PATCH", "/config", relay.Configuration,
        params=relay.PatchConfig, scope="admin", finishes=True,
    ),
    _server(
        "shutdown", "POST", "/shutdown", relay.ShuttingDown, params=relay.Shutdown, scope="admin",
    ),
    _server(
        "openapi", "GET", "/openapi.json", relay.Document, safe=True, kind="document",
        words="The OpenAPI 3.1 document of all operations.",
    ),
    _server(
        "docs", "GET", "/docs", relay.Document, safe=True, kind="document",
        words="The reference as one page to search in, which works without the internet.",
    ),
    _server(
        "metrics", "GET", "/metrics", relay.Document, safe=True, kind="document",
        words="Metrics for Prometheus: sessions, requests, latencies, refusals, workers' memory.",
    ),
    _server(
        "llms", "GET", "/llms.txt", relay.Document, safe=True, kind="document",
        words="A short guide to the relay for language models: eight recipes.",
    ),
    _server(
        "mcp", "POST", "/mcp", relay.Document, kind="mcp", params=relay.McpMessage,
        errors=frozenset({Code.ATTACH_NO_DEBUGGER}),
        words="Speak the Model Context Protocol over streamable HTTP.",
    ),
    _server(
        "list-processes", "GET", "/processes", relay.ProcessList,
        params=relay.ListProcesses, scope="processes:attach", safe=True,
    ),
    _server(
        "get-process", "GET", "/processes/{pid}", processes.Process,
        params=relay.OneProcess, scope="processes:attach", safe=True,
        errors=frozenset({Code.ATTACH_NO_SUCH_PROCESS}),
        words="Show one process and whether the relay can attach to it.",
    ),
    _server(
        "process-stacks", "GET", "/processes/{pid}/stacks", threads.Stacks,
        params=relay.ReadStacks, scope="processes:attach", safe=True,
        errors=frozenset(
            {Code.ATTACH_NO_SUCH_PROCESS, Code.ATTACH_NOT_PYTHON, Code.ATTACH_NO_DEBUGGER,
             Code.ATTACH_NOT_PERMITTED, Code.ATTACH_FAILED}
        ),
    ),
    _server(
        "run", "POST", "/run", run.RunReport,
        params=run.Run, scope="sessions:write",
        errors=_LAUNCH | _DEBUGGER | _VERIFIED
        | {Code.SESSION_LIMIT_REACHED, Code.WORKER_START_FAILED, Code.WORKER_UNRESPONSIVE,
           Code.SESSION_CRASHED, Code.EVALUATE_ERROR},
    ),
    _server(
        "list-profiles", "GET", "/breakpoint-profiles", breakpoints.ProfileList,
        params=breakpoints.ListProfiles, group="breakpoints", safe=True,
    ),
    _server(
        "get-profile", "GET", "/breakpoint-profiles/{name}", breakpoints.ProfileData,
        params=breakpoints.Profile, group="breakpoints", safe=True,
        errors=frozenset({Code.PROFILE_NOT_FOUND}),
        words="Show a breakpoint profile.",
    ),
    _server(
        "put-profile", "PUT", "/breakpoint-profiles/{name}", breakpoints.ProfileKept,
        params=breakpoints.PutProfile, group="breakpoints", scope="sessions:write", finishes=True,
    ),
    _server(
        "delete-profile", "DELETE", "/breakpoint-profiles/{name}", Deleted,
        params=breakpoints.Profile, group="breakpoints", scope="sessions:write", finishes=True,
        errors=frozenset({Code.PROFILE_NOT_FOUND}),
        words="Delete a breakpoint profile.",
    ),
)  # fmt: skip

_SESSION_ROWS: Final = (
    _session(
        "create-session", "POST", "/sessions", creation.CreateSession, creation.SessionCreated,
        side="supervisor", status=201, follow_up="mode", finishes=True,
        errors=_LAUNCH | _ATTACH | _IDEMPOTENT | _DEBUGGER | _BREAKPOINT
        | {Code.SESSION_LIMIT_REACHED, Code.WORKER_START_FAILED, Code.WORKER_UNRESPONSIVE,
           Code.SESSION_CRASHED},
    ),
    _session(
        "list-sessions", "GET", "/sessions", sessions.ListSessions, sessions.SessionList,
        side="supervisor", touches=False,
    ),
    _session(
        "import-session", "POST", "/sessions/import",
        export_import.ImportSession, sessions.SessionState,
        side="supervisor", status=201, finishes=True, errors=_MADE,
    ),
    _session(
        "get-session", "GET", _S, SessionParams, sessions.SessionState, side="supervisor",
        words="Show everything public about a session.",
    ),
    _session(
        "session-status", "GET", _S + "/status", SessionParams, sessions.SessionStatus,
        side="supervisor",
        words="Show the few fields that a poller needs.",
    ),
    _session(
        "patch-session", "PATCH", _S, sessions.PatchSession, sessions.SessionState,
        errors=_UNSUPPORTED,
    ),
    _session(
        "delete-session", "DELETE", _S, sessions.DeleteSession, sessions.SessionDeleted,
        side="supervisor", finishes=True,
    ),
    _session(
        "take-lease", "POST", _S + "/lease", sessions.TakeLease, sessions.Lease,
        errors=frozenset({Code.SESSION_LEASED}),
    ),
    _session(
        "drop-lease", "DELETE", _S + "/lease", SessionParams, sessions.Lease,
        errors=frozenset({Code.SESSION_LEASED}),
        words="Give up the lease; any caller may drive again.",
    ),
    _session(
        "clone-session", "POST", _S + "/clone", export_import.CloneSession, sessions.SessionState,
        side="supervisor", status=201, finishes=True, errors=_MADE,
    ),
    _session(
        "export-session", "GET", _S + "/export", SessionParams, export_import.Export,
        side="supervisor", scope="artifacts:read",
        words="Export everything of a session except its state, ready for an import.",
    ),
    _session(
        "ping", "POST", _S + "/ping", SessionParams, sessions.Pong, side="supervisor",
        words="Mark the session as used, so that it does not expire.",
    ),
    _session(
        "get-ping", "GET", _S + "/ping", SessionParams, sessions.Pong, side="supervisor",
        words="Mark the session as used, so that it does not expire.",
    ),
    _session(
        "resources", "GET", _S + "/resources", SessionParams, sessions.Resources,
        words="Show the resource usage of the session's process tree, and its limits.",
    ),
)  # fmt: skip

_PROGRAM_ROWS: Final = (
    _session(
        "launch", "POST", _S + "/launch", program.Launch, program.Launched,
        group="program", states=_CREATED, errors=_LAUNCH | _IDEMPOTENT | _DRIVE, drives=True,
        deadline=_START_AND_WAIT,
    ),
    _session(
        "attach", "POST", _S + "/attach", program.Attach, program.Attached,
        group="program", scope="processes:attach", states=_CREATED,
        errors=_ATTACH | _IDEMPOTENT | _DRIVE, drives=True,
        deadline=Deadline("launch_timeout", ("connect_timeout", "wait")), prepare="choose-process",
    ),
    _session(
        "detach", "POST", _S + "/detach", program.Detach, program.Detached,
        group="program", states=LIVE, errors=_DRIVE | _UNSUPPORTED, drives=True,
        deadline=_START,
    ),
    _session(
        "restart", "POST", _S + "/restart", program.Restart, program.Launched,
        group="program", errors=_LAUNCH | _DRIVE | _UNSUPPORTED | _MISSING,
        drives=True, deadline=_START_AND_WAIT,
    ),
    _session(
        "terminate", "POST", _S + "/terminate", program.Terminate, program.Terminated,
        group="program", states=LIVE, errors=_DRIVE, drives=True, deadline=_START,
    ),
    _session(
        "input", "POST", _S + "/input", program.Input, program.Written,
        group="program", aliases=(_S + "/stdin",), states=LIVE, errors=_DRIVE | _UNSUPPORTED,
        drives=True, deadline=_START,
    ),
)  # fmt: skip


def _drive(
    name: str,
    params: type[Params],
    states: frozenset[State],
    errors: frozenset[Code] = frozenset(),
    words: str = "",
) -> Operation:
    return _session(
        name, "POST", f"{_S}/{name}", params, execution.Execution,
        group="execution", states=states, errors=_DRIVE | errors, drives=True,
        python_only=True, deadline=Deadline(fields=("wait",)),
        aliases=(f"{_S}/threads/{{thread_id}}/{name}",), words=words,
    )  # fmt: skip


_EXECUTION_ROWS: Final = (
    _drive("continue", execution.Continue, _PAUSED),
    _drive("pause", execution.Pause, _RUNNING),
    _drive(
        "step-over", execution.Step, _PAUSED,
        words="Run to the next line of this function.",
    ),
    _drive(
        "step-into", execution.Step, _PAUSED,
        words="Run into the next call.",
    ),
    _drive(
        "step-out", execution.Step, _PAUSED,
        words="Run until this function has returned.",
    ),
    _drive("run-to", execution.RunTo, _PAUSED, errors=_VERIFIED),
    _session(
        "trace", "POST", _S + "/trace", execution.Trace, execution.TraceRows,
        group="execution", states=_RUNNING,
        errors=_DRIVE | _VERIFIED | {Code.EVALUATE_ERROR}, drives=True, python_only=True,
        deadline=Deadline(fields=("timeout",)),
    ),
    _session(
        "get-trace", "GET", _S + "/trace", execution.GetTrace, execution.TraceRows,
        group="execution", python_only=True,
        words="Read further rows of the last trace, also while it runs.",
    ),
    _session(
        "end-trace", "DELETE", _S + "/trace", execution.EndTrace, execution.TraceRows,
        group="execution", states=_RUNNING, python_only=True,
        errors=_DEBUGGER | {Code.SESSION_LEASED}, drives=True,
    ),
)  # fmt: skip


def _breakpoint(
    name: str, verb: Verb, path: str, params: type[Params], result: type[Result], **more: object
) -> Operation:
    fields: dict[str, object] = {"group": "breakpoints", "python_only": True}
    return _session(name, verb, _S + path, params, result, **{**fields, **more})


_BREAKPOINT_ROWS: Final = (
    _breakpoint(
        "set-breakpoints", "POST", "/breakpoints",
        breakpoints.SetBreakpoints, breakpoints.BreakpointsSet,
        errors=_VERIFIED | _IDEMPOTENT | _DEBUGGER | {Code.FRAME_NOT_FOUND},
        on_refusal="verify-sound-entries",
    ),
    _breakpoint(
        "list-breakpoints", "GET", "/breakpoints",
        breakpoints.ListBreakpoints, breakpoints.BreakpointList,
    ),
    _breakpoint(
        "clear-breakpoints", "DELETE", "/breakpoints",
        SessionParams, breakpoints.BreakpointsCleared,
        errors=_DEBUGGER,
        words="Remove all breakpoints.",
    ),
    _breakpoint(
        "get-breakpoint", "GET", "/breakpoints/{breakpoint_id}",
        breakpoints.OneBreakpoint, breakpoints.Breakpoint,
        errors=_NO_BREAKPOINT,
        words="Show one breakpoint.",
    ),
    _breakpoint(
        "patch-breakpoint", "PATCH", "/breakpoints/{breakpoint_id}", breakpoints.PatchBreakpoint,
        breakpoints.BreakpointChanged, errors=_NO_BREAKPOINT | _VERIFIED | _DEBUGGER,
    ),
    _breakpoint(
        "delete-breakpoint", "DELETE", "/breakpoints/{breakpoint_id}", breakpoints.OneBreakpoint,
        breakpoints.BreakpointRemoved,
        errors=_NO_BREAKPOINT | _DEBUGGER,
        words="Remove one breakpoint.",
    ),
    _breakpoint(
        "set-exception-breakpoints", "POST", "/exception-breakpoints",
        breakpoints.SetExceptionBreakpoints, breakpoints.ExceptionBreakpoints,
        errors=_DEBUGGER | {Code.BREAKPOINT_INVALID_CONDITION, Code.LAUNCH_INTERPRETER_NOT_FOUND},
    ),
    _breakpoint(
        "get-exception-breakpoints", "GET", "/exception-breakpoints", SessionParams,
        breakpoints.ExceptionBreakpoints, errors=_DEBUGGER,
        words="Show the session's exception filters.",
    ),
    _breakpoint(
        "clear-exception-breakpoints", "DELETE", "/exception-breakpoints", SessionParams,
        breakpoints.ExceptionBreakpoints, errors=_DEBUGGER,
        words="Remove the session's exception filters.",
    ),
    _breakpoint(
        "apply-profile", "POST", "/breakpoint-profiles/{name}/apply", breakpoints.ApplyProfile,
        breakpoints.BreakpointsSet, errors=_VERIFIED | _DEBUGGER | {Code.PROFILE_NOT_FOUND},
        side="supervisor", finishes=True,
    ),
)  # fmt: skip


def _inspect(
    name: str, verb: Verb, path: str, params: type[Params], result: type[Result], **more: object
) -> Operation:
    fields: dict[str, object] = {
        "group": "inspection", "states": _PAUSED, "errors": _DEBUGGER, "python_only": True,
    }  # fmt: skip
    return _session(name, verb, _S + path, params, result, **{**fields, **more})


_INSPECTION_ROWS: Final = (
    _inspect("threads", "GET", "/threads", threads.Threads, threads.ThreadList, states=LIVE),
    _inspect(
        "stacktrace", "GET", "/stacktrace", inspection.Stacktrace, inspection.Stack,
        aliases=(_S + "/threads/{thread_id}/stacktrace",), states=LIVE,
        errors=_DEBUGGER | {Code.THREAD_NOT_FOUND},
    ),
    _inspect(
        "scopes", "GET", "/scopes", inspection.Scopes, inspection.ScopeList,
        aliases=(_S + "/frames/{frame_id}/scopes",), errors=_DEBUGGER | _FRAME, states=_RUNNING,
    ),
    _inspect(
        "frame-variables", "GET", "/frames/{frame_id}/variables", inspection.FrameVariables,
        inspection.VariableList, errors=_DEBUGGER | _FRAME, states=_RUNNING,
    ),
    _inspect(
        "variables", "GET", "/variables", inspection.Variables, inspection.VariableList,
        aliases=(
            _S + "/variables/{variables_reference}",
            _S + "/scopes/{variables_reference}/variables",
            _S + "/frames/{frame_id}/variables/{variables_reference}/children",
        ),
        errors=_DEBUGGER | {Code.VARIABLE_NOT_FOUND}, states=_RUNNING,
    ),
    _inspect(
        "set-variable", "POST", "/variables/{variables_reference}/set", inspection.SetVariable,
        inspection.VariableSet, errors=_DEBUGGER | {Code.VARIABLE_NOT_FOUND, Code.EVALUATE_ERROR},
    ),
    _inspect(
        "evaluate", "POST", "/evaluate", inspection.Evaluate, inspection.Evaluated,
        errors=_DEBUGGER | _FRAME | {Code.EVALUATE_ERROR, Code.LAUNCH_INTERPRETER_NOT_FOUND},
        deadline=_EVALUATE, states=_RUNNING,
    ),
    _inspect(
        "add-watch", "POST", "/watch", inspection.AddWatch, inspection.Watch, states=ANY,
        errors=_DEBUGGER | {Code.EVALUATE_ERROR, Code.LAUNCH_INTERPRETER_NOT_FOUND},
    ),
    _inspect(
        "list-watches", "GET", "/watch", inspection.ListWatches, inspection.WatchList, states=ANY,
    ),
    _inspect(
        "delete-watches", "DELETE", "/watch", inspection.DeleteWatches, Count, states=ANY,
        aliases=(_S + "/watch/{watch_id}",),
        errors=_DEBUGGER | {Code.WATCH_NOT_FOUND},
    ),
    _inspect(
        "completions", "POST", "/completions", inspection.Completions, inspection.CompletionList,
        errors=_DEBUGGER | _FRAME, states=_RUNNING,
    ),
    _inspect(
        "hover", "POST", "/hover", inspection.Hover, inspection.Evaluated,
        errors=_DEBUGGER | _FRAME | {Code.EVALUATE_ERROR}, deadline=_EVALUATE, states=_RUNNING,
    ),
    _inspect(
        "exception", "GET", "/exception", inspection.GetException, inspection.ExceptionReport,
        errors=_DEBUGGER | {Code.THREAD_NOT_FOUND},
    ),
    _inspect(
        "modules", "GET", "/modules", sources.Modules, sources.ModuleList, states=LIVE,
        errors=_DEBUGGER | {Code.THREAD_NOT_FOUND},
    ),
    _inspect(
        "source", "GET", "/source", sources.GetSource, sources.SourceText, states=ANY,
        scope="artifacts:read", errors=_DEBUGGER | _FRAME, python_only=False,
    ),
    _inspect(
        "snapshot", "GET", "/snapshot", stop_report.Snapshot, stop_report.StopReport,
        # With `wait` it answers where a running program stops or ends; the handler refuses others.
        states=LIVE | {State.LAUNCHING, State.TERMINATED}, deadline=Deadline(fields=("wait",)),
    ),
    _inspect(
        "history", "GET", "/history", stop_report.History, stop_report.HistoryPage,
        states=ANY, side="supervisor", python_only=False,
    ),
    _inspect(
        "tasks", "GET", "/tasks", threads.Tasks, threads.TaskList, states=LIVE,
        errors=_DEBUGGER | {Code.THREAD_NOT_FOUND},
    ),
)  # fmt: skip


def _output(
    name: str, verb: Verb, path: str, params: type[Params], result: type[Result], **more: object
) -> Operation:
    fields: dict[str, object] = {
        "group": "output", "side": "supervisor", "scope": "artifacts:read",
    }  # fmt: skip
    return _session(name, verb, _S + path, params, result, **{**fields, **more})


_OUTPUT_ROWS: Final = (
    _output("output", "GET", "/output", output_events.GetOutput, output_events.OutputPage),
    _output(
        "clear-output", "DELETE", "/output", output_events.ClearOutput, output_events.OutputCleared,
        side="worker", scope="sessions:write",
    ),
    _output(
        "stream-output", "GET", "/output/stream",
        output_events.StreamOutput, output_events.StreamBytes,
        kind="sse", errors=_CROWDED,
    ),
    _output(
        "events", "GET", "/events", output_events.GetEvents, output_events.EventPage,
        scope="sessions:read",
        errors=frozenset({Code.TOO_MANY_WAITERS}),
    ),
    _server(
        "all-events", "GET", "/events",
        output_events.AllEventsPage, params=output_events.GetAllEvents, group="output", safe=True,
        errors=frozenset({Code.TOO_MANY_WAITERS, Code.SESSION_NOT_FOUND, Code.SESSION_EXPIRED}),
    ),
    _output(
        "stream-events", "GET", "/events/stream",
        output_events.StreamEvents, output_events.StreamBytes,
        kind="sse", scope="sessions:read", errors=_CROWDED,
    ),
    _output(
        "logs", "GET", "/logs",
        output_events.OpenStream, output_events.StreamBytes, kind="websocket",
        scope="sessions:read", and_scope="artifacts:read", errors=_SOCKET,
        words="Follow the output over a WebSocket: past output first, then live.",
    ),
    _output(
        "debug", "GET", "/debug", output_events.OpenStream, output_events.StreamBytes,
        kind="websocket", scope="sessions:write", safe=False, errors=_SOCKET,
        words="Drive the session over a WebSocket: commands in, results and events out.",
    ),
    _output(
        "tunnel", "GET", "/tunnel", output_events.OpenTunnel, output_events.StreamBytes,
        kind="websocket", scope="sessions:write", safe=False, own_token=True, errors=_SOCKET,
    ),
)  # fmt: skip


def _table(*groups: tuple[Operation, ...]) -> dict[str, Operation]:
    """The rows by name; raises if two rows conflict."""
    table: dict[str, Operation] = {}
    routes: set[tuple[str, str]] = set()
    for row in (row for group in groups for row in group):
        if row.name in table:
            raise ValueError(f"two operations are called {row.name}")
        if not row.params.__doc__:
            raise ValueError(f"{row.params.__name__} has no docstring")
        asks_for = _SECONDS_FIELDS & set(row.params.__struct_fields__)
        if row.side == "worker" and asks_for != set(row.deadline.fields):
            raise ValueError(f"{row.name}: its deadline does not count {sorted(asks_for)}")
        if row.follow_up and row.follow_up not in row.params.__struct_fields__:
            raise ValueError(f"{row.name} names its next operation in no field")
        for path in row.paths:
            if (row.verb, path) in routes:
                raise ValueError(f"two operations answer {row.verb} {path}")
            routes.add((row.verb, path))
            missing = set(path_variables(path)) - set(row.params.__struct_fields__)
            if missing:
                raise ValueError(f"{row.name}: {path} names {missing}, which params lacks")
        table[row.name] = row
    return table


OPERATIONS: Final[Mapping[str, Operation]] = _table(
    _SERVER_ROWS,
    _SESSION_ROWS,
    _PROGRAM_ROWS,
    _EXECUTION_ROWS,
    _BREAKPOINT_ROWS,
    _INSPECTION_ROWS,
    _OUTPUT_ROWS,
)

# Operations between supervisor and worker only: not routed, allowed in every state. Their names are
# on the wire, where workers of an earlier version must understand them.
END_SESSION: Final = "end-session"
VERIFY_BREAKPOINTS: Final = "judge-breakpoints"
GET_BLUEPRINT: Final = "draw-blueprint"
SAVE_STOP_REPORTS: Final = "write-stops"
RETIRE: Final = "retire"
