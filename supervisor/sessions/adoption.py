"""Takes over what an earlier relay has left: adopts its living workers, and restores sessions whose
worker is gone from their records.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Final, Protocol

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models.blueprint import SessionRecord
from debug_relay.protocol.state import State
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.sessions import held_lease
from debug_relay.supervisor.sessions.deletion import sweep_up
from debug_relay.supervisor.sessions.mirror import Owner, Session
from debug_relay.supervisor.sessions.restore import (
    holds_what_was_set_aside,
    read_record,
    state_without_worker,
)
from debug_relay.supervisor.sessions.worker_link import LinkLost
from debug_relay.supervisor.storage.directories import Directories
from debug_relay.supervisor.workers.child_process import Child
from debug_relay.supervisor.workers.spawn import living_worker

_log: Final = Log(__name__)
# The supervisor connects to the worker of an earlier relay within this time.
_ADOPT_SECONDS: Final = 2.0


class Home(Owner, Protocol):
    """The part of the registry that takes the sessions in."""

    sessions: dict[str, Session]

    def expire(self, id: str) -> None: ...

    async def record_failure(self, session: Session) -> None: ...


class Adoption:
    def __init__(self, home: Home, directories: Directories) -> None:
        self._home = home
        self._directories = directories

    async def adopt_all(self) -> None:
        found: dict[str, Path] = {}
        for run_dir in (self._directories.run_dir, *self._directories.earlier_run_dirs):
            for folder in run_dir.glob("sess_*"):
                found.setdefault(folder.name, folder)
        await asyncio.gather(*(self._adopt_one(folder) for folder in found.values()))
        for record in self._directories.sessions.glob("sess_*"):
            if record.name not in self._home.sessions:
                # Its rings are gone.
                await self._adopt_one(self._directories.run_dir / record.name)

    async def _adopt_one(self, folder: Path) -> None:
        kept = self._directories.sessions / folder.name
        record = read_record(kept)
        child = living_worker(folder)
        if child is not None and await self._adopt_living(folder, child, record):
            return
        session = Session(folder.name, folder, self._home)
        await sweep_up(session.id)
        timed_out = record is not None and record.state.end_reason == "timeout"
        if timed_out:
            self._home.expire(session.id)
        if record is None or timed_out:
            shutil.rmtree(folder, ignore_errors=True)
            if not holds_what_was_set_aside(kept):
                shutil.rmtree(kept, ignore_errors=True)
            return
        session.take_record(state_without_worker(record), record.events_end)
        session.runtime_seconds = round(record.runtime_seconds, 3)
        if session.state.status is State.TERMINATED:
            session.lease = held_lease.read(folder)
        self._home.sessions[session.id] = session
        if child is not None and record.state.end_reason is None:
            # The worker died while we adopted it, and was not about to end.
            session.fail(record.state, child.exit_status)
            self._home.background.begin(self._home.record_failure(session))
        _log.info("session.returned", session_id=session.id, status=session.state.status)

    async def _adopt_living(self, folder: Path, child: Child, record: SessionRecord | None) -> bool:
        """Adopts a worker; whether it lives. If it does not answer now, we connect once it does."""
        session = Session(folder.name, folder, self._home)
        try:
            await session.worker.connect(child, _ADOPT_SECONDS)
        except (OSError, LinkLost, RelayError) as error:
            why = str(error) or type(error).__name__
            _log.warning("session.not_adopted", session_id=session.id, error=why)
            if child.ended or record is None:
                await session.close()
                return not child.ended
            session.take_record(record.state, record.events_end)
            session.worker.unresponsive = True
        self._home.sessions[session.id] = session
        _log.info("session.adopted", session_id=session.id, pid=child.pid)
        return True
