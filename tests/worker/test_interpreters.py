"""Which interpreter a session gets, what is refused, and as whom a stranger's is run."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pytest

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.worker.interpreter import cache as interpreter_book
from debug_relay.worker.interpreter import resolve as interpreters
from debug_relay.worker.interpreter.cache import InterpreterCache
from debug_relay.worker.interpreter.query_process import identity_for, run_briefly
from debug_relay.worker.interpreter.resolve import alternatives, choose, own_interpreter

NOBODY = 65534
PYENV = Path("~/.pyenv/versions").expanduser()
REAL_PYTHON = os.path.realpath(sys.executable)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run as another user")


def executable(path: Path, text: str = "#!/bin/sh\nexit 3\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def counting(path: Path, log: Path) -> str:
    """An interpreter that is no script to us and yet writes down that it was run."""
    return executable(path, f'#!/bin/sh\necho run >> {log}\nexec {sys.executable} "$@"\n')


@pytest.fixture
def path_folder(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "on_path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def resolve(*wanted: str | None, **named: str | None) -> str:
    return choose(*wanted, **named).path


def refused(**wanted: str | None) -> RelayError:
    with pytest.raises(RelayError) as caught:
        resolve(**wanted)
    error = caught.value
    assert error.code is Code.LAUNCH_INTERPRETER_NOT_FOUND
    assert error.details["suggestion"]
    assert all(os.access(path, os.X_OK) for path in error.details["alternatives"])
    return error


async def not_described(path: str) -> RelayError:
    with pytest.raises(RelayError) as caught:
        await InterpreterCache().describe(path)
    assert caught.value.code is Code.LAUNCH_INTERPRETER_NOT_FOUND
    return caught.value


def test_the_order_of_choices(tmp_path, path_folder):
    root = tmp_path / "project"
    explicit = executable(root / "py" / "python")
    venv = executable(tmp_path / "env" / "bin" / "python")
    on_path = executable(path_folder / "python3")
    default = executable(tmp_path / "default" / "python3.12")
    assert resolve() == on_path
    assert resolve(default=default) == default
    assert resolve(default="python3") == on_path
    assert resolve(project_root=str(root), default=default) == default
    project = executable(root / "venv" / "bin" / "python")
    assert resolve(project_root=str(root), default=default) == project
    hidden = executable(root / ".venv" / "bin" / "python3")
    assert resolve(project_root=str(root), default=default) == hidden
    assert resolve(None, str(tmp_path / "env"), str(root)) == venv
    assert resolve(None, "../env", str(root)) == venv
    assert resolve("py/python", "../env", str(root)) == explicit
    assert resolve(explicit, str(tmp_path / "env")) == explicit
    assert resolve("python3", project_root=str(root)) == on_path


def test_without_python3_on_path_it_is_the_relays_own(path_folder):
    assert resolve() == sys.executable


def test_relative_entries_of_path_mean_nothing(tmp_path, monkeypatch):
    executable(tmp_path / "python3")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ".:")
    assert resolve() == sys.executable


def test_the_link_of_a_venv_is_kept(tmp_path):
    link = tmp_path / "bin" / "python"
    link.parent.mkdir()
    link.symlink_to(sys.executable)
    assert resolve(venv=str(tmp_path)) == str(link)


def test_refusals_say_what_is_wrong_and_what_there_is(tmp_path, path_folder):
    there = executable(path_folder / "python3")
    beside = executable(tmp_path / "opt" / "python3.11")
    (tmp_path / "plain").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken" / "bin").mkdir(parents=True)
    (tmp_path / "broken" / "bin" / "python").symlink_to(tmp_path / "gone")
    cases: dict[str, dict[str, str | None]] = {
        "does not exist": {"python_path": str(tmp_path / "opt" / "python3.99")},
        "not on PATH": {"python_path": "python9"},
        "relative and the session has no project_root": {"python_path": "bin/python"},
        "is not executable": {"python_path": str(tmp_path / "plain")},
        "is a directory": {"python_path": str(tmp_path / "empty")},
        "is not a file": {"python_path": "/dev/null"},
        "is not a directory": {"venv": str(tmp_path / "plain")},
        "has no bin/python": {"venv": str(tmp_path / "empty")},
        f"is a link to {tmp_path / 'gone'}, which": {"venv": str(tmp_path / "broken")},
        f"venv {tmp_path / 'none'} does not exist": {"venv": str(tmp_path / "none")},
        "[python] default_path": {"default": str(tmp_path / "none")},
    }
    for words, wanted in cases.items():
        error = refused(**wanted)
        assert words in error.message, wanted
        assert there in error.details["alternatives"]
    near = refused(python_path=str(tmp_path / "opt" / "python3.99"))
    assert near.details["alternatives"][0] == beside
    assert beside in near.details["suggestion"]


def test_a_prefix_given_as_interpreter_is_told(tmp_path):
    inside = executable(tmp_path / "env" / "bin" / "python")
    prefix = str(tmp_path / "env")
    assert f"python_path as {inside}" in refused(python_path=prefix).details["suggestion"]
    assert f"python_path as {inside}" in refused(venv=inside).details["suggestion"]


def test_a_broken_project_venv_is_not_passed_over(tmp_path):
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to("/gone/python3")
    assert "/gone/python3" in refused(project_root=str(tmp_path)).message


def test_alternatives_name_each_once(tmp_path, path_folder):
    executable(path_folder / "python3.12")
    (path_folder / "python3").symlink_to("python3.12")
    project = executable(tmp_path / ".venv" / "bin" / "python")
    found = alternatives(str(tmp_path))
    assert found[:2] == [project, str(path_folder / "python3")]
    assert str(path_folder / "python3.12") not in found


async def test_facts_are_those_of_the_interpreter():
    found = await InterpreterCache().find(sys.executable)
    assert found == own_interpreter()
    assert found.minor == sys.version_info[:2]


async def test_the_environment_does_not_reach_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit(9)")
    assert await InterpreterCache().find(sys.executable, project_root=str(tmp_path))


async def test_it_is_asked_once_until_its_file_changes(monkeypatch, tmp_path):
    copy = tmp_path / "python"
    copy.symlink_to(REAL_PYTHON)
    cache = InterpreterCache()
    first = await cache.describe(str(copy))
    assert await cache.describe(str(copy)) is first
    copy.unlink()
    copy.symlink_to(shutil.which("true") or "/bin/true")
    with pytest.raises(RelayError):
        await cache.describe(str(copy))


async def test_what_it_said_is_kept_until_its_file_changes(monkeypatch, tmp_path):
    copy, folder = tmp_path / "python", tmp_path / "kept"
    copy.symlink_to(REAL_PYTHON)
    first = await InterpreterCache(folder).describe(str(copy))
    with monkeypatch.context() as patched:
        patched.setattr(interpreter_book, "ask", None)
        assert await InterpreterCache(folder).describe(str(copy)) == first
    [kept] = folder.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    written = kept.read_text()
    name = json.dumps(first.executable)
    flipped = written.replace(name, name.replace("py", "pz"))  # valid, and names no interpreter
    for damaged in (written[:-9], flipped, "\0" * len(written)):
        assert damaged != written
        kept.write_text(damaged)
        assert await InterpreterCache(folder).describe(str(copy)) == first
        assert kept.read_text() == written
    copy.unlink()
    copy.symlink_to(shutil.which("true") or "/bin/true")
    with pytest.raises(RelayError):
        await InterpreterCache(folder).describe(str(copy))


async def test_a_script_is_asked_each_time(tmp_path):
    log = tmp_path / "log"
    shim = counting(tmp_path / "python3", log)
    cache = InterpreterCache()
    found = [await cache.describe(shim) for _ in range(2)]
    assert found[0].path == shim
    assert found[0].executable == sys.executable
    assert log.read_text() == "run\nrun\n"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ('{"executable":"/p","version":[3,7,9],"version_text":"3.7.9","implementation":"cpython"}',
         "3.7.9; Python 3.8 to 3.15"),
        ('{"executable":"/p","version":[3,16,0],"version_text":"3.16.0a1","implementation":"cpython"}',
         "3.16.0a1; Python 3.8 to 3.15"),
        ('{"executable":"/p","version":[3,10,9],"version_text":"3.10.9","implementation":"pypy"}',
         "is pypy 3.10.9; only CPython"),
        ('{"executable":"/p","version":[3,14,1],"version_text":"3.14.1","implementation":"cpython",'
         '"free_threaded":true}',
         "is cpython 3.14.1 without the interpreter's lock (free-threaded); debugpy has no build"),
        ("hello", "does not answer as Python does"),
        ("", "does not answer as Python does"),
        ("\\0377", "does not answer as Python does"),
    ],
)  # fmt: skip
async def test_what_cannot_be_debugged_is_refused(answer, words, tmp_path):
    error = await not_described(executable(tmp_path / "python", f"#!/bin/sh\nprintf '{answer}'\n"))
    assert words in error.message


async def test_what_it_said_is_passed_on(tmp_path):
    text = "#!/bin/sh\necho one >&2\necho 'libpython.so: not found' >&2\nexit 127\n"
    error = await not_described(executable(tmp_path / "python", text))
    assert "code 127" in error.message
    assert "libpython.so: not found" in error.message


async def test_one_that_cannot_start_is_refused(tmp_path):
    for name, text in {"format": "\x7fELF", "loader": "#!/no/such/loader\n"}.items():
        error = await not_described(executable(tmp_path / name, text))
        assert "cannot be run" in error.message
    for path in (str(tmp_path / "none"), str(tmp_path), "/dev/null", "a\0b"):
        assert "cannot be run" in (await not_described(path)).message


async def test_very_old_versions_are_told_so(tmp_path):
    text = "#!/bin/sh\necho 'Unknown option: -I' >&2\nexit 2\n"
    error = await not_described(executable(tmp_path / "python2", text))
    assert "too old: Python 3.8 to 3.15" in error.message


async def test_real_old_versions_are_refused():
    found = [path for minor in ("2.7", "3.6", "3.7") for path in PYENV.glob(f"{minor}.*")]
    if not found:
        pytest.skip("no Python older than 3.8 in pyenv's folder")
    for prefix in found:
        assert "3.8 to 3.15" in (await not_described(str(prefix / "bin" / "python"))).message


async def test_a_shell_that_is_taken_for_python_runs_no_command(tmp_path):
    shell = executable(tmp_path / "python", '#!/bin/sh\nshift 3\nexec sh -c "$1"\n')
    assert "does not answer as Python does" in (await not_described(shell)).message


@pytest.mark.parametrize("end", ["wait", "exit 0"])
async def test_one_that_hangs_is_ended_with_its_children(end, tmp_path, monkeypatch):
    monkeypatch.setattr(interpreters, "ASK_SECONDS", 0.5)
    pids = tmp_path / "pids"
    text = f"#!/bin/sh\nsleep 60 &\necho $! $$ > {pids}\n{end}\n"
    began = time.monotonic()
    error = await not_described(executable(tmp_path / "python", text))
    assert "did not answer within 0.5 s" in error.message
    assert time.monotonic() - began < 5
    for pid in pids.read_text().split():
        assert ends(int(pid))


def ends(pid: int) -> bool:
    """Whether the process is dead or dies soon; a zombie that nobody reaps counts as dead."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 5)[0])
    finally:
        os.close(descriptor)


async def test_one_that_floods_is_ended(tmp_path):
    error = await not_described(executable(tmp_path / "python", "#!/bin/sh\nexec yes\n"))
    assert "wrote more than 4096 bytes" in error.message


async def test_a_flood_of_complaints_is_bounded(tmp_path):
    text = "#!/bin/sh\nyes complaint | head -c 1000000 >&2\nexit 1\n"
    error = await not_described(executable(tmp_path / "python", text))
    assert len(error.message) < 1000


async def test_a_cancelled_question_leaves_no_process(tmp_path):
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    text = f"#!/bin/sh\necho $$ > {pids}\nexec sleep 60\n"
    asking = asyncio.create_task(InterpreterCache().describe(executable(tmp_path / "python", text)))
    pid = int(await asyncio.to_thread(pids.read_text))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert ends(pid)


async def test_large_input_and_output_do_not_block_each_other():
    code = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line)"
    data = b"x" * 99 + b"\n"
    reply = await run_briefly(sys.executable, ["-c", code], data * 20_000, 30, 10_000_000)
    assert (reply.code, reply.out) == (0, data * 20_000)


async def test_one_that_does_not_read_is_known_by_its_code():
    reply = await run_briefly(
        sys.executable, ["-c", "raise SystemExit(4)"], b"x" * 1_000_000, 30, 9
    )
    assert reply.code == 4


@pytest.fixture
def open_folder():
    """A folder that other users may enter, which tmp_path is not."""
    folder = Path(tempfile.mkdtemp(prefix="relay-interpreters-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@as_root
async def test_a_strangers_interpreter_runs_as_its_owner(open_folder, monkeypatch):
    monkeypatch.setenv("A_SECRET_OF_ROOT", "hush")
    text = f"#!/bin/sh\ncd {open_folder}\nid -u > who\nid -G >> who\nenv > env\n"
    answer = (
        '{"executable":"/p","version":[3,9,1],"version_text":"3.9.1","implementation":"cpython"}'
    )
    path = executable(open_folder / "bin" / "python", f"{text}echo '{answer}'\n")
    os.chown(path, NOBODY, 0)
    found = await InterpreterCache().describe(path)
    assert found.version == (3, 9, 1)
    assert (open_folder / "who").read_text().split() == [str(NOBODY), str(NOBODY)]
    assert "hush" not in (open_folder / "env").read_text()


@as_root
def test_whoever_can_change_what_runs_is_its_owner(open_folder):
    link = open_folder / "env" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(REAL_PYTHON)
    config = open_folder / "env" / "pyvenv.cfg"
    config.write_text("home = /\n")
    assert identity_for(str(link)) == {}
    for place in (config, link, link.parent, link.parent.parent):
        os.chown(place, NOBODY, NOBODY, follow_symlinks=False)
        identity = identity_for(str(link))
        assert (identity["user"], identity["group"]) == (NOBODY, NOBODY), place
        os.chown(place, 0, 0, follow_symlinks=False)
    assert identity_for(str(link)) == {}


@as_root
def test_an_owner_without_a_name_has_a_group_of_his_own(open_folder):
    path = executable(open_folder / "python")
    os.chown(path, 54321, 0)
    assert identity_for(path)["group"] == 54321


@as_root
async def test_one_that_its_owner_may_not_run_is_refused(tmp_path):
    path = executable(tmp_path / "python")
    os.chmod(path, 0o600 | 0o100)
    os.chown(path, NOBODY, NOBODY)
    tmp_path.chmod(0o700)
    assert "cannot be run" in (await not_described(path)).message
