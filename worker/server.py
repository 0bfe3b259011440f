"""The worker process: listens for supervisors, serves requests, and ends when it should.

The end of a supervisor does not end the worker. These do: `end-session`, an idle session, or no
supervisor for `orphan_timeout`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from debug_relay.protocol.errors import RelayError
from debug_relay.protocol.models.sessions import EndReason, SessionDeleted
from debug_relay.protocol.models.worker_messages import Retired, WorkerParams
from debug_relay.protocol.state import COUNTED, LIVE, State
from debug_relay.protocol.system.files import write_whole
from debug_relay.protocol.system.procfs import boot_id, start_ticks
from debug_relay.protocol.version import VERSION, WIRE
from debug_relay.protocol.wire.envelope import encode_json
from debug_relay.protocol.wire.frames import Caller
from debug_relay.worker.ide.front import IdeFront
from debug_relay.worker.operations.handlers import check_table
from debug_relay.worker.rpc.supervisor_link import SupervisorLink
from debug_relay.worker.session.session import Session
from debug_relay.worker.system import descendants, own_processes

log = logging.getLogger("debug_relay.worker")

# The pause between two checks of idle time, pause budget and orphan timeout.
_TICK_SECONDS: Final = 1.0
_GRACE_SECONDS: Final = 2.0  # A program has this long to end by itself when its worker ends.
# A worker whose session has ended and is unused for this long ends by itself.
_RETIRE_SECONDS: Final = 300.0
# Answers under way are sent within this time when a worker ends.
_LAST_ANSWERS_SECONDS: Final = 0.05


class Worker:
    """One session and its supervisors."""

    def __init__(self, params: WorkerParams) -> None:
        check_table()
        self.params = params
        self.links: set[SupervisorLink] = set()
        self.ended = asyncio.Event()
        self.session = Session(params, self._push)
        self.ide = IdeFront(self.session)
        self._alone_since = time.monotonic()
        self._warned = False
        self._socket = Path(params.session_dir) / "worker.sock"
        self._ending: asyncio.Task[SessionDeleted] | None = None

    # -- life

    async def serve(self, ready: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        before = os.umask(0o177)
        try:
            server = await loop.create_unix_server(lambda: SupervisorLink(self), str(self._socket))
        finally:
            os.umask(before)
        await self.session.joining.listen(self._join)
        await self.session.changes.find_interpreter()
        await self._write_identity()
        await self.session.blueprints.take_over()
        self.session.publication.save()
        await self.session.record.settled()
        ready()
        watch = asyncio.create_task(self._watch(), name="clock")
        try:
            await self.ended.wait()
            await self._answer_all()
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            server.close()
            await self.ide.close()
            await self.session.joining.close()
            for link in list(self.links):
                link.close()
            self._socket.unlink(missing_ok=True)

    async def _answer_all(self) -> None:
        """Let calls that wait, also for the end itself, get their answers before the end."""
        answering = [task for link in self.links for task in link.answering]
        if answering:
            await asyncio.wait(answering, timeout=_LAST_ANSWERS_SECONDS)

    async def _write_identity(self) -> None:
        """Write the facts that identify this worker: a pid alone may belong to another process."""
        identity = {
            "session_id": self.session.settings.id,
            "pid": os.getpid(),
            "start_ticks": start_ticks(os.getpid()),
            "boot_id": boot_id(),
            "wire": WIRE,
            "version": VERSION,
        }
        path = Path(self.params.session_dir) / "identity.json"
        await self.session.disk.run(partial(write_whole, path, encode_json(identity)))

    async def _watch(self) -> None:
        """Check idle time and orphan time, by the monotonic clock: a clock change ends no
        session.
        """
        failed = ""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                await self._tick()
                failed = ""
            except Exception as error:
                # Nobody else ends a worker without a supervisor, so the clock never stops.
                if failed != (failed := repr(error)):
                    log.exception("clock.failed")

    async def _tick(self) -> None:
        if any(link.busy for link in self.links) or self.session.joining.clients:
            self.session.idle.touch()
        self._collect()
        self._warn()
        if self.session.pause_budget.is_spent():
            await self._resume_unused()
        reason = self._overdue()
        if reason == "terminated" and (await self.retire(pipes_taken=True)).retired:
            return
        if reason is not None:
            log.info("worker.ending", extra={"fields": {"reason": reason}})
            await self.end(None, reason)

    def _collect(self) -> None:
        """Collect ended orphans of the program, which this worker has adopted."""
        target = self.session.debuggee.target
        if target is not None and not target.attached:
            descendants.collect_adopted(target.pid)

    async def _resume_unused(self) -> None:
        try:
            await self.session.pause_budget.resume()
        except RelayError as error:
            # The program ended meanwhile, or C code holds its interpreter: the next check decides.
            log.warning("program.held", extra={"fields": {"error": error.message}})

    def _overdue(self) -> EndReason | None:
        session, now = self.session, time.monotonic()
        orphan = self.params.orphan_timeout
        if not self.links and orphan and now - self._alone_since > orphan:
            return "shutdown"
        if (
            session.lifecycle.state is State.TERMINATED
            and session.idle.idle_for() > _RETIRE_SECONDS
        ):
            return "terminated"  # no supervisor is there to ask this worker to retire
        limit = session.idle.limit(session.lifecycle.state)
        if limit and session.lifecycle.state in COUNTED and session.idle.idle_for() > limit:
            return "timeout"
        return None

    def _warn(self) -> None:
        """Warn once, half-way to expiry."""
        session = self.session
        limit = session.idle.limit(session.lifecycle.state)
        idle = session.idle.idle_for()
        if not limit or session.lifecycle.state not in COUNTED or idle < limit / 2:
            self._warned = False
        elif not self._warned:
            self._warned = True
            warning = f"Session will expire in {limit - idle:.0f} seconds"
            body = {"status": session.lifecycle.state, "warning": warning}
            expires_at = session.idle.expires_at(session.lifecycle.state)
            session.log.journal("session", {**body, "expires_at": expires_at})

    async def retire(self, pipes_taken: bool) -> Retired:
        """End, if the session has ended: files answer from then on. This answer is still given.

        Pipes that kept processes may write to are named before, so that they always have a reader.
        """
        session = self.session
        if not session.retirement.may_retire():
            return Retired(retired=False)
        await session.retirement.end_left_processes()
        target = session.debuggee.target
        pipes = target.kept_pipes() if target is not None and not pipes_taken else []
        if pipes:
            return Retired(retired=False, pipes=pipes)
        if not await self._leave() or not session.retirement.may_retire():
            return Retired(retired=False)
        blueprint = session.blueprints.draw()
        if self._ending is None:
            self._ending = asyncio.create_task(
                self._end_by(None, None, "terminated"), name="ending"
            )
        return Retired(
            retired=True,
            blueprint=blueprint,
            runtime_seconds=round(session.lifecycle.runtime_seconds, 3),
        )

    async def _leave(self) -> bool:
        try:
            await self.session.retirement.leave()
        except OSError as error:
            log.warning("aftermath.not_written", extra={"fields": {"error": str(error)}})
            return False
        return True

    async def end(
        self, terminate: bool | None, reason: EndReason, caller: Caller | None = None
    ) -> SessionDeleted:
        """End the session once; later calls get the same answer."""
        if self._ending is None:
            ending = self._end_by(caller, terminate, reason)
            self._ending = asyncio.create_task(ending, name="ending")
        return await asyncio.shield(self._ending)

    async def _end_by(
        self, caller: Caller | None, terminate: bool | None, reason: EndReason
    ) -> SessionDeleted:
        """End the session; the events of the end name the caller that requested it."""
        try:
            with self.session.callers.ending(caller):
                return await self._end(terminate, reason)
        finally:
            # A session ends once. Whatever of it has failed, such as a file in a directory that
            # was removed, the worker ends, and all that it has started.
            self.ended.set()

    async def _end(self, terminate: bool | None, reason: EndReason) -> SessionDeleted:
        session = self.session
        if session.lifecycle.state is State.TERMINATED and reason == "shutdown":
            await session.retirement.end_left_processes()
            await self._leave()
        if session.lifecycle.state in COUNTED:
            if reason == "shutdown":
                # The next relay restores the session, even if it does not end in time.
                session.lifecycle.will_be_restored()
            session.lifecycle.end_for(reason)
            session.publication.save()
        # A target belongs to another owner: deleting a session detaches from it and ends nothing.
        if (
            session.debuggee.target is not None
            and session.debuggee.target.attached
            and not terminate
        ):
            if session.lifecycle.state in LIVE:
                session.lifecycle.end_for("detached" if reason == "terminated" else reason)
                await session.debuggee.target.detach()
        else:
            await session.run.end_program(_GRACE_SECONDS)
        if session.lifecycle.state in COUNTED:
            session.lifecycle.ended(None, None, reason)
        await session.debuggee.end_children()
        if session.debuggee.target is not None:
            await session.debuggee.target.release()
        answer = SessionDeleted(
            session_id=session.settings.id,
            final_status=session.lifecycle.state,
            exit_code=session.lifecycle.exit_code,
            runtime_seconds=round(session.lifecycle.runtime_seconds, 3),
        )
        session.publication.save()
        await session.record.settled()
        return answer

    async def _join(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serve a connection to the join port: an IDE, or the debugger of a native program."""
        await (self.session.debuggee.serve_debugger or self.ide.serve)(reader, writer)

    # -- supervisors

    def joined(self, link: SupervisorLink) -> None:
        self.links.add(link)

    def left(self, link: SupervisorLink) -> None:
        self.links.discard(link)
        self._alone_since = time.monotonic()

    def _push(self) -> None:
        """Send each supervisor what it does not have yet."""
        for link in self.links:
            link.push()


async def main(params: WorkerParams, ready: Callable[[], None]) -> None:
    worker = Worker(params)
    try:
        await worker.serve(ready)
    finally:
        try:
            await worker.session.close()
        finally:
            target = worker.session.debuggee.target
            if target is None or not target.keeps_children:
                # gdb at work is left to end by itself: a signal to it would kill the program.
                descendants.end_descendants(time.monotonic() + 5.0, own_processes.outliving())
