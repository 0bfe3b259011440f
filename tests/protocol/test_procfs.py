"""The reader of /proc, beside real processes."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from debug_relay.protocol.system import procfs
from debug_relay.protocol.system.procfs import is_alive, start_ticks
from tests.kit.relay import eventually

NAME = "a) R (b"
NOBODY = 2**22 + 1
# A shell that has a child, a working directory and a word with spaces, and waits for its input.
PROGRAM = "sleep 60 & echo up; read line; wait"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """Its name is a trap for whoever reads its line of numbers from the left."""
    folder = tmp_path_factory.mktemp("named")
    shell = folder / NAME
    shutil.copy(shutil.which("bash") or "/bin/bash", shell)
    process = subprocess.Popen(
        [shell, "-c", PROGRAM, "two words", "", "ü"],
        cwd=folder,
        env={"COLOUR": "blue green"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    with process:
        yield process
        os.killpg(process.pid, signal.SIGKILL)


def test_a_name_with_brackets(program: subprocess.Popen[bytes]) -> None:
    found = procfs.stat(program.pid)
    assert found is not None
    assert (found.name, found.parent, found.session) == (NAME, os.getpid(), program.pid)
    assert found.state in "SR"
    assert found.lives
    assert not found.is_loading
    assert not found.is_exiting
    assert (found.threads, found.terminal) == (1, 0)
    assert found.resident_bytes > 100_000
    assert abs(procfs.boot_time() + found.started - time.time()) < 600
    assert found.identity == f"{program.pid}-{found.start_ticks}-{procfs.boot_id()}"
    assert len(procfs.boot_id()) == 36


def test_what_a_process_was_started_with(program: subprocess.Popen[bytes]) -> None:
    pid = program.pid
    path = procfs.executable(pid)
    assert path is not None
    assert Path(path).name == NAME
    assert procfs.command(pid) == [path, "-c", PROGRAM, "two words", "", "ü"]
    assert procfs.command(pid, len(path) + 3) == [path, "-c"]
    assert procfs.cwd(pid) == str(Path(path).parent)
    assert b"COLOUR=blue green" in (procfs.environment(pid) or [])
    assert path in procfs.mapped_files(pid)
    assert procfs.is_in_our_namespace(pid, "net")
    assert procfs.descriptors(pid) == len(os.listdir(f"/proc/{pid}/fd"))
    assert (procfs.limit(pid, "Max open files") or 0) > 3
    assert procfs.limit(pid, "Max file size") is None  # unlimited


def test_status_of_processes_and_threads(program: subprocess.Popen[bytes]) -> None:
    found = procfs.status(program.pid)
    assert found is not None
    assert found.process == program.pid
    assert found.uids == (os.getuid(),) * 4
    assert found.gids == (os.getgid(),) * 4
    assert (found.tracer, found.seccomp, found.inner_pids[0]) == (0, 0, program.pid)
    assert procfs.uids(program.pid) == {os.getuid()}
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        of_thread = procfs.status(thread.native_id or 0)
        assert of_thread is not None
        assert of_thread.process == os.getpid()
        assert thread.native_id in procfs.threads(os.getpid())
    finally:
        over.set()
        thread.join()


def test_children_and_the_call_in_which_one_waits(program: subprocess.Popen[bytes]) -> None:
    assert program.pid in procfs.children(os.getpid())
    [child] = procfs.children(program.pid)
    # Between its fork and its exec it has its parent's command line.
    eventually(lambda: procfs.command(child) == ["sleep", "60"])
    assert [row.pid for row in procfs.descendants(program.pid)] == [child]
    call = procfs.syscall(program.pid, program.pid)
    deadline = time.monotonic() + 5
    while (call is None or call.arguments[0] != 0) and time.monotonic() < deadline:
        call = procfs.syscall(program.pid, program.pid)  # it begins to read just now
    assert call is not None
    assert call.arguments[0] == 0  # its standard input
    assert call.stack > 0
    assert call.code > 0


@pytest.mark.parametrize("lists", [True, False], ids=["listed by the kernel", "by parents"])
def test_descendants_come_parents_first(lists: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not lists:
        monkeypatch.setattr(procfs, "_LISTS_CHILDREN", False)
    script = "sh -c 'sleep 60 & echo up; wait' & wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, process_group=0) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        # Between its fork and its exec the second one has its parent's name.
        eventually(lambda: [row.name for row in procfs.descendants(shell.pid)] == ["sh", "sleep"])
        found = procfs.descendants(shell.pid)
        os.killpg(shell.pid, signal.SIGKILL)
    assert [row.parent for row in found] == [shell.pid, found[0].pid]


def test_a_zombie_and_one_that_is_gone() -> None:
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    assert is_alive(os.getpid(), ticks)
    assert is_alive(os.getpid(), None)
    assert not is_alive(os.getpid(), ticks + 1)
    for nobody in (None, 0, -1, True, "1", NOBODY):
        assert not is_alive(nobody, None)
    child = multiprocessing.get_context("spawn").Process(target=os._exit, args=(3,))
    child.start()
    pid = child.pid or 0
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    zombie = procfs.stat(pid)
    assert zombie is not None
    assert os.waitstatus_to_exitcode(zombie.exit_status) == 3
    assert not zombie.lives
    assert zombie.is_exiting
    assert not is_alive(pid, None)
    assert (procfs.command(pid), procfs.executable(pid)) == ([], None)
    child.join()
    assert procfs.stat(NOBODY) is None
    assert procfs.status(NOBODY) is None
    assert procfs.environment(NOBODY) is None
    assert procfs.syscall(NOBODY, NOBODY) is None
    assert procfs.proportional_bytes(NOBODY) is None
    assert procfs.children(NOBODY) == procfs.threads(NOBODY) == []


def test_trackers_of_multiprocessing() -> None:
    code = "from multiprocessing.resource_tracker import main;main(5)"
    assert procfs.is_tracker([sys.executable, "-s", "-c", code])
    assert not procfs.is_tracker([sys.executable, "-c", f"print(1); {code}"])
    assert not procfs.is_tracker(["grep", code])


def test_listeners() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        [listener] = [one for one in procfs.listeners(os.getpid()) if one.port == port]
        assert listener.uid == os.getuid()
        assert listener.inode in procfs.sockets(os.getpid())
    assert listener.inode not in procfs.sockets(os.getpid())


def test_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(server.getsockname()) as client, server.accept()[0]:
            ends = [
                one for one in procfs.connections(os.getpid()) if port in (one.port, one.peer_port)
            ]
            mine = client.getsockname()[1]
            assert sorted((one.port, one.peer_port) for one in ends) == sorted(
                [(mine, port), (port, mine)]
            )
            assert {one.inode for one in ends} <= procfs.sockets(os.getpid())
