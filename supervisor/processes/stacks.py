"""Turns the output of py-spy into the shape of the API."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from debug_relay.protocol.models.relay import StackFrame, StackLocal, Stacks, StackThread


class SpyLocal(Struct):
    name: str
    repr: str | None = None


class SpyFrame(Struct):
    name: str
    filename: str
    line: int
    locals: list[SpyLocal] | None = None


class SpyThread(Struct):
    """One thread as py-spy writes it with `dump --json`."""

    thread_id: int
    frames: list[SpyFrame]
    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool = False
    owns_gil: bool = False


def stacks_of(pid: int, said: bytes) -> Stacks:
    """Raises `msgspec.DecodeError` for what is no output of py-spy."""
    threads = msgspec.json.decode(said, type=list[SpyThread])
    return Stacks(pid=pid, threads=[_thread(thread) for thread in threads])


def _thread(thread: SpyThread) -> StackThread:
    return StackThread(
        thread_id=thread.thread_id,
        thread_name=thread.thread_name,
        os_thread_id=thread.os_thread_id,
        active=thread.active,
        owns_gil=thread.owns_gil,
        frames=[
            StackFrame(
                name=frame.name,
                filename=frame.filename,
                line=frame.line,
                locals=[
                    StackLocal(name=local.name, value=local.repr) for local in frame.locals or ()
                ],
            )
            for frame in thread.frames
        ],
    )
