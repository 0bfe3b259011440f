"""Errors of a launch."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any

from debug_relay.protocol.errors import Code
from tests.contract.api.error_stories.scene import Scene, story_of, suggestion
from tests.kit.client import Answer, Session


@story_of(Code.LAUNCH_FAILED)
def bad_option(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write("print(1)\n")
    error = yield session.try_launch(program, python_args=["--nonsense"])
    assert "output_tail" in suggestion(error)
    assert "--nonsense" in error["details"]["output_tail"]
    assert session.launch(program)["exit_code"] == 0


@story_of(Code.LAUNCH_SCRIPT_NOT_FOUND)
def misspelt_script(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write("print(1)\n")
    error = yield session.try_launch(str(program).replace("program.py", "progam.py"))
    meant = suggestion(error).removeprefix("Did you mean ").rstrip("?")
    assert session.launch(meant)["exit_code"] == 0


@story_of(Code.LAUNCH_MODULE_NOT_FOUND)
def no_module(scene: Scene) -> Generator[Answer, Any, None]:
    scene.write("print(1)\n", "lib/some_module.py")
    session = scene.session()
    error = yield session.try_launch(module="some_module", cwd=str(scene.folder))
    assert "pythonpath" in suggestion(error)
    fields = {"cwd": str(scene.folder), "pythonpath": [str(scene.folder / "lib")]}
    assert session.launch(module="some_module", **fields)["exit_code"] == 0


@story_of(Code.LAUNCH_INTERPRETER_NOT_FOUND)
def no_interpreter(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write("print(1)\n")
    error = yield session.try_launch(program, python_path="/nowhere/python3")
    first = suggestion(error).split("one of: ")[1].split(",")[0].rstrip(".")
    assert session.launch(program, python_path=first)["exit_code"] == 0


@story_of(Code.LAUNCH_CWD_NOT_FOUND)
def no_directory(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write("print(1)\n")
    (scene.folder / "right").mkdir()
    error = yield session.try_launch(program, cwd=str(scene.folder / "rigth"))
    meant = suggestion(error).removeprefix("Did you mean ").rstrip("?")
    assert session.launch(program, cwd=meant)["exit_code"] == 0


@story_of(Code.LAUNCH_SYNTAX_ERROR)
def syntax_error(scene: Scene) -> Generator[Answer, Any, None]:
    session, program = scene.session(), scene.write("x = 1\nprint(x\n")
    error = yield session.try_launch(program)
    line = error["details"]["line"]
    assert f"line {line}" in suggestion(error)
    lines = program.text.splitlines()
    lines[line - 1] += ")"
    program.path.write_text("\n".join(lines) + "\n")
    assert session.launch(program)["exit_code"] == 0


@story_of(Code.LAUNCH_ENV_MISSING)
def a_secret_that_no_export_holds(scene: Scene) -> Generator[Answer, Any, None]:
    program = scene.write("import os\nprint(os.environ['API_TOKEN'], os.environ['COLOUR'])")
    session = scene.session()
    session.launch(program, env={"API_TOKEN": "s3cret", "COLOUR": "red"})
    exported = session.get("/export").ok()
    id = scene.client.post("/sessions/import", exported).ok(201)["session_id"]
    imported = scene.ends.enter_context(Session(scene.client, id))
    error = yield imported.post("/restart")
    assert error["details"]["missing_env"] == ["API_TOKEN"]
    found = re.search(r"\{.*\}", suggestion(error))
    assert found is not None
    body = json.loads(found.group().replace("…", "again"))
    assert imported.post("/restart", {**body, "wait": 20}).ok()["exit_code"] == 0
    assert imported.printed() == "again red\n"


@story_of(Code.LAUNCH_FIELDS_MISSING)
def arguments_that_no_export_holds(scene: Scene) -> Generator[Answer, Any, None]:
    program = scene.write("import os, sys\nprint(sys.argv[1:], os.environ['API_TOKEN'])")
    session = scene.session()
    session.launch(program, args=["--password", "x"], env={"API_TOKEN": "s3cret"})
    exported = session.get("/export").ok()
    id = scene.client.post("/sessions/import", exported).ok(201)["session_id"]
    imported = scene.ends.enter_context(Session(scene.client, id))
    error = yield imported.post("/restart")
    assert error["details"]["missing_fields"] == ["args"]
    found = re.search(r"\{.*\}", suggestion(error))
    assert found is not None
    body = json.loads(found.group().replace("…", "again"))
    assert imported.post("/restart", {**body, "wait": 20}).ok()["exit_code"] == 0
    assert imported.printed() == "['again'] again\n"
