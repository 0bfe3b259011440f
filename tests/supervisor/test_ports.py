"""Who listens on a port: told for the relay's own user, for others, and for no one."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from debug_relay.supervisor.processes.listening_ports import port_holder

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="starts a process of another user")


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize(
    ("family", "bound", "asked"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "127.0.0.1", "0.0.0.0"),
        (socket.AF_INET, "127.0.0.1", "localhost"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
    ],
)
def test_port_holder(family: int, bound: str, asked: str):
    with socket.socket(family) as listener:
        try:
            listener.bind((bound, 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        port = listener.getsockname()[1]
        assert port_holder(asked, port) is None  # bound, not listening
        listener.listen()
        told = port_holder(asked, port)
    assert told is not None
    assert f"pid {os.getpid()} (" in told
    assert f"(uid {os.getuid()})" in told
    assert port_holder(asked, port) is None


def test_port_holder_at_another_address_is_not_in_the_way():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert port_holder("127.0.0.2", listener.getsockname()[1]) is None


def test_port_holder_of_a_prefork_server_is_one_of_its_processes():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        code = "import sys; print('up', flush=True); sys.stdin.read()"
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            pass_fds=[listener.fileno()], text=True,
        )  # fmt: skip
        with child:
            port = listener.getsockname()[1]
            assert said(child) == "up"
            listener.close()
            told = port_holder("127.0.0.1", port)
            child.kill()
    assert told is not None
    assert f"pid {child.pid} (" in told


@as_root
def test_port_holder_of_another_user(tmp_path: Path):
    code = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 0));"
        "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    with holding_as(NOBODY, code) as child:
        told = port_holder("127.0.0.1", int(said(child)))
    assert told is not None
    assert f"(uid {NOBODY})" in told


@contextlib.contextmanager
def holding_as(uid: int, code: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        ["/usr/bin/env", "python3", "-c", code], user=uid, cwd="/",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with child:
        try:
            yield child
        finally:
            child.kill()
