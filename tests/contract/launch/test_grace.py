"""The grace of a `terminate` is there for all that the program has started."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.client import Client, Session
from tests.kit.relay import eventually, marked
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

PARENT = """
    import subprocess, sys, time

    for mode in sys.argv[3:]:
        subprocess.Popen([sys.executable, sys.argv[1], mode, sys.argv[2]],
                         start_new_session=mode.endswith("alone"))
    time.sleep(600)
"""
CHILD = """
    import os, signal, sys, time

    def tidy(number, frame):
        time.sleep(0.4)
        open(os.path.join(sys.argv[2], sys.argv[1]), "w").close()
        sys.exit()

    deaf = sys.argv[1].startswith("deaf")
    signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else tidy)
    os.write(1, (sys.argv[1] + "\\n").encode())  # in one piece: there are two that write
    while True:
        time.sleep(600)
"""


def started(session: Session, source: Write, there: Path, *modes: str, **fields: Any) -> None:
    there.mkdir()
    child = source(CHILD, "child.py")
    session.launch(
        source(PARENT, "parent.py"), wait=0, args=[str(child), str(there), *modes], **fields
    )
    eventually(lambda: sorted(session.printed("stdout").split()) == sorted(modes))


def ended(session: Session, grace: float) -> float:
    """How long that took."""
    began = time.monotonic()
    answer = session.post("/terminate", {"grace": grace}).ok()
    assert (answer["status"], answer["signal"]) == ("terminated", "SIGTERM")
    return time.monotonic() - began


@pytest.mark.parametrize("debugged", [False, True])
def test_children_have_the_time_to_tidy_up(
    relay: Client, source: Write, tmp_path: Path, debugged: bool, python: str
) -> None:
    """In the program's group or outside; and the call is over as soon as they are."""
    with relay.session(python_path=python) as session:
        modes = ("with", "alone")
        started(session, source, tmp_path / "t", *modes, debug_subprocesses=debugged)
        assert 0.4 < ended(session, grace=20) < 10
        assert sorted(path.name for path in (tmp_path / "t").iterdir()) == sorted(modes)
        (end,) = session.events("terminated")
        assert len(end["body"]["swept"]) == 2
        assert marked(session.id) == []


def test_a_child_that_stands_at_a_breakpoint_acts_on_the_signal(
    relay: Client, source: Write, tmp_path: Path
) -> None:
    with relay.session() as session:
        child = source(CHILD, "child.py")
        at = next(n for n, line in enumerate(child.text.splitlines(), 1) if "while True" in line)
        session.break_at(child, at)
        (tmp_path / "t").mkdir()
        stopped = session.launch(
            source(PARENT, "parent.py"),
            args=[str(child), str(tmp_path / "t"), "with"],
            debug_subprocesses=True,
        )
        assert stopped["status"] == "paused"
        ended(session, grace=20)
        assert [path.name for path in (tmp_path / "t").iterdir()] == ["with"]


def test_a_child_that_ignores_it_is_killed_when_the_grace_is_over(
    relay: Client, source: Write, tmp_path: Path
) -> None:
    with relay.session() as session:
        started(session, source, tmp_path / "t", "deaf", "deaf_alone")
        assert 1 <= ended(session, grace=1) < 3
        assert marked(session.id) == []


def test_without_a_grace_nobody_is_waited_for(relay: Client, source: Write, tmp_path: Path) -> None:
    with relay.session() as session:
        started(session, source, tmp_path / "t", "with", "deaf_alone")
        began = time.monotonic()
        assert session.post("/terminate", {"grace": 0}).ok()["signal"] == "SIGKILL"
        assert time.monotonic() - began < 1
        assert list((tmp_path / "t").iterdir()) == []
        assert marked(session.id) == []


def test_deleting_the_session_hurries_it(relay: Client, source: Write, tmp_path: Path) -> None:
    """Nor does a DELETE wait for children by itself."""
    with relay.session() as session:
        started(session, source, tmp_path / "t", "deaf", "deaf_alone")
        began = time.monotonic()
        session.delete().ok()
        assert time.monotonic() - began < 2
        assert marked(session.id) == []


def test_children_that_are_kept_are_not_told(relay: Client, source: Write, tmp_path: Path) -> None:
    with relay.session() as session:
        started(session, source, tmp_path / "t", "with", "alone", keep_children=True)
        kept = psutil.Process(session.get().ok()["program"]["pid"]).children()
        try:
            assert ended(session, grace=5) < 3
            assert [one.is_running() for one in kept] == [True, True]
            assert list((tmp_path / "t").iterdir()) == []
        finally:
            for one in kept:
                one.kill()
