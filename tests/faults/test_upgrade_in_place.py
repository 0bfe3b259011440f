"""The relay's files are replaced under a running relay, as `pip install --upgrade` does.

The relay of the commit before starts the sessions and dies; this one adopts them.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sysconfig
import tarfile
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.client import Session
from tests.kit.relay import Relay
from tests.kit.running import Running
from tests.kit.source import Source
from tests.meta.documents import ROOT

FOLDERS = ("protocol", "supervisor", "worker")
UNREADABLE = (
    "probe.py", "lifecycle/launched.py", "lifecycle/attached.py", "startup/bootstrap.py",
    "startup/injected.py", "startup/loader.py", "startup/bytecode_cache.py",
)  # fmt: skip
PROGRAM = """
    def total(prices):
        amount = 0
        for price in prices:
            amount += price  # @add
        return amount

    print("total:", total([5, -3, 4]))
"""
LOOP = """
    import time

    def beat(number):
        return number + 1  # @beat

    print("up", flush=True)
    number = 0
    while True:
        number = beat(number)
        time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def parent() -> bytes:
    """The relay's folders of the commit before, as a tar file."""
    command = ["git", "-C", str(ROOT), "archive", "HEAD~1", *FOLDERS]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    except FileNotFoundError:
        pytest.skip("git is not on this machine")
    if done.returncode != 0:
        pytest.skip(f"the commit before is not to be had: {done.stderr.decode().strip()}")
    return done.stdout


@pytest.fixture
def installed(
    parent: bytes, tmp_path: Path, own_relay: Callable[..., Relay]
) -> tuple[Relay, Callable[[], None]]:
    """A relay of the commit before, and the call that replaces its files by those of today."""
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    # What the relay needs is that of the present environment; its own files are not.
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib"))
    with tarfile.open(fileobj=io.BytesIO(parent)) as tar:
        tar.extractall(packages / "debug_relay", filter="data")

    def upgrade() -> None:
        shutil.rmtree(packages / "debug_relay")
        for folder in FOLDERS:
            # With its byte code, or the next relay would compile all of it.
            shutil.copytree(ROOT / folder, packages / "debug_relay" / folder)
        # No program may read these: the worker that speaks with it is of the version before.
        for name in UNREADABLE:
            path = packages / "debug_relay" / "worker" / "probe" / name
            path.write_text(f"raise ImportError('a later version')\n{path.read_text()}")

    return own_relay(python=str(tmp_path / "venv" / "bin" / "python")), upgrade


def test_sessions_of_the_commit_before_go_on(
    installed: tuple[Relay, Callable[[], None]],
    source: Callable[..., Source],
    start: Callable[..., Running],
) -> None:
    relay, upgrade = installed
    program = source(PROGRAM, "total.py")
    launched = relay.client.session(name="launched")
    launched.break_at(program, program["add"], condition="price < 0")
    launched.launch(program)
    before = launched.status()
    assert before["status"] == "paused"
    target = start(LOOP, name="loop.py")
    attached = relay.client.session(name="attached")
    attached.break_at(target.program, target.program["beat"])
    attached.post("/attach", {"pid": target.pid, "wait": 20}).ok()
    workers = [relay.worker(session.id) for session in (launched, attached)]

    relay.kill()
    upgrade()
    relay.start()

    launched, attached = (Session(relay.client, session.id) for session in (launched, attached))
    assert [relay.worker(session.id) for session in (launched, attached)] == workers
    after = launched.status()
    passing = {"expires_at", "held_seconds", "warning"}
    known = before.keys() & after.keys() - passing
    assert {name: after[name] for name in known} == {name: before[name] for name in known}
    assert launched.value("amount + price") == "2"
    assert launched.step()["stop_reason"] == "step"
    # The worker gets only the fields that are given: it refuses those of later versions.
    launched.break_at(program, program["add"] - 1, condition="False")
    # Both run once more, by the same workers: what they put into programs is of their own version.
    assert launched.post("/restart", {"wait": 20}).ok()["status"] == "paused"
    assert launched.value("amount + price") == "2"
    assert launched.resume()["status"] == "terminated"
    assert launched.printed().endswith("total: 6\n")
    assert attached.resume()["stop_reason"] == "breakpoint"
    attached.post("/detach").ok()
    attached.post("/attach", {"pid": target.pid, "wait": 20}).ok()
    assert attached.line() == target.program["beat"]
    assert attached.value("number >= 0") == "True"
    attached.post("/detach").ok()
    assert [relay.worker(session.id) for session in (launched, attached)] == workers
    assert target.alive
