"""The dispatch without any front: plain requests in, finished answers out, real workers behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from debug_relay.protocol.models.execution import Step, Trace
from debug_relay.protocol.models.inspection import Evaluate, Hover, Stacktrace
from debug_relay.protocol.models.program import Attach, Launch
from debug_relay.protocol.operations import OPERATIONS
from debug_relay.supervisor.access.audit import Audit
from debug_relay.supervisor.access.guard import Guard
from debug_relay.supervisor.access.refusal_log import RefusalLog
from debug_relay.supervisor.access.tokens import Tokens, TokensFile, tokens_file
from debug_relay.supervisor.app import _debugpy
from debug_relay.supervisor.config.layers import load
from debug_relay.supervisor.config.runtime import RuntimeConfig
from debug_relay.supervisor.config.settings import Dap
from debug_relay.supervisor.operations.admission import Admission
from debug_relay.supervisor.operations.answers import Finished
from debug_relay.supervisor.operations.call_records import CallRecords
from debug_relay.supervisor.operations.dispatch import Dispatch
from debug_relay.supervisor.operations.handlers import Handlers
from debug_relay.supervisor.operations.idempotency import Idempotency
from debug_relay.supervisor.operations.idempotency_store import KeptReplies
from debug_relay.supervisor.operations.metrics import Metrics
from debug_relay.supervisor.operations.output_handlers import OutputHandlers
from debug_relay.supervisor.operations.relay_handlers import RelayFacts, RelayHandlers
from debug_relay.supervisor.operations.request import Request
from debug_relay.supervisor.operations.session_handlers import SessionHandlers
from debug_relay.supervisor.operations.worker_calls import WorkerCalls
from debug_relay.supervisor.processes.listing import Processes
from debug_relay.supervisor.sessions import call_deadlines
from debug_relay.supervisor.sessions.registry import Registry
from debug_relay.supervisor.storage.directories import Directories
from debug_relay.supervisor.storage.disk_health import DiskWatch
from tests.kit.relay import eventually, marked

SECONDS = 60.0


class Caller:
    """A front of its own: no more than a uid, a token and a dispatch."""

    def __init__(self, dispatch: Dispatch, tokens: TokensFile, *scopes: str) -> None:
        self._dispatch = dispatch
        self._authorization = (f"Bearer {tokens.create([*scopes], None, None)}",)

    async def send(
        self,
        operation: str,
        body: dict[str, Any] | bytes = b"",
        *,
        session_id: str | None = None,
        query: Sequence[tuple[str, str]] = (),
        **more: Any,
    ) -> Finished:
        return await self._dispatch.perform(
            Request(
                id="one-of-a-test",
                uid=os.getuid(),
                authorization=self._authorization,
                operation=OPERATIONS[operation],
                path={} if session_id is None else {"session_id": session_id},
                query=query,
                body=body,
                **more,
            )
        )

    async def ok(self, operation: str, body: dict[str, Any] | bytes = b"", **more: Any) -> Any:
        finished = await self.send(operation, body, **more)
        answer = msgspec.json.decode(finished.body)
        assert answer["success"], answer
        assert answer["meta"]["request_id"] == "one-of-a-test"
        assert finished.status == OPERATIONS[operation].status
        return answer["data"]

    async def refused(
        self, operation: str, body: dict[str, Any] | bytes = b"", **more: Any
    ) -> tuple[int, str]:
        finished = await self.send(operation, body, **more)
        return finished.status, msgspec.json.decode(finished.body)["error"]["code"]


@asynccontextmanager
async def dispatch(data_dir: Path) -> AsyncIterator[tuple[Dispatch, TokensFile]]:
    loaded = load({"server.data_dir": str(data_dir)}, {"HOME": str(data_dir)}, None)
    directories = Directories.open(data_dir)
    debugpy_dir, debugpy_version = _debugpy()
    registry = Registry(loaded.settings, directories, debugpy_dir)
    tokens = tokens_file(loaded.settings)
    processes = Processes(lambda: registry.sessions, registry.zygote, debugpy_dir)
    worker_calls = WorkerCalls(registry, processes)
    audit = Audit.open(None, directories.audit_file)
    facts = RelayFacts(
        "", time.monotonic(), debugpy_version, lambda _: False, DiskWatch(directories, (), list)
    )
    config = RuntimeConfig(loaded, directories, lambda settings: None)
    refused = RefusalLog(audit)
    metrics = Metrics(refused.totals)
    guard = Guard(own_uid=os.getuid(), tokens=Tokens(tokens))
    made = Dispatch(
        registry,
        Admission(guard, registry),
        Handlers(
            RelayHandlers(registry, facts, config, metrics, guard.tickets),
            SessionHandlers(registry, processes, worker_calls),
            OutputHandlers(registry),
        ),
        worker_calls,
        Idempotency(KeptReplies(directories.kept_replies), registry.background),
        CallRecords(audit, refused, metrics),
        str(directories.log_file),
    )
    try:
        yield made, tokens
    finally:
        await registry.close(keep_sessions=False)
        await made.close()
        audit.close()
        shutil.rmtree(directories.run_dir, ignore_errors=True)  # it may lie elsewhere, below /tmp


PROGRAM = """
x = 1
x += 1
while True:
    x += 1
"""
OWN_PROCESS = {"mode": "attach", "pid": os.getpid()}


async def test_a_session_is_driven_without_http(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    async with dispatch(tmp_path / "data") as (made, tokens), asyncio.timeout(SECONDS):
        caller = Caller(made, tokens, "sessions:read", "sessions:write")
        id = (await caller.ok("create-session", {"name": "mine"}))["session_id"]
        launch = {"script": str(script), "stop_on_entry": True, "wait": 20}
        await caller.ok("launch", launch, session_id=id)
        stepped = await caller.ok("step-over", b'{"wait": 10}', session_id=id)
        assert stepped["status"] == "paused"
        evaluated = await caller.ok("evaluate", {"expression": "x + 1"}, session_id=id)
        assert evaluated["result"] == "2"
        read = await caller.ok("stacktrace", session_id=id, query=[("levels", "1")])
        assert len(read["frames"]) == 1

        # A stop that is over, a state that does not fit, a session and an operation that are not.
        late = await caller.refused("step-over", {"wait": 1}, session_id=id, if_stop=1)
        assert late == (409, "STOP_CHANGED")
        seen = await caller.refused("step-over", session_id=id, if_stop="soon")
        assert seen == (400, "INVALID_PARAMETER")
        assert await caller.refused("launch", launch, session_id=id) == (
            409,
            "INVALID_SESSION_STATE",
        )
        assert await caller.refused("get-session", session_id="sess_0") == (
            404,
            "SESSION_NOT_FOUND",
        )
        sound_and_not = {
            "breakpoints": [
                {"file": str(script), "line": 3, "hits": 1},
                {"file": str(script), "line": 99},
            ]
        }
        batch = await caller.send("set-breakpoints", sound_and_not, session_id=id)
        assert b"breakpoints[0].hits" in batch.body
        assert b"breakpoints[1]" in batch.body

        # What is larger than a turn of the loop takes is read by a thread.
        long = b'{"expression": "x' + b" " * 70_000 + b'"}'
        assert (await caller.refused("evaluate", long, session_id=id))[0] == 400
        told = await caller.send("session-status", session_id=id, format="text")
        assert told.content_type.startswith("text/plain")
        assert id in told.body.decode()
        indented = await caller.send("session-status", session_id=id, pretty=True)
        assert b'\n  "data": {\n' in indented.body

        await caller.ok("delete-session", session_id=id, query=[("terminate_debuggee", "true")])
        assert (await caller.ok("list-sessions"))["total"] == 0
    eventually(lambda: marked(id) == [], what="the program gone")


async def test_keys_and_scopes_hold_without_http(tmp_path: Path) -> None:
    async with dispatch(tmp_path / "data") as (made, tokens), asyncio.timeout(SECONDS):
        writer = Caller(made, tokens, "sessions:write")
        reader = Caller(made, tokens, "sessions:read")
        once = {"idempotency_key": "once"}
        first, again = await asyncio.gather(
            writer.ok("create-session", {"name": "one"}, **once),
            writer.ok("create-session", {"name": "one"}, **once),
        )
        assert first == again
        other = await writer.refused("create-session", {"name": "other"}, **once)
        assert other == (409, "IDEMPOTENCY_CONFLICT")

        # A body is not read for somebody who may not send it.
        async def unread() -> bytes:
            raise AssertionError("it was read")

        refused = await reader.refused("create-session", unread)
        assert refused == (403, "INSUFFICIENT_SCOPE")
        # What a call does next needs its own scope as well.
        refused = await writer.refused("create-session", OWN_PROCESS)
        assert refused == (403, "INSUFFICIENT_SCOPE")
        assert (await reader.ok("list-sessions"))["total"] == 1

        # A caller that leaves does not undo what it has begun.
        leaving = asyncio.create_task(writer.send("create-session", {"name": "left"}))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        while (await reader.ok("list-sessions"))["total"] < 2:
            await asyncio.sleep(0.01)

        unknown = Request(id="1", uid=os.getuid(), operation=None)
        finished = await made.perform(unknown)
        assert (finished.status, finished.headers) == (401, {"WWW-Authenticate": "Bearer"})


def test_deadlines_are_what_the_rows_say() -> None:
    dap = Dap(request_timeout=30, launch_timeout=60, evaluate_timeout=10)

    def seconds(name: str, params: Any) -> float:
        lasts = call_deadlines.for_call(OPERATIONS[name], params, dap)
        return call_deadlines.for_worker(OPERATIONS[name], lasts, dap)

    assert seconds("stacktrace", Stacktrace(session_id="s")) == 35
    assert seconds("step-over", Step(session_id="s", wait=7)) == 42
    assert seconds("launch", Launch(session_id="s", wait=7)) == 72
    assert seconds("attach", Attach(session_id="s", wait=7, connect_timeout=20)) == 92
    assert seconds("evaluate", Evaluate(session_id="s", expression="1")) == 45
    assert seconds("evaluate", Evaluate(session_id="s", expression="1", timeout=2)) == 37
    assert seconds("hover", Hover(session_id="s", expression="x", timeout=60)) == 95
    assert seconds("trace", Trace(session_id="s", timeout=3)) == 38
