"""What a debug server can do for the relay: in full with the probe, less by plain DAP.

Who needs more than DAP asks `DebugServer.engine`. It does what is asked, does nothing where that is
right for a program without the probe, or refuses in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.wire import dap
from debug_relay.protocol.wire import probe_messages as probe


class Engine(Protocol):
    # What the callers' own part depends on. All are true with the probe, none without.
    @property
    def decides_stops(self) -> bool:
        """Conditions, exact hit counts, functions and types of exceptions; pydevd just stops."""

    @property
    def reports_stops(self) -> bool:
        """Each stop tells its variables and its exception by itself."""

    @property
    def renders_safely(self) -> bool:
        """Values are shown without running the program's code."""

    @property
    def reads_running_threads(self) -> bool: ...

    @property
    def moves_single_threads(self) -> bool:
        """A stop is one of a single thread, which may be resumed alone."""

    def require(self, what: str, suggestion: str, attached: bool, **details: Any) -> None:
        """Refuse what plain DAP cannot do; `attached` says how the program came."""

    # -- settings, told in the handshake and when they change

    async def show_safely(self) -> None: ...

    async def watch(self, rows: Sequence[tuple[str, str]]) -> None: ...

    async def stop_all(self, on: bool) -> None: ...

    async def move_output(
        self, known: Mapping[str, probe.Category], pipes: Mapping[probe.Category, str]
    ) -> list[probe.Category]:
        """A child's own pipes in place of the program's; which of them it uses."""

    # -- steps

    async def watch_calls(self, thread: int) -> None:
        """Note the function in C that the next step enters."""

    async def native_callee(self, thread: int) -> str | None: ...

    # -- questions to a stopped thread

    async def evaluate(
        self, frame: dap.StackFrame, text: str, context: str, timeout: float
    ) -> dict[str, Any]: ...

    async def sizes(self, frame: int, timeout: float) -> dict[str, Any]:
        """Of the frame's scopes; nothing where unknown."""

    async def page(
        self, reference: int, scope: str | None, timeout: float, **wanted: Any
    ) -> dict[str, Any] | None:
        """None where DAP's list of variables has to do."""

    async def assign(
        self, reference: int, scope: str | None, name: str, text: str, timeout: float
    ) -> dict[str, Any]: ...

    async def returned(self, frame: int, timeout: float) -> dict[str, Any]: ...

    async def complete(self, frame: int, text: str, timeout: float) -> dict[str, Any]:
        """`rows` of label, type, start and length."""

    # -- the program

    async def modules(self, start: int, count: int, timeout: float) -> probe.ModulePage: ...

    async def text(self, frame: int) -> list[str] | None:
        """The source of code that is in no file, where it was kept."""

    async def is_decompiled(self, source: int) -> bool: ...


def evaluate_timeout(text: str, timeout: float, still_running: bool) -> RelayError:
    shown = text if len(text) <= 80 else text[:80] + "…"
    if still_running:
        suggestion = (
            "It blocks in C code and ends by itself; "
            f"{call_of('session-status')} tells how it goes, "
            f"{call_of('delete-session')} ends the session."
        )
    else:
        suggestion = "It was interrupted and the session is as before; give a larger timeout."
    return RelayError(
        Code.DEBUGPY_TIMEOUT,
        f"Evaluating {shown!r} took longer than {timeout:g} s",
        suggestion,
        operation="evaluate",
        timeout=timeout,
        evaluating=still_running,
    )
