"""Retires the worker of an ended session: writes its answers to disk, from which the next
continues.

Stop reports, output, events and the rows of a trace are in the session's rings already, its
blueprint is in its record.
"""

from __future__ import annotations

from functools import partial
from typing import Final, TypeVar

import msgspec

from debug_relay.protocol.models.retired_session import (
    FILE,
    LEASE_FILE,
    Aftermath,
    HeldLease,
)
from debug_relay.protocol.models.sessions import SessionState
from debug_relay.protocol.state import State
from debug_relay.protocol.system.files import write_whole
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.worker.breakpoints.exceptions import ExceptionFilters
from debug_relay.worker.breakpoints.session_breakpoints import Breakpoints
from debug_relay.worker.debugger.run_control import RunControl
from debug_relay.worker.debugger.target import Debuggee
from debug_relay.worker.inspection.watches import Watches
from debug_relay.worker.limits.usage_report import UsageReport
from debug_relay.worker.limits.watch import LimitWatch
from debug_relay.worker.session.lease import Lease
from debug_relay.worker.state.core import Core
from debug_relay.worker.storage.disk import Disk
from debug_relay.worker.tracing.trace import Traces

_T = TypeVar("_T")
_MOST_NAMED: Final = 5  # Processes left running that a message names.
_COMMAND_CHARACTERS: Final = 200  # The command line of one of them.
_KEPT_NOTE: Final = (
    "The program has ended and its session has no worker any more: the figures of what "
    "keep_children has kept are of that moment, and no limit holds for it."
)


class Retirement:
    def __init__(
        self,
        core: Core,
        debuggee: Debuggee,
        run: RunControl,
        breakpoints: Breakpoints,
        exceptions: ExceptionFilters,
        watches: Watches,
        traces: Traces,
        limits: LimitWatch,
        usage: UsageReport,
        lease: Lease,
        disk: Disk,
    ) -> None:
        self._settings = core.settings
        self._lifecycle = core.lifecycle
        self._log = core.log
        self._debuggee = debuggee
        self._run = run
        self._breakpoints = breakpoints
        self._exceptions = exceptions
        self._watches = watches
        self._traces = traces
        self._limits = limits
        self._usage = usage
        self._lease = lease
        self._disk = disk

    def may_retire(self) -> bool:
        """Whether the session has ended, and no call and no trace is still ending."""
        trace = self._traces.record
        return (
            self._lifecycle.state is State.TERMINATED
            and not self._run.lock.locked()
            and (trace is None or trace.ended is not None)
        )

    async def end_left_processes(self) -> None:
        """End what the program has left running, unless it was launched with `keep_children`.

        Only a worker reads the output of these processes, watches their limits, and ends them if no
        relay comes back. So none of them may outlive it.
        """
        async with self._run.lock:
            swept = await self._debuggee.end_children()
        if swept:
            named = ", ".join(
                f"{one.command[:_COMMAND_CHARACTERS]} (pid {one.pid})"
                for one in swept[:_MOST_NAMED]
            )
            more = f" and {len(swept) - _MOST_NAMED} more" if len(swept) > _MOST_NAMED else ""
            self._log.say(
                "The program has ended, so the relay has ended what it left running: "
                f"{named}{more}. A launch with keep_children keeps such processes."
            )

    async def leave(self) -> None:
        """Write what only this worker knows; raises OSError if the disk does not take it."""
        lease = self._lease.held()
        if lease is not None:
            path = self._settings.folder / LEASE_FILE
            await self._disk.run(partial(write_whole, path, encode_json(lease)))
        resources = await self._usage.report()
        if resources.processes and not self._debuggee.attached:
            resources.note = _KEPT_NOTE
        aftermath = Aftermath(
            breakpoints=await self._breakpoints.listed(None, None),
            exception_breakpoints=await self._exceptions.shown(),
            watches=self._watches.listed(),
            resources=resources,
            execution=self._run.result(completed=True),
            trace=self._traces.record,
        )
        path = self._settings.folder / FILE
        await self._disk.run(partial(write_whole, path, encode_json(aftermath)))

    def take_over(self, ended: SessionState) -> None:
        """Take over what the last worker left. The blueprint was taken over before."""
        self._debuggee.program = ended.program
        self._limits.passed = ended.passed_limit
        lease = self._taken(LEASE_FILE, HeldLease)
        if lease is not None:
            self._lease.take_over(lease)
        left = self._taken(FILE, Aftermath)
        if left is None:
            return  # counts begin anew
        self._traces.take_over(left.trace)
        self._usage.take_over(left.resources)
        self._breakpoints.count_on({one.id: one.hit_count for one in left.breakpoints})
        self._watches.take_over(left.watches)

    def _taken(self, name: str, type: type[_T]) -> _T | None:
        """Read and remove a file of the last worker: from now on this worker answers. None if it
        was never written, or is damaged.
        """
        path = self._settings.folder / name
        try:
            found = msgspec.json.decode(path.read_bytes(), type=type)
            path.unlink()
        except (OSError, msgspec.MsgspecError):
            return None
        return found
