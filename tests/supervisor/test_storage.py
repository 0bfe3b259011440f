"""Directories on disk: who may use them, who holds them, and files that are whole or not there."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from debug_relay.protocol.system import json_file
from debug_relay.protocol.system.procfs import start_ticks
from debug_relay.protocol.version import VERSION
from debug_relay.supervisor.setup_error import SetupError
from debug_relay.supervisor.storage.data_lock import DataDirectoryInUse
from debug_relay.supervisor.storage.directories import Directories
from debug_relay.supervisor.storage.json_files import read_json
from debug_relay.supervisor.storage.run_directory import LONGEST_SOCKET_PATH_BYTES

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="gives files to another user")


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose socket paths fit; pytest's own are too long for that."""
    with tempfile.TemporaryDirectory(prefix="st", dir="/tmp") as name:
        yield Path(name)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def refused(data_dir: Path, run_dir: Path | None = None) -> str:
    with pytest.raises(SetupError) as caught:
        Directories.open(data_dir, run_dir)
    return str(caught.value)


def test_places_are_made_and_closed_to_others(short: Path):
    old = os.umask(0)
    try:
        directories = Directories.open(short / "a" / "data")
    finally:
        os.umask(old)
    for path in (
        directories.data_dir, directories.run_dir, directories.sessions,
        directories.breakpoints, directories.profiles, directories.logs,
    ):  # fmt: skip
        assert path.is_dir()
        assert mode(path) == 0o700
    assert directories.run_dir == short / "a" / "data" / "run"
    assert (directories.data_dir / "run_dir").read_text() == f"{directories.run_dir}\n"
    assert list(directories.run_dir.iterdir()) == []
    assert Directories.open(short / "a" / "data").earlier_run_dirs == []


def test_own_open_directory_is_closed(short: Path):
    (short / "data").mkdir(mode=0o755)
    (short / "data" / "config.toml").touch()
    assert mode(Directories.open(short / "data").data_dir) == 0o700


def test_directory_that_serves_others_is_not_closed_in_passing(short: Path):
    (short / "home").mkdir(mode=0o755)
    (short / "home" / "thesis.tex").touch()
    told = refused(short / "home")
    assert "thesis.tex" in told
    assert f"chmod 700 {short / 'home'}" in told
    assert mode(short / "home") == 0o755


@pytest.mark.parametrize("bits", [0o770, 0o722, 0o777, 0o702])
def test_directory_that_others_may_write_to(short: Path, bits: int):
    (short / "data").mkdir()
    (short / "data").chmod(bits)
    assert "Others may write" in refused(short / "data")
    assert mode(short / "data") == bits


def test_directory_that_is_a_file(short: Path):
    (short / "data").touch()
    assert "not a directory" in refused(short / "data")
    assert "cannot be used" in refused(short / "data" / "below")


def test_link_of_ones_own_is_followed(short: Path):
    (short / "real").mkdir()
    (short / "data").symlink_to("real")
    assert Directories.open(short / "data").data_dir == short / "real"
    (short / "dangling").symlink_to("made")
    assert Directories.open(short / "dangling").data_dir == short / "made"


def test_link_in_place_of_a_folder(short: Path):
    data = Directories.open(short / "data").data_dir
    (data / "logs").rmdir()
    (data / "logs").symlink_to("/")
    assert "symbolic link" in refused(data)


@as_root
def test_directory_of_another_user(short: Path):
    (short / "data").mkdir(mode=0o700)
    os.chown(short / "data", NOBODY, NOBODY)
    told = refused(short / "data")
    assert f"uid {NOBODY}" in told
    (short / "link").symlink_to("data")
    assert f"uid {NOBODY}" in refused(short / "link")


@as_root
def test_folder_of_another_user_above_is_refused_where_all_may_write(short: Path):
    above = short / "above"
    above.mkdir()
    os.chown(above, NOBODY, NOBODY)
    above.chmod(0o777)
    told = refused(above / "deep" / "data")
    assert f"below {above} of" in told
    assert "0777" in told
    above.chmod(0o1777)
    [warning] = Directories.open(above / "deep" / "data").warnings
    assert f"{above} belongs to" in warning
    os.chown(above, 0, 0)
    assert Directories.open(above / "deep" / "data").warnings == []


def test_open_folder_of_ones_own_above_is_warned_of(short: Path):
    (short / "above").mkdir()
    (short / "above").chmod(0o777)
    [warning] = Directories.open(short / "above" / "data").warnings
    assert f"chmod o-w {short / 'above'}" in warning


@as_root
def test_another_user_cannot_take_the_place_of_the_run_directory(tmp_path: Path):
    """Run as a user whose usual name below /tmp somebody has made already."""
    uid = 40_000 + os.getpid() % 20_000
    squatted = Path(f"/tmp/debug-relay-{uid}")
    squatted.mkdir()
    os.chown(squatted, NOBODY, NOBODY)
    home = Path(tempfile.mkdtemp(prefix="st", dir="/tmp"))
    home.chmod(0o755)
    data = home / ("long" * 25)
    data.mkdir(0o700)
    os.chown(data, uid, uid)

    def run_dir() -> Path:
        """Of a relay that starts as that user."""
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                os.setuid(uid)
                Directories.open(data)
                code = 0
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        return Path((data / "run_dir").read_text().strip())

    try:
        chosen = run_dir()
        assert chosen.parent.name.startswith(f"debug-relay-{uid}-")
        assert chosen.stat().st_uid == chosen.parent.stat().st_uid == uid
        assert mode(chosen) == mode(chosen.parent) == 0o700
        assert run_dir() == chosen  # its workers are found again
        shutil.rmtree(chosen.parent)
        assert run_dir().parent.name.startswith(f"debug-relay-{uid}-")
    finally:
        squatted.rmdir()
        shutil.rmtree(home)
        for left in Path("/tmp").glob(f"debug-relay-{uid}-*"):
            shutil.rmtree(left)


@as_root
def test_link_of_another_user(short: Path):
    (short / "data").symlink_to("real")
    os.lchown(short / "data", NOBODY, NOBODY)
    assert "symbolic link" in refused(short / "data")
    assert not (short / "real").exists()


def test_long_path_puts_sockets_into_tmp(tmp_path: Path):
    data = tmp_path / ("long" * 20)
    directories = Directories.open(data)
    try:
        assert directories.run_dir.parent == Path(f"/tmp/debug-relay-{os.getuid()}")
        assert len(directories.run_dir.name) == 16
        assert mode(directories.run_dir) == mode(directories.run_dir.parent) == 0o700
        assert Directories.open(data).run_dir == directories.run_dir
        assert (data / "run_dir").read_text().strip() == str(directories.run_dir)
        directories.run_dir.chmod(0o770)
        assert "Others may write" in refused(data)
    finally:
        directories.run_dir.rmdir()


def test_run_directory_limit_is_exact(short: Path):
    room = LONGEST_SOCKET_PATH_BYTES - len(f"{short}/x/sess_12345678/worker.sock")
    fits = Directories.open(short / "data", short / ("x" * (room + 1)))
    assert len(f"{fits.run_dir}/sess_12345678/worker.sock") == LONGEST_SOCKET_PATH_BYTES
    told = refused(short / "data", short / ("x" * (room + 2)))
    assert "101 bytes, 100 is the most" in told


def test_earlier_run_directory_is_remembered(short: Path):
    first = Directories.open(short / "data")
    second = Directories.open(short / "data", short / "run")
    assert second.run_dir == short / "run"
    assert second.earlier_run_dirs == [first.run_dir]
    # What others may have put there is not taken for workers of ours.
    second.run_dir.chmod(0o777)
    assert second.run_dir not in Directories.open(short / "data", short / "other").earlier_run_dirs


@as_root
def test_run_directory_of_another_user(short: Path):
    (short / "run").mkdir()
    os.chown(short / "run", NOBODY, NOBODY)
    assert "belongs to" in refused(short / "data", short / "run")


HOLD = """
import sys
from pathlib import Path
from debug_relay.supervisor.storage.data_lock import DataDirectoryInUse
from debug_relay.supervisor.storage.directories import Directories
directories = Directories.open(Path(sys.argv[1]), Path(sys.argv[2]))
try:
    directories.acquire()
except DataDirectoryInUse as busy:
    print("busy", flush=True)
    sys.exit(1)
if len(sys.argv) > 3:
    directories.announce(sys.argv[3])
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def holder(*args: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", HOLD, *map(str, args)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_lock_names_its_holder(short: Path):
    directories = Directories.open(short / "data", short / "run")
    with holder(directories.data_dir, directories.run_dir, "http://127.0.0.1:1/api/v1") as other:
        assert said(other) == "held"
        with pytest.raises(DataDirectoryInUse) as caught:
            directories.acquire()
        assert f"pid {other.pid}, at http://127.0.0.1:1/api/v1 since 20" in caught.value.message
        assert f"kill {other.pid}" in caught.value.suggestion
        assert caught.value.holder["pid"] == other.pid
        assert not directories.are_held()
    directories.acquire()
    assert directories.are_held()
    directories.release()
    assert not directories.are_held()


def test_lock_names_a_holder_that_does_not_listen_yet(short: Path):
    directories = Directories.open(short / "data", short / "run")
    stale = {"url": "http://old", "pid": os.getpid(), "start_ticks": 1, "started_at": "then"}
    json_file.write(directories.relay_file.path, stale)
    with holder(directories.data_dir, directories.run_dir) as other:
        assert said(other) == "held"
        with pytest.raises(DataDirectoryInUse) as caught:
            directories.acquire()
        assert f"pid {other.pid}, which is just starting" in caught.value.message
        (directories.data_dir / "relay.lock").write_text("")
        with pytest.raises(DataDirectoryInUse, match="another relay, which is just starting"):
            directories.acquire()


def test_of_many_starts_one_wins(short: Path):
    directories = Directories.open(short / "data", short / "run")
    with contextlib.ExitStack() as stack:
        others = [
            stack.enter_context(holder(directories.data_dir, directories.run_dir)) for _ in range(8)
        ]
        assert sorted(said(other) for other in others) == ["busy"] * 7 + ["held"]


def test_lock_is_not_inherited(short: Path):
    directories = Directories.open(short / "data")
    directories.acquire()
    code = (
        "import os\n"
        "for name in os.listdir('/proc/self/fd'):\n"
        "    try: print(os.readlink('/proc/self/fd/' + name))\n"
        "    except FileNotFoundError: pass  # the listing's own\n"
    )
    seen = subprocess.run(
        [sys.executable, "-c", code], close_fds=False, capture_output=True, text=True, check=True
    )
    directories.release()
    assert seen.stdout
    assert "relay.lock" not in seen.stdout


def test_lost_lock_is_noticed(short: Path):
    directories = Directories.open(short / "data")
    directories.acquire()
    (directories.data_dir / "relay.lock").unlink()
    assert not directories.are_held()
    (directories.data_dir / "relay.lock").touch()
    assert not directories.are_held()
    directories.release()


def test_lock_removes_what_a_killed_relay_left(short: Path):
    directories = Directories.open(short / "data")
    left = directories.profiles / ".p.json.1234abcd.unfinished"
    left.touch()
    os.utime(left, (0, 0))
    being_written = directories.breakpoints / ".b.json.1234abcd.unfinished"  # by a worker, now
    being_written.touch()
    (directories.profiles / "p.json").touch()
    directories.acquire()
    directories.release()
    assert [path.name for path in directories.profiles.iterdir()] == ["p.json"]
    assert being_written.exists()


def test_relay_json(short: Path):
    directories = Directories.open(short / "data")
    directories.announce("http://127.0.0.1:1/api/v1")
    value = json.loads(directories.relay_file.path.read_text())
    assert value.pop("started_at").endswith("Z")
    assert value == {
        "url": "http://127.0.0.1:1/api/v1", "pid": os.getpid(), "version": VERSION,
        "start_ticks": start_ticks(os.getpid()),
    }  # fmt: skip
    assert mode(directories.relay_file.path) == 0o600
    directories.relay_file.remove()
    assert not directories.relay_file.path.exists()
    directories.relay_file.remove()
    json_file.write(directories.relay_file.path, {"pid": os.getpid() + 1})
    directories.relay_file.remove()
    assert directories.relay_file.path.exists()


def test_written_json_reads_back(tmp_path: Path):
    path = tmp_path / "x.json"
    for value in ({"a": [1, "é", None]}, [], "text", 5):
        json_file.write(path, value)
        assert read_json(path) == value
        json_file.write(path, value, fsync=False)
        assert read_json(path) == value
    assert mode(path) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_failed_write_changes_nothing(tmp_path: Path):
    path = tmp_path / "x.json"
    json_file.write(path, {"old": True})
    with pytest.raises(TypeError):
        json_file.write(path, {"new": object()})
    assert read_json(path) == {"old": True}
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        json_file.write(tmp_path / "folder.json", {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.json", "x.json"]


def test_write_follows_no_link_out(tmp_path: Path):
    (tmp_path / "target").write_text("kept")
    (tmp_path / "x.json").symlink_to("target")
    json_file.write(tmp_path / "x.json", {})
    assert (tmp_path / "target").read_text() == "kept"
    assert not (tmp_path / "x.json").is_symlink()


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 100, b"\xff\xfe", b"[" * 100_000, b"{}x"])
def test_corrupt_file_is_set_aside(tmp_path: Path, content: bytes):
    path = tmp_path / "x.json"
    for expected in (1, 2):
        path.write_bytes(content)
        assert read_json(path) is None
        aside = list(tmp_path.iterdir())
        assert len(aside) == expected
        assert all(p.name.startswith("x.json.corrupt-20") for p in aside)
        assert all(p.read_bytes() == content for p in aside)


def test_what_is_no_file_is_set_aside(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "folder.json").mkdir()
    with open(tmp_path / "huge.json", "wb") as file:
        file.truncate(100 * 1024 * 1024)
    for name in ("fifo.json", "huge.json", "folder.json"):
        assert read_json(tmp_path / name) is None
        assert not (tmp_path / name).exists()


def test_missing_or_unreadable_file_is_none(tmp_path: Path):
    assert read_json(tmp_path / "none.json") is None
    (tmp_path / "loop.json").symlink_to("loop.json")
    assert read_json(tmp_path / "loop.json") is None
    assert (tmp_path / "loop.json").is_symlink()
