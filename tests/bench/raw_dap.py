"""debugpy as shipped, driven without a relay: what the relay is measured against.

A blocking client of `python -m debugpy.adapter` over its standard streams, which starts the program
by its own launcher. The caller's thread reads, so a measured time is debugpy's and not ours.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

_SECONDS: Final = 60.0
_END_SECONDS: Final = 10.0
_CLIENT: Final = {
    "clientID": "bench",
    "adapterID": "python",
    "linesStartAt1": True,
    "columnsStartAt1": True,
    "pathFormat": "path",
    "supportsVariableType": True,
}

Message = dict[str, Any]


class Adapter:
    """One adapter process and the program it launches."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "debugpy.adapter"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self._buffer = b""
        self._seq = 0
        self._answers: dict[int, Message] = {}
        self._events: list[Message] = []
        self.request("initialize", **_CLIENT)

    # -- the wire

    def _read(self) -> None:
        ready, _, _ = select.select([self._from], [], [], _SECONDS)
        data = os.read(self._from.fileno(), 1 << 18) if ready else b""
        if not data:
            raise RuntimeError("debugpy ended" if ready else f"debugpy is silent for {_SECONDS} s")
        self._buffer += data
        while (message := self._whole()) is not None:
            self._file(message)

    def _whole(self) -> Message | None:
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        if len(rest) < length:
            return None
        self._buffer = rest[length:]
        message: Message = json.loads(rest[:length])
        return message

    def _file(self, message: Message) -> None:
        if message["type"] == "response":
            self._answers[message["request_seq"]] = message
        elif message["type"] == "event":
            self._events.append(message)

    # -- asking

    def post(self, command: str, **arguments: Any) -> int:
        self._seq += 1
        body = json.dumps(
            {"seq": self._seq, "type": "request", "command": command, "arguments": arguments}
        ).encode()
        self._to.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        return self._seq

    def answer(self, seq: int) -> Message:
        while seq not in self._answers:
            self._read()
        message = self._answers.pop(seq)
        if not message["success"]:
            raise RuntimeError(f"{message['command']}: {message.get('message')}")
        body: Message = message.get("body") or {}
        return body

    def request(self, command: str, **arguments: Any) -> Message:
        return self.answer(self.post(command, **arguments))

    def next_of(self, *names: str) -> tuple[str, Message]:
        """The next event of these; what came before it is of no use any more."""
        while True:
            while self._events:
                event = self._events.pop(0)
                if event["event"] in names:
                    return event["event"], event.get("body") or {}
            self._read()

    def event(self, name: str) -> Message:
        return self.next_of(name)[1]

    # -- debugging

    def launch(
        self,
        program: Path,
        line: int | None,
        condition: str | None = None,
        python: str = sys.executable,
        filters: tuple[str, ...] = (),
    ) -> None:
        """Until the program runs, with a breakpoint if there is a line."""
        launched = self.post(
            "launch",
            program=str(program),
            python=[python],
            cwd=str(program.parent),
            console="internalConsole",
        )
        self.event("initialized")
        if line is not None:
            self.set_breakpoint(program, line, condition=condition)
        if filters:
            self.request("setExceptionBreakpoints", filters=list(filters))
        self.request("configurationDone")
        self.answer(launched)

    def set_breakpoint(self, program: Path, *lines: int, condition: str | None = None) -> None:
        points = [{"line": line, "condition": condition} for line in lines]
        self.request("setBreakpoints", source={"path": str(program)}, breakpoints=points)

    def stopped(self) -> int:
        return int(self.event("stopped")["threadId"])

    def close(self) -> None:
        """End the program, then the adapter, which leaves when its input ends."""
        try:
            self.request("disconnect", terminateDebuggee=True)
        except (RuntimeError, OSError):
            pass  # it has ended with its program
        finally:
            self._to.close()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._from.close()
