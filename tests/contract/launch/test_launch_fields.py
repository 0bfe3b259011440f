"""What a launch may say: environments, files of variables, options, children that stay."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from venv import EnvBuilder

import psutil
import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import Relay, eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

SEEN = """
    import json, os, sys
    print(json.dumps([dict(os.environ), sys.prefix, sys.path, sys.flags.optimize, __debug__]))
"""


def seen(session: Session, script: Any, **fields: Any) -> Any:
    ended = session.launch(script, **fields)
    assert (ended["status"], ended["exit_code"]) == ("terminated", 0), session.printed()
    return json.loads(session.printed("stdout"))


def venv(path: Path, prompt: str | None = None) -> Path:
    EnvBuilder(symlinks=True, prompt=prompt).create(path)
    return path


# -- venvs


def test_a_venv_is_active_however_it_was_chosen(
    relay: Client, source: Write, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    prefix = venv(folder / ".venv", "the prompt")
    program = source(SEEN)
    root = {"project_root": str(folder)}
    elsewhere = {"project_root": str(tmp_path)}
    ways: dict[str, tuple[dict[str, str], dict[str, str]]] = {
        "session": ({"venv": str(prefix)}, {}),
        "relative": (elsewhere, {"venv": "project/.venv"}),
        "patched": ({}, {}),
        "project": (root, {}),
    }
    for way, (created, launched) in ways.items():
        with relay.session(**created) as session:
            if way == "patched":
                session.patch("", {"venv": str(prefix)}).ok()
            env, its_prefix, *_ = seen(session, program, **launched)
        assert its_prefix == str(prefix), way
        assert env["VIRTUAL_ENV"] == str(prefix), way
        assert env["VIRTUAL_ENV_PROMPT"] == "the prompt", way
        assert env["PATH"].split(os.pathsep)[0] == str(prefix / "bin"), way


def test_an_interpreter_named_by_path_activates_nothing(
    relay: Client, source: Write, tmp_path: Path
) -> None:
    prefix = venv(tmp_path / ".venv")
    program = source(SEEN)
    path = str(prefix / "bin/python")
    for created, launched in (({}, {"python_path": path}), ({"python_path": path}, {})):
        with relay.session(project_root=str(tmp_path), **created) as session:
            env, its_prefix, *_ = seen(session, program, **launched)
        assert its_prefix == str(prefix)
        assert env.get("VIRTUAL_ENV") != str(prefix)


def test_the_relays_own_venv_is_left(
    own_relay: Callable[..., Relay], source: Write, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", venv(tmp_path / "new")
    path = f"{old}/bin{os.pathsep}{os.environ['PATH']}"
    relay = own_relay(env={"VIRTUAL_ENV": str(old), "PATH": path, "PYTHONHOME": ""})
    with relay.client.session() as session:
        env, *_ = seen(session, source(SEEN), venv=str(new))
    assert env["VIRTUAL_ENV"] == str(new)
    assert str(old / "bin") not in env["PATH"].split(os.pathsep)
    assert "PYTHONHOME" not in env


def test_a_conda_prefix(relay: Client, source: Write, tmp_path: Path) -> None:
    prefix = tmp_path / "envs" / "science"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "conda-meta").mkdir()
    (prefix / "conda-meta" / "state").write_text('{"env_vars": {"DATA": "here"}}')
    (prefix / "bin" / "python").symlink_to(sys.executable)
    with relay.session() as session:
        env, *_ = seen(session, source(SEEN), venv=str(prefix), env={"DATA": "there"})
    assert env["CONDA_PREFIX"] == str(prefix)
    assert env["CONDA_DEFAULT_ENV"] == "science"
    assert env["DATA"] == "there"
    assert env["PATH"].split(os.pathsep)[0] == str(prefix / "bin")
    assert env.get("VIRTUAL_ENV") is None


# -- variables

ENV_FILE = """\ufeff# what the program needs
PLAIN = a value   # and a comment
export EXPORTED=1
EMPTY=
HASH=a#b
SINGLE='${PLAIN} \\n' # kept as it is
DOUBLE="two\\nlines and \\"${EXPORTED}\\" \\${EXPORTED}"
LONG="first
second"
URL=postgres://${USER_NAME:-nobody}@host/${HOME}?x=1&y=$z
SPLIT.NAME-x=ö
TWICE=1
TWICE=2
"""


def test_a_file_of_variables(relay: Client, source: Write, tmp_path: Path) -> None:
    (tmp_path / "some.env").write_text(ENV_FILE.replace("\n", "\r\n", 3))
    program = source(SEEN)
    with relay.session() as session:
        env, *_ = seen(
            session,
            program,
            env_file="some.env",
            cwd=str(tmp_path),
            env={"EXPORTED": "by env", "TWICE": None},
        )
        shown = session.get().ok()["program"]["env"]
    assert env["PLAIN"] == "a value"
    assert (env["EXPORTED"], env["EMPTY"], env["HASH"]) == ("by env", "", "a#b")
    assert env["SINGLE"] == "${PLAIN} \\n"
    assert env["DOUBLE"] == 'two\nlines and "1" ${EXPORTED}'
    assert env["LONG"] == "first\nsecond"
    assert env["URL"] == f"postgres://nobody@host/{os.environ['HOME']}?x=1&y=$z"
    assert env["SPLIT.NAME-x"] == "ö"
    assert "TWICE" not in env
    assert shown == {"EXPORTED": "by env", "TWICE": None}


NO_ENV_FILES: list[tuple[str | bytes | None, str]] = [
    ("GOOD=1\n\nBAD\n", "line 3"),
    ("GOOD=1\n1BAD=secret-word\n", "line 2"),
    ('A=1\nB="never closed\nC=3\n', "line 2"),
    ("A='x' y\n", "behind the closing"),
    ("A=\x00\n", "NUL"),
    (b"A=\xff\n", "UTF-8"),
    (None, "No such file"),
]


def test_a_file_that_is_none_is_refused(relay: Client, source: Write, tmp_path: Path) -> None:
    path, program = tmp_path / "bad.env", source("pass")
    with relay.session() as session:
        for text, said in NO_ENV_FILES:
            path.unlink(missing_ok=True)
            if text is not None:
                path.write_bytes(text if isinstance(text, bytes) else text.encode())
            error = session.try_launch(program, env_file=str(path)).refused("INVALID_REQUEST")
            assert said in error["message"], text
            assert "secret-word" not in json.dumps(error)
            assert error["details"]["errors"][0]["field"] == "env_file"
            assert session.status()["status"] == "created"


def test_files_of_a_project_that_have_no_end_are_refused_at_once(
    relay: Client, source: Write, tmp_path: Path
) -> None:
    """As env_file, as what conda keeps in a prefix, and as a venv's pyvenv.cfg."""
    conda, plain = venv(tmp_path / "conda"), venv(tmp_path / "plain")
    (conda / "conda-meta").mkdir()
    bad = [tmp_path / "bad.env", conda / "conda-meta" / "state", plain / "pyvenv.cfg"]
    program = source("pass")

    def huge(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(1 << 40)

    with relay.session() as session:
        for kind, make, words in (
            ("fifo", os.mkfifo, "is not a regular file"),
            ("endless", lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
            ("huge", huge, "is larger than 1048576 bytes"),
        ):
            for path in bad:
                path.unlink(missing_ok=True)
                make(path)
            for fields, code, path in (
                ({"env_file": str(bad[0])}, "INVALID_REQUEST", bad[0]),
                ({"venv": str(conda)}, "LAUNCH_INTERPRETER_NOT_FOUND", bad[1]),
                ({"venv": str(plain)}, "LAUNCH_INTERPRETER_NOT_FOUND", bad[2]),
            ):
                began = time.monotonic()
                error = session.try_launch(program, **fields).refused(code)
                # A second of its own, and what asking an interpreter takes on a busy machine.
                assert time.monotonic() - began < 5, kind
                assert str(path) in error["message"], kind
                assert words in error["message"], kind
        assert session.status()["status"] == "created"


def test_import_paths_count_from_where_it_starts(
    relay: Client, source: Write, tmp_path: Path
) -> None:
    source("print('found')", "lib/sought.py")
    program = source("import os\nos.chdir('/')\nimport sought\n", "app/program.py")
    with relay.session() as session:
        session.launch(
            program, pythonpath=["lib"], cwd=str(tmp_path), env={"PYTHONPATH": "/elsewhere"}
        )
        assert session.printed() == "found\n"


# -- options of the interpreter


def test_options_reach_the_interpreter(relay: Client, source: Write, python: str) -> None:
    program = source("""
        import sys, warnings
        assert False, "left out"  # @left_out
        print(sys.flags.optimize, sys.flags.dev_mode, sys.warnoptions)  # @kept
    """)
    with relay.session(python_path=python) as session:
        breakpoint = session.break_at(program, program["left_out"])
        assert breakpoint["verified"] is True
        session.launch(program, python_args=["-OO", "-X", "dev", "-W", "ignore"])
        words = session.printed("stdout")
        assert words.startswith("2 True")
        assert "'ignore'" in words
        # An assertion is no code under -O: a breakpoint there would stop elsewhere.
        (listed,) = session.get("/breakpoints").ok()["breakpoints"]
        assert listed["verified"] is False


def test_options_that_run_something_else(relay: Client, source: Write) -> None:
    program = source("pass")
    with relay.session() as session:
        for args, field in (
            (["-c", "pass"], "python_args[0]"),
            (["-Im", "this"], "python_args[0]"),
            (["-O", "script.py"], "python_args[1]"),
            (["-X"], "python_args[0]"),
            (["-V"], "python_args[0]"),
            (["--version"], "python_args[0]"),
            (["-"], "python_args[0]"),
        ):
            error = session.try_launch(program, python_args=args).refused("INVALID_REQUEST", 400)
            assert error["details"]["errors"][0]["field"] == field, args
            assert session.status()["status"] == "created"


@pytest.mark.parametrize("args", [["-I"], ["-S", "-E", "-B"], ["-s", "-u", "-b"]], ids=" ".join)
def test_isolated_and_bare_interpreters(
    relay: Client, source: Write, python: str, args: list[str]
) -> None:
    program = source("x = 1\nprint(x)  # @here\n")
    with relay.session(python_path=python) as session:
        session.break_at(program, program["here"])
        assert session.launch(program, python_args=args)["status"] == "paused"
        assert session.resume()["exit_code"] == 0
        assert (session.printed("stdout"), session.printed("stderr")) == ("1\n", "")


# -- children


LEAVER = """
    import os, subprocess, sys
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    print(child.pid, flush=True)
    child.returncode = 0
"""


@pytest.mark.parametrize("keep", [False, True])
def test_children_that_outlive_the_session(
    relay: Client, shared_relay: Relay, source: Write, keep: bool
) -> None:
    program = source(LEAVER)
    with relay.session() as session:
        assert session.launch(program, keep_children=keep)["exit_code"] == 0
        child = psutil.Process(int(session.printed("stdout")))
        session.delete().ok()
    if keep:
        try:
            eventually(lambda: child.ppid() == shared_relay.pid, what="its worker is gone")
            assert child.status() != psutil.STATUS_ZOMBIE
        finally:
            child.send_signal(signal.SIGKILL)
        # Collected with the next session that ends.
        with relay.session() as other:
            other.launch(code="pass")
            other.delete(force="true")
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_children_in_its_group_stay_when_it_is_terminated(relay: Client, source: Write) -> None:
    text = LEAVER.replace("start_new_session=True,", "")
    program = source(text + "    import time\n    time.sleep(600)\n")
    with relay.session() as session:
        session.launch(program, keep_children=True, wait=0)
        pid = int(str(eventually(lambda: session.printed("stdout"))))
        session.post("/terminate").ok()
        child = psutil.Process(pid)
        try:
            assert child.status() != psutil.STATUS_ZOMBIE
        finally:
            child.send_signal(signal.SIGKILL)


# -- in one call with the session


def test_fields_of_a_launch_in_the_creating_call(
    relay: Client, source: Write, tmp_path: Path
) -> None:
    (tmp_path / "x.env").write_text("FROM_FILE=1\n")
    program = source("import os\nprint(os.environ['FROM_FILE'], *os.get_terminal_size())")
    body = {
        "mode": "launch",
        "script": str(program),
        "env_file": str(tmp_path / "x.env"),
        "pty": {"columns": 100},
        "wait": 20,
    }
    created = relay.post("/sessions", body).ok(201)
    session = Session(relay, created["session_id"])
    eventually(lambda: session.status()["status"] == "terminated")
    assert session.printed() == "1 100 24\r\n"


# -- the debugger's own byte code


@pytest.mark.slow
def test_the_debugger_is_compiled_once_for_each_interpreter(
    own_relay: Callable[..., Relay], source: Write, python: str
) -> None:
    program = source("import debugged_sibling\nprint(debugged_sibling.__spec__.cached)  # @here")
    source("", "debugged_sibling.py")
    relay = own_relay(env={"PYTHONDONTWRITEBYTECODE": "1"})
    folder = relay.data_dir / "bytecode"
    folder.unlink()  # which all relays of this run share
    folder.mkdir()

    def run_once() -> dict[Path, int]:
        with relay.client.session(python_path=python) as session:
            session.break_at(program, program["here"])
            assert session.launch(program)["status"] == "paused"
            assert session.resume()["exit_code"] == 0
            assert str(folder) not in session.printed()
            assert session.printed("stderr") == ""
        return {path: path.stat().st_mtime_ns for path in folder.iterdir()}

    first = run_once()
    assert len(first) == 1
    assert not list(program.path.parent.glob("__pycache__/*"))
    assert run_once() == first
    for path in first:
        path.write_bytes(path.read_bytes()[:100] + b"damaged")
    assert run_once().keys() == first.keys()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.touch()  # nothing can be written there: it is slower, that is all
    with relay.client.session(python_path=python) as session:
        assert session.launch(program)["exit_code"] == 0
