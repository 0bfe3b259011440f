"""Somebody on this machine who connects to workers, and speaks as a debug server would."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from types import TracebackType

NOBODY = 65534

# As root it looks for the port, which others guess from /proc/net/tcp: it must disturb no other
# test's. It connects as the user whom it plays, and the kernel keeps that user for the socket.
_PROGRAM = """
import json, os, select, socket, sys, time

worker, uid = int(sys.argv[1]), int(sys.argv[2])
STOP = {"reason": "breakpoint", "threadId": 1, "allThreadsStopped": True,
        "relayPlace": ["forged", "/etc/hostname", 1, None]}

def message(**fields):
    body = json.dumps(dict(seq=1, **fields)).encode()
    return b"Content-Length: %d\\r\\n\\r\\n%s" % (len(body), body)

def event(name, **body):
    return message(type="event", event=name, body=body)

SAID = b"".join([
    event("output", category="console", output="FORGED\\n"),
    event("thread", reason="started", threadId=1),
    *(message(type="response", request_seq=n, success=True, command="pydevdAuthorize",
              body={"clientAccessToken": "0" * 64, "result": {"gone": False}}) for n in range(9)),
    event("stopped", **STOP),
    *(event("relayAnswer", id=n, value="FORGED", type="str") for n in range(1, 300)),
])

def ports():
    inodes = set()
    for name in os.listdir("/proc/%d/fd" % worker):
        try:
            inodes.add(os.readlink("/proc/%d/fd/%s" % (worker, name)))
        except OSError:
            continue
    with open("/proc/net/tcp") as table:
        rows = [row.split() for row in table.readlines()[1:]]
    return [int(row[1].split(":")[1], 16) for row in rows
            if row[3] == "0A" and "socket:[%s]" % row[9] in inodes]

held = []
while not select.select([sys.stdin], [], [], 0.01)[0]:
    try:
        found = ports()
    except OSError:
        break  # the worker has ended
    for port in found:
        os.seteuid(uid)
        sock = socket.socket()
        os.seteuid(os.getuid())
        held.append(sock)
        try:
            sock.settimeout(1)
            sock.connect(("127.0.0.1", port))
            sock.sendall(SAID)
            os.write(1, b".")  # it had its say
        except OSError:
            pass  # refused before all of it was sent
        del held[:-40]  # the earlier ones are closed
"""


class Intruder:
    """Forges events and answers at every port of a worker, as fast as it can, until the end."""

    def __init__(self, worker: int, uid: int) -> None:
        self._told = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this
        self._process = subprocess.Popen(
            [sys.executable, "-ISc", _PROGRAM, str(worker), str(uid)],
            stdin=subprocess.PIPE,
            stdout=self._told,
            cwd="/",
        )
        self._last = 0

    @property
    def said(self) -> int:
        """How often it has had its say."""
        return self._last if self._told.closed else os.fstat(self._told.fileno()).st_size

    def __enter__(self) -> Intruder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._process.communicate(timeout=20)
        finally:
            self._process.kill()
            self._process.wait()
            self._last = self.said
            self._told.close()
