"""Breakpoints in files that are not there yet, and in files that change under a program."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

WAITER = """
    import sys
    sys.dont_write_bytecode = True
    sys.path.insert(0, {folder!r})
    print("up", flush=True)
    input()
    import later
    later.work(1)
"""


def become(session: Session, id: str, verified: bool) -> Any:
    """The breakpoint, as soon as it is so."""

    def look() -> Any:
        found = session.get(f"/breakpoints/{id}").ok()
        return found if found["verified"] is verified else None

    return eventually(look, what=f"{id} verified: {verified}")


def test_a_file_that_the_program_writes_and_imports_at_once_is_stopped_in(
    relay: Client, source: Callable[..., Source], python: str, tmp_path: Path
) -> None:
    main = source(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        print("up", flush=True)
        input()
        with open({str(tmp_path / "gen.py")!r}, "w") as file:
            file.write("def work(x):\\n    y = x + 1\\n    return y\\n")
        import gen
        gen.work(41)
    """)
    with relay.session(python_path=python) as session:
        session.launch(main, wait=0.1)
        session.events("output", timeout=20)
        # While it runs; another one on a line that will have no code of its own.
        pending = session.break_at(tmp_path / "gen.py", 2, condition="x == 41")
        nowhere = session.break_at(tmp_path / "gen.py", 700)
        assert (pending["verified"], nowhere["verified"]) == (False, False)
        assert "pending" in pending["message"]
        session.post("/input", {"input": "go\n"}).ok()
        (stopped,) = session.events("stopped", timeout=20)
        assert stopped["body"]["current_location"]["line"] == 2
        assert stopped["body"]["hit_breakpoint_ids"] == [pending["id"]]
        assert session.value("x") == "41"
        # True at the stop already, however quick it was.
        now = session.get(f"/breakpoints/{pending['id']}").ok()
        assert (now["verified"], now["message"], now["hit_count"]) == (True, None, 1)
        past = session.get(f"/breakpoints/{nowhere['id']}").ok()
        assert past["verified"] is False
        assert "ends with line 3" in past["message"]
        assert session.resume()["exit_code"] == 0


def test_a_file_that_appears_verifies_by_itself_and_an_event_says_so(
    relay: Client, source: Callable[..., Source], tmp_path: Path
) -> None:
    late = tmp_path / "late.py"
    with relay.session() as session:
        good = session.break_at(late, 2)["id"]
        bad = session.break_at(late, 1)["id"]
        late.write_text("# says nothing\nx = 1\n")
        become(session, good, True)
        events = {}
        new, changed = session.events("breakpoint")[:2], session.events("breakpoint")[2:]
        assert {event["body"]["reason"] for event in new} == {"new"}
        for event in changed:
            assert event["body"]["reason"] == "changed"
            events[event["body"]["breakpoint"]["id"]] = event["body"]["breakpoint"]
        assert events[good]["verified"] is True
        assert "comment" in events[bad]["message"]
        assert "line 2 `x = 1`" in events[bad]["suggestion"]
        late.unlink()
        assert "pending" in become(session, good, False)["message"]


def test_pending_in_a_running_program_and_hit_at_a_later_import(
    relay: Client, source: Callable[..., Source], python: str, tmp_path: Path
) -> None:
    main = source(WAITER.format(folder=str(tmp_path)))
    with relay.session(python_path=python) as session:
        session.launch(main, wait=0.1)
        session.events("output", timeout=20)
        # A file that comes as a link lies elsewhere than it was thought to.
        pending = session.break_at(tmp_path / "later.py", 2)
        source("def work(x):\n    return x\n", "elsewhere/real.py")
        (tmp_path / "later.py").symlink_to(tmp_path / "elsewhere" / "real.py")
        become(session, pending["id"], True)
        session.post("/input", {"input": "go\n"}).ok()
        (stopped,) = session.events("stopped", timeout=20)
        assert stopped["body"]["hit_breakpoint_ids"] == [pending["id"]]


def test_a_line_without_code_in_a_pending_file_never_stops(
    relay: Client, source: Callable[..., Source], python: str, tmp_path: Path
) -> None:
    main = source(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        with open({str(tmp_path / "gen.py")!r}, "w") as file:
            file.write("x = 1\\n# nothing\\ny = 2\\n")
        import gen
    """)
    with relay.session(python_path=python) as session:
        id = session.break_at(tmp_path / "gen.py", 2)["id"]
        assert session.launch(main)["exit_code"] == 0
        assert "comment" in eventually(
            lambda: (
                (found := session.get(f"/breakpoints/{id}").ok()["message"])
                and "pending" not in found
                and found
            )
        )


# -- files that change


def test_a_source_that_changed_since_it_was_loaded_is_said(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    text = """
        import os
        def work(i):
            x = i  # @work
            return x  # @back

        while True:
            work(1)
    """
    program = source(text)
    with relay.session(python_path=python) as session:
        id = session.break_at(program, program["work"])["id"]
        assert session.launch(program)["status"] == "paused"
        assert session.get("/stacktrace").ok()["frames"][0]["warning"] is None
        # Written again as it was: nothing has changed for the program.
        program.path.write_text(program.text)
        assert session.get("/stacktrace").ok()["frames"][0]["warning"] is None
        program.path.write_text(program.text.replace("x = i ", "x = i + 1"))
        frames = session.get("/stacktrace").ok()["frames"]
        assert "has changed" in frames[0]["warning"]
        told = eventually(lambda: session.get(f"/breakpoints/{id}").ok()["message"])
        assert "has changed" in str(told)
        last = session.events("breakpoint", timeout=10)[-1]["body"]["breakpoint"]
        assert (last["verified"], "has changed" in last["message"]) == (True, True)
        assert "has changed" in session.break_at(program, program["back"])["message"]
        # Back to what runs: no warning any more.
        program.path.write_text(program.text)
        eventually(lambda: session.get(f"/breakpoints/{id}").ok()["message"] is None)
        assert session.get("/stacktrace").ok()["frames"][0]["warning"] is None


def test_a_source_that_is_loaded_anew_is_not_old_any_more(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    late = source("def work():\n    return 1  # @work\n", "late.py")
    program = source("""
        import importlib, late
        late.work()
        importlib.reload(late)
        late.work()
    """)
    with relay.session(python_path=python) as session:
        id = session.break_at(late, late["work"])["id"]
        assert session.launch(program)["status"] == "paused"
        late.path.write_text(late.text.replace("return 1", "return 1 + 1"))
        eventually(lambda: "has changed" in str(session.get(f"/breakpoints/{id}").ok()["message"]))
        assert session.resume()["status"] == "paused"
        assert session.get("/stacktrace").ok()["frames"][0]["warning"] is None
        assert session.get(f"/breakpoints/{id}").ok()["message"] is None
        assert session.events("breakpoint")[-1]["body"]["breakpoint"]["message"] is None
        assert session.resume()["exit_code"] == 0


def test_who_has_loaded_a_source_anew_is_not_said_to_run_the_older_text(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """A reloader: what waits for the child has the module as it was, the child has it anew."""
    app = source("def work(i):\n    return i  # @work\n", "app.py")
    program = source("""
        import subprocess, sys
        sys.dont_write_bytecode = True
        import app
        if sys.argv[1:]:
            app.work(1)
            sys.exit()
        for line in sys.stdin:
            subprocess.run([sys.executable, __file__, "again"])
    """)
    with relay.session(python_path=python) as session:
        id = session.break_at(app, app["work"])["id"]
        parent = session.launch(program, wait=0, debug_subprocesses=True)["pid"]

        def reload() -> Any:
            session.post("/input", {"input": "\n"}).ok()
            return eventually(lambda: (now := session.status())["stop_id"] > stop and now)

        def said() -> tuple[str | None, str | None]:
            """Of the frame and of the breakpoint."""
            frame = session.get("/stacktrace").ok()["frames"][0]
            message = session.get(f"/breakpoints/{id}").ok()["message"]
            return frame["warning"], message

        def last_told() -> Any:
            return session.events("breakpoint")[-1]["body"]["breakpoint"]["message"]

        stop = 0
        stop = reload()["stop_id"]
        assert said() == (None, None)
        session.resume(wait=0)
        app.path.write_text(app.text.replace("return i", "return i + 1"))
        everywhere = str(eventually(lambda: session.get(f"/breakpoints/{id}").ok()["message"]))
        assert "the older text still runs" in everywhere
        stop = reload()["stop_id"]
        there = f"the file has changed since process {parent} loaded it"
        assert said() == (None, f"{there}: the older text still runs there")
        assert last_told() == said()[1]
        app.path.write_text(app.text.replace("return i", "return i + 2"))
        eventually(lambda: said() == (everywhere, everywhere))
        session.resume(wait=0)
        eventually(lambda: session.get().ok()["child_pids"] == [])
        assert session.get(f"/breakpoints/{id}").ok()["message"] == last_told() == everywhere


def test_a_line_whose_code_went_away_is_not_verified_any_more(
    relay: Client, source: Callable[..., Source]
) -> None:
    program = source("x = 1\ny = 2  # @here\n")
    with relay.session() as session:
        id = session.break_at(program, program["here"])["id"]
        program.path.write_text("x = 1\n# gone\n")
        assert "comment" in become(session, id, False)["message"]
        program.path.write_text("x = 1\ny = 3\n")
        assert become(session, id, True)["message"] is None


def test_code_that_is_in_no_file_of_its_own_is_verified_when_it_stops(
    relay: Client, source: Callable[..., Source], tmp_path: Path, python: str
) -> None:
    archive = tmp_path / "lib.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("inside.py", "def f(x):\n    return x + 1\n")
    main = source(f"import sys\nsys.path.insert(0, {str(archive)!r})\nimport inside\ninside.f(1)\n")
    with relay.session(python_path=python) as session:
        pending = session.break_at(archive / "inside.py", 2)
        assert (pending["verified"], "pending" in pending["message"]) == (False, True)
        assert session.launch(main)["stop_reason"] == "breakpoint"
        told = session.get(f"/breakpoints/{pending['id']}").ok()
        assert (told["verified"], told["hit_count"]) == (True, 1)
        assert "pending" not in told["message"]
        assert session.events("breakpoint")[-1]["body"]["breakpoint"]["verified"] is True
