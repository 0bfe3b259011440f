"""Lists the machine's Python processes, finds the one that a caller means, and shows its stacks.

/proc is read in threads, so nothing here blocks the event loop.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.processes import Process
from debug_relay.protocol.models.program import Attach
from debug_relay.protocol.models.relay import ListProcesses, ProcessList
from debug_relay.protocol.models.threads import Stacks
from debug_relay.protocol.secrets import masked_command
from debug_relay.protocol.state import LIVE
from debug_relay.protocol.system import py_spy
from debug_relay.protocol.system.users import name_of
from debug_relay.protocol.version import API_PREFIX
from debug_relay.supervisor.processes import attach_preflight
from debug_relay.supervisor.processes.attach_preflight import Surroundings
from debug_relay.supervisor.processes.facts import Facts, command, look
from debug_relay.supervisor.processes.listening_ports import Listeners
from debug_relay.supervisor.processes.patterns import Patterns
from debug_relay.supervisor.processes.python_scan import PythonScan
from debug_relay.supervisor.sessions.mirror import Session
from debug_relay.supervisor.workers.zygote import Zygote

# The shortest pause between two looks for a process that is waited for.
_LOOK_AGAIN_SECONDS: Final = 0.1
_REST_FACTOR: Final = 3  # The pause between two looks, as a multiple of the look's duration.
_SHOWN_CANDIDATES: Final = 20  # Processes that are named when a pattern matches several.


class Processes:
    def __init__(
        self, sessions: Callable[[], Mapping[str, Session]], zygote: Zygote, debugpy_dir: str
    ) -> None:
        self._sessions = sessions
        self._zygote = zygote
        self._debugpy_dir = debugpy_dir
        self._scan = PythonScan()
        self._patterns = Patterns()
        # One pass over all processes at a time: more would slow the event loop.
        self._looking = asyncio.Lock()

    def _around(self) -> Surroundings:
        sessions = self._sessions()
        own = {one.child.pid for one in sessions.values() if one.child is not None}
        own.add(os.getpid())
        if self._zygote.pid is not None:
            own.add(self._zygote.pid)
        return Surroundings(
            own=frozenset(own),
            sessions=_debugged(sessions),
            debugpy_dir=self._debugpy_dir,
            has_gdb=shutil.which("gdb") is not None,
        )

    # -- showing

    async def listed(self, params: ListProcesses) -> ProcessList:
        async with self._looking:
            return await asyncio.to_thread(_page, self._scan, params, self._around())

    async def one(self, pid: int) -> Process:
        return await asyncio.to_thread(_one, pid, self._around())

    async def stacks(self, pid: int, with_locals: bool) -> Stacks:
        """The stacks of all threads, which py-spy reads from the process's memory."""
        facts = await asyncio.to_thread(look, pid)
        if facts is None:
            raise attach_preflight.no_such_process(pid)
        try:
            return Stacks.of(pid, await py_spy.stacks(pid, with_locals))
        except py_spy.NotInstalled:
            raise RelayError(
                Code.ATTACH_NO_DEBUGGER,
                "py-spy is needed to read the stacks of a process, and is not installed",
                f"{sys.executable} -m pip install 'opencode-debug-relay[stacks]'",
                pid=pid,
            ) from None
        except py_spy.Unreadable as error:
            refusal = await asyncio.to_thread(attach_preflight.unseen, facts, self._around())
            raise refusal or _unreadable(facts, str(error)) from None

    # -- finding

    async def choose(self, params: Attach, asking: Session) -> None:
        """Makes `params` name one process by pid and identity, if it can be attached to."""
        if params.port is not None:
            self._refuse_second_client(params, asking)
            return
        if params.pid is None:
            params.pid = await self._find(params, asking)
            params.listening_on = params.match = None
        facts = await asyncio.to_thread(look, params.pid)
        if facts is None:
            raise attach_preflight.no_such_process(params.pid)
        if params.identity is not None and params.identity != facts.identity:
            raise attach_preflight.recycled(facts, params.identity)
        refusal = await asyncio.to_thread(attach_preflight.refusal, facts, self._around())
        if refusal is not None:
            raise refusal
        if params.tracing == "settrace" and (refusal := attach_preflight.untraceable(facts)):
            raise refusal
        params.identity = facts.identity

    def _refuse_second_client(self, params: Attach, asking: Session) -> None:
        """Names the session that is attached to this port: debugpy accepts one client only, and a
        second one would wait in vain.
        """
        for session in self._sessions().values():
            program = session.state.program
            if session is asking or program is None or session.state.status not in LIVE:
                continue
            if params.port is not None and (program.host, program.port) == (
                params.host or "127.0.0.1",
                params.port,
            ):
                raise RelayError(
                    Code.ATTACH_ALREADY_ATTACHED,
                    f"Session {session.id} is attached to {program.host}:{program.port} already",
                    f"Use {API_PREFIX}/sessions/{session.id}, or detach from it with POST "
                    f"{API_PREFIX}/sessions/{session.id}/detach.",
                    session_id=session.id,
                    port=program.port,
                )

    async def _find(self, params: Attach, asking: Session) -> int:
        deadline = time.monotonic() + params.wait_seconds
        sought = _sought(params, self._patterns)
        while True:
            own = self._around().own | self._patterns.pids  # workers may be started while we wait
            began = time.monotonic()
            async with self._looking:
                pids = await asyncio.to_thread(lambda: self._scan.run().pids)
            found = await sought.among([pid for pid in pids if pid not in own])
            if len(found) == 1:
                return found[0]
            if found:
                raise await asyncio.to_thread(_several, found, sought.words)
            now = time.monotonic()
            if now >= deadline:
                break
            asking.use.touch()
            # A pass over many processes costs processor time, so we rest in proportion.
            await asyncio.sleep(max(_LOOK_AGAIN_SECONDS, _REST_FACTOR * (now - began)))
            asking.require_there()
        raise RelayError(
            Code.ATTACH_NO_SUCH_PROCESS,
            f"No Python process {sought.words}",
            f"GET {API_PREFIX}/processes lists them; wait_seconds waits for one to start.",
        )


class _ByPort:
    """Finds processes that listen on a port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.words = f"listens on {port}"

    async def among(self, pids: list[int]) -> list[int]:
        def look() -> list[int]:
            listeners = Listeners()  # a new one, because it remembers the kernel's tables
            return [pid for pid in pids if self._port in listeners.of(pid)]

        return await asyncio.to_thread(look)


class _ByCommandLine:
    """Finds processes whose command line matches a regular expression."""

    def __init__(self, pattern: str, patterns: Patterns) -> None:
        self._pattern = pattern
        self._patterns = patterns
        self._searched: dict[int, str] | None = None
        self._found: list[int] = []
        self.words = f"has a command line that matches {pattern!r}"

    async def among(self, pids: list[int]) -> list[int]:
        commands = await asyncio.to_thread(lambda: {pid: _command_line(pid) for pid in pids})
        # While we wait for a process to start, most passes find the same processes.
        if commands != self._searched:
            self._found = await self._patterns.those("match", self._pattern, commands)
            self._searched = commands
        return self._found


def _sought(params: Attach, patterns: Patterns) -> _ByPort | _ByCommandLine:
    if params.listening_on is not None:
        return _ByPort(params.listening_on)
    assert params.match is not None
    return _ByCommandLine(params.match, patterns)


def _command_line(pid: int) -> str:
    return " ".join(command(pid))


def _several(found: list[int], words: str) -> RelayError:
    looked = (look(pid) for pid in found[:_SHOWN_CANDIDATES])
    return RelayError(
        Code.INVALID_REQUEST,
        f"{len(found)} Python processes: each {words}",
        f'Choose one of details.candidates and send {{"pid": {found[0]}}}.',
        candidates=[
            {"pid": facts.pid, "identity": facts.identity, "command": masked_command(facts.command)}
            for facts in looked
            if facts is not None
        ],
    )


def _page(scan: PythonScan, params: ListProcesses, around: Surroundings) -> ProcessList:
    found = scan.run()
    wanted = found.pids
    if params.match is not None:
        wanted = [pid for pid in wanted if params.match in _command_line(pid)]
    listeners = Listeners()
    page = wanted[params.offset : params.offset + params.limit]
    looked = (look(pid) for pid in page)
    return ProcessList(
        # A process without a command line is about to end.
        items=[_shown(facts, around, listeners) for facts in looked if facts and facts.command],
        total=len(wanted),
        offset=params.offset,
        limit=params.limit,
        has_more=params.offset + len(page) < len(wanted),
        not_looked_into=found.not_looked_into,
    )


def _one(pid: int, around: Surroundings) -> Process:
    facts = look(pid)
    if facts is None:
        raise attach_preflight.no_such_process(pid)
    return _shown(facts, around, Listeners())


def _shown(facts: Facts, around: Surroundings, listeners: Listeners) -> Process:
    refusal = attach_preflight.refusal(facts, around) or attach_preflight.foreseen(facts)
    return Process(
        pid=facts.pid,
        identity=facts.identity,
        command=masked_command(facts.command),
        cwd=facts.cwd(),
        user=name_of(facts.uid) or str(facts.uid),
        uid=facts.uid,
        start_time=facts.start_time(),
        executable=facts.executable,
        python_version=facts.version(),
        venv=facts.venv(),
        listening_ports=listeners.of(facts.pid),
        debugged_by=around.sessions.get(facts.pid),
        greenlets=facts.greenlets(),
        attachable=refusal is None,
        code=None if refusal is None else refusal.code,
        reason=None if refusal is None else refusal.message,
        suggestion=None if refusal is None else refusal.details["suggestion"],
    )


def _unreadable(facts: Facts, output: str) -> RelayError:
    denied = "ermission" in output
    return RelayError(
        Code.ATTACH_NOT_PERMITTED if denied else Code.ATTACH_FAILED,
        f"py-spy could not read the stacks of process {facts.pid}",
        f"GET {API_PREFIX}/processes/{facts.pid} shows whether it is Python and may be traced.",
        pid=facts.pid,
        command=masked_command(facts.command),
        debugger_output=output,
    )


def _debugged(sessions: Mapping[str, Session]) -> dict[int, str]:
    """The session that debugs each process, by pid. The program of a session whose worker does not
    answer may have detached by itself (it does after ten seconds), so we leave it out; the program
    itself then says whether it is still attached.
    """
    found: dict[int, str] = {}
    for id, session in sessions.items():
        if session.unresponsive:
            continue
        shown = session.state
        if shown.status in LIVE and shown.program is not None and shown.program.pid is not None:
            found.update(dict.fromkeys([shown.program.pid, *shown.child_pids], id))
    return found
