"""Interpreters and programs of other users: what is refused, and what runs as whom."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.client import Client
from tests.kit.relay import eventually
from tests.kit.source import Source

Write = Callable[..., Source]
OWNER, ATTACKER = 54243, 54244
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that all may write to and enter, as /tmp; tmp_path is closed."""
    folder = Path(tempfile.mkdtemp(prefix="relay-shared-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def planted(shared: Path) -> Path:
    """Where the attacker's interpreter writes down as whom it was run."""
    log = shared / "log"
    log.touch()
    log.chmod(0o666)
    python = shared / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nid -u >> {log}\nexec /usr/bin/env python3 "$@"\n')
    python.chmod(0o755)
    for path in (python, python.parent, python.parent.parent):
        os.chown(path, ATTACKER, ATTACKER)
    return log


def test_a_planted_venv_runs_at_no_call(relay: Client, source: Write, shared: Path) -> None:
    log = planted(shared)
    python = shared / ".venv" / "bin" / "python"
    program = source("print('hello')  # @line")
    with relay.session(project_root=str(shared)) as session:
        at = {"file": str(program), "line": program["line"]}
        for refused in (session.post("/breakpoints", at), session.try_launch(program)):
            error = refused.refused("LAUNCH_INTERPRETER_NOT_FOUND")
            assert f"{shared}/.venv belongs to uid {ATTACKER}" in error["message"]
            assert "python_path" in error["details"]["suggestion"]
        assert log.read_text() == ""
        # Named, it is asked as its owner; it is no program of root's in any case.
        for named in ({"venv": ".venv"}, {"python_path": str(python)}):
            session.try_launch(program, **named).refused("LAUNCH_INTERPRETER_NOT_FOUND")
        assert set(log.read_text().split()) <= {str(ATTACKER)}
        assert session.status()["status"] == "created"
        # One of our own does the work.
        ended = session.launch(program, python_path=sys.executable)
        assert ended["status"] == "terminated"


@pytest.fixture
def ordinary(shared: Path) -> Iterator[Client]:
    """A relay of an ordinary user, on an interpreter that this user can run."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    python = shutil.which(version, path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip(f"no {version} for all users")
    prefix = shared / "relay"
    subprocess.run([python, "-m", "venv", "--without-pip", str(prefix)], check=True)
    packages = sysconfig.get_path("purelib")
    [site] = prefix.glob("lib/*/site-packages")
    (site / "relay.pth").write_text(f"import site; site.addsitedir({packages!r})\n")
    home = shared / "home"
    home.mkdir(0o700)
    os.chown(home, OWNER, OWNER)
    command = [prefix / "bin" / "python", "-P", "-m", "debug_relay.supervisor", "serve"]
    with subprocess.Popen(
        [*command, "--port", "0", "--data-dir", home / "data"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", text=True,
        env={"PATH": os.defpath, "HOME": str(home)}, user=OWNER, group=OWNER, extra_groups=[],
    ) as relay:  # fmt: skip
        assert relay.stdout is not None
        line = relay.stdout.readline()
        if "listening on" not in line:
            pytest.skip("the relay is installed where other users cannot read it")
        yield Client(line.split()[3])
        relay.terminate()
        relay.communicate(timeout=20)


def test_a_planted_venv_runs_at_no_call_of_an_ordinary_user(ordinary: Client, shared: Path) -> None:
    log = planted(shared)
    program = Source(shared / "home" / "program.py", "print('hello')  # @line\n")
    os.chown(program.path, OWNER, OWNER)
    with ordinary.session(project_root=str(shared)) as session:
        at = {"file": str(program), "line": program["line"]}
        for refused in (session.post("/breakpoints", at), session.try_launch(program)):
            error = refused.refused("LAUNCH_INTERPRETER_NOT_FOUND")
            assert f"{shared}/.venv belongs to uid {ATTACKER}" in error["message"]
            python = f"{shared}/.venv/bin/python"
            assert f"python_path as {python}" in error["details"]["suggestion"]
        assert log.read_text() == ""
        # Who names it trusts it.
        assert session.launch(program, python_path=python)["status"] == "terminated"
        assert set(log.read_text().split()) == {str(OWNER)}
        written = [*shared.rglob("zygote.err"), *shared.rglob("worker.err")]
        written += shared.rglob("interpreters/*.json")
        assert len(written) > 1
        assert {path.stat().st_mode & 0o777 for path in written} == {0o600}
    for path in [shared / ".venv", *(shared / ".venv").rglob("*")]:
        os.chown(path, OWNER, OWNER)
    with ordinary.session(project_root=str(shared)) as session:
        assert session.launch(program)["status"] == "terminated"
        assert session.get().ok()["program"]["python_path"] == python


def test_naming_allows_what_others_could_change(relay: Client, source: Write, shared: Path) -> None:
    root = shared / "project"
    root.mkdir()
    root.chmod(0o777)
    command = [sys.executable, "-m", "venv", "--without-pip", str(root / ".venv")]
    subprocess.run(command, check=True)
    program = source("import sys; print(sys.prefix)")
    with relay.session(project_root=str(root)) as session:
        error = session.try_launch(program).refused("LAUNCH_INTERPRETER_NOT_FOUND")
        assert f"{root} can be changed by everybody" in error["message"]
        python = str(root / ".venv" / "bin" / "python")
        assert f"python_path as {python}" in error["details"]["suggestion"]
        assert f"chmod go-w {root}" in error["details"]["suggestion"]
        assert session.launch(program, python_path=python)["status"] == "terminated"
        assert session.printed("stdout").strip() == str(root / ".venv")
    root.chmod(0o755)
    with relay.session(project_root=str(root)) as session:
        session.launch(program)
        assert session.get().ok()["program"]["python_path"] == python


def test_a_running_program_of_another_users_is_attached_to(relay: Client, shared: Path) -> None:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("no python3 for all users")
    path = shared / "beats.py"
    program = Source(path, "import time\nwhile True:\n    print(end='.', flush=True)\n"
                     "    time.sleep(0.02)  # @line\n")  # fmt: skip
    with subprocess.Popen(
        [python, str(path)], stdout=subprocess.PIPE, user=ATTACKER, group=ATTACKER, extra_groups=[]
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.read(1) == b"."
            with relay.session() as session:
                answer = session.post("/attach", {"pid": running.pid, "connect_timeout": 30})
                if answer.status == 403:
                    pytest.skip("the relay is installed where other users cannot read it")
                assert answer.ok()["status"] == "running"
                assert session.break_at(path, program["line"])["verified"]
                eventually(lambda: session.status()["status"] == "paused")
                assert session.line() == program["line"]
                session.post("/detach").ok()
            assert running.poll() is None
        finally:
            running.kill()
