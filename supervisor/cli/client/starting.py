"""`--start`: starts a relay in the background when none answers."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable

from debug_relay.supervisor.cli.client import terminal
from debug_relay.supervisor.cli.client.address import NoRelay, data_directory, is_named
from debug_relay.supervisor.cli.client.calls import Relay

_START_SECONDS = 30.0  # How long a relay may take until it listens.
_MOST_BYTES = 65536  # Of what a relay prints that does not start.


def started(find: Callable[[], Relay], given: argparse.Namespace) -> Relay:
    """The relay that answers; if none does, one that is started now."""
    try:
        relay = find()
        relay.call("health")
    except NoRelay:
        if is_named(given.url, given.data_dir):
            raise
    else:
        return relay
    with terminal.progress("starting a relay"):
        _start(data_directory(given.data_dir))
    return find()


def _start(data_dir: str) -> None:
    """Runs `debug-relay serve` until it listens; raises NoRelay with what it says if it ends.

    The relay is in a session of its own: Ctrl-C in this terminal does not reach it. It goes on
    logging to its file when this end of its stderr is closed.
    """
    flags = ["serve", "--data-dir", data_dir]
    if not any(
        name in os.environ for name in ("OPENCODE_DEBUG_PORT", "OPENCODE_DEBUG_SERVER__PORT")
    ):
        # Another user's relay, or one with other data, may have the usual port.
        flags += ["--port", "0"] if _usual_port_is_taken() else []
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "debug_relay.supervisor", *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    late = threading.Timer(_START_SECONDS, process.terminate)
    late.start()
    try:
        line = process.stdout.readline(_MOST_BYTES)
        if not line:
            said = process.stderr.read(_MOST_BYTES).decode(errors="replace").strip()
            raise NoRelay(f"the relay did not start: {said or 'it took too long'}")
    finally:
        late.cancel()
        process.stdout.close()
        with contextlib.suppress(OSError):  # nothing more is read from it
            process.stderr.close()
    sys.stderr.write(f"debug-relay: started {line.decode().removeprefix('debug-relay ')}")
    process.returncode = 0  # it is not waited for: it outlives this command


def _usual_port_is_taken() -> bool:
    import socket

    try:
        with socket.create_server(("127.0.0.1", 5679)):
            return False
    except OSError:
        return True
