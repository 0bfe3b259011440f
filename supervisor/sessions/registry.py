"""The registry of all sessions: creates, adopts, restores, deletes and forgets them.

It owns the table of sessions and the bound on their number. After a restart it adopts the workers
that the last supervisor has left, and ends the processes that dead workers have left.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from debug_relay.protocol import state
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.creation import CreateSession
from debug_relay.protocol.models.fields import SessionParams
from debug_relay.protocol.models.sessions import Blueprint, SessionDeleted
from debug_relay.protocol.models.worker_messages import WorkerParams
from debug_relay.protocol.operations import GET_BLUEPRINT
from debug_relay.protocol.refusals import ambiguous_name, no_such_session, require_project
from debug_relay.protocol.state import State
from debug_relay.protocol.version import API_PREFIX
from debug_relay.protocol.wire.frames import Caller
from debug_relay.supervisor.config.settings import Settings
from debug_relay.supervisor.log import Log
from debug_relay.supervisor.output import history
from debug_relay.supervisor.sessions.adoption import Adoption
from debug_relay.supervisor.sessions.background_tasks import BackgroundTasks, outcome
from debug_relay.supervisor.sessions.deletion import Deletions, sweep_up
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.sessions.quota import Quota
from debug_relay.supervisor.sessions.restore import read_record, record_end
from debug_relay.supervisor.sessions.retirement import Retirement
from debug_relay.supervisor.sessions.worker_link import LinkLost
from debug_relay.supervisor.storage.directories import Directories
from debug_relay.supervisor.workers import intent
from debug_relay.supervisor.workers.child_process import Child
from debug_relay.supervisor.workers.spawn import spawn_worker
from debug_relay.supervisor.workers.start_capacity import StartCapacity
from debug_relay.supervisor.workers.start_params import StartParams
from debug_relay.supervisor.workers.zygote import Zygote

_log: Final = Log(__name__)
_CONNECT_SECONDS: Final = 5.0  # The supervisor connects to a new worker within this time.
_BLUEPRINT_SECONDS: Final = 10.0  # A worker answers with its session's blueprint within this time.
# Workers that are being started have this long to end when the relay stops.
_STARTING_SECONDS: Final = 2.0
_BACKGROUND_SECONDS: Final = 5.0  # Background tasks have this long to end when the relay stops.
# A relay that was killed together with a worker has ended within this time.
_TOGETHER_SECONDS: Final = 0.5
_MOST_ENDED: Final = 100  # Ended sessions that are kept; the oldest beyond them are deleted.
# A request that is sent again after this time is a new one, as for replies that are kept.
_UNANSWERED_SECONDS: Final = 600.0
# Names that are as good as ids in a path; ids look like this too.
_ADDRESS: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_MOST_NAMED: Final = 10  # Sessions that a warning names.


class Registry:
    def __init__(self, settings: Settings, directories: Directories, debugpy_dir: str) -> None:
        self.settings = settings
        self.directories = directories
        self.sessions: dict[str, Session] = {}
        self.draining = False
        self.listeners: set[Callable[[], None]] = set()  # called when a session was added
        self.zygote = Zygote(directories.logs / "zygote.err")
        self.room = StartCapacity(directories)
        self._start_params = StartParams(directories, debugpy_dir)
        self._wakings: dict[str, asyncio.Task[None]] = {}
        # Sessions by the request that they were made for, if an earlier relay made them.
        self._unanswered: dict[tuple[str, ...], tuple[Session, float]] = {}
        self._expired: dict[str, float] = {}  # id → when it may be forgotten, monotonic
        self._quota = Quota()
        self._retirement = Retirement(
            lambda: self.sessions.values(),
            self._wakings,
            lambda: self.settings.sessions.max_sessions,
        )
        self.background = BackgroundTasks()
        # Tasks that start a worker; its session may not be in the table yet.
        self._starting = BackgroundTasks()
        self._deletions = Deletions(self.background, self._wakings)

    # -- finding

    def get(self, id: str) -> Session:
        session = self.sessions.get(id)
        if session is not None:
            return session
        if self._expired.get(id, 0) > time.monotonic():
            raise RelayError(
                Code.SESSION_EXPIRED,
                f"Session {id} timed out: no call used it for too long",
                f"Create a new one with POST {API_PREFIX}/sessions; timeout_minutes sets how long "
                "it may idle.",
                session_id=id,
            )
        raise no_such_session(id, list(self.sessions))

    def used(self, id: str) -> Session:
        """The session; this call of it counts as use, so it does not expire."""
        session = self.get(id)
        session.use.touch()
        return session

    def id_of(self, address: str) -> str:
        """The id of the session that a path names by its id, or by a name that only it has."""
        if address in self.sessions or _ADDRESS.fullmatch(address) is None:
            return address
        named = [one for one in self.sessions.values() if one.state.name == address]
        # An agent gives its sessions the same name day by day: those that have ended do not count.
        living = [one for one in named if one.state.status not in state.ENDED] or named
        if len(living) > 1:
            raise ambiguous_name(address, [one.id for one in living])
        return living[0].id if living else address

    def counted(self) -> list[Session]:
        return [
            session
            for session in self.sessions.values()
            if session.child is not None and session.state.status in state.COUNTED
        ]

    def disk_warnings(self) -> list[str]:
        """Warnings about sessions that could not write their files, for `/health`."""
        lossy = [one for one in self.sessions.values() if one.state.disk_trouble]
        warnings = [f"{one.id}: {one.state.disk_trouble}" for one in lossy[:_MOST_NAMED]]
        if len(lossy) > _MOST_NAMED:
            more = len(lossy) - _MOST_NAMED
            warnings.append(f"{more} more sessions could not write all of their files")
        return warnings

    # -- making

    async def create(self, params: CreateSession, caller: Caller) -> Session:
        """Creates a session; its worker is ready."""
        if params.restore_breakpoints:
            require_project(params.project_root)
        worker_params = self._start_params.for_request(
            self._new_id(), params, caller.name, self.settings
        )
        return await self._start(worker_params, caller.name)

    async def create_from_blueprint(self, blueprint: Blueprint, caller: Caller) -> Session:
        """Creates a session from a blueprint."""
        worker_params = self._start_params.for_blueprint(
            self._new_id(), blueprint, caller.name, self.settings
        )
        return await self._start(worker_params, caller.name)

    async def _start(self, worker_params: WorkerParams, caller: str) -> Session:
        made = self._made_before()
        if made is not None:
            return made
        self._require_room(caller)
        return await self._starting.begin(self._create(worker_params, caller))

    def _made_before(self) -> Session | None:
        """The session that an earlier relay has made for this very request, if it was killed before
        it answered.
        """
        request = intent.CURRENT_REQUEST.get()
        if request is None:
            return None
        session, began = self._unanswered.pop(request.name, (None, 0.0))
        if session is None or request.began - began > _UNANSWERED_SECONDS:
            return None
        is_there = self.sessions.get(session.id) is session and not session.deleting
        return session if is_there and session.state.status is not State.FAILED else None

    def _require_room(self, caller: str) -> None:
        """Reserves a place for one more worker, or refuses."""
        self._require_open()
        self._retirement.retire_due(coming=self._quota.starting + 1)
        self._quota.require_room(self.counted(), self.settings.sessions, caller)
        self._quota.take(caller)

    def _require_open(self) -> None:
        if self.draining:
            raise RelayError(Code.SHUTTING_DOWN, "The relay is stopping")

    async def _create(self, params: WorkerParams, caller: str) -> Session:
        session = Session(params.session_id, Path(params.session_dir), self)
        try:
            child = await self._spawned(params)
            await session.worker.connect(child, _CONNECT_SECONDS)
            self._require_open()
        except BaseException as error:
            if session.child is not None:
                session.child.kill()
            await session.close()
            self._remove_folders(session)
            if isinstance(error, OSError | LinkLost):
                raise _does_not_answer(error) from error
            raise
        finally:
            self._quota.release(caller)
        self.sessions[session.id] = session
        for listener in self.listeners:
            listener()
        return session

    async def _spawned(self, params: WorkerParams) -> Child:
        try:
            child = await spawn_worker(params, self.zygote)
        except RelayError as error:
            self.room.start_failed()
            if lacking := await self.room.lacking():
                error.details["suggestion"] = f"{lacking[0].upper()}{lacking[1:]}."
            raise
        self.room.start_succeeded()
        return child

    async def until_retired(self, session: Session) -> None:
        """Waits until the session's worker is not in the middle of retiring."""
        await self._retirement.until_finished(session)

    async def wake(self, session: Session) -> None:
        """Starts a worker for a session that has none. Concurrent calls share one start."""
        await self._retirement.until_finished(session)
        # We check this before `sleeps`: a session that wakes has its worker before the link to it.
        waking = self._wakings.get(session.id)
        if waking is None:
            if not session.sleeps or session.deleting:
                return
            caller = session.state.created_by or ""
            self._require_room(caller)
            waking = self._starting.begin(self._wake(session, caller))
            self._wakings[session.id] = waking
            waking.add_done_callback(lambda _: self._wakings.pop(session.id, None))
        await outcome(waking)

    async def _wake(self, session: Session, caller: str) -> None:
        shown, events_end = session.state, session.events_end
        try:
            blueprint = await self.blueprint(session)
            params = self._start_params.for_blueprint(
                session.id, blueprint, shown.created_by, self.settings
            )
            params.session_dir = str(session.folder)
            params.created_at = shown.created_at
            has_ended = shown.status is State.TERMINATED
            params.ended = shown if has_ended else None
            params.runtime_seconds = session.runtime_seconds if has_ended else 0.0
            params.restored = shown.restored if has_ended else True
            params.previous_status = shown.previous_status
            params.first_seq = events_end + 1
            last_stop = await asyncio.to_thread(history.last_stop, session.folder / "stops.ring")
            params.stop_id = max(shown.stop_id, last_stop)
            await session.worker.connect(await self._spawned(params), _CONNECT_SECONDS)
            self._require_open()
            session.has_retired, session.blueprint, session.lease = False, None, None
        except BaseException as error:
            if session.child is not None:
                session.child.kill()
            await session.worker.close()
            session.worker.child = None
            session.take_record(shown, events_end)
            if isinstance(error, OSError | LinkLost):
                raise _does_not_answer(error) from error
            raise
        finally:
            self._quota.release(caller)

    async def blueprint(self, session: Session) -> Blueprint:
        """The session's blueprint, from its worker or from what the worker has left."""
        await self._retirement.until_finished(session)
        if session.child is None and session.blueprint is not None:
            return session.blueprint
        if session.child is not None:
            params = SessionParams(session_id=session.id)
            return await session.ask(GET_BLUEPRINT, params, Blueprint, _BLUEPRINT_SECONDS)
        record = await asyncio.to_thread(read_record, self.directories.sessions / session.id)
        if record is None:
            raise session.crashed("read what it was")
        return record.blueprint

    def _new_id(self) -> str:
        while True:
            id = f"sess_{secrets.token_hex(4)}"
            if id not in self.sessions and not (self.directories.sessions / id).exists():
                return id

    # -- after a restart

    async def adopt(self) -> None:
        """Adopts living workers of the last supervisor, and restores sessions from records."""
        await Adoption(self, self.directories).adopt_all()
        by_age = sorted(self.sessions.values(), key=lambda one: one.state.created_at)
        self.sessions = {session.id: session for session in by_age}
        for session in by_age:
            request = intent.request_of(session.folder)
            if request is not None:
                self._unanswered[request.name] = session, request.began
        self._forget_old()
        self._retirement.start()

    # -- ending

    async def delete(
        self,
        session: Session,
        terminate: bool | None,
        force: bool,
        caller: Caller | None = None,
    ) -> SessionDeleted:
        """Ends the session and forgets it."""
        ended = await self._deletions.end(session, terminate, "terminated", force, caller)
        if self.sessions.get(session.id) is session:
            del self.sessions[session.id]
        await session.close()
        self._remove_folders(session)
        return ended

    def worker_gone(self, session: Session) -> None:
        """Called when a worker has ended for another reason than a deletion."""
        if session.deleting or self.sessions.get(session.id) is not session:
            return  # the deletion, or the creation, cleans up
        shown = session.state
        with contextlib.suppress(OSError):  # the disk may be read-only by now
            (session.folder / "worker.sock").unlink(missing_ok=True)
        (_log.info if session.has_retired else _log.warning)(
            "worker.retired" if session.has_retired else "worker.gone",
            session_id=session.id,
            status=shown.status,
            signal=shown.worker_signal,
            exit_code=shown.worker_exit_code,
        )
        if shown.end_reason == "timeout":
            self.expire(session.id)
            self.sessions.pop(session.id, None)
            session.end_streams()
            self._remove_folders(session)
        self.background.begin(sweep_up(session.id))
        if shown.status is State.FAILED:
            self.background.begin(self.record_failure(session))
        self._forget_old()

    async def record_failure(self, session: Session) -> None:
        """Writes the failure into the record, because the worker cannot."""
        # If worker and relay are killed together, the relay may end last. Then the session has not
        # failed, and the next relay restores it.
        await asyncio.sleep(_TOGETHER_SECONDS)
        is_deleted = session.deleting and not session.left_by_relay
        if self.sessions.get(session.id) is not session or is_deleted:
            return
        folder = self.directories.sessions / session.id
        try:
            await asyncio.to_thread(record_end, folder, session.state, session.events_end)
        except OSError as error:
            _log.warning("session.not_recorded", session_id=session.id, error=str(error))
        if self.sessions.get(session.id) is not session:
            self._remove_folders(session)  # it was deleted while we wrote

    def expire(self, id: str) -> None:
        """Remember for a while that the session timed out, for callers who still know its id."""
        self._expired[id] = time.monotonic() + self.settings.sessions.tombstone

    def _forget_old(self) -> None:
        now = time.monotonic()
        self._expired = {id: until for id, until in self._expired.items() if until > now}
        ended = [
            one
            for one in self.sessions.values()
            if one.child is None and not one.deleting and one.id not in self._wakings
        ]
        for session in ended[: max(len(ended) - _MOST_ENDED, 0)]:
            del self.sessions[session.id]
            session.end_streams()
            session.kept_pipes.close()
            self._remove_folders(session)

    def _remove_folders(self, session: Session) -> None:
        shutil.rmtree(session.folder, ignore_errors=True)
        shutil.rmtree(self.directories.sessions / session.id, ignore_errors=True)

    async def close(self, keep_sessions: bool) -> None:
        """Ends all sessions, or leaves them to the next supervisor. Called when the relay stops."""
        self.draining = True
        await self._retirement.close()
        await self._starting.end(_STARTING_SECONDS)
        sessions = list(self.sessions.values())
        for session in sessions:
            session.left_by_relay = True
        if not keep_sessions:
            living = [session for session in sessions if session.child is not None]
            ends = [self._deletions.end(session, None, "shutdown", True) for session in living]
            for ended in await asyncio.gather(*ends, return_exceptions=True):
                if isinstance(ended, BaseException):
                    _log.warning("session.not_ended", error=str(ended))
        await self._deletions.until_finished()  # deletions that callers have requested
        await asyncio.gather(*(session.close() for session in sessions))
        await self.background.end(_BACKGROUND_SECONDS)
        await self.zygote.close()


def _does_not_answer(error: Exception) -> RelayError:
    return RelayError(Code.WORKER_START_FAILED, f"The session's worker does not answer: {error}")
