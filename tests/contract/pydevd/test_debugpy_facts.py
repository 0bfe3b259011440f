"""What we build on inside debugpy, name by name: an upgrade that changes one says which.

`worker/probe/engine/names.py` lists the names with their reasons. Each is looked up under every
Python whose debugging differs, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import debugpy
import pytest

from debug_relay.worker.probe.engine import names as listed
from tests.kit.client import Client
from tests.kit.source import Source

PARENT = Path(debugpy.__file__).parents[1]
NAMES = Path(listed.__file__)

# pydevd is imported as `engine.loading.load` does. Each name is taken away, and must be missed.
LOOK = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
if sys.version_info >= (3, 12):
    os.environ["PYDEVD_USE_CYTHON"] = "NO"
import debugpy._vendored.force_pydevd, pydevd
names = {"__name__": "names"}
with open(sys.argv[2], encoding="utf-8") as source:
    exec(compile(source.read(), sys.argv[2], "exec"), names)
db = pydevd.PyDB(set_as_global=False)

class Without(object):
    def __init__(self, whole, path):
        self.whole, self.path = whole, path
    def __getattr__(self, part):
        first, _, rest = self.path.partition(".")
        if part != first:
            return getattr(self.whole, part)
        if not rest:
            raise AttributeError(part)
        return Without(getattr(self.whole, part), rest)

gone, unnoticed, looked_up = names["missing"](db), [], []
for name in names["NAMES"]:
    if name.is_in(sys.modules.get(name.where, db)):
        whole = names["_tracker"](db) if name.where == names["TRACKER"] else None
        whole = whole or sys.modules.get(name.where, db)
        if not name.is_in(whole) or "()" in name.path:
            continue
        looked_up.append(str(name))
        if name.is_in(Without(whole, name.path)):
            unnoticed.append(str(name))
print(json.dumps([gone, unnoticed, len(looked_up)]))
"""


def test_every_inner_name_is_there(python: str) -> None:
    done = subprocess.run(
        [python, "-X", "frozen_modules=off", "-c", LOOK, str(PARENT), str(NAMES)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    gone, unnoticed, looked_up = json.loads(done.stdout.splitlines()[-1])
    assert (gone, unnoticed) == ([], [])
    assert looked_up > 150


def test_each_name_is_listed_once_and_with_its_reason() -> None:
    keys = [(str(name), name.needed) for name in listed.NAMES]
    assert len(keys) == len(set(keys))
    assert [str(name) for name in listed.NAMES if not name.why] == []


# In the program: its debugpy lacks one name, as far as the probe can see.
LACKING = """
import os, sys, types

NAME = os.environ.pop("LACKS", "")
WHERE, _, PATH = NAME.partition(":")

class View(types.ModuleType):
    def __init__(self, whole, path):
        types.ModuleType.__init__(self, "view")
        vars(self).update(vars(whole))
        first, _, rest = path.partition(".")
        if rest:
            vars(self)[first] = View(vars(whole)[first], rest)
        else:
            del vars(self)[first]

def take_away():
    if WHERE == "PyDB":
        first = PATH.partition(".")[0]
        def get(this, name):
            if name == first and "<frozen relay" in sys._getframe(1).f_code.co_filename:
                raise AttributeError(name)
            return object.__getattribute__(this, name)
        sys.modules["pydevd"].PyDB.__getattribute__ = get
    else:
        sys.modules[WHERE] = View(sys.modules[WHERE], PATH)

def audit(event, arguments, done=[]):
    # The module that connects to the relay is executed: pydevd is imported.
    if event == "exec" and "engine/connection/connect" in str(arguments) and not done:
        done.append(event)
        take_away()

if NAME:
    sys.addaudithook(audit)
"""


def lacking(folder: Path, name: str) -> dict[str, str]:
    """The environment of a program whose debugpy lacks a name. `test_lacking_names.py` takes away
    all of them."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(LACKING)
    return {"PYTHONPATH": str(folder), "LACKS": name}


# One of the debugger object, one of a module.
@pytest.mark.parametrize("name", ["PyDB:writer", "_pydevd_bundle.pydevd_net_command:NetCommand"])
def test_a_program_whose_debugpy_lacks_a_name_has_plain_dap(
    relay: Client, source: Callable[..., Source], python: str, tmp_path: Path, name: str
) -> None:
    program = source("for i in range(3):\n    j = i * 2\nprint('over', j)\n")
    with relay.session(python_path=python) as session:
        session.break_at(program, 2, condition="i == 1")
        stopped = session.launch(program, env=lacking(tmp_path / "site", name))
        assert stopped["current_location"]["line"] == 2
        assert session.value("i") == "1"
        said = session.printed("console")
        assert f"lacks what the relay's probe needs: {name.replace(':', '.')}" in said
        session.delete("/breakpoints").ok()
        assert session.resume()["exit_code"] == 0
        assert session.printed("stdout") == "over 4\n"


def test_a_launch_whose_debugpy_cannot_be_connected_names_what_it_lacks(
    relay: Client, source: Callable[..., Source], tmp_path: Path
) -> None:
    with relay.session() as session:
        fields = {
            "script": str(source("x = 1\n")),
            "env": lacking(tmp_path / "site", "pydevd:settrace"),
        }
        failed = session.post("/launch", fields).refused("LAUNCH_FAILED")
        said = failed["details"]["output_tail"]
        assert "lacks pydevd.settrace, without which nothing can be debugged" in said
        assert "Traceback" not in said


def test_programs_are_debugged_alike_whatever_python_the_relay_runs_on(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    """Compiled, pydevd's monitoring shows no frames and no names; it is so for one Python only."""
    program = source("x = 1\n")
    with relay.session(python_path=python) as session:
        session.break_at(program, 1)
        session.launch(program)
        flag = "__import__('sys').modules['_pydevd_bundle.pydevd_constants'].USE_CYTHON_FLAG"
        monitors = session.value("hasattr(__import__('sys'), 'monitoring')") == "True"
        assert (session.value(flag) == "'no'") is monitors
        assert session.value("__import__('os').environ.get('PYDEVD_USE_CYTHON')") == "None"
