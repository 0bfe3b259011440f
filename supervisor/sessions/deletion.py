"""Deletes sessions: the worker ends its programs and itself, or is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.sessions import EndReason, SessionDeleted
from debug_relay.protocol.models.worker_messages import EndSession
from debug_relay.protocol.operations import END_SESSION
from debug_relay.protocol.version import API_PREFIX
from debug_relay.protocol.wire.frames import Caller
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.sessions.background_tasks import BackgroundTasks
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.workers import orphan_cleanup

_log: Final = Log(__name__)
_END_SECONDS: Final = 12.0  # A worker ends its session and its programs within this time.
_FORCED_SECONDS: Final = 2.0  # A forced deletion waits this long for the worker before it kills it.


class Deletions:
    def __init__(
        self, background: BackgroundTasks, wakings: Mapping[str, asyncio.Task[None]]
    ) -> None:
        self._background = background
        self._wakings = wakings
        self._under_way: dict[str, asyncio.Task[SessionDeleted]] = {}

    async def end(
        self,
        session: Session,
        terminate: bool | None,
        reason: EndReason,
        force: bool = False,
        caller: Caller | None = None,
    ) -> SessionDeleted:
        """Ends a session once. Further calls wait for the same end; with `force` they kill the
        worker.
        """
        ending = self._under_way.get(session.id)
        if ending is None:
            ending = self._background.begin(
                self._end_once(session, terminate, reason, force, caller)
            )
            self._under_way[session.id] = ending
            ending.add_done_callback(lambda _: self._under_way.pop(session.id, None))
        elif force:
            done, _ = await asyncio.wait([ending], timeout=_FORCED_SECONDS)
            if not done and session.child is not None:
                session.child.kill()
        return await asyncio.shield(ending)

    async def _end_once(
        self,
        session: Session,
        terminate: bool | None,
        reason: EndReason,
        force: bool,
        caller: Caller | None,
    ) -> SessionDeleted:
        """Asks the worker to end its session and itself; with `force` kills one that is silent."""
        session.begin_deletion()
        waking = self._wakings.get(session.id)
        if waking is not None:
            await asyncio.wait([waking])
        answer: SessionDeleted | None = None
        child = session.child
        if child is not None:
            timeout = _FORCED_SECONDS if force else None
            answer = await _ask_to_end(session, terminate, reason, timeout, caller)
            # A dying worker closes its stream a moment before its pidfd is readable.
            if not await child.wait(2.0 if answer else 0.2):
                if answer is None and not force:
                    session.deleting = False
                    raise RelayError(
                        Code.WORKER_UNRESPONSIVE,
                        f"The worker of {session.id} does not answer and was not ended",
                        f"DELETE {API_PREFIX}/sessions/{session.id}?force=true kills it.",
                        session_id=session.id,
                    )
                child.kill()
                await child.wait(5.0)
        await sweep_up(session.id)
        shown = session.state
        return answer or SessionDeleted(
            session_id=session.id,
            final_status=shown.status,
            exit_code=shown.exit_code,
            runtime_seconds=session.runtime_seconds,
        )

    async def until_finished(self) -> None:
        """Waits for the deletions that are under way."""
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=_END_SECONDS)


async def _ask_to_end(
    session: Session,
    terminate: bool | None,
    reason: EndReason,
    timeout: float | None,
    caller: Caller | None,
) -> SessionDeleted | None:
    wanted = EndSession(session_id=session.id, terminate_debuggee=terminate, reason=reason)
    try:
        return await session.ask(END_SESSION, wanted, SessionDeleted, _END_SECONDS, timeout, caller)
    except RelayError as error:
        _log.warning("session.end_unanswered", session_id=session.id, error=error.message)
        return None


async def sweep_up(id: str) -> None:
    """Ends the processes that a dead worker has left."""
    ended = await asyncio.to_thread(orphan_cleanup.end_marked, id)
    if ended:
        _log.info("session.swept", session_id=id, ended=ended)
