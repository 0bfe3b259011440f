"""What the session and its scopes show without being asked: the interpreter, the counts."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.client import Client
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

PROGRAM = """
    import collections

    class Loud:
        def __repr__(self):
            print("looked at")
            return "loud"

    def work(items, loud):
        counted = {name: name for name in items}

        def inner():
            return counted  # @inner

        return inner()

    print("result", work(["a", "b"], Loud()))  # @outer
"""


def test_the_interpreter_that_a_launch_would_take_is_shown(relay: Client, tmp_path: Path) -> None:
    with relay.session() as session:
        shown = session.get().ok()["config"]["python_path"]
        assert shown == shutil.which("python3")
        (tmp_path / ".venv" / "bin").mkdir(parents=True)
        link = tmp_path / ".venv" / "bin" / "python"
        link.symlink_to(sys.executable)
        changed = session.patch("", {"project_root": str(tmp_path)}).ok()
        assert changed["config"]["python_path"] == str(link)
        assert session.get().ok()["config"] == changed["config"]
        # What is not there is shown as it was given; the launch says so.
        changed = session.patch("", {"python_path": "/none/python"}).ok()
        assert changed["config"]["python_path"] == "/none/python"


def test_scopes_count_their_variables_without_a_look_at_them(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(PROGRAM)
    with relay.session(python_path=python) as session:
        session.break_at(program, program["inner"])
        session.launch(program)
        for frame, names in ((0, {"counted"}), (1, {"items", "loud", "counted", "inner"})):
            scopes = session.get("/scopes", frame_id=frame).ok()["scopes"]
            counts = {one["name"]: one["named_variables"] for one in scopes}
            assert counts["Locals"] == len(names)
            listed = session.get(f"/frames/{frame}/variables", scope="globals").ok()
            assert counts["Globals"] == listed["total"] >= 3
            assert {one["indexed_variables"] for one in scopes} == {0}
        assert session.printed() == ""
        assert set(session.locals(1)) == names
