"""The catalogue of errors: code → status, meaning, and what to do next.

Supervisor and worker both raise `RelayError`. A worker's error crosses the wire unchanged, and the
supervisor never maps it to another one. There is no subclass per code: callers compare
`error.code`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct


class Code(StrEnum):
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    SESSION_LIMIT_REACHED = "SESSION_LIMIT_REACHED"
    SESSION_EXPIRED = "SESSION_EXPIRED"
    SESSION_CRASHED = "SESSION_CRASHED"
    SESSION_LEASED = "SESSION_LEASED"
    INVALID_SESSION_STATE = "INVALID_SESSION_STATE"
    STOP_CHANGED = "STOP_CHANGED"
    IDEMPOTENCY_CONFLICT = "IDEMPOTENCY_CONFLICT"
    BREAKPOINT_NOT_FOUND = "BREAKPOINT_NOT_FOUND"
    BREAKPOINT_INVALID_LINE = "BREAKPOINT_INVALID_LINE"
    BREAKPOINT_INVALID_CONDITION = "BREAKPOINT_INVALID_CONDITION"
    BREAKPOINT_FILE_NOT_FOUND = "BREAKPOINT_FILE_NOT_FOUND"
    BREAKPOINT_TEXT_MISMATCH = "BREAKPOINT_TEXT_MISMATCH"
    PROFILE_NOT_FOUND = "PROFILE_NOT_FOUND"
    THREAD_NOT_FOUND = "THREAD_NOT_FOUND"
    FRAME_NOT_FOUND = "FRAME_NOT_FOUND"
    VARIABLE_NOT_FOUND = "VARIABLE_NOT_FOUND"
    WATCH_NOT_FOUND = "WATCH_NOT_FOUND"
    EVALUATE_ERROR = "EVALUATE_ERROR"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    LAUNCH_SCRIPT_NOT_FOUND = "LAUNCH_SCRIPT_NOT_FOUND"
    LAUNCH_MODULE_NOT_FOUND = "LAUNCH_MODULE_NOT_FOUND"
    LAUNCH_INTERPRETER_NOT_FOUND = "LAUNCH_INTERPRETER_NOT_FOUND"
    LAUNCH_CWD_NOT_FOUND = "LAUNCH_CWD_NOT_FOUND"
    LAUNCH_SYNTAX_ERROR = "LAUNCH_SYNTAX_ERROR"
    LAUNCH_ENV_MISSING = "LAUNCH_ENV_MISSING"
    LAUNCH_FIELDS_MISSING = "LAUNCH_FIELDS_MISSING"
    ATTACH_FAILED = "ATTACH_FAILED"
    ATTACH_TIMEOUT = "ATTACH_TIMEOUT"
    ATTACH_REFUSED = "ATTACH_REFUSED"
    ATTACH_NOT_PYTHON = "ATTACH_NOT_PYTHON"
    ATTACH_UNSUPPORTED = "ATTACH_UNSUPPORTED"
    ATTACH_NO_SUCH_PROCESS = "ATTACH_NO_SUCH_PROCESS"
    ATTACH_NOT_PERMITTED = "ATTACH_NOT_PERMITTED"
    ATTACH_OTHER_NAMESPACE = "ATTACH_OTHER_NAMESPACE"
    ATTACH_SELF = "ATTACH_SELF"
    ATTACH_ALREADY_ATTACHED = "ATTACH_ALREADY_ATTACHED"
    ATTACH_STOPPED = "ATTACH_STOPPED"
    ATTACH_PID_RECYCLED = "ATTACH_PID_RECYCLED"
    ATTACH_NO_DEBUGGER = "ATTACH_NO_DEBUGGER"
    DEBUGPY_ERROR = "DEBUGPY_ERROR"
    DEBUGPY_TIMEOUT = "DEBUGPY_TIMEOUT"
    WORKER_START_FAILED = "WORKER_START_FAILED"
    WORKER_UNRESPONSIVE = "WORKER_UNRESPONSIVE"
    INVALID_REQUEST = "INVALID_REQUEST"
    MISSING_PARAMETER = "MISSING_PARAMETER"
    INVALID_PARAMETER = "INVALID_PARAMETER"
    UNSUPPORTED_MEDIA_TYPE = "UNSUPPORTED_MEDIA_TYPE"
    REQUEST_TOO_LARGE = "REQUEST_TOO_LARGE"
    REQUEST_TIMEOUT = "REQUEST_TIMEOUT"
    NOT_FOUND = "NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    FORBIDDEN_HOST = "FORBIDDEN_HOST"
    FORBIDDEN_ORIGIN = "FORBIDDEN_ORIGIN"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    INSUFFICIENT_SCOPE = "INSUFFICIENT_SCOPE"
    TOO_MANY_WAITERS = "TOO_MANY_WAITERS"
    TOO_MANY_STREAMS = "TOO_MANY_STREAMS"
    UPGRADE_REQUIRED = "UPGRADE_REQUIRED"
    TOO_MUCH_IN_FLIGHT = "TOO_MUCH_IN_FLIGHT"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    INTERNAL_ERROR = "INTERNAL_ERROR"


# `RelayError.for_session` fills in the session. The operations table imports these codes, so the
# paths here cannot be taken from it; a test compares them with the table.
_S: Final = "/api/v1/sessions/{session_id}"


class ErrorRow(Struct, frozen=True):
    status: int
    category: str
    meaning: str
    # The default, for a place that raises without a more exact suggestion.
    suggestion: str
    retry: bool = False


def _rows() -> dict[Code, ErrorRow]:
    c, row = Code, ErrorRow
    return {
        c.SESSION_NOT_FOUND: row(
            404,
            "session",
            "No session has this id.",
            "Use GET /api/v1/sessions to list the existing sessions.",
        ),
        c.SESSION_LIMIT_REACHED: row(
            429,
            "session",
            "The maximum number of sessions is open.",
            "DELETE one of the listed sessions, or raise [sessions] max_sessions.",
            True,
        ),
        c.SESSION_EXPIRED: row(
            410,
            "session",
            "The session timed out because no call used it.",
            "Create a new one with POST /api/v1/sessions.",
        ),
        c.SESSION_CRASHED: row(
            500,
            "session",
            "The session's worker process died.",
            f"GET {_S}/output still works; create a new session with POST /api/v1/sessions.",
        ),
        c.SESSION_LEASED: row(
            423,
            "session",
            "Another caller drives this session.",
            f"Wait until the lease lapses, or POST {_S}/lease with take_over true.",
            True,
        ),
        c.INVALID_SESSION_STATE: row(
            409,
            "session",
            "The session's state does not allow this.",
            f"GET {_S}/status shows the state.",
        ),
        c.STOP_CHANGED: row(
            409,
            "session",
            "The program has moved on since the stop named by If-Stop.",
            "Read the present stop and decide again.",
        ),
        c.IDEMPOTENCY_CONFLICT: row(
            409,
            "request",
            "The Idempotency-Key was used with another body.",
            "Use a new key for a new request.",
        ),
        c.BREAKPOINT_NOT_FOUND: row(
            404,
            "breakpoint",
            "No breakpoint has this id.",
            f"GET {_S}/breakpoints lists the existing ones.",
        ),
        c.BREAKPOINT_INVALID_LINE: row(
            400,
            "breakpoint",
            "The file has no such line.",
            "Use a line up to max_line.",
        ),
        c.BREAKPOINT_INVALID_CONDITION: row(
            400,
            "breakpoint",
            "A condition, hit condition or log message does not compile.",
            "Correct the expression; it is Python as in the program.",
        ),
        c.BREAKPOINT_FILE_NOT_FOUND: row(
            400,
            "breakpoint",
            "The source file does not exist.",
            "Check the path, or leave must_exist out to wait for the file.",
        ),
        c.BREAKPOINT_TEXT_MISMATCH: row(
            400,
            "breakpoint",
            "The text is not on that line, or it is on several lines.",
            "Read the neighbouring lines in details and choose one.",
        ),
        c.PROFILE_NOT_FOUND: row(
            404,
            "breakpoint",
            "No breakpoint profile has this name.",
            "GET /api/v1/breakpoint-profiles lists the existing ones.",
        ),
        c.THREAD_NOT_FOUND: row(
            404,
            "thread",
            "No thread has this id.",
            f"GET {_S}/threads lists the existing ones.",
        ),
        c.FRAME_NOT_FOUND: row(
            404,
            "frame",
            "The thread's stack has no such frame.",
            f"GET {_S}/stacktrace lists the frames; ids count from 0 at the top.",
        ),
        c.VARIABLE_NOT_FOUND: row(
            404,
            "variable",
            "The reference is unknown or from an earlier stop.",
            f"GET {_S}/scopes gives the references of the present stop.",
        ),
        c.WATCH_NOT_FOUND: row(
            404,
            "watch",
            "No watch has this id.",
            f"GET {_S}/watch lists the existing ones.",
        ),
        c.EVALUATE_ERROR: row(
            400,
            "evaluate",
            "The expression does not parse.",
            "Correct the expression; send statements with context repl.",
        ),
        c.LAUNCH_FAILED: row(
            500,
            "launch",
            "The program could not be started under the debugger.",
            f"Read the program's output with GET {_S}/output.",
        ),
        c.LAUNCH_SCRIPT_NOT_FOUND: row(
            400,
            "launch",
            "The script does not exist.",
            "Check the path of script.",
        ),
        c.LAUNCH_MODULE_NOT_FOUND: row(
            400,
            "launch",
            "The interpreter cannot find the module.",
            "Check module, python_path and cwd.",
        ),
        c.LAUNCH_INTERPRETER_NOT_FOUND: row(
            400,
            "launch",
            "The Python interpreter does not exist or cannot be run.",
            "Give python_path or venv.",
        ),
        c.LAUNCH_CWD_NOT_FOUND: row(
            400,
            "launch",
            "The working directory does not exist.",
            "Check cwd.",
        ),
        c.LAUNCH_SYNTAX_ERROR: row(
            400,
            "launch",
            "The script has a syntax error.",
            "Correct the line named in details and send the same call again.",
        ),
        c.LAUNCH_ENV_MISSING: row(
            400,
            "launch",
            "Secret environment values were not kept and must be given again.",
            "Call restart with env for the names in missing_env.",
        ),
        c.LAUNCH_FIELDS_MISSING: row(
            400,
            "launch",
            "Arguments, code or inputs with secrets were not kept and must be given again.",
            "Call restart with the fields in missing_fields.",
        ),
        c.ATTACH_FAILED: row(
            500,
            "attach",
            "The process could not be attached to.",
            "Read details; the process keeps running.",
        ),
        c.ATTACH_TIMEOUT: row(
            504,
            "attach",
            "The process did not answer in time.",
            "Try again, or with a larger connect_timeout.",
            True,
        ),
        c.ATTACH_REFUSED: row(
            502,
            "attach",
            "Nothing accepts debugger connections there.",
            "Start the program with python -m debugpy --listen HOST:PORT.",
            True,
        ),
        c.ATTACH_NOT_PYTHON: row(
            400,
            "attach",
            "The process is not a CPython process.",
            "GET /api/v1/processes lists the processes that can be attached to.",
        ),
        c.ATTACH_UNSUPPORTED: row(
            400,
            "attach",
            "This kind of target cannot do that.",
            "Attach by pid, or launch the program, for the full set.",
        ),
        c.ATTACH_NO_SUCH_PROCESS: row(
            404,
            "attach",
            "No such process.",
            "GET /api/v1/processes lists the processes that can be attached to.",
        ),
        c.ATTACH_NOT_PERMITTED: row(
            403,
            "attach",
            "The kernel does not let this user trace that process.",
            "Run the relay as the process's user, or set kernel.yama.ptrace_scope to 0.",
        ),
        c.ATTACH_OTHER_NAMESPACE: row(
            403,
            "attach",
            "The process runs in another container.",
            "Start debugpy inside it with --listen and attach by host and port.",
        ),
        c.ATTACH_SELF: row(
            409,
            "attach",
            "That process belongs to the relay.",
            "Choose another process.",
        ),
        c.ATTACH_ALREADY_ATTACHED: row(
            409,
            "attach",
            "Another session debugs that process.",
            "Use the session named in details.",
        ),
        c.ATTACH_STOPPED: row(
            409,
            "attach",
            "The process is stopped by a signal.",
            "Send it SIGCONT first.",
        ),
        c.ATTACH_PID_RECYCLED: row(
            409,
            "attach",
            "The pid now belongs to another process.",
            "Call GET /api/v1/processes again.",
        ),
        c.ATTACH_NO_DEBUGGER: row(
            503,
            "attach",
            "What this needs is not installed: gdb, gdbserver, lldb-server, or MCP's packages.",
            "Install what the message names. Without gdb, start the program with debugpy --listen "
            "and attach by port.",
        ),
        c.DEBUGPY_ERROR: row(
            500,
            "debugger",
            "The debugger refused or failed the request.",
            "Read details.debugger_message.",
        ),
        c.DEBUGPY_TIMEOUT: row(
            504,
            "debugger",
            "The debugger did not answer in time.",
            f"GET {_S}/status shows its state; the session stays usable.",
            True,
        ),
        c.WORKER_START_FAILED: row(
            500,
            "internal",
            "The session's worker process could not be started.",
            "Read details and the relay's log.",
            True,
        ),
        c.WORKER_UNRESPONSIVE: row(
            504,
            "internal",
            "The session's worker process does not respond.",
            f"DELETE {_S}?force=true if this lasts.",
            True,
        ),
        c.INVALID_REQUEST: row(
            400,
            "request",
            "The request's body is invalid.",
            "Correct the fields that this answer names.",
        ),
        c.MISSING_PARAMETER: row(
            400,
            "request",
            "A required parameter is missing.",
            "Add the parameters that this answer names.",
        ),
        c.INVALID_PARAMETER: row(
            400,
            "request",
            "A path or query parameter is invalid.",
            "Correct the parameters that this answer names.",
        ),
        c.UNSUPPORTED_MEDIA_TYPE: row(
            415,
            "request",
            "The body must be JSON.",
            "Send the body with the header Content-Type: application/json.",
        ),
        c.REQUEST_TOO_LARGE: row(
            413,
            "request",
            "The request is larger than allowed.",
            "Send less, or raise [server] max_body_bytes.",
        ),
        c.REQUEST_TIMEOUT: row(
            408,
            "request",
            "The request did not arrive in time.",
            "Send it again.",
            True,
        ),
        c.NOT_FOUND: row(
            404,
            "request",
            "The path does not exist.",
            "GET /api/v1/openapi.json lists all paths.",
        ),
        c.METHOD_NOT_ALLOWED: row(
            405,
            "request",
            "The path exists, but not with this method.",
            "Use a method from the Allow header.",
        ),
        c.FORBIDDEN_HOST: row(
            403,
            "guard",
            "The Host header names no address of this relay.",
            "Use http://127.0.0.1:PORT, or list the name in [server] allow_hosts.",
        ),
        c.FORBIDDEN_ORIGIN: row(
            403,
            "guard",
            "Web pages may not call the relay.",
            "Call it from a program, without an Origin header.",
        ),
        c.UNAUTHENTICATED: row(
            401,
            "guard",
            "A valid bearer token is needed.",
            "Send Authorization: Bearer TOKEN; debug-relay token create creates one.",
        ),
        c.INSUFFICIENT_SCOPE: row(
            403,
            "guard",
            "The token lacks a scope.",
            "Use a token with the scope in details.",
        ),
        c.TOO_MANY_WAITERS: row(
            429,
            "request",
            "Too many requests are waiting for events already.",
            "Poll without a timeout, or close other long-polls.",
            True,
        ),
        c.TOO_MANY_STREAMS: row(
            429,
            "request",
            "Too many streams are open already.",
            "Close other streams, or poll.",
            True,
        ),
        c.UPGRADE_REQUIRED: row(
            426,
            "request",
            "This path is a WebSocket.",
            "Connect with a WebSocket client.",
        ),
        c.TOO_MUCH_IN_FLIGHT: row(
            429,
            "request",
            "The bodies of other requests use all the memory reserved for bodies.",
            "Send it again after other requests have been answered.",
            True,
        ),
        c.SHUTTING_DOWN: row(
            503,
            "server",
            "The relay is stopping.",
            "Try again after it has restarted.",
            True,
        ),
        c.INTERNAL_ERROR: row(
            500,
            "server",
            "The relay failed because of a bug of its own.",
            "Report error_id together with the log file named in details.",
        ),
    }


ERRORS: Final[Mapping[Code, ErrorRow]] = _rows()

# Errors that any operation may answer, in addition to those of its row.
COMMON: Final = frozenset(
    {
        Code.INVALID_REQUEST, Code.INVALID_PARAMETER, Code.MISSING_PARAMETER,
        Code.UNSUPPORTED_MEDIA_TYPE, Code.REQUEST_TOO_LARGE, Code.REQUEST_TIMEOUT,
        Code.TOO_MUCH_IN_FLIGHT, Code.FORBIDDEN_HOST, Code.FORBIDDEN_ORIGIN,
        Code.UNAUTHENTICATED, Code.INSUFFICIENT_SCOPE,
        Code.SHUTTING_DOWN, Code.INTERNAL_ERROR,
    }
)  # fmt: skip

# Errors that any operation on a session may answer as well.
COMMON_SESSION: Final = frozenset(
    {
        Code.SESSION_NOT_FOUND, Code.SESSION_EXPIRED, Code.SESSION_CRASHED,
        Code.INVALID_SESSION_STATE, Code.WORKER_UNRESPONSIVE,
        # A restored session gets a worker with the first call that needs one.
        Code.SESSION_LIMIT_REACHED, Code.WORKER_START_FAILED,
    }
)  # fmt: skip


class RelayError(Exception):
    """An error that a caller receives: a code, what happened, and what to do next."""

    def __init__(
        self, code: Code, message: str, /, suggestion: str | None = None, **details: Any
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: dict[str, Any] = {k: one for k, one in details.items() if one is not None}
        self.details["suggestion"] = suggestion or ERRORS[code].suggestion

    def for_session(self, session_id: str | None) -> RelayError:
        """Fills the session's id into the suggestion, whichever module wrote it."""
        suggestion = self.details["suggestion"]
        if session_id is not None and isinstance(suggestion, str):
            self.details["suggestion"] = suggestion.replace("{session_id}", session_id)
        return self

    @property
    def status(self) -> int:
        return ERRORS[self.code].status

    def __repr__(self) -> str:
        return f"RelayError({self.code.value}: {self.message})"
