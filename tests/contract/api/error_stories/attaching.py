"""Errors of an attach."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

from debug_relay.protocol.errors import Code
from tests.contract.api.error_stories.scene import SLEEPING, Scene, story_of, suggestion
from tests.kit.client import Answer
from tests.kit.faulty import UNPRIVILEGED, with_fault
from tests.kit.listening import free_port
from tests.kit.relay import eventually


@story_of(Code.ATTACH_NOT_PYTHON)
def no_python(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    error = yield session.post("/attach", {"pid": scene.process("sleep", "600").pid})
    one = scene.running()
    listed = scene.suggested(error).ok()["items"]
    assert one.pid in [entry["pid"] for entry in listed]
    session.post("/attach", {"pid": one.pid}).ok()


@story_of(Code.ATTACH_NO_SUCH_PROCESS)
def no_such_process(scene: Scene) -> Generator[Answer, Any, None]:
    error = yield scene.session().post("/attach", {"pid": 4194303})
    assert 4194303 not in [entry["pid"] for entry in scene.suggested(error).ok()["items"]]


@story_of(Code.ATTACH_NOT_PERMITTED)
def not_permitted(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start(env=with_fault(scene.folder / "fault", UNPRIVILEGED))
    one = scene.running()
    pid = one.pid if os.geteuid() == 0 else 1
    error = yield relay.client.session().post("/attach", {"pid": pid})
    assert "CAP_SYS_PTRACE" in suggestion(error) or "Run a relay as" in suggestion(error)
    scene.session().post("/attach", {"pid": one.pid}).ok()


@story_of(Code.ATTACH_OTHER_NAMESPACE)
def in_a_container(scene: Scene) -> Generator[Answer, Any, None]:
    flags = ["--net"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net"]
    outside = scene.process("unshare", *flags, sys.executable, "-c", SLEEPING)

    def entered() -> bool:
        if outside.poll() is not None:
            pytest.skip("this machine gives no namespaces")
        theirs = Path(f"/proc/{outside.pid}/ns/net").readlink()
        return theirs != Path("/proc/self/ns/net").readlink()

    eventually(entered)
    eventually(lambda: "python" in Path(f"/proc/{outside.pid}/exe").readlink().name)
    error = yield scene.session().post("/attach", {"pid": outside.pid})
    assert f"python -m debugpy --listen 0.0.0.0:5678 --pid {outside.pid}" in suggestion(error)
    assert "path_mappings" in suggestion(error)


@story_of(Code.ATTACH_SELF)
def the_relay(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    error = yield session.post("/attach", {"pid": scene.relay.pid})
    assert scene.suggested(error).ok()["total"] > 0
    session.post("/attach", {"pid": scene.running().pid}).ok()


@story_of(Code.ATTACH_ALREADY_ATTACHED)
def attached_twice(scene: Scene) -> Generator[Answer, Any, None]:
    one, first = scene.running(), scene.session()
    first.post("/attach", {"pid": one.pid}).ok()
    session = scene.session()
    error = yield session.post("/attach", {"pid": one.pid})
    assert scene.suggested(error).ok()["status"] == "running"
    assert f"/sessions/{first.id}/detach" in suggestion(error)
    first.post("/detach").ok()
    session.post("/attach", {"pid": one.pid}).ok()


@story_of(Code.ATTACH_STOPPED)
def stopped_program(scene: Scene) -> Generator[Answer, Any, None]:
    one = scene.running()
    one.process.send_signal(signal.SIGSTOP)
    session = scene.session()
    eventually(lambda: psutil.Process(one.pid).status() == psutil.STATUS_STOPPED)
    error = yield session.post("/attach", {"pid": one.pid})
    found = re.search(r"kill -CONT \d+", suggestion(error))
    assert found is not None
    subprocess.run(found.group().split(), check=True)
    eventually(lambda: session.post("/attach", {"pid": one.pid}).status == 200)


@story_of(Code.ATTACH_PID_RECYCLED)
def another_process(scene: Scene) -> Generator[Answer, Any, None]:
    one = scene.running()
    session = scene.session()
    error = yield session.post("/attach", {"pid": one.pid, "identity": f"{one.pid}-1-x"})
    (found,) = (e for e in scene.suggested(error).ok()["items"] if e["pid"] == one.pid)
    session.post("/attach", {"pid": one.pid, "identity": found["identity"]}).ok()


@story_of(Code.ATTACH_NO_DEBUGGER)
def without_gdb(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start(env={"PATH": str(scene.folder)})
    one = scene.running()
    error = yield relay.client.session().post("/attach", {"pid": one.pid})
    assert "install gdb" in suggestion(error)
    scene.session().post("/attach", {"pid": one.pid}).ok()


@story_of(Code.ATTACH_REFUSED)
def nobody_listens(scene: Scene) -> Generator[Answer, Any, None]:
    session, port = scene.session(), free_port()
    error = yield session.post("/attach", {"port": port})
    assert f"python -m debugpy --listen {port} " in suggestion(error)
    scene.listening(port)
    session.post("/attach", {"port": port}).ok()


@story_of(Code.ATTACH_TIMEOUT)
def nobody_answers(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        error = yield session.post("/attach", {"port": port, "connect_timeout": 0.2})
    assert "Is it debugpy" in suggestion(error)
    scene.listening(port)
    session.post("/attach", {"port": port, "connect_timeout": 30}).ok()


def refuse_one(listener: socket.socket) -> None:
    """As a debug server that cannot begin."""
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        body = b'{"seq":1,"type":"response","request_seq":1,"command":"initialize",'
        body += b'"success":false,"message":"busy"}'
        connection.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        while connection.recv(65536):
            pass


@story_of(Code.ATTACH_FAILED)
def refused_by_the_server(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        busy = threading.Thread(target=refuse_one, args=[listener])
        busy.start()
        answer = session.post("/attach", {"port": port})
        busy.join(10)
    error = yield answer
    assert f"restart the program with python -m debugpy --listen {port} " in suggestion(error)
    scene.listening(port)
    session.post("/attach", {"port": port}).ok()


@story_of(Code.ATTACH_UNSUPPORTED)
def detach_of_a_launched_one(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.paused()
    error = yield session.post("/detach")
    assert "terminate" in suggestion(error)
    assert session.post("/terminate", {}).ok()["status"] == "terminated"
