"""Which Pythons can be attached to, by what the kernel tells.

No free-threaded build is at hand: these are the names that the files of one have (PEP 703).
"""

from __future__ import annotations

import os

import pytest

from debug_relay.supervisor.processes.attach_preflight import Surroundings, refusal
from debug_relay.supervisor.processes.facts import Facts, look

PYTHON = "/opt/python/bin/python3.14"
FREE = "/opt/python/bin/python3.14t"
LIBRARY = "/opt/python/lib/libpython3.14.so.1.0"
FREE_LIBRARY = "/opt/python/lib/libpython3.14t.so.1.0"
EXTENSION = "/opt/python/lib/python3.14/lib-dynload/_json.cpython-314-x86_64-linux-gnu.so"
FREE_EXTENSION = "/opt/python/lib/python3.14t/lib-dynload/_json.cpython-314t-x86_64-linux-gnu.so"


def facts(executable: str, *mapped: str) -> Facts:
    own = look(os.getpid())
    assert own is not None
    own.executable, own.mapped = executable, [executable, *mapped]
    return own


def around() -> Surroundings:
    return Surroundings(frozenset(), {}, os.path.dirname(__file__), has_gdb=True)


@pytest.mark.parametrize(
    ("executable", "mapped"),
    [
        (FREE, []),  # a static build, as uv and the installer have it
        (FREE + "d", []),
        (FREE + " (deleted)", []),
        (PYTHON, [FREE_LIBRARY]),
        (PYTHON, [FREE_EXTENSION]),
        ("/usr/bin/blender", [FREE_LIBRARY]),
    ],
)
def test_free_threaded_ones_are_refused(executable: str, mapped: list[str]) -> None:
    refused = refusal(facts(executable, *mapped), around())
    assert refused is not None
    assert refused.code == "ATTACH_UNSUPPORTED"
    assert "Python 3.14 without the interpreter's lock (free-threaded)" in refused.message
    assert "3.8 to 3.15" in refused.details["suggestion"]


@pytest.mark.parametrize(
    ("executable", "mapped"),
    [(PYTHON, []), (PYTHON, [LIBRARY]), (PYTHON, [EXTENSION]), ("/usr/bin/python3.15", [])],
)
def test_others_are_not(executable: str, mapped: list[str]) -> None:
    assert refusal(facts(executable, *mapped), around()) is None


def test_newer_and_older_ones_are_refused() -> None:
    for version in ("3.7", "3.16"):
        refused = refusal(facts(f"/usr/bin/python{version}"), around())
        assert refused is not None
        assert f"Python {version}" in refused.message
