"""As whom gdb runs in a program of another user's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from debug_relay.worker.attach.gdb import Gdb

OTHER = 54244
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(code: str) -> subprocess.Popen[bytes]:
        program = subprocess.Popen(
            ["/usr/bin/env", "python3", "-c", f"{code}\nprint(flush=True)\ninput()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
            env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
            user=OTHER, group=OTHER, extra_groups=[],
        )  # fmt: skip
        started.append(program)
        assert program.stdout is not None
        if program.stdout.readline() != b"\n":
            pytest.skip("another user has no python3 here")
        return program

    yield begin
    for program in started:
        program.communicate(b"\n", timeout=20)


@pytest.mark.parametrize(
    ("code", "uid"),
    [
        ("", OTHER),
        # Not even its own user may trace it then.
        ("import ctypes; ctypes.CDLL(None).prctl(4, 0)", 0),
    ],
    ids=["ordinary", "not dumpable"],
)
async def test_it_is_the_programs_user_where_that_user_may(start, code, uid):
    program = start(code)
    commands = ["shell echo relay uid: $(id -u)", "shell echo relay gid: $(id -g)"]
    gdb = Gdb(program.pid, [*commands, 'printf "relay x: %d\\n", (int) getpid()'])
    try:
        await gdb.ended.wait()
        assert gdb.code == 0, gdb.output()
        assert (gdb.printed_number("uid"), gdb.printed_number("gid")) == (uid, uid), gdb.output()
        assert gdb.printed_number("x") == program.pid, gdb.output()
        assert gdb.printed_number("y") is None
    finally:
        gdb.release()
