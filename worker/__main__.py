"""`python -P -m debug_relay.worker FD ID`: one session; descriptor FD gives its parameters.

The worker reads one JSON document from the descriptor, answers `ready` or a reason on it, and
closes it. With `zygote` as the id the process is a zygote: each request on FD makes it fork a copy,
which becomes a worker.
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
from contextlib import suppress
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


class _WorkerLog(logging.FileHandler):
    """A file that is opened at the first line. A line is lost if it cannot be opened then, because
    the disk is full or the directory was removed: no session ends for that.
    """

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            super().emit(record)


def _log_to(path: Path) -> None:
    handler = _WorkerLog(path, delay=True)
    handler.setFormatter(_Lines())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.raiseExceptions = False  # a full disk must not end a session


def _ignore_neighbours() -> None:
    """Ignore Ctrl-C and hang-ups, which are meant for other processes of the terminal. A session
    ends when the supervisor requests it.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        # A handler and not SIG_IGN: programs would inherit that, and no SIGTERM could end them.
        signal.signal(number, _pass_by)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # subprocess restores this one for its children


def _pass_by(number: int, frame: object) -> None:
    """Do nothing. The kernel resets a handler when a program is executed."""


def _redirect_output(path: Path) -> None:
    """Write stdout and stderr, the messages of a crash included, to the session's file. A worker
    that was executed and not forked has them there from its start.
    """
    with open(path, "ab", buffering=0, opener=open_regular) as err:
        os.dup2(err.fileno(), 1)
        os.dup2(err.fileno(), 2)


def main() -> int:
    pipe = socket.socket(fileno=int(sys.argv[1]))
    pipe.set_inheritable(False)
    if process_title.given() != "zygote":
        return _run(pipe)
    process_title.give("zygote")
    forked = zygote.forked(pipe)
    return 0 if forked is None else _run(forked)


def _run(pipe: socket.socket) -> int:
    """Run as the worker whose parameters come through the pipe; returns the exit code."""
    try:
        with pipe.makefile("rb") as file:
            document = file.read()
        if not document:
            return 0  # the supervisor has given up this worker
        params = _decode(document)
        process_title.give(params.session_id)
        _redirect_output(Path(params.session_dir) / "worker.err")
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
    # All is on disk. A regular exit would write to, and so copy, memory shared with the zygote.
    os._exit(code)
