"""Moving a program: continue, steps, pause, end; and what is told afterwards."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from debug_relay.protocol.calls import call_of
from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models import execution as e
from debug_relay.protocol.models.fields import ExceptionStop
from debug_relay.protocol.state import State
from debug_relay.worker.debugger import thread_positions as whereabouts
from debug_relay.worker.debugger.connection import DebugServer
from debug_relay.worker.debugger.hub import KnownThread

if TYPE_CHECKING:
    from debug_relay.worker.debuggee.target import Target
    from debug_relay.worker.session.session import Session

# How long a running main thread has to stop by itself before it is woken by a signal.
_WAKE_AFTER: Final = 0.05
_WAKE_AGAIN: Final = 0.5
_LOOK_SECONDS: Final = 1.0
_OTHERS_SECONDS: Final = 0.3
_GOING: Final = frozenset({State.RUNNING})
_ALIVE: Final = frozenset({State.LAUNCHING, State.RUNNING, State.PAUSED})


def filters_of(choice: ExceptionStop) -> list[str]:
    """`stop_on_exception` of a launch as exception filters."""
    if choice is True:
        return ["raised", "uncaught"]
    if choice is False:
        return []
    return [choice]


def thread_to_move(session: Session, thread_id: int | None) -> KnownThread:
    assert session.stop is not None
    thread = session.hub.thread(thread_id or session.stop.thread_id)
    if thread.id not in session.standing:
        raise _thread_state(session, thread.id, "runs", State.PAUSED)
    return thread


def _thread_state(session: Session, thread_id: int, does: str, required: State) -> RelayError:
    """409: the session's state would do, this thread's does not."""
    next_call = "pause" if required is State.PAUSED else "continue"
    return RelayError(
        Code.INVALID_SESSION_STATE,
        f"Thread {thread_id} {does}; the threads that stand are {session.standing_threads()}",
        f"{call_of(next_call, session.id, thread_id=thread_id)} first; "
        f"{call_of('threads')} tells of each.",
        current_state=session.state.value,
        required_state=required.value,
        thread_id=thread_id,
        stopped_threads=session.standing_threads(),
    )


def is_alone(session: Session, thread: KnownThread, named: bool) -> bool:
    """Whether this thread is to move while the others stay as they are."""
    if not named and session.params.config.stop_all:
        return False
    if thread.server.has_probe:
        return True
    if session.hub.thread_ids() == [thread.id]:
        return False  # there are no others
    joined = session.target is not None and session.target.attached
    raise RelayError(
        Code.ATTACH_UNSUPPORTED if joined else Code.DEBUGPY_ERROR,
        "The program runs without the relay's own part: all its threads move, or none",
        f"Leave thread_id out: {call_of('continue')}.",
        thread_id=thread.id,
    )


def move(session: Session, thread: KnownThread, command: str) -> None:
    """Send the program on its way.

    The answer is not awaited: debugpy may leave `continue` unanswered when another thread stops at
    once. The stop that follows is the answer.
    """
    arguments: dict[str, Any] = {"threadId": thread.dap_id}
    server = thread.server
    if server.lost:
        session.hub.main_server()  # raises, in words
    session.resumed(server)
    server.sent_on += 1
    server.post(command, arguments)


def go_on(session: Session) -> None:
    """Every process of which a thread stands, with all its threads."""
    moved: set[DebugServer] = set()
    for thread_id in session.standing_threads():
        thread = session.hub.thread(thread_id)
        if thread.server not in moved:
            moved.add(thread.server)
            move(session, thread, "continue")


async def move_alone(session: Session, threads: list[KnownThread], command: str) -> None:
    """The others stay as they are."""
    for server in list(session.hub.servers):
        numbers = [thread.dap_id for thread in threads if thread.server is server]
        if not numbers:
            continue
        for thread in threads:
            if thread.server is server:
                session.resumed(server, thread.id)
        await session.asking.ask(server, "alone", threads=numbers, how=command)
    await _look_around(session)


async def _look_around(session: Session) -> None:
    """Where the thread stands that is looked at now, if it has not stopped by itself."""
    stop = session.stop
    if stop is None or stop.location is not None:
        return
    known = await whereabouts.of_threads(session.asking, _LOOK_SECONDS)
    if session.stop is not stop:
        return
    here = known.get(stop.thread_id)
    if here is None or not here.stands:
        standing = [id for id in session.standing_threads() if id in known and known[id].stands]
        stop.thread_id = standing[0] if standing else stop.thread_id
        here = known.get(stop.thread_id)
    stop.location = here.place if here is not None else None
    if stop.location is not None and session.reports.current is not None:
        kept = session.reports.current
        kept.lines = await session.reports.sources.lines(stop.location.path)
    session.changed()


async def request_pause(session: Session) -> None:
    session.hub.main_server()
    for server in session.hub.servers:
        server.post("pause", {"threadId": "*"})


def request_halt(session: Session, thread: KnownThread) -> None:
    """This thread's stop is to be told; where a stop is one of all, it halts the others too."""
    session.hub.main_server()
    session.asking.tell(thread.server, "halt", thread=thread.dap_id)


def require_running(session: Session, thread_id: int | None) -> None:
    """There must be something to pause."""
    if thread_id is not None:
        session.hub.thread(thread_id)
        if thread_id in session.standing:
            raise _thread_state(session, thread_id, "stands already", State.RUNNING)
    elif session.standing_threads() == session.hub.thread_ids():
        session.require("pause", _GOING)


async def until_paused(
    session: Session,
    before: int,
    timeout: float,
    abandoned: asyncio.Event,
    thread_id: int | None = None,
) -> bool:
    """Wait for the stop; a main thread that sleeps in the kernel is woken to reach it."""

    def at_rest() -> bool:
        return has_stopped(session, before, thread_id)

    for patience in (_WAKE_AFTER, _WAKE_AGAIN):
        if await session.news.until(at_rest, min(patience, timeout), abandoned):
            return True
        timeout -= patience
        if timeout <= 0 or abandoned.is_set() or session.target is None:
            return False
        session.target.wake()
    if thread_id is not None and session.state is State.RUNNING and session.params.config.stop_all:
        # It does not come; the others are halted, and that is to be told.
        await request_pause(session)
    return await session.news.until(at_rest, timeout, abandoned)


async def until_others_stand(session: Session, abandoned: asyncio.Event) -> None:
    """A pause is one of all processes: who comes to stand soon is awaited, or a `continue` that
    follows at once would miss it. One that sleeps in the kernel is woken, as the first was."""
    servers = session.hub.servers

    def all_stand() -> bool:
        return all(session.standing.latest(server) is not None for server in servers)

    for patience in (_WAKE_AFTER, _WAKE_AGAIN):
        if len(servers) < 2 or await session.news.until(all_stand, patience, abandoned):
            return
        if abandoned.is_set() or session.target is None:
            return
        session.target.wake()
    await session.news.until(all_stand, _OTHERS_SECONDS, abandoned)


def has_stopped(
    session: Session, before: int, thread_id: int | None, process: DebugServer | None = None
) -> bool:
    """Whether the program has stopped anew or ended; or just this process of it, or thread."""
    if session.state not in (State.RUNNING, State.LAUNCHING, State.PAUSED):
        return True
    if process is not None and thread_id is None:
        stop = session.standing.latest(process)
        if stop is not None and stop.stop_id > before:
            return True
        # Of the program itself the kernel tells: then the state says so.
        return process.is_child and process.lost
    if thread_id is None:
        return session.state is State.PAUSED and session.stop_id > before
    return thread_id in session.standing or not session.hub.knows(thread_id)


async def end_program(session: Session, grace: float, for_all: bool = False) -> None:
    """End it and all that it has started, which has the grace as well if it is `for_all`."""
    if session.target is not None and session.state in _ALIVE:
        await session.target.end(grace, for_all)


async def let_go(session: Session, target: Target) -> None:
    """The attached program runs on without us; the session is `created` again."""
    await target.detach()
    await target.release()
    session.let_go()


def result(
    session: Session,
    completed: bool,
    thread_id: int | None = None,
    process: DebugServer | None = None,
) -> e.Execution:
    """Where the program is, after an execution call; where this thread or process is, if it
    stands."""
    stop = session.stop
    if stop is not None and thread_id is not None:
        stop = session.standing.of(thread_id) or stop
    elif stop is not None and process is not None:
        stop = session.standing.latest(process) or stop
    return e.Execution(
        session_id=session.id,
        status=session.state,
        completed=completed,
        stop_reason=stop.reason if stop else None,
        stop_id=stop.stop_id if stop else session.stop_id,
        thread_id=stop.thread_id if stop else None,
        child_pid=stop.pid if stop and stop.is_child else None,
        current_location=stop.location if stop else None,
        exit_code=session.exit_code,
        signal=session.signal,
        end_reason=session.end_reason,
        waiting_for_input=session.waiting is not None,
        prompt=session.waiting.prompt if session.waiting else None,
        events_cursor=session.events.cursor,
    )
