"""Somebody on this machine who connects to workers, and speaks as a debug server would."""

from __future__ import annotations

import json
import subprocess
import sys
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

held, said = [], 0
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
            said += 1
        except OSError:
            pass  # refused before all of it was sent
        del held[:-40]  # the earlier ones are closed
print(json.dumps(said), flush=True)
"""


class Intruder:
    """Forges events and answers at every port of a worker, as fast as it can, until the end."""

    def __init__(self, worker: int, uid: int) -> None:
        self.said = 0  # how often it had its say
        self._process = subprocess.Popen(
            [sys.executable, "-ISc", _PROGRAM, str(worker), str(uid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
        )

    def __enter__(self) -> Intruder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            told, _ = self._process.communicate(timeout=20)
        finally:
            self._process.kill()
            self._process.wait()
        self.said = json.loads(told)
