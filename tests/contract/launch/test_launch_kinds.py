"""What else Python runs than a script: archives, byte code, nothing at all; what it does not."""

from __future__ import annotations

import py_compile
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.client import Client
from tests.kit.relay import eventually
from tests.kit.source import Source

pytestmark = pytest.mark.one_python

Write = Callable[..., Source]
MAIN = "import lib\nprint(lib.double(4), __file__)\n"


def archive(path: Path, first: bytes = b"", main: str = MAIN) -> Path:
    """As `python -m zipapp` makes them, with its `#!` line or without."""
    path.write_bytes(first)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("__main__.py", main)
        file.writestr("lib.py", "def double(n):\n    return n * 2\n")
    return path


@pytest.mark.parametrize("first", [b"", b"#!/usr/bin/env python3\n"], ids=["bare", "shebang"])
def test_a_zip_application(relay: Client, tmp_path: Path, python: str, first: bytes) -> None:
    app = archive(tmp_path / "app.pyz", first)
    with relay.session(python_path=python) as session:
        stopped = session.launch(app, stop_on_entry=True)
        assert stopped["stop_reason"] == "entry"
        assert stopped["current_location"]["path"] == f"{app}/__main__.py"
        assert session.resume()["exit_code"] == 0
        assert session.printed() == f"8 {app}/__main__.py\n"


def test_byte_code_and_nothing_at_all(relay: Client, source: Write) -> None:
    program = source("x = type(__loader__).__name__\nprint(x)  # @here\n")
    code = program.path.with_suffix(".pyc")
    py_compile.compile(str(program), str(code))
    with relay.session(python_path=sys.executable) as session:
        session.break_at(program, program["here"])
        assert session.launch(code)["status"] == "paused"
        assert session.resume()["exit_code"] == 0
        assert session.printed() == "SourcelessFileLoader\n"
    code.write_bytes(b"not byte code, whatever it says")
    with relay.session(python_path=sys.executable) as session:
        error = session.try_launch(code).refused("LAUNCH_FAILED")
        assert "bad magic number" in error["details"]["output_tail"]
        assert session.launch(source("", "empty.py"))["exit_code"] == 0


def test_syntax_errors_that_only_an_import_finds(
    relay: Client, source: Write, tmp_path: Path, python: str
) -> None:
    bad = "x = 1\ny = (\n"
    module = source(bad, "bad_module.py")
    package = source(bad, "bad_package/__init__.py")
    app = archive(tmp_path / "bad.pyz", main="import lib\nprint lib\n")
    with relay.session(python_path=python) as session:
        for target, file in (
            ({"module": "bad_module"}, str(module)),
            ({"module": "bad_package.part"}, str(package)),
            ({"script": str(app)}, f"{app}/__main__.py"),
        ):
            answer = session.try_launch(cwd=str(tmp_path), **target)
            details = answer.refused("LAUNCH_SYNTAX_ERROR", 400)["details"]
            assert details["file"] == file
            assert details["line"] in (2, 3)  # where Python sees the end of it
            assert session.status()["status"] == "created"


def test_packages_that_raise_and_archives_without_a_main(
    relay: Client, source: Write, tmp_path: Path, python: str
) -> None:
    source("def fail():\n    raise KeyError('at import')\nfail()\n", "raises/__init__.py")
    source("raise SystemExit(3)\n", "leaves/__init__.py")
    for package in ("raises", "leaves"):
        source("print('never')\n", f"{package}/part.py")
    plain = subprocess.run(
        [python, "-m", "raises.part"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    from_package = '  File "' + str(tmp_path)
    for module, code in (("raises.part", plain.returncode), ("leaves.part", 3)):
        with relay.session(python_path=python) as session:
            ended = session.launch(module=module, cwd=str(tmp_path), wait=20)
            assert (ended["status"], ended["exit_code"]) == ("terminated", code)
            said, told = session.printed("stderr"), plain.stderr
            assert "bootstrap" not in said
            assert said.partition(from_package)[2] == (
                told.partition(from_package)[2] if code == 1 else ""
            )
    app = tmp_path / "no_main.zip"
    with zipfile.ZipFile(app, "w") as file:
        file.writestr("lib.py", "")
    error = relay.post("/run", {"script": str(app)}).refused("LAUNCH_MODULE_NOT_FOUND", 400)
    assert "can't find '__main__' module in" in error["message"]
    assert "__main__.py" in error["details"]["suggestion"]


def test_a_file_for_a_directory(relay: Client, source: Write) -> None:
    program = source("print('never')")
    with relay.session() as session:
        answer = session.try_launch(program, cwd=str(program))
        assert "is not a directory" in answer.refused("LAUNCH_CWD_NOT_FOUND", 400)["message"]
        answer = session.try_launch(program, python_args=["-x"])
        assert answer.refused("INVALID_REQUEST", 400)["details"]["errors"][0]["field"] == (
            "python_args[0]"
        )


@pytest.mark.slow
def test_a_package_that_takes_its_time_runs(
    relay: Client, source: Write, tmp_path: Path, python: str
) -> None:
    """Its import is no part of the launch: it can be given input and stopped in meanwhile; what is
    not there is then told as Python tells it."""
    package = source("answer = input('Go? ')\nprint('asked')  # @asked\n", "asks/__init__.py")
    with relay.session(python_path=python) as session:
        session.break_at(package, package["asked"])
        launched = session.launch(module="asks.nowhere", cwd=str(tmp_path), wait=0)
        assert launched["status"] == "running"
        eventually(lambda: session.status()["prompt"] == "Go? ")
        session.post("/input", {"input": "yes\n"}).ok()
        session.events("stopped", timeout=10)
        assert session.value("answer") == "'yes'"
        assert session.resume()["exit_code"] == 1
        assert session.printed("stderr") == f"{python}: No module named asks.nowhere\n"
