"""Python 3.15 imports lazily where told to: the debugger comes in, and imports nothing more."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.running import Running
from tests.kit.source import Source, interpreters

Write = Callable[..., Source]
Start = Callable[..., Running]

ALL = {"PYTHON_LAZY_IMPORTS": "all"}


@pytest.fixture
def lazy_python() -> str:
    found = interpreters().get("3.15")
    if found is None:
        pytest.skip("no CPython 3.15 on this machine")
    return found


# What a program can see of it: the mode, the filter, and which of its own imports are not done.
OWN = """
    import json
    import os
    import queue
    import fractions
    import sys

    def told():
        kinds = {name: type(value).__name__ for name, value in list(globals().items())}
        return [kinds[name] for name in ("queue", "fractions")] + [
            sys.get_lazy_imports(), sys.get_lazy_imports_filter()
        ]

    print(json.dumps(told()))  # @here
    print(queue.Queue, fractions.Fraction(3))
"""


@pytest.mark.parametrize("by", ["environment", "option"])
def test_a_launched_program_is_as_lazy_as_without_us(
    relay: Client, source: Write, lazy_python: str, by: str
) -> None:
    program = source(OWN)
    options = ["-X", "lazy_imports=all"] if by == "option" else []
    env = ALL if by == "environment" else {}
    plain = subprocess.run(
        [lazy_python, *options, str(program)], env=env, capture_output=True, text=True, check=True
    )
    assert json.loads(plain.stdout.splitlines()[0]) == ["lazy_import", "lazy_import", "all", None]
    with relay.session(python_path=lazy_python) as session:
        session.break_at(program, program["here"])
        stopped = session.launch(program, python_args=options, env=env)
        assert stopped["status"] == "paused"
        assert session.resume()["exit_code"] == 0
        assert session.printed("stdout") == plain.stdout
        assert session.printed("stderr") == ""


CHILDREN = """
    import multiprocessing
    import os
    import subprocess
    import sys

    def work(n):
        return n  # @work

    if __name__ == "__main__":
        pid = os.fork()
        if pid == 0:
            os._exit(work(3))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        code = "import decimal; print(type(globals()['decimal']).__name__)"
        print(subprocess.run([sys.executable, "-c", code], text=True, stdout=-1).stdout.strip())
        process = multiprocessing.get_context("forkserver").Process(target=work, args=(4,))
        process.start()
        process.join()
        print(process.exitcode, sys.get_lazy_imports())
"""


def test_children_of_a_lazy_program_are_debugged(
    relay: Client, source: Write, lazy_python: str
) -> None:
    program = source(CHILDREN)
    with relay.session(python_path=lazy_python) as session:
        session.break_at(program, program["work"])
        stopped = session.launch(program, env=ALL, debug_subprocesses=True)
        seen = []
        while stopped["status"] == "paused":
            assert stopped["child_pid"] is not None
            seen.append(session.value("n"))
            stopped = session.resume()
        assert (seen, stopped["exit_code"]) == (["3", "4"], 0)
        assert session.printed("stdout") == "3\nlazy_import\n0 all\n"
        assert session.printed("stderr") == ""


LATER = """
    import sys, threading, time

    def refuse(event, arguments):
        if refusing and event == "import" and arguments[0] == "pydevd":
            raise RuntimeError("nobody does that here")

    def work():
        return sys.get_lazy_imports()  # @work

    refusing = len(sys.argv) > 1
    sys.addaudithook(refuse)
    sys.set_lazy_imports("all")
    exec("import fractions", globals())
    print("up", flush=True)
    for line in sys.stdin:
        refusing = False
        print(work(), type(globals()["fractions"]).__name__, flush=True)
"""


def test_a_program_that_imports_lazily_is_attached_to(
    relay: Client, start: Start, lazy_python: str
) -> None:
    one = start(LATER, "refusing", python=lazy_python)
    stdin = one.process.stdin
    assert stdin is not None

    def asked() -> str | None:
        stdin.write("\n")
        stdin.flush()
        return one.line()

    with relay.session() as session:
        refused = session.post("/attach", {"pid": one.pid}).refused("ATTACH_FAILED")
        assert "nobody does that here" in refused["message"]
        assert asked() == "all lazy_import"
        for _ in range(2):
            session.break_at(one.program, one.program["work"])
            attached = session.post("/attach", {"pid": one.pid}).ok()
            stdin.write("\n")
            stdin.flush()
            session.events("stopped", timeout=20, cursor=attached["events_cursor"])
            assert session.line() == one.program["work"]
            assert session.post("/detach").ok()["residue"] is None
            assert one.line() == "all lazy_import"
    assert asked() == "all lazy_import"
    assert one.stderr() == ""


LAZY = """
    import sys
    lazy import fractions
    lazy from decimal import Decimal
    lazy import no_such_module
    a = 1  # @top
    b = 2
    held = {}

    def main():
        every = globals()
        own = sys.modules[__name__]
        held["x"] = dict.__getitem__(every, "fractions")
        z = 1  # @here
        z = 2
        return z  # @end

    main()
    print(sorted({"decimal", "fractions"} & set(sys.modules)))
    print(Decimal(fractions.Fraction(3).numerator))
"""


def test_looking_at_a_lazy_name_does_not_import(
    relay: Client, source: Write, lazy_python: str
) -> None:
    program = source(LAZY)
    shown = {
        "fractions": "<lazy_import 'fractions'>",
        "Decimal": "<lazy_import 'decimal.Decimal'>",
        "no_such_module": "<lazy_import 'no_such_module'>",
    }

    def lazy(rows: list[Any]) -> dict[str, str]:
        found = [row for row in rows if row["type"] == "lazy_import"]
        assert not any(row["expandable"] for row in found)
        return {row["name"].strip("'"): row["value"] for row in found}

    with relay.session(python_path=lazy_python) as session:
        session.break_at(program, program["top"])
        session.break_at(program, program["here"])
        session.launch(program)
        assert lazy(session.get("/snapshot").ok()["stop"]["locals"]) == shown
        for name, value in shown.items():
            hovered = session.post("/hover", {"expression": name}).ok()
            assert (hovered["result"], hovered["type"]) == (value, "lazy_import")
            for text in (name[:4], f"{name}."):
                session.post("/completions", {"text": text}).ok()
        assert session.post("/hover", {"expression": "fractions.Fraction"}).ok()["type"] == (
            "lazy_import"
        )
        session.step()  # compares what was there before with what is there now
        session.resume()
        local = session.get("/frames/0/variables").ok()["variables"]
        for row in local:
            inside = session.get(f"/variables/{row['variables_reference']}").ok()["variables"]
            assert lazy(inside) == shown
            assert "lazy_import" in session.value(row["name"]) or row["name"] == "own"
        scopes = session.get("/scopes").ok()["scopes"]
        of_module = session.get(f"/scopes/{scopes[1]['variables_reference']}/variables").ok()
        assert lazy(of_module["variables"]) == shown
        at = {"file": str(program), "line": program["end"], "capture": ["every", "held", "own"]}
        traced = session.post("/trace", {"at": [at], "max_rows": 1, "timeout": 10}).ok()
        assert "<lazy_import 'fractions'>" in json.dumps(traced)
        assert session.resume()["exit_code"] == 0
        assert session.printed("stdout") == "[]\n3\n"


def test_evaluating_a_lazy_name_imports_it(relay: Client, source: Write, lazy_python: str) -> None:
    program = source(LAZY)
    with relay.session(python_path=lazy_python) as session:
        session.break_at(program, program["here"])
        session.launch(program)
        assert session.value("fractions.Fraction(1, 2)") == "Fraction(1, 2)"
        assert session.post("/hover", {"expression": "fractions"}).ok()["type"] == "module"
        missing = session.post("/evaluate", {"expression": "no_such_module"}).ok()
        assert missing["error"] == "ModuleNotFoundError: No module named 'no_such_module'"
