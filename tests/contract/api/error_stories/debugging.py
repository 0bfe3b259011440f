"""Errors of breakpoints, and of looking into a stopped program."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

from debug_relay.protocol.errors import Code
from tests.contract.api.error_stories.scene import PROGRAM, Scene, story_of, suggestion
from tests.kit.client import Answer
from tests.kit.relay import eventually


@story_of(Code.BREAKPOINT_NOT_FOUND)
def no_such_breakpoint(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write(PROGRAM)
    session.break_at(program, program["inside"])
    error = yield session.delete("/breakpoints/bp_7")
    named = re.search(r"bp_\d+", suggestion(error))
    assert named is not None
    session.delete(f"/breakpoints/{named.group()}").ok()


def breakpoint_of(path: object, line: int, **fields: Any) -> dict[str, Any]:
    return {"source": {"path": str(path)}, "line": line, **fields}


@story_of(Code.BREAKPOINT_INVALID_LINE)
def past_the_end(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write("x = 1\ny = 2\n")
    error = yield session.post("/breakpoints", breakpoint_of(program, 99))
    assert suggestion(error).endswith(f"to {error['details']['max_line']}.")
    assert session.break_at(program, error["details"]["max_line"])["verified"] is True


@story_of(Code.BREAKPOINT_INVALID_CONDITION)
def bad_condition(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write(PROGRAM)
    bad = breakpoint_of(program, program["inside"], condition="n = 5")
    error = yield session.post("/breakpoints", bad)
    example = re.search(r"such as (.*)\.", suggestion(error))
    assert example is not None
    assert session.break_at(program, program["inside"], condition=example.group(1))["verified"]


@story_of(Code.BREAKPOINT_FILE_NOT_FOUND)
def no_such_file(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write(PROGRAM)
    misspelt = str(program).replace("program.py", "progam.py")
    error = yield session.post(
        "/breakpoints", breakpoint_of(misspelt, program["inside"], must_exist=True)
    )
    meant = suggestion(error).removeprefix("Did you mean ").rstrip("?")
    assert session.break_at(meant, program["inside"], must_exist=True)["verified"] is True


@story_of(Code.BREAKPOINT_TEXT_MISMATCH)
def other_text(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write(PROGRAM)
    line = program["inside"]
    wrong = breakpoint_of(program, line, expected_text="surely not there")
    error = yield session.post("/breakpoints", wrong)
    there = {shown["line"]: shown["text"] for shown in error["details"]["lines"]}
    assert f"{line}: {there[line].strip()}" in suggestion(error)
    assert session.break_at(program, line, expected_text=there[line])["verified"] is True


@story_of(Code.PROFILE_NOT_FOUND)
def no_such_profile(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write(PROGRAM)
    body = {"breakpoints": [{"file": str(program), "line": program["inside"]}]}
    path = "/breakpoint-profiles"
    scene.client.call("PUT", f"{path}/checkout", body).ok()
    error = yield session.post(f"{path}/chekout/apply")
    meant = suggestion(error).removeprefix("Did you mean ").split("?")[0]
    assert session.post(f"{path}/{meant}/apply").ok()["breakpoints"][0]["verified"] is True
    scene.client.delete(f"{path}/{meant}").ok()


@story_of(Code.THREAD_NOT_FOUND)
def no_such_thread(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.at_a_stop()
    error = yield session.get("/threads/999/stacktrace")
    assert "/threads" in suggestion(error)
    thread = session.get("/threads").ok()["threads"][0]["id"]
    assert error["details"]["threads"] == [thread]
    session.get(f"/threads/{thread}/stacktrace").ok()


@story_of(Code.FRAME_NOT_FOUND)
def no_such_frame(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.at_a_stop()
    error = yield session.get("/scopes", frame_id=7)
    assert suggestion(error) == "Use a frame_id from 0 to 1."
    session.get("/scopes", frame_id=1).ok()


@story_of(Code.VARIABLE_NOT_FOUND)
def earlier_reference(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.at_a_stop()

    def reference() -> int:
        return int(session.get("/scopes").ok()["scopes"][0]["variables_reference"])

    old = reference()
    session.step()
    error = yield session.get(f"/variables/{old}")
    assert error["details"]["from_earlier_stop"] is True
    assert "/scopes" in suggestion(error)
    session.get(f"/variables/{reference()}").ok()


@story_of(Code.WATCH_NOT_FOUND)
def no_such_watch(scene: Scene) -> Generator[Answer, Any, None]:
    session = scene.session()
    session.post("/watch", {"expression": "n"}).ok()
    error = yield session.delete("/watch", watch_id="watch_9")
    assert "watch_1" in suggestion(error)
    assert scene.suggested(error).ok()["total"] == 1


@story_of(Code.EVALUATE_ERROR)
def statement(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.at_a_stop()
    error = yield session.post("/evaluate", {"expression": "n = 9", "context": "watch"})
    assert "context repl" in suggestion(error)
    session.post("/evaluate", {"expression": "n = 9", "context": "repl"}).ok()
    assert session.value("n") == "9"


@story_of(Code.DEBUGPY_TIMEOUT)
def slow_evaluation(scene: Scene) -> Generator[Answer, Any, None]:
    session, _ = scene.at_a_stop()
    body = {"expression": "[time.sleep(0.01) for _ in range(60)] and 7", "timeout": 0.1}
    error = yield session.post("/evaluate", body)
    assert "larger timeout" in suggestion(error)
    assert session.post("/evaluate", {**body, "timeout": 30}).ok()["result"] == "7"


@story_of(Code.DEBUGPY_ERROR)
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
