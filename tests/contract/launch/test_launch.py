"""Launching: what a program is given, and what is refused before anything starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from venv import EnvBuilder

import pytest

from debug_relay.protocol.version import MARK
from tests.kit.client import Client, Session
from tests.kit.relay import Relay
from tests.kit.source import Source, version_of
from tests.kit.statements import python_path

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]

SURROUNDINGS = """
    import json, os, sys
    print(json.dumps({
        "argv": sys.argv, "cwd": os.getcwd(), "env": dict(os.environ),
        "path": sys.path, "executable": sys.executable, "prefix": sys.prefix,
    }))
"""


def surroundings(session: Session, script: Any = None, **fields: Any) -> Any:
    """What a program that prints its surroundings says of them."""
    ended = session.launch(script, **fields)
    assert (ended["status"], ended["exit_code"]) == ("terminated", 0), session.printed()
    return json.loads(session.printed("stdout"))


# -- where and with what it runs


def test_a_script_gets_its_arguments_in_its_own_directory(relay: Client, source: Write) -> None:
    program = source(SURROUNDINGS)
    arguments = ["one", "two words", "--flag=ä", ""]
    with relay.session() as session:
        seen = surroundings(session, program, args=arguments)
        shown = session.get().ok()["program"]
    assert seen["argv"] == [str(program), *arguments]
    assert seen["cwd"] == str(program.path.parent)
    assert (shown["script"], shown["args"]) == (str(program), arguments)


def test_a_module_runs_from_its_directory(relay: Client, source: Write, tmp_path: Path) -> None:
    source("", "package/__init__.py")
    tool = source(SURROUNDINGS, "package/tool.py")
    with relay.session() as session:
        seen = surroundings(session, module="package.tool", cwd=str(tmp_path), args=["-v"])
    assert seen["argv"] == [str(tool), "-v"]
    assert (seen["path"][0], seen["cwd"]) == (str(tmp_path), str(tmp_path))


def test_code_runs_as_with_dash_c(relay: Client, tmp_path: Path) -> None:
    code = "import json, os, sys\nprint(json.dumps([sys.argv, sys.path[0], os.getcwd(), __name__]))"
    with relay.session() as session:
        seen = surroundings(session, code=code, cwd=str(tmp_path), args=["x"])
    assert seen == [["-c", "x"], "", str(tmp_path), "__main__"]


@pytest.mark.parametrize(
    ("root", "script", "cwd", "expected"),
    [
        (".", "app/program.py", None, "."),
        (None, "app/program.py", "{tmp}", "."),
        (".", "{tmp}/app/program.py", "{tmp}/other", "other"),
        (".", "{tmp}/app/program.py", "other", "other"),
    ],
)
def test_the_working_directory(
    relay: Client, source: Write, tmp_path: Path, root: str, script: str, cwd: str, expected: str
) -> None:
    program = source(SURROUNDINGS, "app/program.py")
    (tmp_path / "other").mkdir()
    session_fields = {"project_root": str(tmp_path)} if root else {}
    launch_fields = {"cwd": cwd.format(tmp=tmp_path)} if cwd else {}
    with relay.session(**session_fields) as session:
        seen = surroundings(session, script.format(tmp=tmp_path), **launch_fields)
    assert seen["argv"] == [str(program)]
    assert seen["cwd"] == os.path.normpath(tmp_path / expected)


def test_the_environment_is_the_relays_without_its_own_variables(
    relay: Client, shared_relay: Relay, source: Write
) -> None:
    # The shared relay is configured by such a variable.
    assert any(name.startswith("OPENCODE_DEBUG_") for name in shared_relay.env)
    with relay.session(python_path=sys.executable) as session:
        added = {"ADDED": "ä = 1", "EMPTY": "", "HOME": None}
        whole = surroundings(session, source(SURROUNDINGS), env=added)
        # The session's interpreter serves its launches.
        assert whole["executable"] == sys.executable
        seen = whole["env"]
        assert seen.pop(MARK) == session.id
        joined = session.get().ok()["debugger"]
        assert seen.pop("DEBUG_SESSION_URI") == joined["uri"]
        assert seen.pop("DEBUG_SESSION_TOKEN") == joined["token"]
    expected = {k: v for k, v in shared_relay.env.items() if not k.startswith("OPENCODE_DEBUG_")}
    expected |= {"ADDED": "ä = 1", "EMPTY": "", "PYTHONUNBUFFERED": "1"}
    expected.pop("HOME", None)
    # The C locale's coercion is Python's own doing at its start.
    assert {**seen, "LC_CTYPE": None} == {**expected, "LC_CTYPE": None}


def test_siblings_and_pythonpath_can_be_imported(relay: Client, source: Write) -> None:
    library = source("NAME = 'sought'", "library/sought.py")
    source("NAME = 'worker'", "app/worker.py")
    source("NAME = 'probe'", "app/probe.py")
    program = source(
        "import probe, sought, worker\nprint(worker.NAME, probe.NAME, sought.NAME)",
        "app/program.py",
    )
    with relay.session() as session:
        session.launch(program, cwd="/", pythonpath=[str(library.path.parent)])
        assert session.printed() == "worker probe sought\n"


# -- by which interpreter


def test_the_interpreter_by_absolute_path(relay: Client, source: Write, python: str) -> None:
    with relay.session() as session:
        seen = surroundings(session, source(SURROUNDINGS), python_path=python)
        program = session.get().ok()["program"]
    assert seen["executable"] == python
    assert program["python_path"] == python
    version = program["python_version"].split(".")[:2]
    assert tuple(map(int, version)) == version_of(python)


def test_the_interpreter_by_relative_path(relay: Client, source: Write, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mypython").symlink_to(sys.executable)
    with relay.session(project_root=str(tmp_path)) as session:
        seen = surroundings(session, source(SURROUNDINGS), python_path="bin/mypython")
    assert seen["executable"] == str(tmp_path / "bin/mypython")


def test_a_venv_is_as_if_activated(relay: Client, source: Write, tmp_path: Path) -> None:
    venv = tmp_path / "env"
    EnvBuilder(symlinks=True).create(venv)
    with relay.session() as session:
        seen = surroundings(session, source(SURROUNDINGS), venv=str(venv))
    assert seen["prefix"] == str(venv)
    assert seen["env"]["VIRTUAL_ENV"] == str(venv)
    assert seen["env"]["PATH"].split(os.pathsep)[0] == str(venv / "bin")


# -- entry


ENTRY = """
    # a comment, then the first line of the program

    import json  # @first
    value = json.loads("[1]")  # @second
    print(value)
"""


@pytest.mark.parametrize("kind", ["script", "module"])
def test_stop_on_entry_is_the_programs_first_line(
    relay: Client, source: Write, tmp_path: Path, python: str, kind: str
) -> None:
    program = source(ENTRY, "entered.py")
    by_session: dict[str, Any] = {"stop_on_entry": True} if kind == "module" else {}
    target: dict[str, Any] = {
        "script": {"script": str(program), "stop_on_entry": True},
        "module": {"module": "entered"},
    }[kind]
    with relay.session(python_path=python, **by_session) as session:
        stopped = session.launch(cwd=str(tmp_path), **target)
        assert (stopped["status"], stopped["stop_reason"]) == ("paused", "entry")
        assert stopped["current_location"] == {
            **stopped["current_location"],
            "path": str(program),
            "line": program["first"],
            "function": "<module>",
        }
        assert session.get("/stacktrace").ok()["total_frames"] == 1
        stepped = session.step()
        assert (stepped["stop_reason"], session.line()) == ("step", program["second"])
        assert session.resume()["exit_code"] == 0
        assert session.printed() == "[1]\n"


def test_a_launch_may_go_without_the_sessions_stop_on_entry(relay: Client, source: Write) -> None:
    with relay.session(stop_on_entry=True) as session:
        assert session.launch(source(ENTRY), stop_on_entry=False)["status"] == "terminated"


def test_a_breakpoint_in_the_package_of_a_launched_module(
    relay: Client, source: Write, tmp_path: Path
) -> None:
    package = source("NAME = 'package'  # @here", "package/__init__.py")
    source("from package import NAME\nprint(NAME)", "package/__main__.py")
    with relay.session() as session:
        session.break_at(package, package["here"])
        stopped = session.launch(module="package", cwd=str(tmp_path))
        assert (stopped["stop_reason"], session.line()) == ("breakpoint", package["here"])
        assert session.resume()["exit_code"] == 0
        assert session.printed() == "package\n"


# -- refused, and each time for the right reason


def test_a_syntax_error_is_told_by_the_launch_itself(
    relay: Client, source: Write, python: str
) -> None:
    bad = source("x = 1\ndef broken(:\n    pass\n", "bad.py")
    good = source("print('fine')", "good.py")
    with relay.session(python_path=python) as session:
        error = session.try_launch(bad).refused("LAUNCH_SYNTAX_ERROR", 400)
        details = error["details"]
        assert (details["file"], details["line"]) == (str(bad), 2)
        assert details["offset"] >= 1
        assert "def broken(:" in details["text"]
        assert "line 2" in details["suggestion"]
        assert session.status()["status"] == "created"
        assert session.launch(good)["exit_code"] == 0
        assert session.printed() == "fine\n"


def test_syntax_is_judged_by_the_sessions_interpreter(relay: Client, source: Write) -> None:
    """`except*` is new in 3.11, which runs the relay and judges for its own version."""
    code = "match 1:\n    case 1:\n        try:\n            print('tried')\n"
    code += "        except* ValueError:\n            pass\n"
    with relay.session(python_path=python_path("3.8")) as session:
        for answer in (session.try_launch(source(code)), session.try_launch(code=code)):
            assert answer.refused("LAUNCH_SYNTAX_ERROR")["details"]["line"] == 1
        rest = "try:\n    print('tried')\nexcept* ValueError:\n    pass\n"
        error = session.try_launch(code=rest).refused("LAUNCH_SYNTAX_ERROR")
        assert error["details"]["line"] == 3
    with relay.session(python_path=python_path("3.13")) as session:
        assert session.launch(source(code))["exit_code"] == 0


def test_a_text_that_no_interpreter_would_run(relay: Client) -> None:
    with relay.session() as session:
        for code in ("    print(1)\n    print(2)", "await sleep(1)", "return 1"):
            error = session.try_launch(code=code).refused("LAUNCH_SYNTAX_ERROR", 400)
            assert (error["details"]["file"], error["details"]["line"]) == ("<string>", 1), code
        assert session.launch(code="print('fine')")["exit_code"] == 0


def test_a_missing_script_names_the_closest(relay: Client, source: Write) -> None:
    program = source("print('here')", "programme.py")
    with relay.session() as session:
        missing = program.path.with_name("program.py")
        error = session.try_launch(missing).refused("LAUNCH_SCRIPT_NOT_FOUND", 400)
        assert str(program) in error["details"]["suggestion"]
        assert str(missing) in error["message"]


def test_a_missing_module(relay: Client, source: Write, tmp_path: Path, python: str) -> None:
    source("print('found')", "present.py")
    with relay.session(python_path=python) as session:
        answer = session.try_launch(module="absent.part", cwd=str(tmp_path))
        error = answer.refused("LAUNCH_MODULE_NOT_FOUND", 400)
        assert error["details"]["module"] == "absent.part"
        assert error["details"]["python_path"] == python
        assert session.status()["status"] == "created"
        assert session.launch(module="present", cwd=str(tmp_path))["exit_code"] == 0


def test_a_missing_part_of_a_package(relay: Client, source: Write, tmp_path: Path) -> None:
    source("", "package/__init__.py")
    with relay.session() as session:
        for name in ("package.absent", "package"):  # a package without __main__ is no program
            answer = session.try_launch(module=name, cwd=str(tmp_path))
            assert name in answer.refused("LAUNCH_MODULE_NOT_FOUND", 400)["message"]
        assert session.status()["status"] == "created"


def test_a_missing_interpreter(relay: Client, source: Write, tmp_path: Path) -> None:
    program = source("print('ran')")
    with relay.session() as session:
        for wrong in (str(tmp_path / "nowhere/python3"), str(program), "/bin/cat"):
            answer = session.try_launch(program, python_path=wrong)
            assert wrong in answer.refused("LAUNCH_INTERPRETER_NOT_FOUND", 400)["message"]
            assert session.status()["status"] == "created"
        assert session.launch(program, python_path=sys.executable)["exit_code"] == 0


def test_a_missing_venv(relay: Client, source: Write, tmp_path: Path) -> None:
    with relay.session() as session:
        answer = session.try_launch(source("pass"), venv=str(tmp_path / "none"))
        error = answer.refused("LAUNCH_INTERPRETER_NOT_FOUND", 400)
        assert str(tmp_path / "none") in error["message"]


def test_a_missing_directory_names_the_closest(
    relay: Client, source: Write, tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    with relay.session() as session:
        answer = session.try_launch(source("pass"), cwd=str(tmp_path / "projekt"))
        error = answer.refused("LAUNCH_CWD_NOT_FOUND", 400)
        assert str(tmp_path / "project") in error["details"]["suggestion"]


def test_a_relative_script_with_nothing_to_resolve_against(relay: Client) -> None:
    with relay.session() as session:
        error = session.try_launch("program.py").refused("INVALID_REQUEST", 400)
        assert error["details"]["errors"][0]["field"] == "script"
        assert "cwd" in error["details"]["suggestion"]


@pytest.mark.parametrize(
    "fields",
    [{}, {"script": "/a.py", "module": "a"}, {"script": "/a.py", "module": "a", "code": "1"}],
)
def test_one_of_script_module_and_code(relay: Client, fields: dict[str, str]) -> None:
    with relay.session() as session:
        error = session.try_launch(**fields).refused("INVALID_REQUEST", 400)
        named = {problem["field"] for problem in error["details"]["errors"]}
        assert named == set(fields or {"script"})


def test_a_session_launches_once(relay: Client, source: Write) -> None:
    program = source("input()")
    with relay.session() as session:
        session.launch(program, wait=0)
        error = session.try_launch(program).refused("INVALID_SESSION_STATE", 409)
        assert error["details"]["current_state"] == "running"


def test_what_cannot_be_handed_over_is_named(relay: Client, source: Write) -> None:
    program = source("print(1)\n")
    with relay.session() as session:
        session.post("/launch", {"script": str(program), "env": {"BIG": "x" * 131_067}}).ok()
    with relay.session(project_root="/no/such/root") as session:
        body = {"script": str(program), "env": {"BIG": "x" * 131_068}, "cwd": "/"}
        error = session.post("/launch", body).refused("INVALID_REQUEST")
        assert "BIG" in error["message"]
        assert "131072 bytes" in error["message"]
        error = session.post("/launch", {"script": str(program)}).refused("LAUNCH_CWD_NOT_FOUND")
        assert "project_root /no/such/root does not exist" in error["message"]


def test_what_is_proposed_instead_runs(relay: Client, tmp_path: Path) -> None:
    """A shim of pyenv's runs what is chosen elsewhere, often nothing."""
    with relay.session() as session:
        for wanted in ("/usr/bin/no-such-python", "/bin/ls"):
            body = {"code": "print(1)", "python_path": wanted}
            error = session.post("/launch", body).refused("LAUNCH_INTERPRETER_NOT_FOUND")
            assert "__import__" not in error["message"]
            for path in error["details"]["alternatives"]:
                done = subprocess.run([path, "-c", "print(1)"], capture_output=True, check=False)
                assert (path, done.stdout) == (path, b"1\n")
