"""The user story's acceptance criteria for sessions, errors and safety, by their names.

Those for launching, execution, inspection and output stand in test_acceptance_debugging.py.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from debug_relay.protocol.errors import ERRORS
from debug_relay.protocol.operations import OPERATIONS
from tests.kit.client import Answer, Client, Session
from tests.kit.faulty import MISTAKE, with_fault
from tests.kit.relay import Relay, eventually, marked
from tests.kit.source import Source

PROGRAM = """
    def work(n):
        doubled = n * 2  # @inside
        return doubled

    for n in range(10000):
        work(n)
"""
UNKNOWN = "sess_00000000"
ATTEMPTS = 7


def paused(client: Client, program: Source, **fields: Any) -> Session:
    session = client.session(**fields)
    session.break_at(program, program["inside"])
    assert session.launch(program)["status"] == "paused"
    return session


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def usual(call: Callable[[], object]) -> float:
    """What a call takes: the median, since other work goes on beside."""
    return statistics.median(seconds(call) for _ in range(ATTEMPTS))


def listening(processes: list[psutil.Process]) -> set[str]:
    found = set()
    for process in processes:
        for connection in process.net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                found.add(connection.laddr.ip)
    return found


# -- sessions


def test_ac_sm_1_a_session_is_there_within_500_ms(relay: Client) -> None:
    """Creating a session gives an id of its own, and soon."""
    made: list[str] = []
    took = usual(lambda: made.append(relay.session().id))
    assert took < 0.5
    assert len(set(made)) == ATTEMPTS


def test_ac_sm_2_the_list_has_all_sessions_as_they_are(
    relay: Client, source: Callable[..., Source]
) -> None:
    """Whatever each of them does at the moment."""
    created = relay.session()
    standing = paused(relay, source(PROGRAM))
    running, ended = relay.session(), relay.session()
    running.launch(source("import time\ntime.sleep(600)\n", "sleeping.py"), wait=0)
    eventually(lambda: running.status()["status"] == "running")
    ended.launch(source("print()\n", "short.py"))
    listed = relay.get("/sessions").ok()
    assert {item["session_id"]: item["status"] for item in listed["items"]} == {
        created.id: "created",
        standing.id: "paused",
        running.id: "running",
        ended.id: "terminated",
    }
    assert listed["total"] == 4


@pytest.mark.parametrize("force", ["false", "true"])
def test_ac_sm_3_deleting_ends_the_program_and_leaves_nothing(
    relay: Client, shared_relay: Relay, source: Callable[..., Source], force: str
) -> None:
    """The program, its children, the worker and all files of the session go."""
    program = source("""
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(child.pid)  # @inside
    """)
    session = paused(relay, program)
    worker = shared_relay.worker(session.id)
    assert len(marked(session.id)) == 2
    assert session.delete(force=force).ok()["deleted"] is True
    session.get().refused("SESSION_NOT_FOUND", 404)
    eventually(lambda: marked(session.id) == [] and not worker.is_running())
    assert not (shared_relay.run_dir / session.id).exists()
    assert not (shared_relay.data_dir / "sessions" / session.id).exists()


def test_ac_sm_4_an_idle_session_ends_by_itself(
    relay: Client, source: Callable[..., Source]
) -> None:
    """An hour unless something else was said; the program that stands goes with it."""
    by_default = relay.session()
    assert by_default.get().ok()["config"]["timeout_minutes"] == 60
    session = paused(relay, source(PROGRAM))
    assert session.patch(body={"idle_timeout": 0.3}).ok()["config"]["timeout_minutes"] is not None
    eventually(lambda: marked(session.id) == [])
    eventually(lambda: session.get("/output").status == 410)
    error = session.get().refused("SESSION_EXPIRED", 410)
    assert "POST /api/v1/sessions" in error["details"]["suggestion"]
    by_default.get().ok()


def test_ac_sm_5_ten_sessions_and_not_eleven(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    """Ten debug at the same time; who wants another is told which to let go."""
    client = own_relay().client
    program = source(PROGRAM)
    with ThreadPoolExecutor(4) as pool:
        sessions = list(pool.map(lambda n: paused(client, program, name=f"s{n}"), range(10)))
    for number, session in enumerate(sessions):
        session.post("/evaluate", {"expression": f"globals().update(mine={number})"}).ok()
    for number, session in enumerate(sessions):
        assert session.value("mine") == str(number)
    error = client.post("/sessions", {"name": "one more"}).refused("SESSION_LIMIT_REACHED", 429)
    details = error["details"]
    assert details["max_sessions"] == 10
    assert [one["session_id"] for one in details["sessions"]] == [one.id for one in sessions]
    idle = [one["idle_seconds"] for one in details["sessions"]]
    assert idle == sorted(idle, reverse=True)
    longest = details["sessions"][0]
    assert (longest["name"], longest["status"], longest["created_by"]) == (
        "s0",
        "paused",
        f"uid:{os.getuid()}",
    )
    assert longest["free_with"] in details["suggestion"]
    verb, path = longest["free_with"].split()
    client.call(verb, path.removeprefix(client.prefix)).ok()
    later = client.session(name="one more")
    assert later.launch(source("print()\n", "short.py"))["status"] == "terminated"
    # One that has ended counts no more.
    client.session()
    client.post("/sessions").refused("SESSION_LIMIT_REACHED", 429)


def test_5_1_the_states_of_a_session(relay: Client, source: Callable[..., Source]) -> None:
    """Created, running, paused, running, terminated; a launch that fails leaves it created."""
    program = source("""
        import sys
        print("on", flush=True)  # @inside
        sys.stdin.readline()
    """)
    session = relay.session()
    seen = [session.status()["status"]]
    session.try_launch("/nowhere/at/all.py").refused("LAUNCH_SCRIPT_NOT_FOUND", 400)
    seen.append(session.status()["status"])
    session.break_at(program, program["inside"])
    seen.append(session.launch(program)["status"])
    seen.append(session.post("/continue", {"wait": 0}).ok()["status"])
    session.post("/input", {"input": "\n"}).ok()
    session.events("terminated", timeout=20)
    seen.append(session.get().ok()["status"])
    assert seen == ["created", "created", "paused", "running", "terminated"]
    error = session.post("/continue").refused("INVALID_SESSION_STATE", 409)
    assert error["details"]["current_state"] == "terminated"


# -- the relay


def test_5_8_health_info_config_and_shutdown(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    """The relay tells how it is and what it can, and stops when it is told."""
    relay = own_relay()
    client = relay.client
    session = paused(client, source(PROGRAM))
    health = client.get("/health").ok()
    assert (health["status"], health["active_sessions"], health["debugpy_available"]) == (
        "healthy",
        1,
        True,
    )
    assert (health["uptime_seconds"] > 0, health["warnings"]) == (True, [])
    assert client.get("/info").ok()["version"] == health["version"]
    assert client.get("/config").ok()["config"]["sessions"]["max_sessions"] == 10
    stopping = client.post("/shutdown").ok()
    assert (stopping["stopping"], stopping["sessions"], stopping["keep_sessions"]) == (
        True,
        1,
        False,
    )
    assert relay.wait() == 0
    assert marked(session.id) == []
    assert relay.workers() == []


def test_6_2_calls_are_as_quick_as_was_asked_for(
    relay: Client, source: Callable[..., Source]
) -> None:
    """Breakpoint 100 ms, step 200 ms, variables 300 ms, expression 500 ms, status 50 ms."""
    program = source(PROGRAM)
    session = paused(relay, program)
    assert usual(session.status) < 0.05
    assert usual(lambda: session.break_at(program, program["inside"] + 1)) < 0.1
    assert usual(lambda: session.step("over")) < 0.2
    assert usual(session.locals) < 0.3
    assert usual(lambda: session.value("n * 2")) < 0.5


# -- errors


def wrong_calls() -> list[tuple[str, str, Any]]:
    """One call of every operation that cannot go well."""
    calls = []
    for row in OPERATIONS.values():
        path = row.path.replace("{session_id}", UNKNOWN)
        for name in (
            "thread_id",
            "frame_id",
            "variables_reference",
            "breakpoint_id",
            "pid",
            "name",
        ):
            path = path.replace("{" + name + "}", "1")
        if row.verb not in ("GET", "DELETE"):
            calls.append((row.verb, path, b'{"unfinished": '))
        elif row.on_session:
            calls.append((row.verb, path, None))
    return calls


def test_ac_eh_1_every_error_has_a_code_and_words(relay: Client) -> None:
    """Whatever goes wrong, the answer is the envelope with code, message and what to do next."""
    calls = [
        *wrong_calls(),
        ("GET", "/nowhere", None),
        ("PUT", "/sessions", {}),
        ("GET", "/sessions?limit=x", None),
        ("GET", "/sessions?unknown=1", None),
    ]
    for verb, path, body in calls:
        answer = relay.call(verb, path, body)
        assert answer.status >= 400, (verb, path)
        error = answer.refused(answer.body["error"]["code"])
        assert ERRORS[error["code"]].status == answer.status, (verb, path, error)
        assert " " in error["message"]
        assert answer.body["meta"]["request_id"] == answer.headers["X-Request-ID"]
        assert answer.headers["Content-Type"].startswith("application/json")


def test_ac_eh_2_an_unknown_session_is_404(relay: Client) -> None:
    """Every operation on it says so, names the id, and tells how to find the right one."""
    there = relay.session()
    for row in OPERATIONS.values():
        if not (row.on_session and row.verb in ("GET", "DELETE")):
            continue
        path = row.path.replace("{session_id}", UNKNOWN).replace("{breakpoint_id}", "bp_1")
        for name in ("frame_id", "variables_reference"):
            path = path.replace("{" + name + "}", "1")
        query = {"variables_reference": 1} if row.name == "variables" else {}
        error = relay.call(row.verb, path, **query).refused("SESSION_NOT_FOUND", 404)
        assert UNKNOWN in error["message"]
        assert there.id in error["details"]["suggestion"]
    for path, body in {
        "/launch": {"script": "/a.py"},
        "/continue": None,
        "/step-over": {},
        "/evaluate": {"expression": "1"},
        "/breakpoints": {"file": "/a.py", "line": 1},
    }.items():
        relay.post(f"/sessions/{UNKNOWN}{path}", body).refused("SESSION_NOT_FOUND", 404)


def test_ac_eh_3_a_body_that_does_not_fit_is_400_with_every_wrong_field(relay: Client) -> None:
    """All wrong fields at once, by path, with what was sent; broken JSON by line and column."""
    session = relay.session()
    body = {"breakpoints": [{"source": {"path": "/a.py"}, "line": "x"}, {"lin": 3, "line": 0}]}
    error = session.post("/breakpoints", body).refused("INVALID_REQUEST", 400)
    problems = {one["field"]: one for one in error["details"]["errors"]}
    assert problems.keys() == {
        "breakpoints[0].line",
        "breakpoints[1].lin",
        "breakpoints[1].line",
        "breakpoints[1].source.path",
    }
    assert problems["breakpoints[0].line"]["value"] == "x"
    assert "line" in problems["breakpoints[1].lin"]["message"]
    error = relay.post("/sessions", b'{"name":\n "x",}').refused("INVALID_REQUEST", 400)
    assert "line 2" in error["message"]
    error = relay.post("/sessions", b"[1]").refused("INVALID_REQUEST", 400)
    assert "object" in error["message"]


def test_ac_eh_4_a_mistake_of_the_relay_is_500_and_can_be_looked_up(
    own_relay: Callable[..., Relay], tmp_path: Path
) -> None:
    """An id, the exception's type, the operation, and the log that has the rest; no inner text."""
    relay = own_relay(env=with_fault(tmp_path / "fault", MISTAKE))
    answer = relay.client.get("/info")
    details = answer.refused("INTERNAL_ERROR", 500)["details"]
    assert (details["exception"], details["operation"]) == ("KeyError", "info")
    assert len(details["error_id"]) >= 8
    log = Path(details["log_file"])
    eventually(lambda: details["error_id"] in log.read_text())
    assert "Traceback" in log.read_text()
    assert b"Traceback" not in answer.raw
    assert b"inner secret" not in answer.raw
    assert relay.client.get("/health").ok()["status"] == "healthy"


def test_ac_eh_5_what_takes_too_long_is_504_and_may_be_tried_again(
    relay: Client, source: Callable[..., Source]
) -> None:
    """It says for how long it waited and what to change; the session goes on."""
    session = paused(relay, source(PROGRAM))
    slow = {"expression": "[__import__('time').sleep(0.01) for _ in range(9000)]", "timeout": 0.1}
    error = session.post("/evaluate", slow).refused("DEBUGPY_TIMEOUT", 504)
    assert "0.1 s" in error["message"]
    assert "larger timeout" in error["details"]["suggestion"]
    assert error["details"]["operation"] == "evaluate"
    assert session.value("n") == "0"
    assert all(row.retry for row in ERRORS.values() if row.status == 504)


# -- safety


def test_ac_se_1_nobody_listens_but_on_loopback(
    relay: Client, shared_relay: Relay, source: Callable[..., Source]
) -> None:
    """Neither the relay nor a worker, a debugger or a debugged program."""
    assert relay.host == "127.0.0.1"
    session = paused(relay, source(PROGRAM))
    process = psutil.Process(shared_relay.pid)
    everyone = [process, *process.children(recursive=True), *marked(session.id)]
    assert len(everyone) >= 3
    assert listening(everyone) == {"127.0.0.1"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_ac_se_2_another_address_is_a_matter_of_safety(tmp_path: Path, host: str) -> None:
    """The address can be chosen; one that others reach is not taken without a word."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "debug_relay.supervisor", "serve"),
            *("--host", host, "--port", "0", "--data-dir", str(tmp_path / "data")),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert host in done.stderr
    assert "whoever reaches it runs code as this user" in done.stderr


def test_ac_se_2_loopback_by_another_name(own_relay: Callable[..., Relay]) -> None:
    """`localhost` is as good."""
    relay = own_relay("--host", "localhost")
    assert relay.client.get("/health").ok()["status"] == "healthy"
    assert listening([psutil.Process(relay.pid)]) <= {"127.0.0.1", "::1"}


def test_ac_se_3_code_runs_in_the_program_alone(relay: Client, tmp_path: Path) -> None:
    """Expressions, conditions, log messages and imports: all by the program, none before it."""
    package = tmp_path / "package"
    package.mkdir()
    told = tmp_path / "pids"
    (package / "__init__.py").write_text(
        f"import os\nwith open({str(told)!r}, 'a') as file:\n    print(os.getpid(), file=file)\n"
    )
    module = Source(package / "module.py", "n = 1\nm = n  # @inside\nprint(m)  # @log\n")
    tell = f"print(__import__('os').getpid(), file=open({str(told)!r}, 'a'))"
    session = relay.session(project_root=str(tmp_path))
    session.break_at(module, module["inside"], condition=f"{tell} or True")
    session.break_at(module, module["log"], log_message=f"{{{tell}}}")
    session.try_launch(module="package.missing").refused("LAUNCH_MODULE_NOT_FOUND", 400)
    session.post("/evaluate", {"expression": tell}).refused("INVALID_SESSION_STATE", 409)
    # Looking for the module imports its package: in the program that was to run it, once.
    before = told.read_text().split() if told.exists() else []
    assert len(before) <= 1
    stopped = session.launch(module="package.module")
    assert stopped["status"] == "paused"
    session.value(tell)
    session.resume()
    pids = told.read_text().split()[len(before) :]
    assert len(pids) == 4
    assert set(pids) == {str(stopped["pid"])}


def test_ac_se_4_files_are_read_as_the_user_may(
    relay: Client, shared_relay: Relay, source: Callable[..., Source], tmp_path: Path
) -> None:
    """Nobody gains rights by the relay, and what is no plain file is not opened."""
    session = paused(relay, source(PROGRAM))
    for process in (shared_relay.worker(session.id), *marked(session.id)):
        assert process.uids().effective == os.geteuid()
        assert process.gids().effective == os.getegid()
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)

    def refused(path: Path | str) -> str:
        body = {"file": str(path), "line": 1}
        answer: Answer = session.post("/breakpoints", body)
        return str(answer.refused("BREAKPOINT_FILE_NOT_FOUND", 400)["message"])

    assert "not a regular file" in refused(pipe)
    assert "not a regular file" in refused("/dev/zero")
    assert "is a directory" in refused(tmp_path)
    if os.geteuid() != 0:  # to root every file is readable
        secret = source("secret = 1\n", "secret.py")
        secret.path.chmod(0)
        assert "Permission denied" in refused(secret.path)
