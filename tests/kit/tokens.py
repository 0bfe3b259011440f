"""`debug-relay token …` as one types it."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

from debug_relay.supervisor.cli.main import exit_code
from tests.kit.client import Client
from tests.kit.relay import Relay

_ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("OPENCODE_DEBUG_")}


def token_command(*words: str, code: int = 0) -> str:
    """What it prints; what it says beside that, when it is to fail. It runs in this process: one of
    its own would take 0.1 s to start."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        told = exit_code(["token", *words])
    assert told == code, err.getvalue()
    if code:
        assert out.getvalue() == ""
    return (err if code else out).getvalue()


def token_process(*words: str) -> str:
    """The same as a process, several of which may run at once."""
    done = subprocess.run(
        [sys.executable, "-m", "debug_relay.supervisor", "token", *words],
        capture_output=True,
        text=True,
        timeout=30,
        env=_ENVIRONMENT,
    )
    assert done.returncode == 0, done
    return done.stdout


def new_token(relay: Relay, *words: str) -> str:
    return token_command("create", *words, "--data-dir", str(relay.data_dir)).strip()


def with_token(relay: Relay, *words: str) -> Client:
    """A client with a new token."""
    return relay.client.called(Authorization=f"Bearer {new_token(relay, *words)}")


def printed_by(suggestion: str) -> str:
    """The token that the command in a suggestion prints."""
    found = re.search(r"debug-relay token (create .*)$", suggestion)
    assert found is not None, suggestion
    return token_command(*shlex.split(found[1])).strip()
