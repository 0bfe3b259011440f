"""The zygote: one process imports everything once, and each worker is a forked copy of it.

The zygote has one thread and no event loop, so it may fork. It answers one request after the other:
a message on its socket carries the worker's end of a pipe to the supervisor.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - asyncio imports it at its first thread
import gc
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec

from debug_relay.protocol.models.blueprint import fields_of
from debug_relay.protocol.models.program import Attach, Launch
from debug_relay.protocol.wire import breakpoint_requests, dap, probe_events, probe_messages

_PID: Final = struct.Struct("i")
_DECODED_IN: Final = (
    *(module.__name__ for module in (dap, probe_messages, breakpoint_requests, probe_events)),
    "debug_relay.worker.",
)


def forked(control: socket.socket) -> socket.socket | None:
    """Fork workers. Returns in every worker, with its pipe, and in the zygote with None when the
    supervisor has ended.
    """
    _know_types()
    # A garbage collection in a worker would write to shared memory, and so copy all of it.
    gc.collect()
    gc.freeze()
    with control:
        while True:
            # Every message but the empty one at the end has a descriptor.
            _, descriptors, _, _ = socket.recv_fds(control, 16, 1)
            if not descriptors:
                return None
            pipe = socket.socket(fileno=descriptors[0])
            if _is_worker(pipe):
                return pipe
            pipe.close()


def _know_types() -> None:
    """Prepare decoders: msgspec evaluates the annotations of a Struct at its first decoding, about
    0.1 ms each. In a worker this is done for all that a program's debug server sends.
    """
    for kind in _structs(msgspec.Struct):
        if kind.__module__.startswith(_DECODED_IN):
            msgspec.json.Decoder(kind)
    for kind in (Launch, Attach):
        fields_of(kind)


def _structs(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _structs(subclass)


def _is_worker(pipe: socket.socket) -> bool:
    """Fork twice; true in the worker. The process between them ends at once, so that the worker
    becomes the supervisor's child.

    So it is like an executed worker: the supervisor collects it, and the zygote's end does not
    affect it.
    """
    read, write = os.pipe()
    try:
        middle = os.fork()
    except OSError:
        os.close(read)
        os.close(write)
        return False  # the pipe closes without an answer
    if middle == 0:
        os.close(read)
        return _fork_worker(write)
    os.close(write)
    with open(read, "rb") as report:
        pid = report.read(_PID.size)
    # Wait before the pid is sent: only then is the worker the supervisor's child.
    os.waitpid(middle, 0)
    with suppress(OSError):  # the supervisor has given up
        pipe.sendall(pid)
    return False


def _fork_worker(report: int) -> bool:
    """Fork the worker from the process in the middle, which writes its pid into `report` and ends;
    true in the worker.
    """
    try:
        worker = os.fork()
    except OSError:
        os._exit(1)
    if worker:
        os.write(report, _PID.pack(worker))
        os._exit(0)
    os.close(report)
    os.setsid()
    return True
