"""The processes that could be debugged, and what is said of those that cannot."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.client import Client
from tests.kit.listening import free_port
from tests.kit.relay import Relay, eventually

SLEEP = "import sys, time; print('up', flush=True); time.sleep(600)"
LISTEN = (
    "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); "
    "print('up', flush=True); time.sleep(600)"
)
HERD = """
import os, signal, time
herd = []
for _ in range(1000):
    pid = os.fork()
    if pid == 0:
        signal.pause()
    herd.append(pid)
print("up", flush=True)
try:
    input()
finally:
    for pid in herd:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
"""
Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def run(*command: str, cwd: Path | None = None, says: bool = True) -> int:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=cwd)
        started.append(process)
        assert process.stdout is not None
        if says:
            assert process.stdout.readline() == b"up\n"
        return process.pid

    yield run
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_what_looks_secret_in_a_command_line_is_hidden(relay: Client, start: Start) -> None:
    pid = start(sys.executable, "-c", SLEEP, "--api-key", "c4nary", "Password=c4nary", "-pC4nary")
    told = relay.get(f"/processes/{pid}").ok()["command"]
    assert told[3:] == ["--api-key", "***", "Password=***", "-p***"]


def test_what_is_told_of_one(relay: Client, start: Start, python: str, tmp_path: Path) -> None:
    port = free_port()
    python = os.path.realpath(python)  # in no virtual environment
    pid = start(python, "-c", LISTEN, str(port), cwd=tmp_path)
    told = relay.get(f"/processes/{pid}").ok()
    kernel = psutil.Process(pid)
    assert told["command"] == [python, "-c", LISTEN, str(port)]
    assert told["cwd"] == str(tmp_path)
    assert (told["user"], told["uid"]) == (kernel.username(), kernel.uids().effective)
    assert told["start_time"] == kernel.create_time()
    assert told["identity"].startswith(f"{pid}-")
    asked = subprocess.run([python, "--version"], capture_output=True, text=True, check=True)
    version = asked.stdout.split()[1]
    if not Path(python).parents[1].joinpath(f"include/python{version.rpartition('.')[0]}").exists():
        version = version.rpartition(".")[0]  # nothing but the program itself knows more
    assert told["python_version"] == version
    assert told["listening_ports"] == [port]
    assert (told["venv"], told["debugged_by"], told["greenlets"]) == (None, None, None)
    assert (told["attachable"], told["code"], told["reason"]) == (True, None, None)


def test_one_of_a_virtual_environment(relay: Client, start: Start, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    pid = start(str(tmp_path / "venv/bin/python"), "-c", SLEEP)
    told = relay.get(f"/processes/{pid}").ok()
    assert told["venv"] == str(tmp_path / "venv")
    assert told["python_version"].startswith("{}.{}.".format(*sys.version_info))
    # A relative path counts from where it was started.
    pid = start("venv/bin/python", "-c", SLEEP, cwd=tmp_path)
    assert relay.get(f"/processes/{pid}").ok()["venv"] == str(tmp_path / "venv")


def test_the_list(relay: Client, start: Start, tmp_path: Path) -> None:
    mark = f"mark_{os.getpid()}_{tmp_path.name}"
    pids = sorted(start(sys.executable, "-c", SLEEP, mark) for _ in range(3))
    start(shutil.which("sleep") or "sleep", "600", says=False)
    listed = relay.get("/processes", match=mark).ok()
    assert [entry["pid"] for entry in listed["items"]] == pids
    assert (listed["total"], listed["has_more"]) == (3, False)
    page = relay.get("/processes", match=mark, offset=1, limit=1).ok()
    assert [entry["pid"] for entry in page["items"]] == pids[1:2]
    assert (page["total"], page["has_more"]) == (3, True)
    everything = relay.get("/processes", limit=1000).ok()
    assert {os.getpid(), *pids} <= {entry["pid"] for entry in everything["items"]}
    assert all(entry["command"] for entry in everything["items"])


def test_a_thousand(relay: Client) -> None:
    """Listing them takes no time to speak of, nor does it keep others waiting."""
    herd = subprocess.Popen(
        [sys.executable, "-S", "-c", HERD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with herd, relay.session() as session, ThreadPoolExecutor(1) as pool:
        assert herd.stdout is not None
        assert herd.stdout.readline() == b"up\n"
        began = time.monotonic()
        listing = pool.submit(relay.get, "/processes", match="signal.pause()")
        answered = []
        while not listing.done():
            asked = time.monotonic()
            session.status()
            answered.append(time.monotonic() - asked)
        assert listing.result().ok()["total"] == 1001
        assert time.monotonic() - began < 2
        assert statistics.median(answered) < 0.05
        error = session.post("/attach", {"match": "signal.pause"}).refused("INVALID_REQUEST")
        assert len(error["details"]["candidates"]) == 20
        herd.communicate(b"end\n")


def test_the_relay_and_its_workers(relay: Client, shared_relay: Relay) -> None:
    with relay.session() as session:
        worker = shared_relay.worker(session.id).pid
        for pid in (shared_relay.pid, worker):
            told = relay.get(f"/processes/{pid}").ok()
            assert (told["attachable"], told["code"]) == (False, "ATTACH_SELF")
            session.post("/attach", {"pid": pid}).refused("ATTACH_SELF", 409)


def test_a_launched_program_is_debugged_already(relay: Client) -> None:
    with relay.session() as session:
        launched = session.launch(code="import time; time.sleep(600)", wait=0)
        told = relay.get(f"/processes/{launched['pid']}").ok()
        assert (told["debugged_by"], told["attachable"]) == (session.id, False)
        with relay.session() as other:
            error = other.post("/attach", {"pid": launched["pid"]})
            assert error.refused("ATTACH_ALREADY_ATTACHED")["details"]["session_id"] == session.id


def test_what_is_no_python(relay: Client, start: Start, tmp_path: Path) -> None:
    sleep = shutil.which("sleep") or "/bin/sleep"
    pid = start(sleep, "600", says=False)
    told = relay.get(f"/processes/{pid}").ok()
    assert (told["attachable"], told["code"]) == (False, "ATTACH_NOT_PYTHON")
    assert pid not in [entry["pid"] for entry in relay.get("/processes", limit=1000).ok()["items"]]
    old = tmp_path / "python2.7"
    shutil.copy(sleep, old)
    pid = start(str(old), "600", says=False)
    eventually(lambda: psutil.Process(pid).exe() == str(old))
    told = relay.get(f"/processes/{pid}").ok()
    assert (told["python_version"], told["code"]) == ("2.7", "ATTACH_UNSUPPORTED")


def test_nobody_has_that_pid(relay: Client) -> None:
    for path in ("/processes/4194303", "/processes/4194303/stacks"):
        relay.get(path).refused("ATTACH_NO_SUCH_PROCESS", 404)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    eventually(lambda: psutil.Process(ended.pid).status() == psutil.STATUS_ZOMBIE)
    relay.get(f"/processes/{ended.pid}").refused("ATTACH_NO_SUCH_PROCESS", 404)
    ended.wait()


def test_stacks(relay: Client, start: Start, python: str) -> None:
    pid = start(python, "-c", SLEEP)
    threads = relay.get(f"/processes/{pid}/stacks", within=30).ok()["threads"]
    assert threads[0]["frames"][-1]["name"] == "<module>"
    assert threads[0]["frames"][-1]["locals"] == []


def test_stacks_with_locals(relay: Client, start: Start, python: str) -> None:
    code = "import time\ndef naps(limit):\n    time.sleep(100)\nprint('up', flush=True)\nnaps([7])"
    pid = start(python, "-c", code)

    def top() -> Any:
        (thread,) = relay.get(f"/processes/{pid}/stacks", locals="true", within=30).ok()["threads"]
        return thread["frames"][0]

    eventually(lambda: top()["name"] == "naps")  # `up` is printed a moment before
    assert top()["locals"] == [{"name": "limit", "value": "[7]"}]
    text = relay.get(f"/processes/{pid}/stacks", locals="true", format="text").raw.decode()
    assert text.splitlines()[1:3] == ["  #0 naps at <string>:3", "     limit = [7]"]


@pytest.mark.skipif(
    not Path("/proc/2/stat").exists() or "kthreadd" not in Path("/proc/2/stat").read_text(),
    reason="the kernel's processes cannot be seen here",
)
def test_a_process_of_the_kernel(relay: Client) -> None:
    code = "ATTACH_NOT_PYTHON" if os.geteuid() == 0 else "ATTACH_NOT_PERMITTED"
    assert not relay.get("/processes/2").ok()["attachable"]
    relay.get("/processes/2/stacks").refused(code)
    relay.post("/sessions", {"mode": "attach", "pid": 2}).refused(code)


def test_what_is_no_python_has_no_stacks(relay: Client) -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        try:
            relay.get(f"/processes/{process.pid}/stacks").refused("ATTACH_NOT_PYTHON", 400)
        finally:
            process.kill()
