"""Reports what the processes of a session use, individually and in total, with its limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from debug_relay.protocol.models.limits import LIMITS, Limits, Use
from debug_relay.protocol.models.sessions import LimitUse, ProcessUse, Resources
from debug_relay.protocol.state import LIVE, State
from debug_relay.protocol.system import procfs
from debug_relay.protocol.system.procfs import Stat
from debug_relay.worker.debugger.target import Debuggee
from debug_relay.worker.limits.watch import LimitWatch
from debug_relay.worker.state.lifecycle import Lifecycle
from debug_relay.worker.state.settings import Settings
from debug_relay.worker.system.descendants import shown_command_of

# Looks at the program's processes: while the worker starts a process of its own, for milliseconds,
# the program's cannot be distinguished from it.
_MOST_LOOKS: Final = 50
_PAUSE_SECONDS: Final = 0.02  # The pause between these looks.
_COMMAND_CHARACTERS: Final = 1000  # A process's command line in the report of resources.
_STATES: Final = {
    "R": "running", "S": "sleeping", "D": "disk-sleep", "T": "stopped", "t": "tracing-stop",
    "Z": "zombie", "X": "dead", "I": "idle",
}  # fmt: skip


class UsageReport:
    """The resources that the session's processes use."""

    def __init__(
        self,
        settings: Settings,
        lifecycle: Lifecycle,
        debuggee: Debuggee,
        limits: LimitWatch,
    ) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._debuggee = debuggee
        self._limits = limits
        self._left: Resources | None = None  # the last run, measured by an earlier worker

    def take_over(self, left: Resources) -> None:
        """The figures of a run that the session's earlier worker has measured."""
        self._left = left
        allowed = {name: one.allowed for name, one in left.limits.items()}
        self._limits.of_run = msgspec.convert(allowed, Limits)

    async def report(self) -> Resources:
        rows = await self._rows()
        named = self._as_launched()
        processes = await asyncio.to_thread(lambda: [_shown(row, named) for row in rows])
        meter = self._limits.meter
        use = Use()
        has_ended = self._lifecycle.state is State.TERMINATED
        left = self._left if meter is None and has_ended else None
        if left is not None:
            processes = left.processes
            used = {name: one.used for name, one in left.limits.items()}
            use = msgspec.convert(used, Use)
        elif meter is not None:
            lasts = self._lifecycle.state in LIVE
            use = Use(
                memory_bytes=sum(process.memory_bytes for process in processes),
                cpu_seconds=round(meter.cpu_seconds(rows), 3),
                processes=sum(row.lives for row in rows),
                wall_seconds=round(
                    meter.wall_seconds() if lasts else self._lifecycle.runtime_seconds, 3
                ),
                output_bytes_per_second=meter.output_rate(),
            )
        return Resources(
            session_id=self._settings.id,
            status=self._lifecycle.state,
            cpu_seconds=use.cpu_seconds,
            memory_bytes=use.memory_bytes,
            processes=processes,
            limits={name: self._limit(use, name) for name in LIMITS},
            passed_limit=self._limits.passed,
            note=left.note if left is not None else self._note(),
        )

    async def _rows(self) -> list[Stat]:
        """The session's processes. While the worker starts a process of its own, they cannot be
        distinguished for some milliseconds; then we look again.
        """
        for _ in range(_MOST_LOOKS):
            rows = self._debuggee.target.processes() if self._debuggee.target is not None else []
            if rows is not None:
                return rows
            await asyncio.sleep(_PAUSE_SECONDS)
        return []

    def _as_launched(self) -> dict[int, str]:
        """The program's command line as it was launched; the real one names our bootstrap."""
        program = self._debuggee.program
        if program is None or program.pid is None or program.attached or program.is_native:
            return {}
        what = ["-m", program.module] if program.module else [program.script or "-c …"]
        return {program.pid: " ".join([program.python_path or "python", *what, *program.args])}

    def _limit(self, use: Use, name: str) -> LimitUse:
        allowed, used = getattr(self._limits.of_run, name), getattr(use, name)
        return LimitUse(
            allowed=allowed, used=used, share=round(used / allowed, 6) if allowed else None
        )

    def _note(self) -> str | None:
        target = self._debuggee.target
        if target is None or not target.attached:
            return None
        if self._debuggee.program is not None and self._debuggee.program.port is not None:
            return (
                "This program was attached by port: the relay cannot see its processes, and of the "
                "limits it watches only wall_seconds, from the attach on."
            )
        return "cpu_seconds and wall_seconds count from the attach."


def _shown(row: Stat, named: Mapping[int, str]) -> ProcessUse:
    command = named.get(row.pid) or shown_command_of(row.pid)
    return ProcessUse(
        pid=row.pid,
        ppid=row.parent,
        command=command[:_COMMAND_CHARACTERS] or f"[{row.name}]",
        state=_STATES.get(row.state, row.state),
        start_time=round(procfs.boot_time() + row.started, 2),
        cpu_seconds=row.own_seconds,
        memory_bytes=procfs.proportional_bytes(row.pid) or row.resident_bytes,
        resident_bytes=row.resident_bytes,
        threads=row.threads,
        descriptors=procfs.descriptors(row.pid),
    )
