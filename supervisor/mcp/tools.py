"""The tools: what they are called, what they say of themselves, and which operations they use.

A tool that only reads uses nothing but operations that are `safe`; each operation asks for its own
scope, so a token may use a tool as far as its scopes go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from debug_relay.supervisor.mcp import arguments, tool_functions
from debug_relay.supervisor.mcp.arguments import Arguments, schema_of
from debug_relay.supervisor.mcp.calls import Answer, Calls, Progress, Relay, ToolError, bounded

# A client learns this often that a call is still worked on.
_PROGRESS_SECONDS: Final = 10.0
# A call that has no answer this long after its own time is over is given up.
_LATE_SECONDS: Final = 15.0

INSTRUCTIONS: Final = (
    "Debug Python programs: stop them, look inside, step. "
    "A failing test or script: debug_run, one call for the crash with locals or traced values. "
    "To stop and look: debug_start with breakpoints, then debug_control, debug_inspect, "
    "debug_evaluate, and debug_end. Many values over many lines: debug_trace, not single steps. "
    "A hang or 100 % CPU: debug_list what=stacks with the pid, or debug_start with the pid. "
    "Answers say what to call next; 'not stopped yet' is no error: debug_wait."
)


class Tool(Struct, frozen=True, kw_only=True):
    name: str
    words: str
    takes: type[Arguments]
    does: Callable[[Relay, Any], Awaitable[str]]
    operations: tuple[str, ...]
    # Nothing is changed, and no code is run. All others may run any code: a condition of a
    # breakpoint does, too.
    reads: bool = False
    repeatable: bool = False  # a second call with the same arguments changes nothing more

    @property
    def schema(self) -> dict[str, Any]:
        return schema_of(self.takes)


TOOLS: Final[dict[str, Tool]] = {
    tool.name: tool
    for tool in (
        Tool(
            name="debug_run",
            words="Run a script, module (pytest too) or code to its end: exit code, output, a "
            "crash with its locals, traced values.",
            takes=arguments.Run, does=tool_functions.run, operations=("run",),
        ),
        Tool(
            name="debug_start",
            words="Launch a script, module or code, or attach to a process; set breakpoints; "
            "show the first stop.",
            takes=arguments.Start, does=tool_functions.start,
            operations=("create-session",),
        ),
        Tool(
            name="debug_list",
            words="List sessions or debuggable Python processes, or show all threads of a process "
            "without attaching.",
            takes=arguments.Listing, does=tool_functions.listing, reads=True,
            operations=("list-sessions", "list-processes", "process-stacks"),
        ),
        Tool(
            name="debug_breakpoints",
            words="Set and remove breakpoints; `exceptions` replaces the filters. Shows all.",
            takes=arguments.SetBreakpoints, does=tool_functions.breakpoints, repeatable=True,
            operations=("list-sessions", "set-breakpoints", "delete-breakpoint",
                        "clear-breakpoints", "set-exception-breakpoints", "list-breakpoints"),
        ),
        Tool(
            name="debug_control",
            words="Resume, step, pause or restart the program, or give it input; show the next "
            "stop.",
            takes=arguments.Control, does=tool_functions.control,
            operations=("list-sessions", "continue", "pause", "step-over", "step-into", "step-out",
                        "run-to", "restart", "input", "snapshot"),
        ),
        Tool(
            name="debug_wait",
            words="Wait for the next stop or the end of a running program, and show it.",
            takes=arguments.WaitForStop, does=tool_functions.wait, reads=True,
            operations=("list-sessions", "snapshot"),
        ),
        Tool(
            name="debug_inspect",
            words="Look at the stop (source, locals, stack), at one part of it, at output or "
            "earlier stops.",
            takes=arguments.Inspect, does=tool_functions.inspect, reads=True,
            operations=("list-sessions", "snapshot", "stacktrace", "frame-variables",
                        "variables", "threads", "tasks", "output", "source", "exception",
                        "history", "list-breakpoints"),
        ),
        Tool(
            name="debug_evaluate",
            words="Evaluate an expression or run statements in a stopped frame. It runs the "
            "program's code.",
            takes=arguments.Evaluate, does=tool_functions.evaluate,
            operations=("list-sessions", "evaluate"),
        ),
        Tool(
            name="debug_trace",
            words="Resume and record values at lines instead of stopping there. A breakpoint "
            "ends it.",
            takes=arguments.Trace, does=tool_functions.trace,
            operations=("list-sessions", "trace"),
        ),
        Tool(
            name="debug_end",
            words="End a session: a launched program ends, an attached one is detached from and "
            "runs on.",
            takes=arguments.End, does=tool_functions.end, repeatable=True,
            operations=("list-sessions", "delete-session"),
        ),
    )
}  # fmt: skip


async def perform(
    name: str, given: dict[str, Any] | None, calls: Calls, progress: Progress
) -> Answer:
    """The tool's answer, in bounded time and length; a failure is an answer too."""
    tool = TOOLS.get(name)
    if tool is None:
        return Answer(f"There is no tool {name[:100]}; there are {', '.join(TOOLS)}.", True)
    try:
        taken = msgspec.convert(given or {}, tool.takes)
    except msgspec.ValidationError as error:
        return Answer(bounded(f"error: {error}\nnext: {name} takes {_fields(tool)}"), True)
    work = asyncio.ensure_future(tool.does(Relay(calls), taken))
    try:
        return Answer(bounded(await _told(work, progress)))
    except ToolError as error:
        return Answer(bounded(str(error)), True)
    except TimeoutError:
        return Answer(f"error: {name} took too long\nnext: debug_list what=sessions", True)
    finally:
        work.cancel()


def _fields(tool: Tool) -> str:
    """The names of the tool's arguments, with the values of those that have few."""
    words = []
    for name, field in tool.schema["properties"].items():
        values = field.get("enum")
        words.append(f"{name} ({', '.join(map(str, values))})" if values else name)
    return "; ".join(words)


async def _told(work: asyncio.Future[str], progress: Progress) -> str:
    """The result of the work; the client gets progress messages meanwhile."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        passed = loop.time() - began
        left = arguments.LONGEST_WAIT_SECONDS + _LATE_SECONDS - passed
        if left <= 0:
            raise TimeoutError
        done, _ = await asyncio.wait({work}, timeout=min(_PROGRESS_SECONDS, left))
        if done:
            return work.result()
        passed = loop.time() - began
        await progress(passed, f"{passed:.0f} s: still running")
