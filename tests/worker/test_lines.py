"""Where code is in a file, for each Python version, held against the debugger's own idea of it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import debugpy
import msgspec
import pytest

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.worker.interpreter.resolve import Interpreter
from debug_relay.worker.source import code_lines as lines_module
from debug_relay.worker.source.code_lines import CodeLines, LineFacts
from debug_relay.worker.source.line_suggestion import verify_line
from tests.kit.statements import every_statement

PYDEVD = Path(debugpy.__file__).parent / "_vendored" / "pydevd"
PYDEVD_LINES = """
import json, sys
sys.path.insert(0, sys.argv[1])
from _pydevd_bundle.pydevd_api import _get_code_lines
answer = {}
for path in sys.argv[2:]:
    try:
        answer[path] = sorted(set(_get_code_lines(path)))
    except Exception as error:
        answer[path] = None
print(json.dumps(answer))
"""


@pytest.fixture
def source(tmp_path):
    def write(text: str | bytes, name: str = "prog.py") -> str:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write


async def facts_of(path: str) -> LineFacts:
    return await CodeLines().facts(path)


def pydevd_lines(interpreter: Interpreter, paths: list[str], *options: str) -> dict:
    ran = subprocess.run(
        [interpreter.path, "-I", *options, "-c", PYDEVD_LINES, str(PYDEVD), *paths],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def assert_left_in_place(facts: LineFacts, valid: list[int], where: str) -> None:
    """All our lines are pydevd's; what we leave out besides is empty or a comment."""
    assert facts.syntax_error is None, where
    moved = facts.lines - set(valid)
    assert not moved, f"{where}: pydevd would move {sorted(moved)}"
    for line in set(valid) - facts.lines:
        kind = facts.kind(line) if 1 <= line <= facts.total_lines else "blank"
        assert kind in ("blank", "comment"), f"{where}:{line} ({kind})"


ODD_TEXTS = (
    b"",
    b"\n\n",
    b"# only a comment\n",
    b'"""only a docstring"""',
    b"\xef\xbb\xbfx = 1\n# c\ny = 2\n",
    b"# coding: latin-1\nx = '\xe9'\ny = 2\n",
    b"#!/bin/python\r\n# coding: cp1252\r\nx = (\r\n 1,\r\n)\r\ny = '\x80'\r\n",
    b"x = 1\ry = 2\rz = 3",
    b"x = 1\n\x0c\ny = '''\x0c\n'''\n\x0cz = 1",
    "x = '\u2028'\ny = '\x85'\nz = 3".encode(),
    b"x = 1\n\ty\n".replace(b"\n\t", b"\nif x:\n\t"),
    b"import os\nx = '\\d'\nx is 1\n",
)


MODULES = ("enum.py", "inspect.py", "textwrap.py", "asyncio/base_events.py")


def library_of(interpreter: Interpreter) -> Path:
    ran = subprocess.run(
        [interpreter.path, "-I", "-S", "-c", "import os; print(os.__file__)"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    return Path(ran.stdout.strip()).parent


async def test_pydevd_moves_none_of_our_lines(interpreter, source):
    """Of a file with every statement, of odd texts, and of the standard library."""
    path = source(every_statement(interpreter.minor))
    odd = {source(data, f"odd{number}.py"): data for number, data in enumerate(ODD_TEXTS)}
    library = library_of(interpreter)
    modules = [str(library / name) for name in MODULES]
    valid = pydevd_lines(interpreter, [path, *odd, *modules])
    code_lines = CodeLines(interpreter)
    for one in (path, *odd, *modules):
        assert_left_in_place(await code_lines.facts(one), valid[one], repr(odd.get(one, one)))
    facts = await code_lines.facts(path)
    kinds = set(facts.kinds)
    assert kinds == {"code", "blank", "comment", "string", "inside", "bare"}
    assert len(facts.kinds) == len(facts.source_lines) == facts.total_lines
    assert {line for line, kind in enumerate(facts.kinds, 1) if kind == "code"} == facts.lines


async def test_pydevd_moves_none_of_our_lines_with_asserts_removed(interpreter, source):
    path = source(every_statement(interpreter.minor))
    plain = await CodeLines(interpreter).facts(path)
    facts = await CodeLines(interpreter, optimize=2).facts(path)
    assert_left_in_place(facts, pydevd_lines(interpreter, [path], "-OO")[path], path)
    removed = plain.source_lines.index("assert a") + 1
    assert removed in plain.lines - facts.lines


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b"x = 1\ny = \0\n", 2, "null bytes"),
        (b"x = 1\n\n# \xff\n", 3, "utf-8"),
        (b"\xef\xbb\xbfx = 1\n\n\n# \xff\n", 4, "utf-8"),
        (b"x = '\xff'\n", 1, "encoding"),
        (b"#!/x\n# coding: no-such\nx = 1\n", 2, "no-such"),
        (b"# coding: rot13\nx = 1\n", 1, "encoding"),
        (b"x = 1\nif x\n    pass\n", 2, ""),
        (b"def f():\n    return\nreturn 1\n", 3, "return"),
        (b"x = " + b"-" * 60000 + b"1\n", 1, "deep"),
    ],
    ids=lambda value: repr(value[:14]) if isinstance(value, bytes) else None,
)
async def test_what_does_not_compile_names_its_line(data, line, words, source, interpreter):
    facts = await CodeLines(interpreter).facts(source(data))
    problem = facts.syntax_error
    assert problem is not None
    assert problem.line == line
    assert problem.offset >= 1
    assert words in problem.message
    assert facts.lines == frozenset()
    verdict = verify_line(facts, 1)
    assert not verdict.ok
    assert verdict.why == "syntax_error"
    assert f"line {line}: " in verdict.message
    assert verify_line(facts, 1_000_000).why == "past_end"


async def test_lone_surrogates_from_a_cookie_reach_nobody(source):
    facts = await facts_of(source(b"# coding: unicode_escape\nx = 1  # \\ud800\n"))
    assert "\\ud800" in facts.source_lines[1]
    assert msgspec.json.encode(facts)


async def test_newer_syntax_is_judged_by_the_sessions_interpreter(source, foreign):
    if foreign.minor >= (3, 10):
        pytest.skip("match is known there")
    walrus = source("if (n := 1):\n    print(n)\n")
    match = source("x = 1\nmatch x:\n    case 1:\n        pass\n", "match.py")
    code_lines = CodeLines(foreign)
    assert (await code_lines.facts(walrus)).lines == {1, 2}
    problem = (await code_lines.facts(match)).syntax_error
    assert problem is not None
    assert (problem.line, problem.text.strip()) == (2, "match x:")
    assert (await facts_of(match)).syntax_error is None


async def test_a_large_file_is_compiled_beside_the_event_loop(source):
    path = source("x = 1\n" * 60_000)
    loop = asyncio.get_running_loop()
    longest, last, done = 0.0, loop.time(), asyncio.Event()

    async def watch() -> None:
        nonlocal longest, last
        while not done.is_set():
            await asyncio.sleep(0.005)
            longest, last = max(longest, loop.time() - last), loop.time()

    watching = asyncio.create_task(watch())
    facts = await facts_of(path)
    done.set()
    await watching
    assert len(facts.lines) == facts.total_lines == 60_000
    assert longest < 1.0


async def test_in_process_and_by_process_agree(source, monkeypatch):
    path = source(every_statement(sys.version_info[:2]))
    inside = await facts_of(path)
    monkeypatch.setattr(lines_module, "_IN_PROCESS_BYTES", 0)
    assert await facts_of(path) == inside


async def test_facts_are_kept_until_the_file_changes(source, foreign):
    for code_lines in (CodeLines(), CodeLines(foreign)):
        path = source("x = 1\n\n")
        first = await code_lines.facts(path)
        assert await code_lines.facts(path) is first
        source("x = 1\n\ny = 2\n")
        second = await code_lines.facts(path)
        assert (first.lines, second.lines) == ({1}, {1, 3})
        os.utime(path, ns=(1, 1))
        assert await code_lines.facts(path) is not second


async def test_many_at_once_compile_once(source):
    code_lines, path = CodeLines(), source("x = 1\n")
    found = await asyncio.gather(*(code_lines.facts(path) for _ in range(50)))
    assert all(facts is found[0] for facts in found)


async def test_old_facts_are_forgotten(source, monkeypatch):
    monkeypatch.setattr(lines_module, "_KEPT_FILES", 3)
    code_lines = CodeLines()
    paths = [source(f"x = {number}\n", f"f{number}.py") for number in range(5)]
    found = [await code_lines.facts(path) for path in paths]
    assert await code_lines.facts(paths[4]) is found[4]
    assert await code_lines.facts(paths[0]) is not found[0]


async def refusal(path: str, **options: str) -> RelayError:
    with pytest.raises(RelayError) as caught:
        await asyncio.wait_for(CodeLines(**options).facts(path), 5)
    assert caught.value.code is Code.BREAKPOINT_FILE_NOT_FOUND
    assert caught.value.details["suggestion"]
    return caught.value


async def test_what_is_no_readable_file_is_refused_at_once(tmp_path, source, monkeypatch):
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "loop.py").symlink_to("loop.py")
    expected = {
        str(tmp_path / "fifo.py"): "not_a_file",
        str(tmp_path): "directory",
        "/dev/zero": "not_a_file",
        str(tmp_path / "loop.py"): "unreadable",
        str(tmp_path / ("n" * 300)): "unreadable",
        str(tmp_path / "a\0b"): "unreadable",
        str(tmp_path / "none.py"): "missing",
        source("x = 1\n", "zip.py") + "/inner.py": "missing",
    }
    for path, reason in expected.items():
        assert (await refusal(path)).details["reason"] == reason, path
    monkeypatch.setattr(lines_module, "MAX_SOURCE_BYTES", 5)
    assert (await refusal(source("x = 1\n"))).details["reason"] == "too_large"


async def test_a_missing_file_names_the_closest(tmp_path, source):
    path = source("x = 1\n", "checkout.py")
    error = await refusal(str(tmp_path / "chekout.py"))
    assert error.details["closest"] == path
    assert path in error.details["suggestion"]


async def test_an_interpreter_that_is_gone_is_named(source, tmp_path):
    gone = Interpreter(
        path=str(tmp_path / "python"),
        executable=str(tmp_path / "python"),
        version=(3, 9, 0),
        version_text="3.9.0",
    )
    with pytest.raises(RelayError) as caught:
        await CodeLines(gone).facts(source("x = 1\n"))
    assert caught.value.code is Code.LAUNCH_INTERPRETER_NOT_FOUND
    assert gone.path in caught.value.message
