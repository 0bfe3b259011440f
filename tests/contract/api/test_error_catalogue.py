"""Every error there is: how it comes about, and that what it suggests does help.

A row makes a refusal and hands it over with `yield`; what comes back is the error, and the rest of
the row does as it says.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from debug_relay.protocol.errors import ERRORS, Code
from tests.kit.client import Answer, Client, Session
from tests.kit.faulty import IMPATIENT, MISTAKE, UNPRIVILEGED, with_fault
from tests.kit.listening import Listening, free_port
from tests.kit.relay import Relay, eventually
from tests.kit.running import Running
from tests.kit.source import Source
from tests.kit.tokens import new_token, printed_by
from tests.kit.wire import Wire, parsed

PROGRAM = """
    import time

    def work(n):
        doubled = n * 2  # @inside
        return doubled  # @next

    # a comment  @comment
    for n in range(1000):
        work(n)
"""
SLEEPING = "import time\ntime.sleep(600)\n"
NOBODY = "/sessions/sess_00000000"


@dataclass
class Scene:
    """What a row may use."""

    client: Client
    relay: Relay
    write: Callable[..., Source]
    start: Callable[..., Relay]
    folder: Path
    ends: ExitStack

    def session(self, **fields: Any) -> Session:
        return self.ends.enter_context(self.client.session(**fields))

    def paused(self, **fields: Any) -> tuple[Session, Source]:
        program = self.write(PROGRAM)
        session = self.session(**fields)
        session.break_at(program, program["inside"])
        assert session.launch(program)["status"] == "paused"
        return session, program

    def listening(self, port: int) -> Listening:
        target = Listening(self.write(SLEEPING, "sleeping.py").path, port)
        self.ends.callback(target.end)
        return target

    def process(self, *command: str) -> subprocess.Popen[bytes]:
        started = subprocess.Popen(command)
        self.ends.callback(started.wait)
        self.ends.callback(started.kill)
        return started

    def running(self) -> Running:
        """A program that nobody debugs."""
        one = Running(self.write("print('up', flush=True)\n" + SLEEPING, "running.py"))
        self.ends.callback(one.end)
        assert one.line() == "up"
        return one

    def suggested(self, error: Any, body: Any = None, **more: Any) -> Answer:
        """The call that the suggestion names, made."""
        found = re.search(r"(GET|POST|DELETE) /api/v1(\S+?)[.;,]?(\s|$)", suggestion(error))
        assert found is not None, suggestion(error)
        path = found.group(2)
        return self.client.call(found.group(1), path, body, **more)


def suggestion(error: Any) -> str:
    return str(error["details"]["suggestion"])


Row = Callable[[Scene], Generator[Answer, Any, None]]
ROWS: dict[Code, Row] = {}


def row(code: Code) -> Callable[[Row], Row]:
    def add(function: Row) -> Row:
        assert code not in ROWS
        ROWS[code] = function
        return function

    return add


# -- sessions


@row(Code.SESSION_NOT_FOUND)
def no_such_session(scene: Scene) -> Generator[Answer, Any, None]:
    there = scene.session()
    error = yield scene.client.get(NOBODY)
    assert there.id in suggestion(error)
    listed = scene.suggested(error).ok()["items"]
    assert [item["session_id"] for item in listed] == [there.id]


@row(Code.SESSION_LIMIT_REACHED)
def too_many_sessions(scene: Scene) -> Generator[Answer, Any, None]:
    scene.client = scene.start(env={"OPENCODE_DEBUG_MAX_SESSIONS": "1"}).client
    scene.client.session()
    error = yield scene.client.post("/sessions")
    assert scene.suggested(error).ok()["deleted"] is True
    scene.client.post("/sessions").ok(201)


@row(Code.SESSION_EXPIRED)
def expired(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session(idle_timeout=0.1)
    # Lists do not touch.
    eventually(lambda: scene.client.get("/sessions").ok()["total"] == 0)
    error = yield session.get()
    assert "timeout_minutes" in suggestion(error)
    later = scene.suggested(error, {"timeout_minutes": 5}).ok(201)
    assert later["config"]["timeout_minutes"] == 5


@row(Code.SESSION_CRASHED)
def crashed(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    session.launch(scene.write(SLEEPING), wait=0)
    scene.relay.worker(session.id).kill()
    eventually(lambda: session.status()["status"] == "failed")
    error = yield session.post("/pause")
    assert scene.suggested(error).ok()["entries"] == []
    assert f"DELETE /api/v1/sessions/{session.id}" in suggestion(error)
    session.delete().ok()
    scene.session()


@row(Code.INVALID_SESSION_STATE)
def wrong_state(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write(PROGRAM)
    error = yield session.post("/continue")
    body = {"script": str(program), "stop_on_entry": True, "wait": 20}
    assert scene.suggested(error, body).ok()["status"] == "paused"
    session.post("/continue").ok()


@row(Code.STOP_CHANGED)
def stop_changed(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.paused()
    seen = session.status()["stop_id"]
    session.step()
    error = yield session.post("/step-over", headers={"If-Stop": str(seen)})
    name, value = suggestion(error).rstrip(".").split("send ")[1].split(": ")
    assert int(value) == session.status()["stop_id"]
    session.post("/step-over", headers={name: value}).ok()


@row(Code.IDEMPOTENCY_CONFLICT)
def another_body(scene: Scene) -> Generator[Answer, Any, None]:
    key = {"Idempotency-Key": scene.folder.name}
    scene.client.post("/sessions", {"name": "a"}, headers=key).ok(201)
    error = yield scene.client.post("/sessions", {"name": "b"}, headers=key)
    assert "key" in suggestion(error)
    key = {"Idempotency-Key": scene.folder.name + "-another"}
    scene.client.post("/sessions", {"name": "b"}, headers=key).ok(201)


# -- breakpoints


@row(Code.BREAKPOINT_NOT_FOUND)
def no_such_breakpoint(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write(PROGRAM)
    session.break_at(program, program["inside"])
    error = yield session.delete("/breakpoints/bp_7")
    named = re.search(r"bp_\d+", suggestion(error))
    assert named is not None
    session.delete(f"/breakpoints/{named.group()}").ok()


def breakpoint_of(path: object, line: int, **fields: Any) -> dict[str, Any]:
    return {"source": {"path": str(path)}, "line": line, **fields}


@row(Code.BREAKPOINT_INVALID_LINE)
def past_the_end(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write("x = 1\ny = 2\n")
    error = yield session.post("/breakpoints", breakpoint_of(program, 99))
    assert suggestion(error).endswith(f"to {error['details']['max_line']}.")
    assert session.break_at(program, error["details"]["max_line"])["verified"] is True


@row(Code.BREAKPOINT_INVALID_CONDITION)
def bad_condition(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write(PROGRAM)
    bad = breakpoint_of(program, program["inside"], condition="n = 5")
    error = yield session.post("/breakpoints", bad)
    example = re.search(r"such as (.*)\.", suggestion(error))
    assert example is not None
    assert session.break_at(program, program["inside"], condition=example.group(1))["verified"]


@row(Code.BREAKPOINT_FILE_NOT_FOUND)
def no_such_file(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write(PROGRAM)
    misspelt = str(program).replace("program.py", "progam.py")
    error = yield session.post(
        "/breakpoints", breakpoint_of(misspelt, program["inside"], must_exist=True)
    )
    meant = suggestion(error).removeprefix("Did you mean ").rstrip("?")
    assert session.break_at(meant, program["inside"], must_exist=True)["verified"] is True


@row(Code.BREAKPOINT_TEXT_MISMATCH)
def other_text(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write(PROGRAM)
    line = program["inside"]
    wrong = breakpoint_of(program, line, expected_text="surely not there")
    error = yield session.post("/breakpoints", wrong)
    there = {shown["line"]: shown["text"] for shown in error["details"]["lines"]}
    assert f"{line}: {there[line].strip()}" in suggestion(error)
    assert session.break_at(program, line, expected_text=there[line])["verified"] is True


@row(Code.PROFILE_NOT_FOUND)
def no_such_profile(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write(PROGRAM)
    body = {"breakpoints": [{"file": str(program), "line": program["inside"]}]}
    path = "/breakpoint-profiles"
    scene.client.call("PUT", f"{path}/checkout", body).ok()
    error = yield session.post(f"{path}/chekout/apply")
    meant = suggestion(error).removeprefix("Did you mean ").split("?")[0]
    assert session.post(f"{path}/{meant}/apply").ok()["breakpoints"][0]["verified"] is True
    scene.client.delete(f"{path}/{meant}").ok()


# -- looking


@row(Code.THREAD_NOT_FOUND)
def no_such_thread(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.paused()
    error = yield session.get("/threads/999/stacktrace")
    assert "/threads" in suggestion(error)
    thread = session.get("/threads").ok()["threads"][0]["id"]
    assert error["details"]["threads"] == [thread]
    session.get(f"/threads/{thread}/stacktrace").ok()


@row(Code.FRAME_NOT_FOUND)
def no_such_frame(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.paused()
    error = yield session.get("/scopes", frame_id=7)
    assert suggestion(error) == "Use a frame_id from 0 to 1."
    session.get("/scopes", frame_id=1).ok()


@row(Code.VARIABLE_NOT_FOUND)
def earlier_reference(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.paused()

    def reference() -> int:
        return int(session.get("/scopes").ok()["scopes"][0]["variables_reference"])

    old = reference()
    session.step()
    error = yield session.get(f"/variables/{old}")
    assert error["details"]["from_earlier_stop"] is True
    assert "/scopes" in suggestion(error)
    session.get(f"/variables/{reference()}").ok()


@row(Code.WATCH_NOT_FOUND)
def no_such_watch(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    session.post("/watch", {"expression": "n"}).ok()
    error = yield session.delete("/watch", watch_id="watch_9")
    assert "watch_1" in suggestion(error)
    assert scene.suggested(error).ok()["total"] == 1


@row(Code.EVALUATE_ERROR)
def statement(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.paused()
    error = yield session.post("/evaluate", {"expression": "n = 9", "context": "watch"})
    assert "context repl" in suggestion(error)
    session.post("/evaluate", {"expression": "n = 9", "context": "repl"}).ok()
    assert session.value("n") == "9"


@row(Code.DEBUGPY_TIMEOUT)
def slow_evaluation(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.paused()
    body = {"expression": "[time.sleep(0.01) for _ in range(60)] and n", "timeout": 0.1}
    error = yield session.post("/evaluate", body)
    assert "larger timeout" in suggestion(error)
    assert session.post("/evaluate", {**body, "timeout": 30}).ok()["result"] == "0"


@row(Code.DEBUGPY_ERROR)
def debugger_gone(scene: Scene) -> Generator[Answer, Any, None]:
    program = scene.write("""
        import os, sys

        print("on", flush=True)  # @here
        os.execv(sys.executable, [sys.executable, "-c", "print(input())"])
    """)
    session = scene.session()
    session.break_at(program, program["here"])
    pid = session.launch(program)["pid"]
    session.resume(wait=0)
    # The debugger goes with the program that it was in; the process goes on as another.
    eventually(lambda: b"input" in Path(f"/proc/{pid}/cmdline").read_bytes())
    error = yield session.post("/pause", {"wait": 1})
    assert "terminate it and launch it in a new session" in suggestion(error)
    assert session.printed("stdout") == "on\n"
    assert session.post("/terminate", {}).ok()["status"] == "terminated"
    other, plain = scene.session(), scene.write("x = 1  # @here\n", "plain.py")
    other.break_at(plain, plain["here"])
    assert other.launch(plain)["status"] == "paused"


# -- launching


@row(Code.LAUNCH_FAILED)
def bad_option(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write("print(1)\n")
    error = yield session.try_launch(program, python_args=["--nonsense"])
    assert "output_tail" in suggestion(error)
    assert "--nonsense" in error["details"]["output_tail"]
    assert session.launch(program)["exit_code"] == 0


@row(Code.LAUNCH_SCRIPT_NOT_FOUND)
def misspelt_script(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write("print(1)\n")
    error = yield session.try_launch(str(program).replace("program.py", "progam.py"))
    meant = suggestion(error).removeprefix("Did you mean ").rstrip("?")
    assert session.launch(meant)["exit_code"] == 0


@row(Code.LAUNCH_MODULE_NOT_FOUND)
def no_module(scene: Scene) -> Generator[Answer, Any, None]:
    scene.write("print(1)\n", "lib/some_module.py")
    session = scene.session()
    error = yield session.try_launch(module="some_module", cwd=str(scene.folder))
    assert "pythonpath" in suggestion(error)
    fields = {"cwd": str(scene.folder), "pythonpath": [str(scene.folder / "lib")]}
    assert session.launch(module="some_module", **fields)["exit_code"] == 0


@row(Code.LAUNCH_INTERPRETER_NOT_FOUND)
def no_interpreter(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write("print(1)\n")
    error = yield session.try_launch(program, python_path="/nowhere/python3")
    first = suggestion(error).split("one of: ")[1].split(",")[0].rstrip(".")
    assert session.launch(program, python_path=first)["exit_code"] == 0


@row(Code.LAUNCH_CWD_NOT_FOUND)
def no_directory(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write("print(1)\n")
    (scene.folder / "right").mkdir()
    error = yield session.try_launch(program, cwd=str(scene.folder / "rigth"))
    meant = suggestion(error).removeprefix("Did you mean ").rstrip("?")
    assert session.launch(program, cwd=meant)["exit_code"] == 0


@row(Code.LAUNCH_SYNTAX_ERROR)
def syntax_error(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write("x = 1\nprint(x\n")
    error = yield session.try_launch(program)
    line = error["details"]["line"]
    assert f"line {line}" in suggestion(error)
    lines = program.text.splitlines()
    lines[line - 1] += ")"
    program.path.write_text("\n".join(lines) + "\n")
    assert session.launch(program)["exit_code"] == 0


# -- attaching


@row(Code.ATTACH_NOT_PYTHON)
def no_python(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    error = yield session.post("/attach", {"pid": scene.process("sleep", "600").pid})
    one = scene.running()
    listed = scene.suggested(error).ok()["items"]
    assert one.pid in [entry["pid"] for entry in listed]
    session.post("/attach", {"pid": one.pid}).ok()


@row(Code.ATTACH_NO_SUCH_PROCESS)
def no_such_process(scene: Scene) -> Generator[Answer, Any, None]:
    error = yield scene.session().post("/attach", {"pid": 4194303})
    assert 4194303 not in [entry["pid"] for entry in scene.suggested(error).ok()["items"]]


@row(Code.ATTACH_NOT_PERMITTED)
def not_permitted(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start(env=with_fault(scene.folder / "fault", UNPRIVILEGED))
    one = scene.running()
    pid = one.pid if os.geteuid() == 0 else 1
    error = yield relay.client.session().post("/attach", {"pid": pid})
    assert "CAP_SYS_PTRACE" in suggestion(error) or "Run a relay as" in suggestion(error)
    scene.session().post("/attach", {"pid": one.pid}).ok()


@row(Code.ATTACH_OTHER_NAMESPACE)
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


@row(Code.ATTACH_SELF)
def the_relay(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    error = yield session.post("/attach", {"pid": scene.relay.pid})
    assert scene.suggested(error).ok()["total"] > 0
    session.post("/attach", {"pid": scene.running().pid}).ok()


@row(Code.ATTACH_ALREADY_ATTACHED)
def attached_twice(scene: Scene) -> Generator[Answer, Any, None]:
    one = scene.running()
    scene.session().post("/attach", {"pid": one.pid}).ok()
    session = scene.session()
    error = yield session.post("/attach", {"pid": one.pid})
    assert scene.suggested(error).ok()["status"] == "created"
    session.post("/attach", {"pid": one.pid}).ok()


@row(Code.ATTACH_STOPPED)
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


@row(Code.ATTACH_PID_RECYCLED)
def another_process(scene: Scene) -> Generator[Answer, Any, None]:
    one = scene.running()
    session = scene.session()
    error = yield session.post("/attach", {"pid": one.pid, "identity": f"{one.pid}-1-x"})
    (found,) = (e for e in scene.suggested(error).ok()["items"] if e["pid"] == one.pid)
    session.post("/attach", {"pid": one.pid, "identity": found["identity"]}).ok()


@row(Code.ATTACH_NO_DEBUGGER)
def without_gdb(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start(env={"PATH": str(scene.folder)})
    one = scene.running()
    error = yield relay.client.session().post("/attach", {"pid": one.pid})
    assert "install gdb" in suggestion(error)
    scene.session().post("/attach", {"pid": one.pid}).ok()


@row(Code.ATTACH_REFUSED)
def nobody_listens(scene: Scene) -> Generator[Answer, Any, None]:
    session, port = scene.session(), free_port()
    error = yield session.post("/attach", {"port": port})
    assert f"python -m debugpy --listen {port} " in suggestion(error)
    scene.listening(port)
    session.post("/attach", {"port": port}).ok()


@row(Code.ATTACH_TIMEOUT)
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


@row(Code.ATTACH_FAILED)
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


@row(Code.ATTACH_UNSUPPORTED)
def detach_of_a_launched_one(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.paused()
    error = yield session.post("/detach")
    assert "terminate" in suggestion(error)
    assert session.post("/terminate", {}).ok()["status"] == "terminated"


# -- requests


@row(Code.INVALID_REQUEST)
def wrong_fields(scene: Scene) -> Generator[Answer, Any, None]:
    body = {"nam": "mine", "timeout_minutes": 0, "labels": {}}
    error = yield scene.client.post("/sessions", body)
    problems = {one["field"]: one["message"] for one in error["details"]["errors"]}
    assert problems.keys() == {"nam", "timeout_minutes"}
    meant = re.search(r"did you mean (\w+)\?", problems["nam"])
    least = re.search(r">= (\d+)", problems["timeout_minutes"])
    assert meant is not None
    assert least is not None
    body = {meant.group(1): "mine", "timeout_minutes": int(least.group(1))}
    scene.client.post("/sessions", body).ok(201)


@row(Code.MISSING_PARAMETER)
def no_reference(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.paused()
    error = yield session.get("/variables")
    [problem] = error["details"]["errors"]
    reference = session.get("/scopes").ok()["scopes"][0]["variables_reference"]
    session.get("/variables", **{problem["field"]: reference}).ok()


@row(Code.INVALID_PARAMETER)
def over_the_maximum(scene: Scene) -> Generator[Answer, Any, None]:
    error = yield scene.client.get("/sessions", limit=5000)
    [problem] = error["details"]["errors"]
    most = re.search(r"<= (\d+)", problem["message"])
    assert most is not None
    scene.client.get("/sessions", **{problem["field"]: most.group(1)}).ok()


@row(Code.UNSUPPORTED_MEDIA_TYPE)
def as_a_form(scene: Scene) -> Generator[Answer, Any, None]:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    error = yield scene.client.post("/sessions", {"name": "x"}, headers=form)
    name, value = suggestion(error).split("header ")[1].rstrip(".").split(": ")
    scene.client.post("/sessions", {"name": "x"}, headers={name: value}).ok(201)


@row(Code.REQUEST_TOO_LARGE)
def large_body(scene: Scene) -> Generator[Answer, Any, None]:
    client = scene.start("--max-body-bytes", "2048").client
    body = b'{"name": "x"}'
    error = yield client.post("/sessions", body.ljust(2049))
    most = int(re.findall(r"\d+", suggestion(error))[0])
    client.post("/sessions", body.ljust(most)).ok(201)
    assert "max_body_bytes" in suggestion(error)
    roomy = scene.start("--max-body-bytes", "4096", name="roomy").client
    roomy.post("/sessions", body.ljust(2049)).ok(201)


@row(Code.REQUEST_TIMEOUT)
def half_a_body(scene: Scene) -> Generator[Answer, Any, None]:
    env = with_fault(scene.folder / "fault", IMPATIENT)
    client = scene.start(env=env).client
    headers = {"Content-Length": "100"}
    error = yield client.post("/sessions", b'{"name"', headers=headers)
    assert "exact length" in suggestion(error)
    client.post("/sessions", b'{"name": "x"}').ok(201)


@row(Code.NOT_FOUND)
def misspelt_path(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    error = yield session.get("/statsu")
    assert scene.suggested(error).ok()["session_id"] == session.id


@row(Code.METHOD_NOT_ALLOWED)
def wrong_verb(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    answer = session.client.call("PUT", f"/sessions/{session.id}")
    allowed = answer.headers["Allow"].split(", ")
    error = yield answer
    assert set(allowed) == {"DELETE", "GET", "HEAD", "PATCH"}
    assert error["details"]["allow"] == sorted(allowed)
    scene.suggested(error).ok()


@row(Code.FORBIDDEN_HOST)
def foreign_name(scene: Scene) -> Generator[Answer, Any, None]:
    name = {"Host": "relay.example"}
    error = yield scene.client.get("/health", headers=name)
    found = re.search(r"http://\S+?(?=,)", suggestion(error))
    assert found is not None
    Client(found.group() + scene.client.prefix).get("/health").ok()
    assert "allow_hosts" in suggestion(error)
    named = scene.start("--allow-hosts", "relay.example").client
    named.get("/health", headers=name).ok()


@row(Code.FORBIDDEN_ORIGIN)
def web_page(scene: Scene) -> Generator[Answer, Any, None]:
    page = {"Origin": "http://localhost:3000"}
    error = yield scene.client.get("/health", headers=page)
    assert "without Origin" in suggestion(error)
    scene.client.get("/health").ok()


@row(Code.TOO_MANY_WAITERS)
def crowd(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    request = (
        f"GET {scene.client.prefix}/sessions/{session.id}/events?timeout=60&types=stopped "
        f"HTTP/1.1\r\nHost: {scene.client.host}:{scene.client.port}\r\n\r\n"
    ).encode()
    for _ in range(200):
        waiter = socket.create_connection((scene.client.host, scene.client.port), 10)
        scene.ends.enter_context(waiter)
        waiter.sendall(request)

    def one_more() -> Answer | None:
        answer = session.get("/events", types="stopped", timeout=0.01)
        return answer if answer.status != 200 else None

    answer = eventually(one_more, what="all of them wait")
    assert isinstance(answer, Answer)
    assert answer.headers["Retry-After"]
    error = yield answer
    assert "without timeout" in suggestion(error)
    assert session.events("stopped") == []


@row(Code.TOO_MUCH_IN_FLIGHT)
def many_long_bodies(scene: Scene) -> Generator[Answer, Any, None]:
    wire, size = Wire(scene.client), 10 * 1024 * 1024
    line = f"POST {scene.client.prefix}/sessions"
    announced = wire.request(line, "Content-Type: application/json", f"Content-Length: {size}")
    for _ in range(6):
        sock = scene.ends.enter_context(wire.connect())
        sock.sendall(announced)
    long = {"name": "x" * 5_000_000}

    def one_more() -> Answer | None:
        # Long enough to be counted, and only announced: refused before it has been sent.
        answer = parsed(wire.exchange(announced, shut=True))
        return answer if answer.status == 429 else None

    answer = eventually(one_more, what="all of them are on their way")
    assert isinstance(answer, Answer)
    assert answer.headers["Retry-After"]
    error = yield answer
    assert error["details"]["bytes_in_flight"] == 6 * size
    assert "again" in suggestion(error)
    # Short calls go on, and so do long ones when the others have left.
    scene.client.post("/sessions", {"name": "x" * 300}).refused("INVALID_REQUEST", 400)
    scene.ends.close()
    eventually(lambda: scene.client.post("/sessions", long).status == 400, what="room again")


@row(Code.LAUNCH_ENV_MISSING)
def a_secret_that_no_export_holds(scene: Scene) -> Generator[Answer, Any, None]:
    program = scene.write("import os\nprint(os.environ['API_TOKEN'], os.environ['COLOUR'])")
    session = scene.session()
    session.launch(program, env={"API_TOKEN": "s3cret", "COLOUR": "red"})
    exported = session.get("/export").ok()
    id = scene.client.post("/sessions/import", exported).ok(201)["session_id"]
    imported = scene.ends.enter_context(Session(scene.client, id))
    error = yield imported.post("/restart")
    assert error["details"]["missing_env"] == ["API_TOKEN"]
    found = re.search(r"\{.*\}", suggestion(error))
    assert found is not None
    body = json.loads(found.group().replace("…", "again"))
    assert imported.post("/restart", {**body, "wait": 20}).ok()["exit_code"] == 0
    assert imported.printed() == "again red\n"


@row(Code.LAUNCH_FIELDS_MISSING)
def arguments_that_no_export_holds(scene: Scene) -> Generator[Answer, Any, None]:
    program = scene.write("import os, sys\nprint(sys.argv[1:], os.environ['API_TOKEN'])")
    session = scene.session()
    session.launch(program, args=["--password", "x"], env={"API_TOKEN": "s3cret"})
    exported = session.get("/export").ok()
    id = scene.client.post("/sessions/import", exported).ok(201)["session_id"]
    imported = scene.ends.enter_context(Session(scene.client, id))
    error = yield imported.post("/restart")
    assert error["details"]["missing_fields"] == ["args"]
    found = re.search(r"\{.*\}", suggestion(error))
    assert found is not None
    body = json.loads(found.group().replace("…", "again"))
    assert imported.post("/restart", {**body, "wait": 20}).ok()["exit_code"] == 0
    assert imported.printed() == "['again'] again\n"


# -- the relay


@row(Code.WORKER_START_FAILED)
def no_place_for_workers(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start()
    aside = relay.run_dir.rename(relay.run_dir.with_name("aside"))
    relay.run_dir.touch()
    error = yield relay.client.post("/sessions")
    assert "Not a directory" in error["message"]
    relay.run_dir.unlink()
    aside.rename(relay.run_dir)
    relay.client.post("/sessions").ok(201)


@row(Code.WORKER_UNRESPONSIVE)
def stopped_worker(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start(env={"OPENCODE_DEBUG_DAP__REQUEST_TIMEOUT": "0.1"})
    session = relay.client.session()
    relay.worker(session.id).suspend()
    scene.client = relay.client
    error = yield session.patch("", {"name": "x"})
    path = re.search(r"force=true", suggestion(error))
    assert path is not None
    session.delete(force="true").ok()
    session.get().refused("SESSION_NOT_FOUND", 404)


@row(Code.SHUTTING_DOWN)
def while_it_stops(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start()
    # A session that does not end at once holds the stop back.
    relay.worker(relay.client.session().id).suspend()
    relay.client.post("/shutdown").ok()
    refused = eventually(lambda: (a := relay.client.post("/sessions")).status != 201 and a)
    assert isinstance(refused, Answer)
    assert refused.headers["Retry-After"] == "1"
    error = yield refused
    assert "after it has restarted" in suggestion(error)
    assert relay.wait() == 0
    relay.start()
    relay.client.post("/sessions").ok(201)


@row(Code.UNAUTHENTICATED)
def no_token(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start()
    new_token(relay, "--scope", "admin")
    refused = relay.client.post("/sessions", {})
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    error = yield refused
    bearer = f"Bearer {printed_by(suggestion(error))}"
    relay.client.called(Authorization=bearer).post("/sessions", {}).ok(201)


@row(Code.INSUFFICIENT_SCOPE)
def not_that_token(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start()
    reader = relay.client.called(
        Authorization=f"Bearer {new_token(relay, '--scope', 'sessions:read')}"
    )
    error = yield reader.post("/sessions", {})
    assert error["details"]["scope"] == "sessions:write"
    both = relay.client.called(Authorization=f"Bearer {printed_by(suggestion(error))}")
    session = both.session()
    session.get().ok()
    session.delete().ok()


@row(Code.SESSION_LEASED)
def somebody_drives(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.paused()
    session.called(X_Agent="ann").post("/lease", {"ttl": 600}).ok()
    bob = session.called(X_Agent="bob")
    error = yield bob.post("/step-over")
    assert error["details"]["holder"] == "ann"
    assert 590 < error["details"]["seconds_left"] <= 600
    taken = scene.suggested(error, {"take_over": True}, headers={"X-Agent": "bob"}).ok()
    assert taken["holder"] == "bob"
    assert bob.step()["current_location"]["line"] == program["next"]


@row(Code.TOO_MANY_STREAMS)
def audience(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    request = (
        f"GET {scene.client.prefix}/sessions/{session.id}/events/stream "
        f"HTTP/1.1\r\nHost: {scene.client.host}:{scene.client.port}\r\n\r\n"
    ).encode()
    for _ in range(256):
        reader = socket.create_connection((scene.client.host, scene.client.port), 10)
        scene.ends.enter_context(reader)
        reader.sendall(request)
        assert reader.recv(12) == b"HTTP/1.1 200"
    answer = session.get("/output/stream")
    assert answer.headers["Retry-After"]
    error = yield answer
    scene.suggested(error).ok()


@row(Code.UPGRADE_REQUIRED)
def no_socket(scene: Scene) -> Generator[Answer, Any, None]:
    error = yield scene.session().get("/debug")
    assert "/events/stream" in suggestion(error)


@row(Code.NOT_IMPLEMENTED)
def not_yet(scene: Scene) -> Generator[Answer, Any, None]:
    error = yield scene.client.post("/mcp", {})
    document = scene.suggested(error).body
    assert document["paths"]["/mcp"]["post"]["x-implemented"] is False
    assert document["paths"]["/sessions"]["post"].get("x-implemented", True) is True


@row(Code.INTERNAL_ERROR)
def mistake(scene: Scene) -> Generator[Answer, Any, None]:
    relay = scene.start(env=with_fault(scene.folder / "fault", MISTAKE))
    answer = relay.client.get("/info")
    assert b"inner secret" not in answer.raw
    error = yield answer
    details = error["details"]
    assert details["error_id"] in suggestion(error)
    assert details["log_file"] in suggestion(error)
    log = Path(details["log_file"])
    eventually(lambda: details["error_id"] in log.read_text())
    [line] = [line for line in log.read_text().splitlines() if details["error_id"] in line]
    assert "Traceback" in line
    assert "inner secret" in line


# -- the test


@pytest.fixture
def scene(
    relay: Client,
    shared_relay: Relay,
    source: Callable[..., Source],
    own_relay: Callable[..., Relay],
    tmp_path: Path,
) -> Iterator[Scene]:
    with ExitStack() as ends:
        yield Scene(relay, shared_relay, source, own_relay, tmp_path, ends)


SLOW = {Code.WORKER_UNRESPONSIVE}


@pytest.mark.parametrize(
    "code",
    [pytest.param(code, marks=[pytest.mark.slow] if code in SLOW else []) for code in ROWS],
)
def test_what_it_suggests_helps(scene: Scene, code: Code) -> None:
    story = ROWS[code](scene)
    error = next(story).refused(code, ERRORS[code].status)
    with pytest.raises(StopIteration):
        story.send(error)


def test_no_code_is_left_out() -> None:
    assert set(ROWS) == set(Code)
