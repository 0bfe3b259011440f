"""Workers of ended sessions retire: after a few seconds, at once when there are too many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.worker_messages import Retire, Retired
from debug_relay.protocol.operations import RETIRE
from debug_relay.protocol.state import State
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.sessions import held_lease
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.workers.child_process import Child

_log: Final = Log(__name__)
# An ended session keeps its worker this long after its end or its last use.
_UNUSED_SECONDS: Final = 3.0
_LOOK_SECONDS: Final = 0.5  # The pause between two looks for workers that can retire.
_ANSWERS_SECONDS: Final = 5.0  # A worker writes its answers into files within this time.
_END_SECONDS: Final = 2.0  # A retired worker ends within this time.


class Retirement:
    def __init__(
        self,
        sessions: Callable[[], Iterable[Session]],
        wakings: Mapping[str, asyncio.Task[None]],
        most: Callable[[], int],
    ) -> None:
        self._sessions = sessions
        self._wakings = wakings
        self._most = most  # workers allowed at one time
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._watching = asyncio.create_task(self._watch(), name="retirement")

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=_ANSWERS_SECONDS + _END_SECONDS)

    async def until_finished(self, session: Session) -> None:
        """Wait for a retirement that is under way: its worker takes no more requests."""
        task = self._under_way.get(session.id)
        if task is not None:
            await asyncio.wait([task])

    def retire_due(self, coming: int = 0) -> None:
        """Start the retirements that are due, the longest unused worker first; `coming` workers are
        about to be started.
        """
        too_many = self._too_many() + coming - len(self._under_way)
        ended = [
            one
            for one in self._sessions()
            if one.child is not None
            and one.state.status is State.TERMINATED
            and one.id not in self._under_way
            and not (one.deleting or one.has_requests)
            and (too_many > 0 or not one.unresponsive)
        ]
        for session in sorted(ended, key=lambda one: -one.unused_for()):
            if too_many <= 0 and session.unused_for() < _UNUSED_SECONDS:
                break
            too_many -= 1
            task = asyncio.create_task(self._retire(session), name=f"retire {session.id}")
            self._under_way[session.id] = task
            task.add_done_callback(partial(self._over, session.id))

    def _too_many(self) -> int:
        return sum(one.child is not None for one in self._sessions()) - self._most()

    def _over(self, id: str, task: asyncio.Task[None]) -> None:
        self._under_way.pop(id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.exception("worker.not_retired", error, session_id=id)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.retire_due()
            self._end_lapsed_leases()

    def _end_lapsed_leases(self) -> None:
        for session in self._sessions():
            # A worker that is being started has the lease already.
            if session.lease is not None and session.id not in self._wakings:
                session.end_lapsed_lease()

    async def _retire(self, session: Session) -> None:
        child = session.child
        if child is None:
            return
        pipes: list[int] = []
        try:
            answer = await _ask(session, pipes_taken=False)
            if answer.pipes:
                pipes = session.kept_pipes.open(child.pid, answer.pipes)
                answer = await _ask(session, pipes_taken=True)
        except RelayError as error:
            _log.warning("worker.not_retired", session_id=session.id, error=error.message)
            session.kept_pipes.leave(pipes)
            if error.code is Code.WORKER_UNRESPONSIVE and self._too_many() > 0:
                # It hangs, and other workers need its place. Its files are lost: the counts
                # of its breakpoints, its watches, its lease.
                await _kill(session, child)
            return
        if not answer.retired:
            session.kept_pipes.leave(pipes)
            return
        session.retire(answer)
        session.kept_pipes.read(pipes)
        session.lease = await asyncio.to_thread(held_lease.read, session.folder)
        if await child.wait(_END_SECONDS):
            session.worker.note_end()
        else:
            await _kill(session, child)


async def _ask(session: Session, *, pipes_taken: bool) -> Retired:
    params = Retire(session_id=session.id, pipes_taken=pipes_taken)
    return await session.ask(RETIRE, params, Retired, _ANSWERS_SECONDS)


async def _kill(session: Session, child: Child) -> None:
    child.kill()
    await child.wait(_END_SECONDS)
    session.worker.note_end()
