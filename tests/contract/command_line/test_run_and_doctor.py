"""`run` explains a crash, `doctor` finds what is wrong here, `openapi` needs no relay."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from tests.kit.client import Client
from tests.kit.command import Shell
from tests.kit.relay import Relay

CRASH = """\
def half(numbers):
    middle = len(numbers) // 2
    return numbers[middle + 5]

print("begin")
half([1, 2, 3])
"""


def test_run(shell: Shell, relay: Client):
    # As in this shell: its output, its variables, its exit code as 0 or 1.
    code = "import os, sys; print(os.environ['HERE']); print('bad', file=sys.stderr)"
    done = shell.run("run", "--", sys.executable, "-c", code, HERE="home")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["bad", "home"]
    assert done.stderr == "exit code 0\n"
    # Its output comes while it runs, all of it once.
    code = (
        "import os, time; print('first', flush=True)\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "print('é' + 'x' * 100_000)"
    )
    running = shell.start("run", "-c", code)
    assert running.stdout is not None
    assert running.stdout.readline() == "first\n"
    (item,) = relay.get("/sessions").ok()["items"]
    assert item["name"].startswith("run-")
    (shell.folder / "go").touch()
    assert running.communicate(timeout=30)[0] == "é" + "x" * 100_000 + "\n"
    assert running.returncode == 0
    (shell.folder / "crash.py").write_text(CRASH)
    done = shell.run("run", "crash.py")
    assert done.returncode == 1
    assert done.stdout.startswith("begin\nTraceback")
    at = f"{shell.folder}/crash.py"
    lines = done.stderr.splitlines()
    assert lines[:4] == [
        "",
        "IndexError: list index out of range",
        f"  {at}:3 in half",
        "  → return numbers[middle + 5]",
    ]
    assert sorted(lines[4:6]) == ["      middle = 1", "      numbers = [1, 2, 3]"]
    assert done.stderr.endswith("exit code 1\n")
    # A command of PATH with the Python of its first line: pytest.
    test = "def test_it():\n    found = 1\n    assert found == 2\n"
    (shell.folder / "test_it.py").write_text(test)
    (shell.folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:schemathesis\n")
    path = os.pathsep.join([f"{sys.prefix}/bin", shell.env["PATH"]])
    done = shell.run("run", "--", "pytest", "-x", "-q", "-p", "no:cacheprovider", PATH=path)
    assert (done.returncode, "1 failed" in done.stdout) == (1, True), done.stderr
    _, raised, place, line, value, *_ = done.stderr.splitlines()
    assert raised.startswith("AssertionError: assert 1 == 2")
    assert place == f"  {shell.folder}/test_it.py:3 in test_it"
    assert (line, value) == ("  → assert found == 2", "      found = 1")
    # The frames of libraries are one line, where they are.
    assert re.search(r"^  … \d+ frames of pytest, pluggy\n\nexit code 1$", done.stderr, re.M)
    # Whatever keeps it from its end.
    code = "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()\n"
    (shell.folder / "stuck.py").write_text(code)
    done = shell.run("run", "--timeout", "1", "stuck.py")
    assert done.returncode == 1
    assert "waits for lock" in done.stderr
    assert f"{shell.folder}/stuck.py:4 in <module>" in done.stderr
    # Values at a line, without a stop.
    done = shell.run("run", "--trace", "shop.py:4=price, amount", "--", "shop.py")
    assert done.returncode == 0
    assert done.stderr.splitlines()[2].split()[1:] == ["2", "price", "=", "-3", "amount", "=", "5"]
    # At a breakpoint, of which the first stop is shown; or why there was none.
    done = shell.run("run", "-b", "shop.py:+= price", "-b", "shop.py:6", "-b", "tootal", "shop.py")
    assert (done.returncode, done.stdout) == (0, "total: 6\n")
    assert "is no place" not in done.stderr
    place = f"{shell.folder}/shop.py"
    assert f"stop at bp_1, the first of 3\n  {place}:4 in total\n" in done.stderr
    assert "      price = 5\n" in done.stderr
    assert f"  {place}:7 in <module>\n  → print(" in done.stderr
    assert "bp_3: the program has ended, and never had a function tootal. Probably" in done.stderr
    # Kept at its exception.
    done = shell.run("run", "--keep", "crash.py")
    assert done.returncode == 1
    assert "debug-relay where sess_" in done.stderr
    assert "return numbers[middle + 5]" in shell.ok("where")
    shell.ok("rm")
    assert relay.get("/sessions").ok()["items"] == []


def test_doctor(own_relay: Callable[..., Relay], tmp_path: Path):
    shell = Shell(tmp_path)
    relay = own_relay()
    program = tmp_path / "wait.py"
    program.write_text("import time\ntime.sleep(600)\n")
    session = relay.client.session(name="old")
    session.launch(program, wait=0)
    found = json.loads(shell.ok("doctor", "--json", "--data-dir", str(relay.data_dir)))
    states = {item["about"]: item["state"] for item in found}
    for about in ("relay", "debugpy", "gdb", "ptrace", "config", "data", "disk", "running"):
        assert states[about] == "ok", found
    assert states["sessions"] == "ok"
    # What is wrong is said with what mends it.
    (relay.data_dir / "profiles" / "x.json.corrupt-1").write_text("{")
    relay.kill()
    text = shell.run("doctor", "--data-dir", str(relay.data_dir)).stdout
    assert "debug-relay serve takes them over" in text
    assert "x.json.corrupt-1" in text
    relay.start()
    relay.stop()
    relay.start()  # the session has come back from its record
    text = shell.ok("doctor", "--data-dir", str(relay.data_dir))
    assert "old was restored and has not been restarted" in text
    assert "→ debug-relay rm old" in text
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    done = shell.run("doctor", "--data-dir", "open", PATH="/nonexistent")
    assert done.returncode == 1
    assert f"→ chmod 700 {tmp_path}/open" in done.stdout
    assert "gdb       not installed: no attaching by pid" in done.stdout
    assert "ptrace    own processes can be attached to" in done.stdout
    (tmp_path / "wrong").mkdir(mode=0o700)
    (tmp_path / "wrong" / "config.toml").write_text("[server]\nprot = 3\n")
    done = shell.run("doctor", "--data-dir", "wrong")
    assert "wrong    config    server.prot = 3 (file " in done.stdout
    assert "did you mean server.port?" in done.stdout
    port = str(relay.client.port)
    done = shell.run("doctor", OPENCODE_DEBUG_PORT=port)
    assert f"port {port} is taken by pid {relay.pid}" in done.stdout
    done = shell.run("doctor", OPENCODE_DEBUG_PORT="many")
    assert "server.port" in done.stdout


def test_openapi(tmp_path: Path):
    document = json.loads(Shell(tmp_path).ok("openapi"))
    assert document["openapi"].startswith("3.1")
    assert "/sessions/{session_id}/step-over" in document["paths"]
