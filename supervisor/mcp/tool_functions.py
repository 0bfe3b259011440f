"""The work of each tool: one function each, with operations of the relay."""

from __future__ import annotations

from typing import Any, Final

from debug_relay.supervisor.mcp import arguments
from debug_relay.supervisor.mcp.calls import LONGEST_CHARACTERS, Relay, ToolError

# A stop as the answer of a step: enough to decide on the next one.
_BRIEF: Final = {"frames": 3, "locals": 12, "source_lines": 2, "output_bytes": 500}
# A snapshot without `wait` is refused while the program runs.
_AT_ONCE_SECONDS: Final = 0.001
_OUTPUT_LINES: Final = 60  # Lines of output, if the call does not say how many.
_TRACE_CHARACTERS: Final = 4000  # Rows of a trace.
_OUTPUT_BYTES: Final = 3000  # The end of a run's output.
_FILTERS: Final = frozenset({"raised", "uncaught", "user_unhandled"})
_OVER: Final = frozenset({"terminated", "failed"})


async def run(relay: Relay, given: arguments.Run) -> str:
    trace = given.trace
    if trace is not None:
        trace = {"budget": _TRACE_CHARACTERS, **trace}
    return await relay.text(
        "run",
        **_program(given),
        breakpoints=given.breakpoints or None,
        exceptions=_exceptions(given.exceptions) if given.exceptions else None,
        trace=trace,
        timeout=given.timeout,
        output_bytes=_OUTPUT_BYTES,
    )


async def start(relay: Relay, given: arguments.Start) -> str:
    attaches = given.pid is not None or given.port is not None
    return await relay.text(
        "create-session",
        name=given.name,
        project_root=given.cwd,
        mode="attach" if attaches else "launch",
        pid=given.pid,
        port=given.port,
        stop_on_entry=given.stop_on_entry or None,
        breakpoints=given.breakpoints or None,
        exceptions=_exceptions(given.exceptions) if given.exceptions else None,
        wait=given.wait,
        snapshot=_BRIEF,
        **_program(given),
    )


async def listing(relay: Relay, given: arguments.Listing) -> str:
    if given.what == "sessions":
        return await relay.text("list-sessions")
    if given.what == "processes":
        return await relay.text("list-processes", match=given.match, limit=30)
    if given.pid is None:
        raise ToolError("error: stacks needs pid\nnext: debug_list what=processes")
    return await relay.text("process-stacks", pid=given.pid, locals=True)


async def breakpoints(relay: Relay, given: arguments.SetBreakpoints) -> str:
    id = await _session(relay, given.session)
    if given.remove == ["all"]:
        await relay.data("clear-breakpoints", session_id=id)
    else:
        for one in given.remove:
            await relay.data("delete-breakpoint", session_id=id, breakpoint_id=one)
    if given.exceptions is not None:
        filters = _exceptions(given.exceptions)
        await relay.data("set-exception-breakpoints", session_id=id, **filters)
    if given.set:
        await relay.data("set-breakpoints", session_id=id, breakpoints=given.set)
    return await relay.text("list-breakpoints", session_id=id)


async def control(relay: Relay, given: arguments.Control) -> str:
    id = await _session(relay, given.session)
    if given.action == "input":
        if given.input is None:
            raise ToolError(
                "error: action=input needs input\n"
                'next: debug_control action=input input="a line\\n"'
            )
        await relay.data("input", session_id=id, input=given.input)
        return await _next_stop(relay, id, given.wait, **_BRIEF)
    fields: dict[str, Any] = {"wait": given.wait, "snapshot": _BRIEF}
    if given.action == "run_to":
        if given.line is None:
            raise ToolError(
                "error: run_to needs line\n"
                "next: debug_control action=run_to line=N, with file unless it is the present one"
            )
        fields |= {"file": given.file, "line": given.line}
    if given.action != "restart":
        fields["thread_id"] = given.thread_id
    return await relay.text(given.action.replace("_", "-"), session_id=id, **fields)


async def wait(relay: Relay, given: arguments.WaitForStop) -> str:
    id = await _session(relay, given.session)
    return await _next_stop(relay, id, given.wait, **_BRIEF)


async def inspect(relay: Relay, given: arguments.Inspect) -> str:
    id = await _session(relay, given.session)
    frame: dict[str, Any] = {"frame_id": given.frame or 0, "thread_id": given.thread_id}
    match given.what:
        case "stop":
            return await _next_stop(relay, id, 0, max_bytes=2 * LONGEST_CHARACTERS)
        case "stack":
            return await relay.text(
                "stacktrace", session_id=id, thread_id=given.thread_id, start_frame=given.start,
                levels=given.limit,
            )  # fmt: skip
        case "variables" if given.ref is not None:
            return await relay.text(
                "variables", session_id=id, variables_reference=given.ref, start=given.start,
                count=given.limit,
            )  # fmt: skip
        case "variables":
            return await relay.text(
                "frame-variables", session_id=id, start=given.start, count=given.limit, **frame,
            )  # fmt: skip
        case "output":
            if given.cursor is None:
                return await relay.text("output", session_id=id, tail=given.limit or _OUTPUT_LINES)
            return await relay.text("output", session_id=id, cursor=given.cursor, limit=given.limit)
        case "source":
            end = given.start + given.limit - 1 if given.start and given.limit else None
            where = frame if given.path is None else {"path": given.path}
            return await relay.text("source", session_id=id, start=given.start, end=end, **where)
        case "exception":
            return await relay.text("exception", session_id=id, thread_id=given.thread_id)
        case "history":
            return await relay.text(
                "history", session_id=id, cursor=given.cursor, limit=given.limit or 10,
                max_bytes=2 * LONGEST_CHARACTERS,
            )  # fmt: skip
        case "breakpoints":
            return await relay.text("list-breakpoints", session_id=id)
        case hang:  # threads, tasks: with what each waits for
            return await relay.text(hang, session_id=id, locals=True)


async def evaluate(relay: Relay, given: arguments.Evaluate) -> str:
    id = await _session(relay, given.session)
    return await relay.text(
        "evaluate", session_id=id, expression=given.expression, frame_id=given.frame,
        thread_id=given.thread_id, timeout=given.timeout,
    )  # fmt: skip


async def trace(relay: Relay, given: arguments.Trace) -> str:
    id = await _session(relay, given.session)
    return await relay.text(
        "trace", session_id=id, at=given.at or None, step=given.step, until=given.until,
        max_rows=given.max_rows, timeout=given.timeout, then=given.then, budget=_TRACE_CHARACTERS,
    )  # fmt: skip


async def end(relay: Relay, given: arguments.End) -> str:
    id = await _session(relay, given.session)
    return await relay.text(
        "delete-session", session_id=id, terminate_debuggee=given.terminate,
        force=given.force or None,
    )  # fmt: skip


# -- parts


def _program(given: arguments.Program) -> dict[str, Any]:
    return {
        "script": given.script,
        "module": given.module,
        "code": given.code,
        "args": given.args or None,
        "cwd": given.cwd,
        "env": given.env or None,
        "python_path": given.python_path,
    }


async def _session(relay: Relay, named: str | None) -> str:
    """The session that is meant: the named one, or the only one that lives."""
    if named is not None:
        return named
    items = (await relay.data("list-sessions", limit=1000)).get("items", [])
    living = [one for one in items if one["status"] not in _OVER] or items
    if len(living) == 1:
        return str(living[0]["session_id"])
    if not living:
        raise ToolError("error: there is no session\nnext: debug_start")
    names = ", ".join(f"{one['session_id']} ({one['status']})" for one in living[:20])
    raise ToolError(f"error: there are {len(living)} sessions\nnext: give session, one of {names}")


def _exceptions(names: list[str]) -> dict[str, list[str]]:
    return {
        "filters": [name for name in names if name in _FILTERS],
        "types": [name for name in names if name not in _FILTERS],
    }


async def _next_stop(relay: Relay, id: str, seconds: float, **bounds: Any) -> str:
    """The stop where the program is, or gets to in this time; else that it has not stopped."""
    wait = max(seconds, _AT_ONCE_SECONDS)
    return await relay.text("snapshot", session_id=id, wait=wait, **bounds)
