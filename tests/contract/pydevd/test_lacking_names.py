"""A debugpy that lacks inner names: its programs are debugged by plain DAP, and say so.

Every name of `worker/probe/engine/names.py` is taken away, together with the others of the same
object, in programs that are forks of one process. `test_debugpy_facts.py` takes each away by
itself and looks whether it is missed, and shows for some of them what a caller sees.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import debugpy
import pytest

from debug_relay.worker import bundle
from debug_relay.worker.probe.engine import names as listed

DRIVER = Path(__file__).with_name("lacking.py")
TEXTS = {name: bundle.text(f"startup/{name}") for name in ("bytecode_cache", "loader")}


def run_without(python: str, folder: Path) -> list[dict[str, Any]]:
    setup = {
        "program": str(folder / "program.py"),
        "debugger_parent": str(Path(debugpy.__file__).parents[1]),
        "texts": TEXTS,
        "probe": bundle.probe(),
        "token": "t" * 64,
        "access_token": "a" * 64,
        "debug_subprocesses": False,
    }
    done = subprocess.run(
        [python, "-X", "frozen_modules=off", str(DRIVER)],
        input=json.dumps(setup),
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long
@pytest.mark.slow
def test_each_name_may_be_lacking(python: str, tmp_path: Path) -> None:
    programs = run_without(python, tmp_path)
    assert sum(len(program["lacking"]) for program in programs) > 150
    wrong = []
    for program in programs:
        lacking = set(program["lacking"])
        if lacking <= listed.ESSENTIAL:
            said = f"lacks {lacking.pop()}, without which nothing can be debugged"
            right = program["status"] == 1 << 8 and said in program["output"]
            right = right and "Traceback" not in program["output"]
        else:
            said = program["said"].partition("lacks what the relay's probe needs: ")[2]
            told = said.partition(". This program")[0].split(", ")
            right = program["stopped"] == [3, "1"] and lacking <= set(told)
            right = right and (program["status"], program["output"]) == (0, "over 4\n")
        if not right:
            wrong.append(program)
    assert wrong == [], json.dumps(wrong, indent=1)
