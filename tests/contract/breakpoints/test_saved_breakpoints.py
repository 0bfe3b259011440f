"""Breakpoints outlive their session: in a file of their project, which many sessions share."""

from __future__ import annotations

import hashlib
import json
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.kit.client import Client, Session
from tests.kit.relay import Relay
from tests.kit.source import Source

PROGRAM = """
    def work(n):
        doubled = n * 2  # @inside
        return doubled  # @next

    # nothing here  # @comment
    for n in range(10):
        work(n)  # @call
"""


def file_of(relay: Relay, root: Path) -> Path:
    name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
    return relay.data_dir / "breakpoints" / f"{name}.json"


def kept(relay: Relay, root: Path) -> list[Any]:
    path = file_of(relay, root)
    return json.loads(path.read_text())["breakpoints"] if path.exists() else []


def lines(session: Session) -> list[int]:
    return sorted(one["line"] for one in session.get("/breakpoints").ok()["breakpoints"])


def set_one(session: Session, program: Source, mark: str, **fields: Any) -> Any:
    body = {"file": str(program), "line": program[mark], **fields}
    return session.post("/breakpoints", body).ok()


def test_they_are_there_for_the_next_session(
    own_relay: Callable[..., Relay], source: Callable[..., Source], tmp_path: Path
) -> None:
    relay, program = own_relay(), source(PROGRAM)
    session = relay.client.session(project_root=str(tmp_path))
    fields = {"condition": "n > 3", "hit_condition": ">=2"}
    assert set_one(session, program, "inside", **fields)["persisted"] is True
    set_one(session, program, "next", log_message="{doubled!r:>4}", enabled=False)
    set_one(session, program, "comment")
    assert [one["line"] for one in kept(relay, tmp_path)] == [2, 3, 5]
    before = session.get("/breakpoints").ok()["breakpoints"]
    session.delete().ok()
    assert relay.stop() == 0
    relay.start()

    plain = relay.client.session(project_root=str(tmp_path))
    assert lines(plain) == []
    again = relay.client.session(project_root=str(tmp_path), restore_breakpoints=True)
    assert again.get("/breakpoints").ok()["breakpoints"] == before
    assert again.get().ok()["breakpoint_count"] == 3
    stopped = again.launch(program)
    assert stopped["current_location"]["line"] == program["inside"]
    assert again.value("n") == "5"


def test_they_are_judged_anew(relay: Client, source: Callable[..., Source], tmp_path: Path) -> None:
    program, gone = source(PROGRAM), source(PROGRAM, "gone.py")
    with relay.session(project_root=str(tmp_path)) as session:
        for name in ("inside", "call"):
            assert set_one(session, program, name)["breakpoints"][0]["verified"] is True
        set_one(session, gone, "inside")
    gone.path.unlink()
    program.path.write_text("# moved down\n\ndef work(n):\n    return n\n")
    with relay.session(project_root=str(tmp_path), restore_breakpoints=True) as session:
        told = session.get("/breakpoints").ok()["breakpoints"]
        assert [one["verified"] for one in told] == [False, False, False]
        assert "No executable code" in told[0]["message"]
        assert "ends with line 4" in told[1]["message"]
        assert "pending" in told[2]["message"]
        assert all(one["suggestion"] for one in told)


def test_what_is_changed_and_removed_is_so_in_the_file(
    relay: Client, shared_relay: Relay, source: Callable[..., Source], tmp_path: Path
) -> None:
    program = source(PROGRAM)
    with relay.session(project_root=str(tmp_path)) as session:
        [first] = set_one(session, program, "inside")["breakpoints"]
        set_one(session, program, "next")
        path = f"/breakpoints/{first['id']}"
        assert session.patch(path, {"condition": "n == 1"}).ok()["persisted"] is True
        assert kept(shared_relay, tmp_path)[0]["condition"] == "n == 1"
        # Set anew: what is left out is at its default.
        set_one(session, program, "inside", enabled=False)
        assert kept(shared_relay, tmp_path)[0] == {
            "file": str(program), "line": program["inside"], "enabled": False,
        }  # fmt: skip
        assert session.delete(path).ok() == {"id": first["id"], "deleted": True, "persisted": True}
        assert [one["line"] for one in kept(shared_relay, tmp_path)] == [program["next"]]
        assert session.delete("/breakpoints").ok() == {"deleted": 1, "persisted": True}
        assert list(file_of(shared_relay, tmp_path).parent.glob(f"*{tmp_path.name}*")) == []
        assert kept(shared_relay, tmp_path) == []


def test_sessions_of_one_project_keep_each_others(
    relay: Client, shared_relay: Relay, source: Callable[..., Source], tmp_path: Path
) -> None:
    text = "".join(f"x = {i}\n" for i in range(60))
    program = source(text)
    link = tmp_path / "link.py"
    link.symlink_to(program.path)
    sessions = [relay.session(project_root=str(tmp_path)) for _ in range(3)]

    def set_some(number: int) -> None:
        for line in range(number + 1, 61, 3):
            body = {"file": str(link if line % 2 else program), "line": line}
            assert sessions[number].post("/breakpoints", body).ok()["persisted"] is True

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(set_some, range(3)))
    assert sorted(one["line"] for one in kept(shared_relay, tmp_path)) == list(range(1, 61))
    # By another name it is the same line of the same file.
    sessions[0].post("/breakpoints", {"file": str(link), "line": 2}).ok()
    assert len(kept(shared_relay, tmp_path)) == 60
    sessions[1].delete("/breakpoints").ok()
    left = [one["line"] for one in kept(shared_relay, tmp_path)]
    assert sorted(left) == [line for line in range(1, 61) if line % 3 != 2]
    for session in sessions:
        session.delete().ok()
    assert len(kept(shared_relay, tmp_path)) == 40
    folder = shared_relay.data_dir / "breakpoints"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_project_has_one_file_however_it_is_spelt(
    relay: Client, shared_relay: Relay, source: Callable[..., Source], tmp_path: Path
) -> None:
    root = tmp_path / "proj ü"
    program = source(PROGRAM, "proj ü/a.py")
    (tmp_path / "alias").symlink_to(root)
    with relay.session(project_root=str(tmp_path / "alias")) as session:
        set_one(session, program, "inside")
        session.post("/breakpoints", {"file": "a.py", "line": program["next"]}).ok()
    assert len(kept(shared_relay, root)) == 2
    with relay.session(project_root=f"{root}/", restore_breakpoints=True) as session:
        assert lines(session) == [program["inside"], program["next"]]


def test_another_project_later(
    relay: Client, shared_relay: Relay, source: Callable[..., Source], tmp_path: Path
) -> None:
    program = source(PROGRAM)
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    with relay.session(project_root=str(two)) as session:
        set_one(session, program, "call")
    with relay.session() as session:
        # Without a project it is kept in the session's own record alone.
        assert set_one(session, program, "inside")["persisted"] is True
        session.patch("", {"project_root": str(one)}).ok()
        assert [line["line"] for line in kept(shared_relay, one)] == [program["inside"]]
        body = {"project_root": str(two), "restore_breakpoints": True}
        session.patch("", body).ok()
        assert lines(session) == [program["inside"], program["call"]]


def test_restoring_into_a_program_that_runs(
    relay: Client, source: Callable[..., Source], tmp_path: Path
) -> None:
    program = source(PROGRAM)
    with relay.session(project_root=str(tmp_path)) as session:
        set_one(session, program, "inside", condition="n == 7")
    with relay.session(project_root=str(tmp_path)) as session:
        session.launch(program, stop_on_entry=True)
        session.patch("", {"restore_breakpoints": True}).ok()
        assert session.resume()["current_location"]["line"] == program["inside"]
        assert session.value("n") == "7"


def test_without_a_project_there_is_nothing_to_restore(relay: Client) -> None:
    error = relay.post("/sessions", {"restore_breakpoints": True}).refused("INVALID_REQUEST", 400)
    assert error["details"]["errors"][0]["field"] == "project_root"
    with relay.session() as session:
        session.patch("", {"restore_breakpoints": True}).refused("INVALID_REQUEST", 400)


def test_a_corrupt_file_is_set_aside(
    relay: Client, shared_relay: Relay, source: Callable[..., Source], tmp_path: Path
) -> None:
    program = source(PROGRAM)
    roots = [tmp_path / name for name in ("good", "bad")]
    for root in roots:
        root.mkdir()
        with relay.session(project_root=str(root)) as session:
            set_one(session, program, "inside")
    damaged = file_of(shared_relay, roots[1])
    damaged.write_text(damaged.read_text().replace('"line": 2', '"line": 3'))
    for root, found in zip(roots, ([program["inside"]], []), strict=True):
        with relay.session(project_root=str(root), restore_breakpoints=True) as session:
            assert lines(session) == found
            assert set_one(session, program, "call")["persisted"] is True
    [aside] = damaged.parent.glob(f"{damaged.name}.corrupt-*")
    assert '"line": 3' in aside.read_text()
    assert [one["line"] for one in kept(shared_relay, roots[1])] == [program["call"]]


def test_of_a_newer_relay_nothing_is_lost(
    relay: Client, shared_relay: Relay, source: Callable[..., Source], tmp_path: Path
) -> None:
    program = source(PROGRAM)
    newer = file_of(shared_relay, tmp_path)
    newer.write_text('{"version": 99, "secret": "of the future"}')
    with relay.session(project_root=str(tmp_path), restore_breakpoints=True) as session:
        assert set_one(session, program, "inside")["persisted"] is False
        assert lines(session) == [program["inside"]]
    assert "of the future" in newer.read_text()


def test_a_disk_that_refuses_ends_no_session(
    own_relay: Callable[..., Relay], source: Callable[..., Source], tmp_path: Path
) -> None:
    relay, program = own_relay(), source(PROGRAM)
    session = relay.client.session(project_root=str(tmp_path))
    worker = relay.worker(session.id)
    assert set_one(session, program, "inside")["persisted"] is True
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    told = set_one(session, program, "next")
    assert (told["persisted"], told["breakpoints"][0]["verified"]) == (False, True)
    first = told["breakpoints"][0]["id"]
    assert session.patch(f"/breakpoints/{first}", {"enabled": False}).ok()["persisted"] is False
    assert session.delete("/breakpoints/bp_1").ok()["persisted"] is False
    assert [one["line"] for one in kept(relay, tmp_path)] == [program["inside"]]
    resource.prlimit(
        worker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    # What was refused is written with the next change.
    assert set_one(session, program, "call")["persisted"] is True
    assert [one["line"] for one in kept(relay, tmp_path)] == [program["next"], program["call"]]


def test_a_thousand(relay: Client, source: Callable[..., Source], tmp_path: Path) -> None:
    program = source("".join(f"x = {i}\n" for i in range(1000)))
    batch = [{"file": str(program), "line": line} for line in range(1, 1001)]
    with relay.session(project_root=str(tmp_path)) as session:
        assert session.post("/breakpoints", {"breakpoints": batch}).ok()["persisted"] is True
    with relay.session(project_root=str(tmp_path), restore_breakpoints=True) as session:
        told = session.get("/breakpoints").ok()["breakpoints"]
        assert [one["line"] for one in told] == list(range(1, 1001))
        assert all(one["verified"] for one in told)
        assert session.delete("/breakpoints").ok()["persisted"] is True


def test_also_when_worker_and_relay_are_killed(
    own_relay: Callable[..., Relay], source: Callable[..., Source], tmp_path: Path
) -> None:
    relay, program = own_relay(), source(PROGRAM)
    session = relay.client.session(project_root=str(tmp_path))
    worker = relay.worker(session.id)
    assert set_one(session, program, "inside")["persisted"] is True
    worker.kill()
    relay.kill()
    relay.start()
    again = relay.client.session(project_root=str(tmp_path), restore_breakpoints=True)
    assert lines(again) == [program["inside"]]


def test_functions_and_exceptions_too(
    relay: Client, source: Callable[..., Source], tmp_path: Path
) -> None:
    program = source(PROGRAM)
    with relay.session(project_root=str(tmp_path)) as session:
        body = {"function": "work", "condition": "n == 6"}
        assert session.post("/breakpoints", body).ok()["persisted"] is True
        session.post("/exception-breakpoints", {"types": ["KeyError"]}).ok()
        made = session.post("/clone").ok(201)
        clone = Session(relay, made["session_id"])
        assert clone.get("/exception-breakpoints").ok()["types"] == ["KeyError"]
    with relay.session(project_root=str(tmp_path), restore_breakpoints=True) as session:
        assert session.get("/breakpoints").ok()["breakpoints"][0]["function"] == "work"
        assert session.launch(program)["stop_reason"] == "breakpoint"
        assert session.value("n") == "6"
