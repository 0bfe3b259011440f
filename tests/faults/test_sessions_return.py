"""The relay stops, or the machine: sessions that had not ended are there again, to be launched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.client import Session
from tests.kit.relay import Relay, eventually, marked
from tests.kit.running import Running
from tests.kit.source import Source

PROGRAM = """
    import os, sys

    print("run", sys.argv[1:], os.environ.get("API_TOKEN"), flush=True)
    for i in range(10):
        x = i  # @here
    y = 1  # @there
"""
STUBBORN = """
    import signal, time

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf", flush=True)
    time.sleep(600)
"""


def at_stop(relay: Relay, program: Source, **fields: Any) -> Session:
    session = relay.client.session(name="mine", labels={"a": "b"}, **fields)
    session.break_at(program, program["there"], enabled=False)
    session.delete("/breakpoints/bp_1").ok()
    session.break_at(program, program["here"], condition="i == 4")
    env = {"API_TOKEN": "s3cr3t", "PLAIN": "1"}
    assert session.launch(program, args=["--pin=12", "b"], env=env)["status"] == "paused"
    return session


def again(relay: Relay, session: Session) -> Session:
    return Session(relay.client, session.id)


def reboot(relay: Relay, *sessions: Session, how: str) -> None:
    """All processes are gone; after a reboot the kernel is another."""
    workers = [relay.worker(session.id) for session in sessions]
    for session in sessions:
        until_recorded(relay, session)
    for worker in workers:
        worker.kill()
    relay.kill()  # it may just have seen what became of its workers
    for worker in workers:
        worker.wait(10)
    for session in sessions:
        folder = relay.run_dir / session.id
        if how == "wiped":
            shutil.rmtree(folder)
        elif how == "reboot":
            said = json.loads((folder / "identity.json").read_text())
            (folder / "identity.json").write_text(json.dumps({**said, "boot_id": "another"}))
    relay.start()


def until_recorded(relay: Relay, session: Session) -> None:
    record = relay.data_dir / "sessions" / session.id / "session.json"
    status = session.status()["status"]
    eventually(lambda: json.loads(record.read_text())["state"]["status"] == status)


def history(session: Session) -> list[Any]:
    return list(session.get("/history").ok()["items"])


def numbers(session: Session) -> list[int]:
    return [event["seq"] for event in session.events()]


@pytest.mark.parametrize("how", ["shutdown", "reboot", "killed", "wiped"])
def test_it_comes_back_and_is_launched_again(
    own_relay: Callable[..., Relay], source: Callable[..., Source], tmp_path: Path, how: str
) -> None:
    relay, program = own_relay(), source(PROGRAM)
    session = at_stop(relay, program, project_root=str(tmp_path), timeout_minutes=9)
    whole, told = session.get().ok(), session.get("/export").ok()
    last = numbers(session)[-1]
    assert len(history(session)) == 1  # written by now, as it is 0.3 s after the stop
    if how in ("reboot", "killed", "wiped"):
        reboot(relay, session, how=how)
    else:
        relay.client.post("/shutdown").ok()
        assert relay.wait() == 0
        assert marked(session.id) == []
        assert relay.workers() == []
        relay.start()
    session = again(relay, session)

    shown = session.get().ok()
    assert (shown["status"], shown["restored"]) == ("created", True)
    assert shown["previous_status"] == "paused"
    for name in ("session_id", "name", "config", "created_at", "created_by", "breakpoint_count"):
        assert shown[name] == whole[name]
    for name in ("stop_reason", "current_location", "exit_code", "end_reason", "expires_at"):
        assert shown[name] is None
    assert shown["missing_env"] == ["API_TOKEN"]
    assert (shown["program"]["script"], shown["program"]["pid"]) == (str(program), None)
    assert session.get("/export").ok() == told
    assert session.printed("stdout") == ("run ['--pin=12', 'b'] s3cr3t\n" if how != "wiped" else "")
    assert shown["missing_fields"] == ["args"]
    assert shown["program"]["args"] == ["--pin=***", "b"]
    if how != "wiped":
        [stop] = history(session)
        assert (stop["stop_id"], stop["current_location"]["line"]) == (1, program["here"])
        assert ("i", "4") in [(one["name"], one["value"]) for one in stop["locals"]]
    # Nothing of this needed a worker.
    assert relay.workers() == []
    assert relay.client.get("/health").ok()["active_sessions"] == 0
    session.post("/continue").refused("INVALID_SESSION_STATE", 409)

    seen = session.get("/events", limit=1000).ok()
    [breakpoint] = session.get("/breakpoints").ok()["breakpoints"]
    assert (breakpoint["id"], breakpoint["condition"]) == ("bp_2", "i == 4")
    assert len(relay.workers()) == 1
    assert session.break_at(program, program["there"])["id"] == "bp_3"
    # With what was hidden it is never launched.
    body = {"env": {"API_TOKEN": "x"}}
    error = session.post("/restart", body).refused("LAUNCH_FIELDS_MISSING", 400)
    assert error["details"]["missing_fields"] == ["args"]
    assert error["details"]["launched_with"] == {"args": ["--pin=***", "b"]}
    shown = session.get().ok()
    assert (shown["restored"], shown["previous_status"]) == (True, "paused")
    assert shown["created_at"] == whole["created_at"]
    stopped = session.launch(program, args=["c"], env={"API_TOKEN": "new"})
    assert stopped["current_location"]["line"] == program["here"]
    assert session.value("i") == "4"
    shown = session.get().ok()
    assert (shown["missing_env"], shown["missing_fields"]) == ([], [])
    before = "run ['--pin=12', 'b'] s3cr3t\n" if how != "wiped" else ""
    assert session.printed("stdout") == before + "run ['c'] new\n"
    assert [one["stop_id"] for one in history(session)] == ([2, 1] if how != "wiped" else [2])
    fresh = session.get("/events", limit=1000, cursor=seen["next_cursor"]).ok()["events"]
    after = [event["seq"] for event in fresh]
    assert after == list(range(after[0], after[0] + len(after)))
    if how != "wiped":
        assert after[0] == max([last, *(event["seq"] for event in seen["events"])]) + 1
    assert session.resume()["current_location"]["line"] == program["there"]
    assert session.resume()["exit_code"] == 0


def test_again_and_again(own_relay: Callable[..., Relay], source: Callable[..., Source]) -> None:
    relay, program = own_relay(), source(PROGRAM)
    session = at_stop(relay, program)
    made = relay.client.session(name="never launched")
    for _ in range(2):
        relay.stop()
        relay.start()
        shown = again(relay, session).get().ok()
        assert (shown["status"], shown["previous_status"]) == ("created", "paused")
        shown = again(relay, made).get().ok()
        assert (shown["status"], shown["restored"], shown["program"]) == ("created", True, None)
    for _ in range(2):
        # With a worker of its own, the next relay adopts it.
        assert len(again(relay, session).get("/breakpoints").ok()["breakpoints"]) == 1
        relay.kill()
        relay.start()
        assert again(relay, session).get().ok()["restored"] is True
    assert len(relay.workers()) == 1
    relay.stop()
    relay.start()
    assert again(relay, session).get().ok()["previous_status"] == "created"
    assert again(relay, session).delete().ok()["deleted"] is True
    relay.stop()
    relay.start()
    assert [item["session_id"] for item in relay.client.get("/sessions").ok()["items"]] == [made.id]


def test_what_had_ended_stays_so(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    ended, crashed, wiped = (relay.client.session(name=str(i)) for i in range(3))
    for session in (ended, wiped):
        session.launch(source("print('bye')\nraise SystemExit(3)\n", "ends.py"))
    at = source(PROGRAM)
    crashed.break_at(at, at["here"])
    crashed.launch(at)
    relay.worker(crashed.id).kill()
    eventually(lambda: crashed.status()["status"] == "failed")
    relay.stop()
    shutil.rmtree(relay.run_dir / wiped.id)
    relay.start()
    for session in (ended, wiped):
        shown = again(relay, session).get().ok()
        assert (shown["status"], shown["exit_code"]) == ("terminated", 3)
        assert (shown["end_reason"], shown["restored"]) == ("target_exited", False)
    assert again(relay, ended).printed() == "bye\n"
    assert again(relay, wiped).printed() == ""
    shown = again(relay, crashed).get().ok()
    assert (shown["status"], shown["end_reason"]) == ("failed", "crashed")
    assert (shown["worker_signal"], shown["previous_status"]) == ("SIGKILL", "paused")
    assert again(relay, crashed).events()[-1]["body"]["status"] == "failed"
    # The newest first, as before.
    listed = [item["session_id"] for item in relay.client.get("/sessions").ok()["items"]]
    assert listed == [wiped.id, crashed.id, ended.id]


def test_a_program_that_does_not_end_in_time(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    session = relay.client.session()
    session.launch(source(STUBBORN), wait=0)
    eventually(lambda: session.printed() == "deaf\n")
    assert relay.stop() == 0
    assert marked(session.id) == []
    relay.start()
    shown = again(relay, session).get().ok()
    assert (shown["status"], shown["previous_status"]) == ("created", "running")


SERVER = """
    import time

    print("up", flush=True)
    while True:
        time.sleep(0.01)  # @loop
"""


@pytest.mark.parametrize("how", ["stop", "orphaned", "killed", "hung"])
def test_an_attached_session_comes_back(
    own_relay: Callable[..., Relay], start: Callable[..., Running], how: str
) -> None:
    relay = own_relay(env={"OPENCODE_DEBUG_SESSIONS__ORPHAN_TIMEOUT": "0.5"})
    program = start(SERVER)
    session = relay.client.session()
    session.break_at(program.program, program.program["loop"], condition="True")
    session.post("/attach", {"pid": program.pid, "wait": 20}).ok()
    worker = relay.worker(session.id)
    until_recorded(relay, session)
    if how in ("orphaned", "killed"):
        if how == "killed":
            worker.kill()
        relay.kill()
        eventually(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)
    else:
        if how == "hung":
            worker.suspend()
        relay.stop()
    relay.start()
    session = again(relay, session)
    shown = session.get().ok()
    assert (shown["status"], shown["restored"]) == ("created", True)
    assert (shown["previous_status"], shown["end_reason"]) == ("paused", None)
    assert shown["breakpoint_count"] == 1
    [breakpoint] = session.get("/breakpoints").ok()["breakpoints"]
    assert (breakpoint["id"], breakpoint["condition"]) == ("bp_1", "True")
    assert program.alive
    if how == "killed":
        # The program has run on: it can be attached to as before.
        attached = session.post("/attach", {"pid": program.pid, "wait": 20}).ok()
        assert (attached["status"], attached["stop_reason"]) == ("paused", "breakpoint")
    session.delete().ok()
    assert program.alive


def test_they_count_when_they_have_a_worker(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay(env={"OPENCODE_DEBUG_MAX_SESSIONS": "2"})
    program = source(PROGRAM)
    first, second = (at_stop(relay, program) for _ in range(2))
    relay.stop()
    relay.start()
    first, second = again(relay, first), again(relay, second)
    assert relay.client.get("/sessions").ok()["total"] == 2
    new = relay.client.session()
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: first.get("/breakpoints"), range(6)))
    assert [answer.status for answer in answers] == [200] * 6
    assert len(relay.workers()) == 2
    error = second.get("/breakpoints").refused("SESSION_LIMIT_REACHED", 429)
    assert {one["session_id"] for one in error["details"]["sessions"]} == {first.id, new.id}
    assert second.status()["status"] == "created"
    new.delete().ok()
    assert len(second.get("/breakpoints").ok()["breakpoints"]) == 1


def test_it_gets_a_worker_when_there_is_room_and_tells_who_waits(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    session = at_stop(relay, source(PROGRAM))
    relay.stop()
    relay.start()
    session = again(relay, session)
    seen = session.get("/events", limit=1000).ok()["next_cursor"]
    folder = relay.run_dir / session.id
    folder.rename(folder.with_name("aside"))
    folder.touch()
    session.get("/breakpoints").refused("WORKER_START_FAILED", 500)
    assert session.status()["status"] == "created"
    folder.unlink()
    folder.with_name("aside").rename(folder)
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(session.events, cursor=seen, timeout=20)
        eventually(lambda: relay.calls() == 1)
        session.patch("", {"name": "awake"}).ok()
        events = poll.result(30)
    assert events[0]["type"] == "session"
    assert (events[0]["body"]["restored"], events[0]["body"]["previous_status"]) == (True, "paused")
    assert len(session.get("/breakpoints").ok()["breakpoints"]) == 1


def test_kept_sessions_go_on(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay, program = own_relay("--keep-sessions"), source(PROGRAM)
    session = at_stop(relay, program)
    assert relay.stop() == 0
    assert len(relay.workers()) == 1
    relay.start()
    session = again(relay, session)
    shown = session.get().ok()
    assert (shown["status"], shown["restored"]) == ("paused", False)
    assert session.step()["status"] == "paused"
    # A shutdown says for itself what becomes of them.
    assert relay.client.post("/shutdown").ok()["keep_sessions"] is True
    relay.wait()
    relay.start()
    assert relay.client.post("/shutdown", {"keep_sessions": False}).ok()["keep_sessions"] is False
    relay.wait()
    assert relay.workers() == []
    relay.start()
    assert again(relay, session).status()["status"] == "created"


def test_a_damaged_record_is_set_aside(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    good, *damaged = (relay.client.session() for _ in range(4))
    relay.stop()
    content = (b"", b"\xff{", b'{"state": {}}')
    for session, bytes_ in zip(damaged, content, strict=True):
        (relay.data_dir / "sessions" / session.id / "session.json").write_bytes(bytes_)
    relay.start()
    assert again(relay, good).status()["status"] == "created"
    for session in damaged:
        again(relay, session).get().refused("SESSION_NOT_FOUND", 404)
        kept = relay.data_dir / "sessions" / session.id
        assert [path.name.split(".corrupt-")[0] for path in kept.iterdir()] == ["session.json"]
    relay.stop()
    relay.start()
    assert relay.client.get("/sessions").ok()["total"] == 1
