"""The answers that a worker leaves on disk when it retires after its session's end.

The supervisor answers from them afterwards, and the session's next worker starts with them.
"""

from __future__ import annotations

from typing import Final

from debug_relay.protocol.models.breakpoints import Breakpoint, ExceptionBreakpoints
from debug_relay.protocol.models.fields import Result
from debug_relay.protocol.models.inspection import Watch
from debug_relay.protocol.models.sessions import Resources

FILE: Final = "aftermath.json"  # in the session's run directory


class Aftermath(Result, kw_only=True):
    breakpoints: list[Breakpoint]
    exception_breakpoints: ExceptionBreakpoints
    watches: list[Watch]
    resources: Resources
