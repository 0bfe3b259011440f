"""What is brought into a running program, where it arrives twice."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import debugpy
import pytest

from debug_relay.protocol.wire.dap import decode_message, encode_request
from debug_relay.worker import bundle
from debug_relay.worker.attach import injection
from debug_relay.worker.attach.payload import STATUS_FILE
from debug_relay.worker.debugger.adapter import Adapter
from debug_relay.worker.debugger.connection import DebugServer
from tests.kit.relay import eventually
from tests.kit.statements import python_path

# The main thread reads what it is to run, twice as the kernel's word may have it: noted, and then
# brought anew because the thread seemed to rest. The files by which it answers are ours here.
PROGRAM = """
import json, os, sys, threading, time
text, texts, setup, words = json.load(sys.stdin)
setup["pid"] = os.getpid()
code = compile(text, "<text>", "exec")
for word in words:
    exec(code, {"setup": dict(setup), "texts": texts, "status": word})
seen = set()
while True:
    there = {one for one in threading.enumerate() if one.name == "debug relay arrives"}
    seen |= there
    if len(seen) == 2 and not there:
        break
    time.sleep(0.002)
print("over", flush=True)
threading.Event().wait()
"""


@asynccontextmanager
async def program(
    setup: dict[str, Any], words: list[int], python: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        python, "-c", PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=words
    )
    try:
        assert process.stdin is not None
        process.stdin.write(
            json.dumps([injection.INJECTED, injection.TEXTS, setup, words]).encode()
        )
        process.stdin.close()
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def test_the_injected_code_knows_its_file_by_name():
    """It imports nothing of ours, so the name of the payload status file stands in both."""
    assert f'"/memfd:{STATUS_FILE}"' in injection.INJECTED


@pytest.mark.parametrize("version", ["3.8", "3.13"])
async def test_what_arrives_twice_comes_in_once(tmp_path: Path, version: str) -> None:
    came: list[DebugServer] = []
    lost = asyncio.Event()

    async def welcome(server: DebugServer) -> None:
        came.append(server)
        first.set()

    adapter, first = Adapter(lambda *_: None, lambda *_: lost.set(), list), asyncio.Event()
    adapter.listen()
    setup = {
        "port": adapter.port,
        "token": adapter.token,
        "access_token": adapter.access_token,
        "debugger_parent": os.path.dirname(os.path.dirname(debugpy.__file__)),
        "probe": bundle.probe(),
        "bytecode": None,
        "silence": 30,
        "session": "s",
    }
    words = [os.memfd_create(STATUS_FILE) for _ in range(2)]
    letting_in = asyncio.create_task(adapter.welcome_all(welcome))
    try:
        async with program(setup, words, python_path(version)) as process:
            async with asyncio.timeout(20):
                await first.wait()
                assert process.stdout is not None
                assert await process.stdout.readline() == b"over\n"
            # Neither is refused, and both have given their files back.
            assert [os.pread(word, 9, 0) for word in words] == [b"b", b"b"]
            kept = [Path(f"/proc/{process.pid}/fd/{word}") for word in words]
            await asyncio.to_thread(eventually, lambda: not any(map(os.path.lexists, kept)))
            assert len(came) == 1
    finally:
        letting_in.cancel()
        await asyncio.gather(letting_in, return_exceptions=True)
        adapter.close()
        for word in words:
            os.close(word)
        for server in came:
            server.close("the test is over")


OF_A_STRANGER: list[tuple[str, dict[str, Any]]] = [
    ("pydevdSystemInfo", {}),
    ("initialize", {"adapterID": "x"}),
    ("relay", {"do": "hits"}),
    ("evaluate", {"expression": "1 + 1", "context": "repl"}),
    ("pydevdAuthorize", {"debugServerAccessToken": None}),
    ("pydevdAuthorize", {"debugServerAccessToken": "b" * 64}),
    ("threads", {}),
]


async def test_the_program_obeys_nobody_without_the_relays_token(tmp_path: Path) -> None:
    """As somebody would be who has taken the port of a worker that has died."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        setup = {
            "port": listener.getsockname()[1],
            "token": "t" * 64,
            "access_token": "a" * 64,
            "debugger_parent": os.path.dirname(os.path.dirname(debugpy.__file__)),
            "probe": bundle.probe(),
            "bytecode": None,
            "silence": 30,
            "session": "s",
        }
        word = os.memfd_create(STATUS_FILE)
        try:
            async with program(setup, [word], sys.executable), asyncio.timeout(20):
                peer, _ = await asyncio.get_running_loop().sock_accept(listener)
                reader, writer = await asyncio.open_connection(sock=peer)
                assert await reader.readexactly(64) == b"t" * 64
                answers = {}
                for seq, (command, arguments) in enumerate(OF_A_STRANGER):
                    writer.write(encode_request(seq, command, arguments))
                    while True:
                        head = await reader.readuntil(b"\r\n\r\n")
                        body = await reader.readexactly(int(head.split(b":")[1]))
                        answer = decode_message(body)
                        if (answer.type, answer.request_seq) == ("response", seq):
                            break
                    answers[command] = (answer.success, answer.message)
                refused = (False, "Client not authenticated.")
                assert answers == dict.fromkeys(dict(OF_A_STRANGER), refused)
                writer.close()
        finally:
            os.close(word)
