"""`python -P -m debug_relay.worker FD ID`: one session, told on descriptor FD what it is.

Reads one JSON document from the descriptor, answers `ready` or a reason on it, and closes it.
With `zygote` for the id it is none yet: FD asks for copies of it, which become workers.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, Final

import msgspec

from debug_relay.protocol.models.worker_messages import WorkerParams
from debug_relay.protocol.system.files import open_regular
from debug_relay.protocol.wire.envelope import timestamp_of
from debug_relay.worker import process_title, server, zygote
from debug_relay.worker.system import descendants

# Made once, for all copies of the zygote.
_decode: Final = msgspec.json.Decoder(WorkerParams).decode


class _Lines(logging.Formatter):
    """JSON lines, as the supervisor writes them."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "ts": timestamp_of(record.created),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "pid": os.getpid(),
        }
        entry.update(getattr(record, "fields", {}))
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def _log_to(path: Path) -> None:
    handler = logging.FileHandler(path, delay=True)
    handler.setFormatter(_Lines())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.raiseExceptions = False  # a full disk must not end a session


def _ignore_neighbours() -> None:
    """Ctrl-C and hang-ups are meant for others; the session ends when it is told to."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        # Not SIG_IGN: programs would inherit it, and no SIGTERM could end them.
        signal.signal(number, _pass_by)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # subprocess restores this one for its children


def _pass_by(number: int, frame: object) -> None:
    """A handler of ours: the kernel forgets it when a program is executed."""


def _speak_into(path: Path) -> None:
    """What a crash of the interpreter says, too; an executed worker has it so from its birth."""
    with open(path, "ab", buffering=0, opener=open_regular) as err:
        os.dup2(err.fileno(), 1)
        os.dup2(err.fileno(), 2)


def main() -> int:
    pipe = socket.socket(fileno=int(sys.argv[1]))
    pipe.set_inheritable(False)
    if process_title.given() != "zygote":
        return _live(pipe)
    process_title.give("zygote")
    born = zygote.forked(pipe)
    return 0 if born is None else _live(born)


def _live(pipe: socket.socket) -> int:
    try:
        with pipe.makefile("rb") as file:
            said = file.read()
        if not said:
            return 0  # nobody wants this worker any more
        params = _decode(said)
        process_title.give(params.session_id)
        _speak_into(Path(params.session_dir) / "worker.err")
        _log_to(Path(params.session_dir) / "worker.log")
        _ignore_neighbours()
        descendants.become_subreaper()
        gc.freeze()

        def ready() -> None:
            pipe.sendall(b"ready")
            pipe.close()

        asyncio.run(server.main(params, ready))
    except BaseException:
        logging.getLogger("debug_relay.worker").exception("worker.failed")
        if pipe.fileno() >= 0:
            pipe.sendall(traceback.format_exc().encode())
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    # All is on disk. To take the interpreter apart would copy what is shared with the zygote.
    os._exit(code)
