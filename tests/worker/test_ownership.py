"""Whose interpreters run, and as whom: files of other users, at every place that decides."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.worker.interpreter import resolve as interpreters
from debug_relay.worker.interpreter.cache import InterpreterCache
from debug_relay.worker.interpreter.ownership import require_ours, user_for

OWNER, ATTACKER = 54243, 54244
REAL_PYTHON = os.path.realpath(sys.executable)
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def place() -> Iterator[Path]:
    """Below a sticky folder for all, as a stranger could use it."""
    folder = Path(tempfile.mkdtemp(prefix="relay-ownership-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["root", "user"])
def relay_user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """As whom the relay runs, as far as the decision goes."""
    if request.param == "root":
        return 0
    monkeypatch.setattr(os, "geteuid", lambda: OWNER)
    return OWNER


def installed(prefix: Path, owner: int) -> Path:
    """Where a Python and its library would lie."""
    library = prefix / "lib" / "python3.11"
    (library / "encodings").mkdir(parents=True)
    (library / "os.py").write_text("")
    python = prefix / "bin" / "python3.11"
    python.parent.mkdir()
    python.write_bytes(b"\x7fELF")
    python.chmod(0o755)
    give(prefix, owner)
    return python


def venv(prefix: Path, base: Path, owner: int) -> Path:
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text(f"home = {base.parent}\nversion = 3.11.7\n")
    (prefix / "bin" / "python").symlink_to(base)
    give(prefix, owner)
    return prefix / "bin" / "python"


def give(top: Path, owner: int) -> None:
    for path in (top, *top.rglob("*")):
        os.chown(path, owner, owner, follow_symlinks=False)


def refused(path: Path, *, found: bool = True) -> RelayError:
    with pytest.raises(RelayError) as caught:
        user_for([str(path)], found=found)
    assert caught.value.code is Code.LAUNCH_INTERPRETER_NOT_FOUND
    assert caught.value.details["suggestion"]
    return caught.value


PARTS = [
    "env/bin/python", "env/bin", "env", "env/pyvenv.cfg", "env/lib", "env/lib/python3.11",
    "env/lib/python3.11/site-packages",
    "base/bin/python3.11", "base/bin", "base", "base/lib", "base/lib/python3.11",
    "base/lib/python3.11/os.py", "base/lib/python3.11/encodings",
]  # fmt: skip


def test_each_part_decides(place, relay_user):
    base = installed(place / "base", 0)
    path = venv(place / "env", base, relay_user)
    assert user_for([str(path)], found=True) is None
    for part in PARTS:
        os.chown(place / part, ATTACKER, ATTACKER, follow_symlinks=False)
        error = refused(path)
        assert f"{place / part} belongs to uid {ATTACKER}" in error.message
        if relay_user == 0:
            assert user_for([str(path)], found=False) == ATTACKER
            with pytest.raises(RelayError, match="not run as root"):
                require_ours([str(path)], found=False)
        else:
            assert user_for([str(path)], found=False) is None  # who names it trusts it
            assert f"python_path as {path}" in error.details["suggestion"]
        os.chown(place / part, relay_user, relay_user, follow_symlinks=False)
    for part in PARTS[1:]:
        mode = (place / part).stat().st_mode
        os.chown(place / part, -1, ATTACKER)
        for wide, who in ((0o002, "everybody"), (0o1002, "everybody"), (0o020, "the group 54244")):
            (place / part).chmod(mode | wide)
            error = refused(path)
            assert f"{place / part} can be changed by {who}" in error.message
            assert f"python_path as {path}" in error.details["suggestion"]
            assert user_for([str(path)], found=False) is None
        (place / part).chmod(mode)
    assert user_for([str(path)], found=True) is None


def test_folders_and_links_on_the_way_decide(place, relay_user):
    base = installed(place / "base", 0)
    venv(place / "far" / "env", base, relay_user)
    (place / "way").mkdir()
    (place / "way" / "link").symlink_to("../far")
    path = place / "way" / "link" / "env" / "bin" / "python"
    assert user_for([str(path)], found=True) is None
    for part in ("way", "way/link", "far"):
        os.lchown(place / part, ATTACKER, ATTACKER)
        assert str(place / part) in refused(path).message
        os.lchown(place / part, 0, 0)
    (place / "far").chmod(0o777)
    assert f"chmod go-w {place / 'far'}" in refused(path).details["suggestion"]
    # As /tmp: what is in there and ours stays there.
    (place / "far").chmod(0o1777)
    assert user_for([str(path)], found=True) is None
    # But what is not there yet may be put there by anybody.
    (place / "far" / "env" / "pyvenv.cfg").write_text(f"home = {place}/far/later/bin\n")
    assert f"{place}/far can be changed by everybody" in refused(path).message


def test_a_group_of_nobody_else_may_write(place):
    path = venv(place / "env", installed(place / "base", 0), 0)
    (place / "env").chmod(0o775)
    assert user_for([str(path)], found=True) is None  # of root's own group
    shared = next(one for one in pwd.getpwall() if one.pw_uid and one.pw_gid)
    os.chown(place / "env", 0, shared.pw_gid)
    assert "can be changed by the group" in refused(path).message


def test_a_pyvenv_cfg_that_names_nothing_yet_or_too_much(place, relay_user):
    path = venv(place / "env", installed(place / "base", 0), relay_user)
    config = place / "env" / "pyvenv.cfg"
    config.write_text("version = 3.11.7\n")
    assert user_for([str(path)], found=True) is None
    os.chown(config, ATTACKER, ATTACKER)  # who may write it later
    assert f"{config} belongs to" in refused(path).message
    os.chown(config, relay_user, relay_user)
    config.write_text("home = base/bin\n")
    assert "relative path" in refused(path).message
    config.write_text("".join(f"home = /{n}\n" for n in range(50_000)))
    assert "names 50000 homes" in refused(path).message
    (place / "base" / "lib" / "libpython3.11.so.1.0").touch()
    config.write_text(f"home = {place}/base/bin\n")
    assert user_for([str(path)], found=True) is None
    os.chown(place / "base" / "lib" / "libpython3.11.so.1.0", ATTACKER, ATTACKER)
    assert "libpython3.11.so.1.0 belongs to" in refused(path).message


def test_scripts_are_judged_by_what_they_name(place, relay_user):
    path = place / "env" / "bin" / "python"
    path.parent.mkdir(parents=True)
    shell = place / "sh"
    shutil.copy("/bin/sh", shell)
    path.write_text(f"#!{shell} -e\nexit 3\n")
    assert user_for([str(path)], found=True) is None
    os.chown(shell, ATTACKER, ATTACKER)
    assert f"{shell} belongs to" in refused(path).message
    path.write_text("#!sh\n")
    assert "relative path" in refused(path).message


def test_what_belongs_to_several_users_runs_as_none(place):
    path = venv(place / "env", installed(place / "base", OWNER), ATTACKER)
    assert "several users" in refused(path, found=False).message


def test_what_runs_the_relay_is_not_looked_at(monkeypatch):
    monkeypatch.setattr(os, "lstat", None)
    assert user_for([sys.executable], found=True) is None


# -- run


def planted(path: Path, log: Path, owner: int) -> Path:
    """Writes down as whom it was run, and then is a Python."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho $(id -u) >> {log}\nexec /usr/bin/env python3 "$@"\n')
    path.chmod(0o755)
    for part in (path, path.parent, path.parent.parent):
        os.chown(part, owner, owner)
    return path


@pytest.fixture
def log(place: Path) -> Path:
    path = place / "log"
    path.touch()
    path.chmod(0o666)
    return path


async def described(*words: str | None, **named: str) -> None:
    with suppress(RelayError):
        await InterpreterCache().find(*words, **named)


async def test_a_planted_venv_is_not_run(place, log):
    place.chmod(0o1777)
    path = planted(place / ".venv" / "bin" / "python", log, ATTACKER)
    with pytest.raises(RelayError) as caught:
        await InterpreterCache().find(project_root=str(place))
    assert f"{place}/.venv belongs to uid {ATTACKER}" in caught.value.message
    assert log.read_text() == ""
    await described(str(path))
    await described(None, str(place / ".venv"))
    assert set(log.read_text().split()) == {str(ATTACKER)}


async def test_a_strangers_answer_does_not_choose_what_root_runs(place, log):
    """An interpreter says of itself which file it is; that one is asked for lines."""
    ours = planted(place / "ours" / "bin" / "python", log, 0)
    reply = await interpreters.run_briefly(
        str(ours),
        ["-c", ""],
        b"",
        20,
        100,
        behind=str(planted(place / "a/b/python", log, ATTACKER)),
    )
    assert reply is not None
    assert log.read_text().split() == [str(ATTACKER)]


async def test_a_link_that_is_turned_meanwhile_never_runs_as_root(place, log):
    root_owned = planted(place / "good" / "x" / "bin" / "python", log, 0)
    theirs = planted(place / "bad" / "x" / "bin" / "python", log, ATTACKER)
    root_owned.write_text("#!/bin/sh\nexit 3\n")
    attackers = place / "attackers"
    attackers.mkdir()
    link = attackers / "link"
    link.symlink_to("../good")
    give(attackers, ATTACKER)
    stop = threading.Event()

    def turn() -> None:
        names = ["../good", "../bad"]
        while not stop.is_set():
            names.reverse()
            (attackers / "new").symlink_to(names[0])
            os.lchown(attackers / "new", ATTACKER, ATTACKER)
            (attackers / "new").rename(link)

    turning = threading.Thread(target=turn)
    turning.start()
    try:
        path = link / "x" / "bin" / theirs.name
        await asyncio.gather(*(described(str(path)) for _ in range(30)))
    finally:
        stop.set()
        turning.join()
    assert set(log.read_text().split()) <= {str(ATTACKER)}


@pytest.mark.parametrize("way", ["library", "home"])
async def test_a_library_of_another_user_is_never_roots(place, log, way):
    """An interpreter of root's, with the attacker's standard library."""
    prefix = place / "attackers"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library = prefix / "lib" / version
    (library / "encodings").mkdir(parents=True)
    (library / "os.py").write_text("")
    spy = (
        f"import posix\nfd = posix.open('{log}', 1025)\nposix.write(fd, b'%d ' % posix.getuid())\n"
    )
    (library / "encodings" / "__init__.py").write_text(spy)
    (prefix / "bin").mkdir()
    give(prefix, ATTACKER)
    ours = prefix if way == "library" else place / "ours"
    (ours / "bin").mkdir(exist_ok=True, parents=True)
    python = ours / "bin" / version
    shutil.copy(REAL_PYTHON, python)
    python.chmod(0o755)
    os.chown(prefix, 0, 0)
    os.chown(prefix / "bin", 0, 0)
    if way == "home":
        (ours / "pyvenv.cfg").write_text(f"home = {prefix}/bin\n")
    await described(str(python))
    assert set(log.read_text().split()) <= {str(ATTACKER)}
    assert str(library.parent) in refused(python).message
