"""DAP's requests by their names, each answered by the operations that other callers have, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from debug_relay.worker.ide import arguments as a
from debug_relay.worker.ide import (
    breakpoint_requests,
    inspection_requests,
    joining_requests,
    run_requests,
)
from debug_relay.worker.ide.joined_ide import JoinedIde
from debug_relay.worker.ide.shapes import Body

Handler = Callable[[JoinedIde, Any], Awaitable[Body]]
REQUESTS: Final[Mapping[str, tuple[type[a.Arguments], Handler]]] = {
    "attach": (a.Attach, joining_requests.attach),
    "launch": (a.Attach, joining_requests.attach),
    "configurationDone": (a.Arguments, joining_requests.configuration_done),
    "disconnect": (a.Disconnect, joining_requests.disconnect),
    "terminate": (a.Arguments, joining_requests.terminate),
    "setBreakpoints": (a.SetBreakpoints, breakpoint_requests.set_breakpoints),
    "setFunctionBreakpoints": (
        a.SetFunctionBreakpoints,
        breakpoint_requests.set_function_breakpoints,
    ),
    "dataBreakpointInfo": (a.DataBreakpointInfo, breakpoint_requests.data_breakpoint_info),
    "setDataBreakpoints": (a.SetDataBreakpoints, breakpoint_requests.set_data_breakpoints),
    "setExceptionBreakpoints": (
        a.SetExceptionBreakpoints,
        breakpoint_requests.set_exception_breakpoints,
    ),
    "continue": (a.OnThread, run_requests.resume),
    "next": (a.OnThread, run_requests.step_over),
    "stepIn": (a.OnThread, run_requests.step_into),
    "stepOut": (a.OnThread, run_requests.step_out),
    "pause": (a.OnThread, run_requests.pause),
    "threads": (a.Arguments, inspection_requests.threads),
    "stackTrace": (a.StackTrace, inspection_requests.stack_trace),
    "scopes": (a.Scopes, inspection_requests.scopes),
    "variables": (a.Variables, inspection_requests.variables),
    "setVariable": (a.SetVariable, inspection_requests.set_variable),
    "evaluate": (a.Evaluate, inspection_requests.evaluate),
    "setExpression": (a.SetExpression, inspection_requests.set_expression),
    "completions": (a.Completions, inspection_requests.completions),
    "exceptionInfo": (a.OnThread, inspection_requests.exception_info),
    "source": (a.GetSource, inspection_requests.source),
    "modules": (a.Modules, inspection_requests.modules),
    "loadedSources": (a.Arguments, inspection_requests.loaded_sources),
}
# An IDE shows the refusal of these at once: its user has pressed a button.
PRESSED: Final = frozenset(
    ("continue", "next", "stepIn", "stepOut", "pause", "terminate", "disconnect", "setVariable")
)
