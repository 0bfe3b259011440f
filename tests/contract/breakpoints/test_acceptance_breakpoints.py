"""The user story's acceptance criteria for breakpoints and their persistence, by their names."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = """
    def work(n):
        # what comes in is doubled  @never
        doubled = n * 2  # @inside

        return doubled  # @out

    for n in range(10):
        work(n)  # @call
    try:
        {}["missing"]  # @raise
    except LookupError:
        pass
"""
Write = Callable[..., Source]


def summary(session: Session) -> list[tuple[Any, ...]]:
    listed = session.get("/breakpoints").ok()["breakpoints"]
    names = ("id", "line", "function", "condition", "hit_condition", "log_message", "enabled")
    return [tuple(one[name] for name in names) for one in listed]


def set_all_kinds(session: Session, program: Source) -> list[tuple[Any, ...]]:
    session.break_at(program, program["inside"], condition="n > 3", hit_condition=">=2")
    session.break_at(program, program["out"], log_message="{doubled!r:>4}", enabled=False)
    session.post("/breakpoints", {"function": "work", "condition": "n == 9"}).ok()
    session.post("/exception-breakpoints", {"types": ["KeyError"]}).ok()
    return summary(session)


def test_ac_bp_1_a_line_with_code_is_verified(relay: Client, source: Write, python: str) -> None:
    """Setting a breakpoint on a valid line answers verified."""
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        for mark in ("inside", "out", "call", "raise"):
            told = session.break_at(program, program[mark])
            assert (told["verified"], told["line"]) == (True, program[mark])


def test_ac_bp_2_a_line_without_code_says_why(relay: Client, source: Write, python: str) -> None:
    """A comment or a blank line is not verified, and it is explained."""
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        for line, word in ((program["inside"] - 1, "comment"), (program["out"] - 1, "blank")):
            told = session.break_at(program, line)
            assert (told["verified"], told["line"]) == (False, line)
            assert word in told["message"]
            assert "which is probably meant" in told["suggestion"]


def test_ac_bp_3_4_5_6_what_decides_whether_it_stops(
    relay: Client, source: Write, python: str
) -> None:
    """A condition, a count of hits; one that is disabled or removed stops nothing."""
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        id = session.break_at(program, program["inside"], condition="n in (3, 8)")["id"]
        session.break_at(program, program["out"], hit_condition="5")
        off = session.break_at(program, program["call"], enabled=False)["id"]
        session.launch(program)
        assert (session.line(), session.value("n")) == (program["inside"], "3")
        session.resume()
        assert (session.line(), session.value("n")) == (program["out"], "4")
        session.patch(f"/breakpoints/{off}", {"enabled": True}).ok()
        session.resume()
        assert (session.line(), session.value("n")) == (program["call"], "5")
        session.patch(f"/breakpoints/{off}", {"enabled": False}).ok()
        session.delete(f"/breakpoints/{id}").ok()
        assert session.resume()["status"] == "terminated"
        assert len(session.events("stopped")) == 3


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_ac_bp_7_pe_2_all_is_there_after_a_restart_of_the_relay(
    own_relay: Callable[..., Relay], source: Write, tmp_path: Path, ending: signal.Signals
) -> None:
    """In the same session under the same ids, however the relay ended; and in a new session of the
    project after the relay and its workers have gone.
    """
    relay, program = own_relay(), source(PROGRAM)
    for name in "ab":
        (tmp_path / name).mkdir()
    before, gone = (relay.client.session(project_root=str(tmp_path / name)) for name in "ab")
    told = set_all_kinds(before, program)
    assert set_all_kinds(gone, program) == told
    worker = relay.worker(gone.id)
    relay.signal(ending)
    relay.wait()
    if ending is signal.SIGKILL:
        worker.kill()
        eventually(lambda: not worker.is_running())
    relay.start()
    session = Session(relay.client, before.id)
    assert summary(session) == told
    assert session.get("/exception-breakpoints").ok()["types"] == ["KeyError"]
    assert session.break_at(program, program["call"])["id"] == "bp_4"
    session.launch(program)
    assert session.line() == program["call"]
    session.delete("/breakpoints/bp_4").ok()
    session.resume()
    assert (session.line(), session.value("n")) == (program["inside"], "5")
    again = relay.client.session(project_root=str(tmp_path / "b"), restore_breakpoints=True)
    assert [row[1:] for row in summary(again)] == [row[1:] for row in told]
    again.launch(program)
    assert (again.line(), again.value("n")) == (program["inside"], "5")


def test_ac_bp_8_exceptions_by_type(relay: Client, source: Write, python: str) -> None:
    """An exception of the type that was asked for stops where it is raised, handled or not."""
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        session.post("/exception-breakpoints", {"types": ["LookupError"]}).ok()
        stopped = session.launch(program)
        assert (stopped["stop_reason"], session.line()) == ("exception", program["raise"])
        assert session.get("/exception").ok()["type"] == "KeyError"
        assert session.resume()["status"] == "terminated"


# -- persistence


def test_ac_pe_1_saved_by_the_time_of_the_reply(
    relay: Client, shared_relay: Relay, source: Write, tmp_path: Path
) -> None:
    """What is set is on disk when the caller is told so, without being asked to save."""
    program, folder = source(PROGRAM), shared_relay.data_dir / "breakpoints"
    others = set(folder.glob("*.json"))
    session = relay.session(project_root=str(tmp_path))
    body = {"file": str(program), "line": program["inside"]}
    assert session.post("/breakpoints", body).ok()["persisted"] is True
    [saved] = set(folder.glob("*.json")) - others
    assert f'"line": {program["inside"]}' in saved.read_text()


def test_ac_pe_3_the_place_is_configured(
    own_relay: Callable[..., Relay], source: Write, tmp_path: Path
) -> None:
    """The files lie in the data directory, which a flag or the environment names."""
    elsewhere = tmp_path / "chosen" / "place"
    relay, program = own_relay("--data-dir", str(elsewhere), name="unused"), source(PROGRAM)
    session = relay.client.session(project_root=str(tmp_path))
    session.break_at(program, program["inside"])
    assert len(list((elsewhere / "breakpoints").glob("*.json"))) == 1
    assert not (tmp_path / "unused" / "breakpoints").exists()
    session.delete(force="true").ok()


UNREADABLE = ("", "{", "[]", '{"version": 1}', "\x00" * 4096, '"' * 9)


def test_ac_pe_4_what_cannot_be_read_starts_fresh(
    own_relay: Callable[..., Relay], source: Write, tmp_path: Path
) -> None:
    """Set aside, said in the log, and the project begins anew."""
    relay, program = own_relay(), source(PROGRAM)
    roots = [tmp_path / f"project{number}" for number in range(len(UNREADABLE))]
    saved = {}
    for root, text in zip(roots, UNREADABLE, strict=True):
        root.mkdir()
        known = set((relay.data_dir / "breakpoints").glob("*.json"))
        relay.client.session(project_root=str(root)).break_at(program, program["inside"])
        [path] = set((relay.data_dir / "breakpoints").glob("*.json")) - known
        saved[root] = path, text
    relay.stop()
    for path, text in saved.values():
        path.write_text(text)
    relay.start()
    for root, (path, text) in saved.items():
        session = relay.client.session(project_root=str(root), restore_breakpoints=True)
        assert summary(session) == [], text
        [aside] = path.parent.glob(f"{path.name}.corrupt-*")
        assert aside.read_text() == text
        body = {"file": str(program), "line": program["out"]}
        assert session.post("/breakpoints", body).ok()["persisted"] is True
    assert session.launch(program)["current_location"]["line"] == program["out"]
