"""Retires the worker of an ended session: what it leaves on disk, and what the next takes over.

Stop reports, output and events are in the session's rings already, and its blueprint is in its
record.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec

from debug_relay.protocol.models.retired_session import FILE, Aftermath
from debug_relay.protocol.models.sessions import SessionState
from debug_relay.protocol.state import State
from debug_relay.protocol.system.files import write_whole
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.worker.breakpoints.exceptions import ExceptionFilters
from debug_relay.worker.breakpoints.manager import Breakpoints
from debug_relay.worker.debugger.run_control import RunControl
from debug_relay.worker.debugger.target import Debuggee
from debug_relay.worker.inspection.watches import Watches
from debug_relay.worker.limits.usage_report import UsageReport
from debug_relay.worker.limits.watch import LimitWatch
from debug_relay.worker.session.lease import Lease
from debug_relay.worker.state.lifecycle import Lifecycle
from debug_relay.worker.state.settings import Settings
from debug_relay.worker.storage.disk import Disk
from debug_relay.worker.tracing.trace import Traces


class Retirement:
    def __init__(
        self,
        settings: Settings,
        lifecycle: Lifecycle,
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
        self._settings = settings
        self._lifecycle = lifecycle
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
        """Whether nothing is left that only this process can look after or answer."""
        target = self._debuggee.target
        return (
            self._lifecycle.state is State.TERMINATED
            and not self._run.lock.locked()
            and self._lease.shown() is None
            and not self._traces.has_rows
            and (target is None or target.attached or target.processes() == [])
        )

    async def leave(self) -> None:
        """Write the aftermath; raises OSError if the disk refuses it."""
        aftermath = Aftermath(
            breakpoints=await self._breakpoints.listed(None, None),
            exception_breakpoints=await self._exceptions.shown(),
            watches=self._watches.listed(),
            resources=await self._usage.report(),
        )
        await self._disk.run(partial(write_whole, self._path(), encode_json(aftermath)))

    def take_over(self, ended: SessionState) -> None:
        """Take over what the last worker left. The blueprint was taken over before."""
        self._debuggee.program = ended.program
        self._limits.passed = ended.passed_limit
        path = self._path()
        try:
            left = msgspec.json.decode(path.read_bytes(), type=Aftermath)
            path.unlink()  # from now on this worker answers
        except (OSError, msgspec.MsgspecError):
            return  # it is damaged or was never written: the counts begin anew
        self._breakpoints.count_on({one.id: one.hit_count for one in left.breakpoints})
        self._watches.take_over(left.watches)

    def _path(self) -> Path:
        return self._settings.folder / FILE
