"""The disk fails or lies: sessions go on, and a start goes on with what is whole."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.kit.client import Session
from tests.kit.command import Shell
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

PROGRAM = """
    import sys

    for i in range(1000):
        print("x" * 1000, flush=True)
        y = i  # @here
"""


def at_breakpoint(relay: Relay, program: Source) -> Session:
    session = relay.client.session()
    session.break_at(program, program["here"], condition="i % 100 == 0")
    assert session.launch(program)["status"] == "paused"
    return session


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of its own that is easily filled, under a path short enough for sockets.

    To be asked for before `own_relay`, whose relays end before their disk goes.
    """
    place = Path(tempfile.mkdtemp(prefix="dr-", dir="/tmp"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(place)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        place.rmdir()
        pytest.skip("only root may mount a small file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
    place.rmdir()


def fill(place: Path) -> None:
    with open(place / "ballast", "wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                continue
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def test_sessions_go_on_when_the_disk_is_full(
    small_disk: Path, own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay(name=str(small_disk / "data"))
    session = at_breakpoint(relay, source(PROGRAM))
    fill(small_disk)
    # Output is lost, and counted as lost; everything else works.
    assert session.resume()["status"] == "paused"
    assert session.value("i") == "100"
    session.delete("/breakpoints").ok()
    ended = session.resume()
    assert (ended["status"], ended["exit_code"]) == ("terminated", 0)
    assert session.get("/output").status == 200
    assert session.get("/events").status == 200
    # Not well: nobody can begin a session.
    health = relay.client.get("/health").ok(503)
    assert health["status"] == "unhealthy"
    warnings = health["warnings"]
    assert any("no session can be started" in warning for warning in warnings)
    assert any("bytes left" in warning for warning in warnings)
    assert any(session.id in warning and "did not take" in warning for warning in warnings)
    assert "did not take" in session.get().ok()["disk_trouble"]
    # A new session needs room for its files: that is said, and leaves nothing.
    error = relay.client.post("/sessions", {}).refused("WORKER_START_FAILED")
    assert "No space left" in error["message"]
    assert "The disk of the run directory" in error["details"]["suggestion"]
    assert [path.name for path in relay.run_dir.iterdir()] == [session.id]
    session.delete().ok()
    (small_disk / "ballast").unlink()
    assert relay.client.get("/health").ok()["status"] == "healthy"
    with relay.client.session() as later:
        assert later.launch(source("print('room again')\n", "later.py"))["exit_code"] == 0
        assert later.printed() == "room again\n"


def test_settings_and_keys_on_a_full_disk(
    small_disk: Path, own_relay: Callable[..., Relay]
) -> None:
    relay = own_relay(name=str(small_disk / "data"))
    client = relay.client
    fill(small_disk)
    changed = client.patch("/config", {"dap": {"evaluate_timeout": 7}}).ok()
    assert (changed["config"]["dap"]["evaluate_timeout"], changed["persisted"]) == (7, False)
    assert client.get("/config").ok()["persisted"] is False
    key = {"Idempotency-Key": "full"}
    first = client.post("/sessions", {}, headers=key)
    again = client.post("/sessions", {}, headers=key)
    assert again.body["error"] == first.body["error"]
    warnings = client.get("/health").ok(503)["warnings"]
    assert any("dap.evaluate_timeout = 7" in warning for warning in warnings)
    assert any("Idempotency-Key" in warning for warning in warnings)
    (small_disk / "ballast").unlink()
    # The next change keeps the one before as well.
    assert client.patch("/config", {"dap": {"request_timeout": 20}}).ok()["persisted"] is True
    client.post("/sessions", {}, headers={"Idempotency-Key": "room"}).ok(201)
    assert client.get("/health").ok()["warnings"] == []
    relay.stop()
    relay.start()
    shown = relay.client.get("/config").ok()["config"]["dap"]
    assert (shown["evaluate_timeout"], shown["request_timeout"]) == (7, 20)


@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_it_starts_over_a_disk_that_takes_nothing(
    small_disk: Path,
    own_relay: Callable[..., Relay],
    source: Callable[..., Source],
    tmp_path: Path,
    trouble: str,
) -> None:
    relay = own_relay(name=str(small_disk / "data"))
    session = at_breakpoint(relay, source(PROGRAM))
    relay.kill()
    relay.log = tmp_path / "stderr"
    if trouble == "full":
        for name in ("relay.lock", "relay.json"):
            (relay.data_dir / name).unlink()
        fill(small_disk)
    else:  # for who comes now; the worker has its files open already
        subprocess.run(["mount", "--bind", small_disk, small_disk], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", small_disk], check=True)
    try:
        relay.start()
        session = Session(relay.client, session.id)
        assert session.value("i") == "0"
        health = relay.client.get("/health").ok(503 if trouble == "full" else 200)
        assert any("the relay's own cannot be written" in one for one in health["warnings"])
        if trouble == "full":
            lines = relay.log.read_text().splitlines()
            (unnamed,) = (line for line in lines if "store.lock_unnamed" in line)
            assert "No space left" in unnamed
            # A command finds it although there is no relay.json yet: the kernel knows its port.
            shown = Shell(tmp_path).ok("sessions", "--data-dir", str(relay.data_dir))
            assert session.id[:8] in shown
        if trouble == "read-only":
            # Its sockets are elsewhere, so that sessions can begin; they are not recorded.
            with relay.client.session() as other:
                assert other.get().ok()["disk_trouble"]
    finally:
        if trouble == "full":
            (small_disk / "ballast").unlink()
        else:
            subprocess.run(["umount", "-l", small_disk], check=True)
    # What could not be written is there as soon as there is room.
    eventually(
        lambda: "of the relay's own" not in str(relay.client.get("/health").ok()["warnings"])
    )
    assert json.loads((relay.data_dir / "relay.json").read_text())["pid"] == relay.pid
    assert session.resume()["status"] == "paused"


def test_it_starts_over_a_damaged_record_of_its_run_directory(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    session = at_breakpoint(relay, source(PROGRAM))
    relay.kill()
    record = relay.data_dir / "run_dir"
    record.write_bytes(bytes(len(record.read_bytes())))  # as after a power cut
    relay.start()
    assert Session(relay.client, session.id).value("i") == "0"
    assert any("run_dir was damaged" in one for one in relay.client.get("/health").ok()["warnings"])
    assert len(list(relay.data_dir.glob("run_dir.corrupt-*"))) == 1


def test_health_says_that_descriptors_have_run_out(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    client = relay.client
    client.session().delete().ok()  # what it opens once is open now
    eventually(lambda: relay.below() == [] and relay.calls() == 0)
    process = psutil.Process(relay.pid)
    before = process.rlimit(psutil.RLIMIT_NOFILE)
    taken = {int(name) for name in os.listdir(f"/proc/{relay.pid}/fd")}
    # One for the connection, and one more.
    free = [number for number in range(len(taken) + 2) if number not in taken]
    process.rlimit(psutil.RLIMIT_NOFILE, (free[1] + 1, before[1]))
    [warning] = client.get("/health").ok(503)["warnings"]
    assert "no session can be started" in warning
    assert "ulimit -n" in warning
    error = client.post("/sessions", {}).refused("WORKER_START_FAILED")
    assert "file descriptors" in error["details"]["suggestion"]
    process.rlimit(psutil.RLIMIT_NOFILE, before)
    assert client.get("/health").ok()["warnings"] == []
    client.session().delete().ok()


def test_a_full_disk_does_not_hold_a_stop_back(
    small_disk: Path, own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay(name=str(small_disk / "data"))
    at_breakpoint(relay, source(PROGRAM))
    fill(small_disk)
    assert relay.stop() == 0
    assert not (relay.data_dir / "relay.json").exists()
    assert relay.workers() == []


def test_sessions_go_on_when_files_may_not_grow(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    session = at_breakpoint(relay, source(PROGRAM))
    worker = relay.worker(session.id)
    for process in (worker, psutil.Process(relay.pid)):
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, 0))
    assert session.resume()["status"] == "paused"
    assert session.value("i") == "100"
    session.delete("/breakpoints").ok()
    assert session.resume()["exit_code"] == 0
    assert relay.client.get("/health").status == 200
    session.delete().ok()


def test_sessions_go_on_when_the_directory_is_gone(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    session = at_breakpoint(relay, source(PROGRAM))
    relay.data_dir.rename(relay.data_dir.with_name("elsewhere"))
    try:
        assert session.resume()["status"] == "paused"
        assert session.value("i") == "100"
        health = relay.client.get("/health").ok(503)
        assert any("lock" in warning for warning in health["warnings"])
    finally:
        relay.data_dir.with_name("elsewhere").rename(relay.data_dir)
    assert session.status()["status"] == "paused"


def test_a_damaged_identity_hides_no_worker(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    program = source(PROGRAM)
    good, *damaged = (at_breakpoint(relay, program) for _ in range(5))
    relay.kill()
    for session, content in zip(damaged, (b"", b"\xff{", b"[]", b'{"pid": "x"}'), strict=True):
        (relay.run_dir / session.id / "identity.json").write_bytes(content)
    relay.start()
    for one in (good, *damaged):
        session = Session(relay.client, one.id)
        assert session.value("i") == "0"
        assert session.resume()["status"] == "paused"


def kill_workers(relay: Relay, *sessions: Session) -> None:
    """While no supervisor is there to notice; those of ended sessions may have retired."""
    relay.signal(signal.SIGSTOP)
    workers = []
    for session in sessions:
        with suppress(psutil.NoSuchProcess):
            workers.append(relay.worker(session.id))
    relay.kill()
    for worker in workers:
        with suppress(psutil.NoSuchProcess):
            worker.kill()
        eventually(lambda one=worker: not one.is_running() or one.status() == "zombie")


def test_a_damaged_record(own_relay: Callable[..., Relay], source: Callable[..., Source]) -> None:
    relay = own_relay()
    program = source("print('out')\n")
    alive, good, *dead = (relay.client.session() for _ in range(5))
    alive.launch(program, stop_on_entry=True)  # the worker of an ended session would retire
    for session in (good, *dead):
        session.launch(program)
    kill_workers(relay, good, *dead)
    damage = (b"\xff", b"\xff", b"[]", b'{"state": {}}')
    for session, content in zip((alive, *dead), damage, strict=True):
        (relay.data_dir / "sessions" / session.id / "session.json").write_bytes(content)
    relay.start()
    # Who lives tells for itself; who is dead and left no record is gone; the others are there.
    assert Session(relay.client, alive.id).resume()["exit_code"] == 0
    for one in (alive, good):
        session = Session(relay.client, one.id)
        assert (session.status()["exit_code"], session.printed()) == (0, "out\n")
    for one in dead:
        Session(relay.client, one.id).get().refused("SESSION_NOT_FOUND", 404)
        assert not (relay.run_dir / one.id).exists()


def test_damaged_rings(own_relay: Callable[..., Relay], source: Callable[..., Source]) -> None:
    relay = own_relay()
    program = source("print('out')\n")
    good, *damaged = (relay.client.session() for _ in range(6))
    for session in (good, *damaged):
        session.launch(program)
    kill_workers(relay, good, *damaged)
    kinds = ("empty", "short", "noise", "gone", "directory")
    for session, damage in zip(damaged, kinds, strict=True):
        for name in ("output.ring", "events.ring", "outputs.ring"):
            injure(relay.run_dir / session.id / name, damage)
    relay.start()
    assert Session(relay.client, good.id).printed() == "out\n"
    for one in damaged:
        session = Session(relay.client, one.id)
        assert session.status()["exit_code"] == 0
        assert session.get("/output").ok()["entries"] == []
        assert session.get("/events").ok()["events"] == []
        session.delete().ok()


def injure(path: Path, damage: str) -> None:
    if damage == "short":
        os.truncate(path, 100)
        return
    if damage == "noise":
        size = min(path.stat().st_size, 1 << 20)
        path.write_bytes(bytes(i * 7919 % 251 for i in range(size)))
        return
    path.unlink()
    if damage == "empty":
        path.touch()
    elif damage == "directory":
        path.mkdir()


def test_a_pid_that_belongs_to_another_now_is_not_touched(
    own_relay: Callable[..., Relay], source: Callable[..., Source]
) -> None:
    relay = own_relay()
    program = source(PROGRAM)
    sessions = [at_breakpoint(relay, program) for _ in range(3)]
    kill_workers(relay, *sessions)
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(sleep) as innocent:
        try:
            for session, ticks in zip(sessions, (1, None, "x"), strict=True):
                path = relay.run_dir / session.id / "identity.json"
                said = {**json.loads(path.read_text()), "pid": innocent.pid, "start_ticks": ticks}
                path.write_text(json.dumps(said))
            relay.start()
            for one in sessions:
                session = Session(relay.client, one.id)
                assert session.status()["status"] == "created"
                session.delete(force="true").ok()
            relay.stop()
            assert innocent.poll() is None
        finally:
            innocent.kill()


def test_things_that_are_no_sessions(own_relay: Callable[..., Relay]) -> None:
    relay = own_relay()
    session = relay.client.session(name="good")
    relay.kill()
    (relay.run_dir / "sess_00000000").mkdir()
    (relay.run_dir / "sess_11111111").write_text("a file")
    (relay.run_dir / "sess_22222222").symlink_to("/nonexistent")
    (relay.data_dir / "sessions" / "sess_33333333").mkdir()
    relay.start()
    listed = relay.client.get("/sessions").ok()["items"]
    assert [item["session_id"] for item in listed] == [session.id]
    assert not (relay.run_dir / "sess_00000000").exists()


def directory(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("somebody's")


def sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(3 << 30)


@pytest.mark.parametrize(
    "prepare",
    [os.mkfifo, directory, sparse, lambda path: path.symlink_to("/dev/zero")],
    ids=["fifo", "directory", "large", "link"],
)
def test_it_starts_whatever_lies_in_the_place_of_its_files(
    own_relay: Callable[..., Relay], tmp_path: Path, prepare: Callable[[Path], None]
) -> None:
    data = tmp_path / "data"
    (data / "logs").mkdir(mode=0o700, parents=True)
    (data / "profiles").mkdir(mode=0o700)
    data.chmod(0o700)
    names = [
        *("idempotency.jsonl", "logs/audit.log", "logs/relay.log", "config.json", "relay.json"),
        *("run_dir", "profiles/mine.json"),
    ]
    for name in names:
        prepare(data / name)
    relay = own_relay()
    session = relay.client.post("/sessions", {}, headers={"Idempotency-Key": "once"}).ok(201)
    assert relay.client.get("/breakpoint-profiles").ok()["total"] == 0
    patched = relay.client.patch("/config", {"sessions": {"max_sessions": 7}}).ok()
    assert patched["persisted"] is True
    status = Path(f"/proc/{relay.pid}/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0])
    assert peak < 250_000, f"it has had {peak} kB"
    relay.client.delete(f"/sessions/{session['session_id']}").ok()
    relay.stop()
    for name in names:
        place = data / name
        if name not in ("relay.json", "profiles/mine.json"):
            assert place.is_file(), name
            assert place.stat().st_size < 1_000_000, name
        # Nothing was removed: what lay there has another name, or is an older log file.
        is_log = prepare is sparse and name.startswith("logs/")
        kept = list(place.parent.glob(place.name + (".1" if is_log else ".corrupt-*")))
        replaced = prepare is sparse and name in ("relay.json", "run_dir")
        assert len(kept) == (0 if replaced else 1), name
    assert "corrupt" in (data / "logs/relay.log").read_text()
