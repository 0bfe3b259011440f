"""The parts of the documents that the operations table does not contain: examples, groups, headers,
formats.

They are written by hand and tell one small story: an order service whose total is wrong. A test
converts every example to its row's types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct


class Example(Struct, frozen=True):
    """The query or body that is sent (path variables are in `PATH_VALUES`), and the data of the
    reply.
    """

    request: dict[str, Any] = {}
    data: Any = {}


PATH_VALUES: Final[Mapping[str, str | int]] = {
    "session_id": "sess_a1b2c3d4",
    "thread_id": 1,
    "frame_id": 0,
    "variables_reference": 1001,
    "breakpoint_id": "bp_1",
    "watch_id": "watch_1",
    "name": "checkout-flow",
    "pid": 12345,
}
REQUEST_ID: Final = "550e8400-e29b-41d4-a716-446655440000"
MOMENT: Final = "2026-01-13T10:30:00.123Z"

_LATER: Final = "2026-01-13T11:30:00.123Z"
_ID: Final = "sess_a1b2c3d4"
_FILE: Final = "/srv/shop/orders.py"
_HERE: Final = {"path": _FILE, "line": 42, "column": 1, "function": "total"}
_NEXT: Final = {**_HERE, "line": 43}
_SOURCE: Final = {"path": _FILE, "name": "orders.py"}
_LIMITS: Final = {"memory_bytes": 1073741824, "wall_seconds": 600}
_FILTERS: Final = {"filters": ["uncaught"], "types": ["ValueError"]}
_PROFILE: Final = {"breakpoints": [{"file": _FILE, "line": 42, "condition": "price < 0"}]}
_PAGE: Final = {"total": 1, "offset": 0, "limit": 100, "has_more": False}
_PROGRAM: Final = {
    "script": _FILE, "args": ["--once"], "cwd": "/srv/shop", "env": {"LOG_LEVEL": "DEBUG"},
    "python_path": "/srv/shop/.venv/bin/python", "python_version": "3.12.4", "pid": 12345,
}  # fmt: skip
_CONFIG: Final = {"project_root": "/srv/shop", "labels": {"team": "search"}}
_CREATED: Final = {
    "session_id": _ID, "name": "wrong-total", "status": "created", "created_at": MOMENT,
    "expires_at": _LATER, "config": _CONFIG,
}  # fmt: skip
_PAUSED: Final = {
    "session_id": _ID, "status": "paused", "stop_reason": "breakpoint", "stop_id": 3,
    "current_location": _HERE,
}  # fmt: skip
_LEASE: Final = {"holder": "agent-7", "expires_at": "2026-01-13T10:31:00.123Z"}
_SESSION: Final = {
    **_CREATED, **_PAUSED, "program": _PROGRAM, "stopped_thread_id": 1, "stopped_threads": [1],
    "breakpoint_count": 1, "lease": _LEASE,
}  # fmt: skip
_STOPPED: Final = {
    **_PAUSED, "completed": True, "thread_id": 1, "waiting_for_input": False, "prompt": None,
    "events_cursor": "ZXYtMTc",
}  # fmt: skip
_STEPPED: Final = {**_STOPPED, "stop_reason": "step", "stop_id": 4, "current_location": _NEXT}
_RUNNING: Final = {
    "session_id": _ID, "status": "running", "completed": False, "stop_id": 3,
    "waiting_for_input": False, "prompt": None, "events_cursor": "ZXYtMTc",
}  # fmt: skip
_BREAKPOINT: Final = {
    "id": "bp_1", "verified": True, "source": {"path": _FILE}, "line": 42,
    "condition": "price < 0", "hit_count": 1,
}  # fmt: skip
_BREAKPOINTS: Final = {"breakpoints": [_BREAKPOINT]}
_FRAME: Final = {
    "id": 0, "name": "total", "source": _SOURCE, "line": 42, "column": 1, "module_name": "orders",
}  # fmt: skip
_VARIABLE: Final = {"name": "price", "value": "-3", "type": "int", "variables_reference": 0}
_LIST: Final = {
    "name": "items", "value": "[Item('tea'), Item('cup')]", "type": "list",
    "variables_reference": 1002, "length": 2, "expandable": True,
}  # fmt: skip
_VARIABLES: Final = {
    "variables_reference": 1001, "variables": [_VARIABLE, _LIST], "total": 2, "has_more": False,
}  # fmt: skip
_EVALUATED: Final = {"result": "2", "type": "int"}
_WATCH: Final = {"id": "watch_1", "expression": "len(items)", "value": "2", "type": "int"}
_EXCEPTION: Final = {
    "type": "ValueError", "message": "price is negative",
    "traceback": 'Traceback (most recent call last):\n  File "/srv/shop/orders.py", line 42, …',
}  # fmt: skip
_STOP: Final = {
    "stop_id": 3, "stop_reason": "breakpoint", "thread": {"id": 1, "name": "MainThread"},
    "current_location": _HERE, "frames": [_FRAME], "locals": [_VARIABLE, _LIST],
    "changed": [{"name": "price", "before": "7", "after": "-3"}], "hit_breakpoints": ["bp_1"],
    "timestamp": MOMENT, "total_frames": 1, "total_locals": 2,
}  # fmt: skip
_ROWS: Final = {
    **_PAUSED, "completed": True, "stop_reason": "step", "thread_id": 1,
    "rows": [{
        "seq": 1, "path": _FILE, "line": 42, "function": "total", "thread_id": 1, "hit": 1,
        "values": {"price": "7"},
    }],
    "ended": "max_rows", "total": 1, "left_out": 0, "next_cursor": None, "has_more": False,
}  # fmt: skip
_PROCESS: Final = {
    "pid": 12345, "identity": "12345-8675309-6f1b2c7e-2f0c-4a5b-9d1e-3c4b5a697887",
    "command": ["/srv/shop/.venv/bin/python", "orders.py"], "cwd": "/srv/shop", "user": "shop",
    "uid": 1000, "start_time": 1768300200.12, "executable": "/usr/bin/python3.12",
    "python_version": "3.12.4", "venv": "/srv/shop/.venv", "listening_ports": [8000],
    "debugged_by": None, "greenlets": None, "attachable": True,
}  # fmt: skip
_SETTINGS: Final = {
    "config": {"sessions": {"max_sessions": 20, "idle_timeout": 3600}},
    "origins": {
        "sessions.max_sessions": "config.json (PATCH /config)",
        "sessions.idle_timeout": "built-in default",
    },
    "changeable": ["sessions.max_sessions", "sessions.idle_timeout"],
}  # fmt: skip
_PONG: Final = {"session_id": _ID, "status": "paused", "expires_at": _LATER}
_LAUNCH: Final = {"script": _FILE, "args": ["--once"], "cwd": "/srv/shop"}

_SERVER: Final = {
    "health": Example({}, {
        "status": "healthy", "version": "0.1.0", "uptime_seconds": 7245.5, "active_sessions": 2,
        "debugpy_available": True,
    }),
    "info": Example({}, {
        "name": "OpenCode Debug Relay", "version": "0.1.0", "api_version": "v1",
        "python_version": "3.12.4", "debugpy_version": "1.8.22", "runs_as_root": False,
        "capabilities": {"supports_attach": True, "max_sessions": 10},
        "endpoints": ["/api/v1/sessions", "/api/v1/health", "/api/v1/info"],
    }),
    "ticket": Example({}, {
        "ticket": "Yp3xW8s1fQ0cT5nK7mB2vR4z",
        "protocols": ["debug-relay", "ticket.Yp3xW8s1fQ0cT5nK7mB2vR4z"],
        "expires_at": "2026-01-13T10:31:00.123Z",
    }),
    "commands": Example(),
    "get-config": Example({}, _SETTINGS),
    "patch-config": Example({"sessions": {"max_sessions": 20}}, _SETTINGS),
    "shutdown": Example(
        {"keep_sessions": True}, {"stopping": True, "keep_sessions": True, "sessions": 2},
    ),
    "list-processes": Example({"match": "orders"}, {"items": [_PROCESS], **_PAGE}),
    "get-process": Example({}, _PROCESS),
    "process-stacks": Example({}, {
        "pid": 12345,
        "threads": [
            {
                "thread_id": 140555024141184, "thread_name": "MainThread", "os_thread_id": 12345,
                "frames": [{"name": "total", "filename": _FILE, "line": 42}],
            },
        ],
    }),
    "run": Example({**_LAUNCH, "timeout": 30}, {
        "exit_code": 1, "signal": None, "end_reason": "target_exited",
        "output": "ValueError: price is negative\n",
        "exception": {
            **_EXCEPTION, "total_frames": 1,
            "frames": [{
                "name": "total", "path": _FILE, "line": 42,
                "locals": [{"name": "price", "type": "int", "value": "-3"}],
            }],
        },
    }),
}  # fmt: skip

_SESSIONS: Final = {
    "create-session": Example(
        {"name": "wrong-total", "project_root": "/srv/shop", "labels": {"team": "search"}},
        _CREATED,
    ),
    "list-sessions": Example({"status": "paused", "label": "team=search"}, {
        "items": [{
            "session_id": _ID, "name": "wrong-total", "status": "paused",
            "stop_reason": "breakpoint", "created_at": MOMENT, "expires_at": _LATER,
            "program": _FILE, "labels": {"team": "search"}, "created_by": "agent-7",
        }],
        **_PAGE,
    }),
    "import-session": Example(
        {"name": "wrong-total", "config": _CONFIG, "program": _LAUNCH, "version": "0.1.0"},
        _CREATED,
    ),
    "get-session": Example({}, _SESSION),
    "session-status": Example({}, {
        **_PAUSED, "stopped_thread_id": 1, "stopped_threads": [1], "exit_code": None,
        "signal": None, "end_reason": None, "passed_limit": None, "waiting_for_input": False,
        "prompt": None, "warning": None, "expires_at": _LATER, "held_seconds": 0.0,
        "worker_unresponsive": False,
    }),
    "patch-session": Example({"name": "wrong-total", "limits": _LIMITS}, _SESSION),
    "delete-session": Example({"force": True}, {
        "session_id": _ID, "final_status": "terminated", "exit_code": 0, "runtime_seconds": 125.5,
    }),
    "take-lease": Example({"holder": "agent-7", "ttl": 60}, _LEASE),
    "drop-lease": Example({}, {"holder": None, "expires_at": None}),
    "clone-session": Example({"name": "second try"}, {**_CREATED, "session_id": "sess_e5f6a7b8"}),
    "export-session": Example({}, {
        "name": "wrong-total", "config": _CONFIG, "program": _LAUNCH,
        "missing_env": ["API_TOKEN"],
        "breakpoints": [{"file": _FILE, "line": 42}], "exception_breakpoints": _FILTERS,
        "watches": [{"expression": "len(items)"}], "version": "0.1.0",
    }),
    "ping": Example({}, _PONG),
    "get-ping": Example({}, _PONG),
    "resources": Example({}, {
        "session_id": _ID, "status": "running", "cpu_seconds": 1.5, "memory_bytes": 48234496,
        "processes": [{
            "pid": 12345, "ppid": 12300, "command": "python app.py", "state": "running",
            "start_time": 1783584000.25, "cpu_seconds": 1.5, "memory_bytes": 48234496,
            "resident_bytes": 51380224, "threads": 2, "descriptors": 9,
        }],
        "limits": {
            "memory_bytes": {"allowed": 1073741824, "used": 48234496, "share": 0.045},
            "wall_seconds": {"allowed": 600, "used": 12.5, "share": 0.021},
        },
        "passed_limit": None, "note": None,
    }),
}  # fmt: skip

_PROGRAMS: Final = {
    "launch": Example(
        {**_LAUNCH, "env": {"LOG_LEVEL": "DEBUG"}, "wait": 5},
        {**_STOPPED, "pid": 12345, "program": _PROGRAM},
    ),
    "attach": Example(
        {"pid": 12345}, {**_RUNNING, "attached": True, "pid": 12345, "host": None, "port": None},
    ),
    "detach": Example(
        {}, {"session_id": _ID, "status": "created", "detached": True, "pid": 12345},
    ),
    "restart": Example(
        {"env": {"API_TOKEN": "…"}, "wait": 5}, {**_STOPPED, "pid": 12346, "program": _PROGRAM},
    ),
    "terminate": Example({"grace": 5}, {
        "session_id": _ID, "status": "terminated", "exit_code": -15, "signal": "SIGTERM",
    }),
    "input": Example({"input": "yes\n"}, {"session_id": _ID, "bytes_written": 4, "eof": False}),
}  # fmt: skip

_EXECUTION: Final = {
    "continue": Example({"wait": 5, "snapshot": True}, {**_STOPPED, "stop": _STOP}),
    "pause": Example({}, {**_STOPPED, "stop_reason": "pause"}),
    "step-over": Example({}, _STEPPED),
    "step-into": Example({"snapshot": {"frames": 1, "locals": 10}}, {**_STEPPED, "stop": _STOP}),
    "step-out": Example({}, {**_STEPPED, "return_value": {"type": "int", "value": "4"}}),
    "run-to": Example({"file": _FILE, "line": 43}, {**_STEPPED, "reached": True}),
    "trace": Example(
        {"at": [{"file": _FILE, "line": 42, "capture": ["price"]}], "max_rows": 50}, _ROWS,
    ),
    "get-trace": Example({"limit": 50}, _ROWS),
    "end-trace": Example({}, _ROWS),
}  # fmt: skip

_BREAKPOINT_EXAMPLES: Final = {
    "set-breakpoints": Example(
        {"breakpoints": [{"source": {"path": _FILE}, "line": 42, "condition": "price < 0"}]},
        _BREAKPOINTS,
    ),
    "list-breakpoints": Example({"verified": True}, {**_BREAKPOINTS, "total": 1}),
    "clear-breakpoints": Example({}, {"deleted": 1}),
    "get-breakpoint": Example({}, _BREAKPOINT),
    "patch-breakpoint": Example({"enabled": False}, {**_BREAKPOINT, "enabled": False}),
    "delete-breakpoint": Example({}, {"id": "bp_1"}),
    "set-exception-breakpoints": Example(_FILTERS, _FILTERS),
    "get-exception-breakpoints": Example({}, _FILTERS),
    "clear-exception-breakpoints": Example({}, {"filters": [], "types": []}),
    "list-profiles": Example(
        {},
        {
            "items": [{"name": "checkout-flow", "breakpoint_count": 1}],
            "total": 1,
            "offset": 0,
            "limit": 100,
            "has_more": False,
        },
    ),
    "get-profile": Example({}, {"name": "checkout-flow", **_PROFILE}),
    "put-profile": Example(_PROFILE, {"name": "checkout-flow", **_PROFILE}),
    "delete-profile": Example({}, {"id": "checkout-flow"}),
    "apply-profile": Example({}, _BREAKPOINTS),
}  # fmt: skip

_INSPECTION: Final = {
    "threads": Example({}, {
        "threads": [{
            "id": 1, "name": "MainThread", "status": "paused", "is_current": True,
            "current_location": _HERE,
        }],
        "stopped_thread_id": 1,
    }),
    "stacktrace": Example({"levels": 10}, {"thread_id": 1, "frames": [_FRAME], "total_frames": 1}),
    "scopes": Example({"frame_id": 0}, {
        "frame_id": 0, "thread_id": 1,
        "scopes": [
            {"name": "Locals", "presentation_hint": "locals", "variables_reference": 1001},
        ],
    }),
    "frame-variables": Example({"count": 50}, _VARIABLES),
    "variables": Example({"variables_reference": 1001, "count": 50}, _VARIABLES),
    "set-variable": Example({"name": "price", "value": "3"}, {**_VARIABLE, "value": "3"}),
    "evaluate": Example({"expression": "len(items)"}, _EVALUATED),
    "add-watch": Example({"expression": "len(items)"}, _WATCH),
    "list-watches": Example({}, {"watches": [_WATCH], "total": 1}),
    "delete-watches": Example({"watch_id": "watch_1"}, {"deleted": 1}),
    "completions": Example({"text": "items.app", "column": 10}, {
        "items": [{"label": "append", "type": "method"}],
    }),
    "hover": Example({"expression": "price"}, {"result": "-3", "type": "int"}),
    "exception": Example({}, {
        **_EXCEPTION, "full_type_name": "builtins.ValueError", "thread_id": 1,
        "break_mode": "unhandled", "frames": [
            {"path": _FILE, "line": 42, "function": "total",
             "text": 'raise ValueError("price is negative")'},
        ],
    }),
    "modules": Example({"limit": 1}, {
        "items": [{"name": "orders", "path": _FILE, "is_user_code": True}],
        "total": 214, "offset": 0, "limit": 1, "has_more": True,
    }),
    "source": Example({"path": _FILE, "start": 41, "end": 42}, {
        "path": _FILE, "start": 41, "end": 42, "total_lines": 120,
        "lines": ["    for item in items:", "        amount += item.price"],
    }),
    "snapshot": Example({"frames": 1, "locals": 10}, {"stop": _STOP}),
    "history": Example({"limit": 10}, {"items": [_STOP], "next_cursor": None, "has_more": False}),
    "tasks": Example({}, {
        "tasks": [{
            "name": "Task-1", "coroutine": "serve", "state": "pending",
            "frames": [{"name": "serve", "path": _FILE, "line": 42}],
            "waiting_for": "_asyncio.Future",
        }],
        "total": 1,
    }),
}  # fmt: skip

_OUTPUT: Final = {
    "output": Example({"category": "stdout", "limit": 10}, {
        "entries": [{"category": "stdout", "output": "total: 4\n", "timestamp": MOMENT}],
        "next_cursor": "b3V0LTE", "has_more": False,
    }),
    "clear-output": Example({}, {"session_id": _ID, "next_cursor": "b3V0LTE"}),
    "stream-output": Example({"cursor": "b3V0LTE"}),
    "events": Example({"types": "stopped,terminated", "timeout": 30}, {
        "events": [{
            "seq": 17, "type": "stopped", "timestamp": MOMENT,
            "body": {"reason": "breakpoint", "thread_id": 1, "stop_id": 3},
        }],
        "next_cursor": "ZXYtMTc", "has_more": False, "session_status": "paused",
    }),
    "all-events": Example({"label": "team=search", "types": "stopped,terminated", "timeout": 30}, {
        "events": [{
            "session_id": _ID, "seq": 17, "type": "stopped", "timestamp": MOMENT,
            "body": {"reason": "breakpoint", "thread_id": 1, "stop_id": 3},
        }],
        "next_cursor": "eyJzZXNz", "has_more": False, "statuses": {_ID: "paused"},
    }),
    "stream-events": Example({"types": "stopped,terminated"}),
    "logs": Example({"cursor": "b3V0LTE"}),
    "debug": Example(),
    "tunnel": Example(),
    "mcp": Example({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
}  # fmt: skip

EXAMPLES: Final[Mapping[str, Example]] = {
    **_SERVER, **_SESSIONS, **_PROGRAMS, **_EXECUTION, **_BREAKPOINT_EXAMPLES, **_INSPECTION,
    **_OUTPUT,
}  # fmt: skip

GROUPS: Final[Mapping[str, str]] = {
    "server": "The relay itself and the machine on which it runs.",
    "sessions": "Creating, finding, changing and ending debug sessions.",
    "program": "Launching, attaching, ending, standard input.",
    "execution": "Running, stepping, stopping, tracing.",
    "breakpoints": "Breakpoints of every kind, and profiles of them.",
    "inspection": "Threads, stacks, variables, evaluation.",
    "output": "The program's output and the session's events.",
}

# Content types of replies that are neither the envelope nor a WebSocket.
MEDIA: Final[Mapping[str, str]] = {
    "index": "application/json",
    "openapi": "application/json",
    "docs": "text/html",
    "metrics": "text/plain",
    "llms": "text/plain",
    "mcp": "text/event-stream",
    "stream-output": "text/event-stream",
    "stream-events": "text/event-stream",
}

# Request headers: what they mean, and their schema.
# The characters of a name in a header: those of ISO 8859-1 that can be seen, and the blank.
_PRINTABLE: Final = "^[ -~\u00a1-\u00ac\u00ae-\u00ff]*$"
HEADERS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "X-Request-ID": (
        "Returned in the header and in `meta`; generated if absent.",
        {"type": "string"},
    ),
    "X-Agent": (
        "The caller's name, if no token gives one; events and the audit log contain it.",
        {"type": "string", "maxLength": 100, "pattern": _PRINTABLE},
    ),
    "X-Human-Front": (
        "Only fronts that a person uses send it: their own name. A person's calls that change the "
        "run take the lease for 30 s, if nobody has it.",
        {"type": "string", "maxLength": 40, "pattern": _PRINTABLE},
    ),
    "X-Lease-Key": (
        "A secret of the caller's own choice. A lease that is taken by a call with it belongs to "
        "calls with it alone, and not to others that send the same name. It is kept nowhere.",
        {"type": "string"},
    ),
    "If-Stop": (
        "The `stop_id` that the caller has seen. If the program has resumed or stopped "
        "again since, the call is refused with 409 STOP_CHANGED.",
        {"type": "integer", "minimum": 0, "maximum": 10**15 - 1},
    ),
    "Last-Event-ID": (
        "The `id` of the last event that the client has; the stream goes on behind it. It counts "
        "in place of `cursor`, which it equals.",
        {"type": "string"},
    ),
    "Idempotency-Key": (
        "Within ten minutes, the same key and body get the first reply again.",
        {"type": "string"},
    ),
}
REPLY_HEADERS: Final[Mapping[str, dict[str, Any]]] = {
    "X-Request-ID": {"description": "As sent, or generated.", "schema": {"type": "string"}},
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 0}},
}
