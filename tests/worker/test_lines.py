"""Where code is in a file, for each Python version, held against the debugger's own idea of it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import debugpy
import msgspec
import pytest

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.worker import lines as lines_module
from debug_relay.worker.interpreters import Interpreter, InterpreterBook
from debug_relay.worker.lines import (
    LineBook,
    LineFacts,
    SyntaxProblem,
    closest_path,
    judge,
    nearest_code_line,
    parse_hit_condition,
)

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
VERSIONS = ["3.8", "3.10", "3.11", "3.12", "3.13"]
OURS = "{}.{}".format(*sys.version_info[:2])
FOREIGN = "3.8" if OURS != "3.8" else "3.12"


def python_path(version: str) -> str:
    versions = Path("~/.pyenv/versions").expanduser()
    found = [str(path) for path in versions.glob(f"{version}.*/bin/python")]
    on_path = shutil.which(f"python{version}")
    found += [on_path] if on_path else []
    for path in found:
        ran = subprocess.run(
            [path, "-I", "-c", "import sys; print(*sys.version_info[:2], sep='.')"],
            capture_output=True,
            text=True,
            timeout=30,
        )
        if ran.stdout.strip() == version:
            return path
    pytest.skip(f"no Python {version} in pyenv's folder or on PATH")


@pytest.fixture(params=VERSIONS)
async def interpreter(request) -> Interpreter:
    return await InterpreterBook().describe(python_path(request.param))


@pytest.fixture
async def foreign() -> Interpreter:
    return await InterpreterBook().describe(python_path(FOREIGN))


@pytest.fixture
def source(tmp_path):
    def write(text: str | bytes, name: str = "prog.py") -> str:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write


async def facts_of(path: str) -> LineFacts:
    return await LineBook().facts(path)


EVERY_STATEMENT = '''\
#!/usr/bin/env python
# -*- coding: utf-8 -*-
"""Docstring
of several

lines."""
from __future__ import annotations

import os, sys
from os import (
    path,
    # a comment
    sep,
)

x: int
y: "list[int]" = []
z = (
    1,
    2,
)
a = b = x0 = 1; c = 2; d = \\
    3
a += \\
    1


@staticmethod
@property
def decorated(
    first=1,
    *args,
    second: int = len(
        "abc"
    ),
    **kwargs,
) -> None:
    """Docstring."""
    # comment

    global G
    G = first

    def inner():
        nonlocal first
        first = 2
        return (
            first
        )

    return inner()
    # trailing comment


class Empty: pass


@decorated
class Thing(
    object,
    metaclass=type,
):
    """Class docstring.

    # not a comment
    """

    field: int
    other: int = 5
    __slots__ = ()

    @property
    def prop(self): return 1

    async def coro(self):
        async with self as s, self as t:
            pass
        async for i in self:
            await i
        else:
            ...
        return [j async for j in self if j]

    def only_doc(self):
        """Nothing
        else."""

    def gen(self):
        yield
        got = yield 5
        yield from (
            got
        )


if a:
    pass
elif (
    b
    and c
):
    print(
        "call",
        a,

        # within
        len("x"),
    )
else:
    pass

if 0:
    never = 1
    never = 2

while a:
    a -= 1
    if a == 2:
        continue
    if a == 3:
        break
else:
    a = 0

while 0:
    dead = 1

for i, j in (
    (1, 2),
    (3, 4),
):
    del i, j
else:
    pass

try:
    raise ValueError(
        "text"
    ) from None
except (
    ValueError,
    KeyError,
) as error:
    print(error)
except Exception:
    pass
except:
    raise
else:
    pass
finally:
    pass

try:
    pass
finally:
    a = 1

with open(
    os.devnull
) as f, open(os.devnull) as g:
    f.read()

with f:
    pass

f1 = lambda: (
    1,
    a,
)
c1 = [
    i
    for i in range(3)
    if i
    if (
        i > 1
    )
]
c2 = {
    k: v
    for k, v in {}.items()
}
c3 = {k for k in ()}
c4 = (
    i
    for i in ()
)
s1 = f"""
{a}
  # not a comment

{
b
!r}
"""
s2 = (
    "a"
    # between
    f"{a}"
    "b"
)
s3 = """

# in a string
"""
assert a, (
    "message"
)
assert a
"a string that stands alone"
"""and
another"""
...
1
a
if (n := 10) > 5: print(n); m = n
t = a if b else (
    c
)
u = a[
    1:
    2
]
v = not (
    a
    or b
)
print(a
      .bit_length(
      ))
d1 = {
    "a": 1,
    **{
        "b": a
    },
}
def one(): return 1
def two(): "doc"; return 2
async def three(): pass
return_type = one(
)
exec("pass"
)
\x0c
after_form_feed = 1
'''
FROM = {
    (3, 9): """
@staticmethod
@(
    lambda f: f
)
def freely_decorated(): pass
""",
    (3, 10): """
match a:
    case 1:
        pass
    case [
        1,
        2,
    ] if (
        b
    ):
        # comment
        print(a)
    case {"k": v}:
        pass
    case _:
        ...
with (
    f as f,
    g as g,
):
    pass
""",
    (3, 11): """
try:
    pass
except* ValueError:
    pass
except* (
    KeyError
) as group:
    print(group)
""",
    (3, 12): '''
type Alias[T] = (
    list[T]
)
def generic[T: (
    int,
    str,
)](x: T) -> T:
    """Doc."""
    return x
class Box[T](
    list
):
    item: T
s4 = f"{
    a
    # a comment in an f-string
    + 1
}"
''',
    (3, 13): """
class Default[T = int]:
    def method(self):
        self.x = 1
""",
}


def every_statement(version: tuple[int, int]) -> str:
    return EVERY_STATEMENT + "".join(text for since, text in FROM.items() if version >= since)


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


async def test_pydevd_moves_none_of_our_lines(interpreter, source):
    path = source(every_statement(interpreter.minor))
    facts = await LineBook(interpreter).facts(path)
    assert_left_in_place(facts, pydevd_lines(interpreter, [path])[path], path)
    kinds = set(facts.kinds)
    assert kinds == {"code", "blank", "comment", "string", "inside", "bare"}
    assert len(facts.kinds) == len(facts.source_lines) == facts.total_lines
    assert {line for line, kind in enumerate(facts.kinds, 1) if kind == "code"} == facts.lines


async def test_pydevd_moves_none_of_our_lines_with_asserts_removed(interpreter, source):
    path = source(every_statement(interpreter.minor))
    plain = await LineBook(interpreter).facts(path)
    facts = await LineBook(interpreter, optimize=2).facts(path)
    assert_left_in_place(facts, pydevd_lines(interpreter, [path], "-OO")[path], path)
    removed = plain.source_lines.index("assert a") + 1
    assert removed in plain.lines - facts.lines


def library_of(interpreter: Interpreter) -> Path:
    ran = subprocess.run(
        [interpreter.path, "-I", "-S", "-c", "import os; print(os.__file__)"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    return Path(ran.stdout.strip()).parent


async def test_pydevd_moves_none_of_our_lines_in_the_standard_library(interpreter):
    library = library_of(interpreter)
    names = ["ast", "dis", "enum", "inspect", "textwrap", "traceback", "contextlib", "typing"]
    paths = [str(library / f"{name}.py") for name in names] + [
        str(library / "asyncio" / "base_events.py"),
        str(library / "collections" / "__init__.py"),
    ]
    book = LineBook(interpreter)
    valid = pydevd_lines(interpreter, paths)
    for path in paths:
        assert_left_in_place(await book.facts(path), valid[path], path)


@pytest.mark.parametrize(
    "data",
    [
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
    ],
    ids=lambda data: repr(data[:12]),
)
async def test_odd_texts(data, source, interpreter):
    path = source(data)
    facts = await LineBook(interpreter).facts(path)
    assert_left_in_place(facts, pydevd_lines(interpreter, [path])[path], path)


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
    facts = await LineBook(interpreter).facts(source(data))
    problem = facts.syntax_error
    assert problem is not None
    assert problem.line == line
    assert problem.offset >= 1
    assert words in problem.message
    assert facts.lines == frozenset()
    verdict = judge(facts, 1)
    assert not verdict.ok
    assert verdict.why == "syntax_error"
    assert f"line {line}: " in verdict.message
    assert judge(facts, 1_000_000).why == "past_end"


async def test_lone_surrogates_from_a_cookie_reach_nobody(source):
    facts = await facts_of(source(b"# coding: unicode_escape\nx = 1  # \\ud800\n"))
    assert "\\ud800" in facts.source_lines[1]
    assert msgspec.json.encode(facts)


async def test_newer_syntax_is_judged_by_the_sessions_interpreter(source, foreign):
    if foreign.minor >= (3, 10):
        pytest.skip("match is known there")
    walrus = source("if (n := 1):\n    print(n)\n")
    match = source("x = 1\nmatch x:\n    case 1:\n        pass\n", "match.py")
    book = LineBook(foreign)
    assert (await book.facts(walrus)).lines == {1, 2}
    problem = (await book.facts(match)).syntax_error
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
            await asyncio.sleep(0)
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
    for book in (LineBook(), LineBook(foreign)):
        path = source("x = 1\n\n")
        first = await book.facts(path)
        assert await book.facts(path) is first
        source("x = 1\n\ny = 2\n")
        second = await book.facts(path)
        assert (first.lines, second.lines) == ({1}, {1, 3})
        os.utime(path, ns=(1, 1))
        assert await book.facts(path) is not second


async def test_many_at_once_compile_once(source):
    book, path = LineBook(), source("x = 1\n")
    found = await asyncio.gather(*(book.facts(path) for _ in range(50)))
    assert all(facts is found[0] for facts in found)


async def test_old_facts_are_forgotten(source, monkeypatch):
    monkeypatch.setattr(lines_module, "_KEPT_FILES", 3)
    book = LineBook()
    paths = [source(f"x = {number}\n", f"f{number}.py") for number in range(5)]
    found = [await book.facts(path) for path in paths]
    assert await book.facts(paths[4]) is found[4]
    assert await book.facts(paths[0]) is not found[0]


async def refusal(path: str, **options: str) -> RelayError:
    with pytest.raises(RelayError) as caught:
        await asyncio.wait_for(LineBook(**options).facts(path), 5)
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
        await LineBook(gone).facts(source("x = 1\n"))
    assert caught.value.code is Code.LAUNCH_INTERPRETER_NOT_FOUND
    assert gone.path in caught.value.message


JUDGED = '''\
"""Module
docstring."""
import os

# about total
total = sum(
    [
        1,
    ]
)

def area(
    width,
    height,
):
    """Docstring.

    More."""
    global G
    if width:

        # about the return
        return width
        # after the return
    else:
        G = 1
    # deeper than what follows
value = 1

# the end
'''


@pytest.mark.parametrize(
    ("line", "why", "words", "nearest"),
    [
        (2, "docstring", "docstring", 3),
        (4, "blank", "line 4 is blank", 6),
        (5, "comment", "line 5 is a comment", 6),
        (9, "continuation", "line 9 is in the middle of the statement that starts at line 6", 6),
        (10, "continuation", "starts at line 6", 6),
        (11, "blank", "line 11 is blank", 12),
        (14, "continuation", "starts at line 12", 12),
        (15, "continuation", "starts at line 12", 12),
        (16, "docstring", "docstring", 20),
        (17, "docstring", "docstring", 20),
        (19, "no_code", 'line 19 ("global G") has no code of its own', 20),
        (21, "blank", "blank", 23),
        (22, "comment", "comment", 23),
        (24, "comment", "comment", 23),
        (25, "no_code", 'line 25 ("else:") has no code', 26),
        (27, "comment", "comment", 26),
        (29, "blank", "blank", 28),
        (30, "comment", "comment", 28),
        (31, "past_end", "line 31 is past the end of the file: the file has 30 lines", 28),
        (10_000_000, "past_end", "has 30 lines", 28),
    ],
)
async def test_judgements(line, why, words, nearest, source):
    facts = await facts_of(source(JUDGED))
    verdict = judge(facts, line)
    assert (verdict.ok, verdict.why) == (False, why)
    assert words in verdict.message
    assert verdict.nearest == (nearest, facts.text(nearest))
    assert str(nearest) in (verdict.suggestion or "")


async def test_every_line_is_judged_and_every_nearest_line_is_good(interpreter, source):
    facts = await LineBook(interpreter).facts(source(every_statement(interpreter.minor)))
    for line in range(1, facts.total_lines + 3):
        verdict = judge(facts, line)
        assert verdict.ok == (line in facts.lines)
        assert bool(verdict.message) != verdict.ok
        near = nearest_code_line(facts, line)
        assert near is not None
        assert judge(facts, near[0]).ok
        assert near[0] == line or not verdict.ok


async def test_a_good_line_needs_no_words(source):
    verdict = judge(await facts_of(source(JUDGED)), 6)
    assert verdict.ok
    assert (verdict.message, verdict.suggestion, verdict.nearest) == ("", None, None)


async def test_an_empty_file_has_no_nearest_line(source):
    facts = await facts_of(source(""))
    verdict = judge(facts, 1)
    assert (facts.total_lines, verdict.why, verdict.nearest) == (0, "past_end", None)
    assert "empty" in verdict.message


async def test_what_looks_like_a_comment_inside_a_string_is_none(source):
    facts = await facts_of(source('x = """\n# text\n\n"""\n'))
    assert [judge(facts, line).why for line in (2, 3, 4)] == ["continuation"] * 3
    assert judge(facts, 2).statement == 1


async def test_what_is_too_deep_for_a_tree_still_has_lines(source):
    text = "if a:\n    pass\n" + "elif b:\n    pass\n" * 900 + "x = 1\n\n"
    facts = await facts_of(source(text))
    assert facts.syntax_error is None
    assert len(text.splitlines()) - 1 in facts.lines
    assert judge(facts, len(text.splitlines())).why == "blank"


@pytest.mark.parametrize(
    ("text", "mode", "fine"),
    [
        ("x > 10", "condition", True),
        ("  x > 10 \n", "condition", True),
        ("(n := 5) > 3", "condition", True),
        ("x >", "condition", False),
        ("x = 1", "condition", False),
        ("await x", "condition", False),
        ("", "condition", False),
        ("a\0b", "condition", False),
        ("\ud800", "condition", False),
        ("-" * 60000 + "1", "condition", False),
        ("'\\d'", "condition", True),
        ("x is 1", "condition", True),
        ("await x", "expression", True),
        ("import os", "expression", False),
        ("import os\nos.getpid()", "statements", True),
        ("  x = 1\n  y = 2", "statements", True),
        ("return 1", "statements", False),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_expressions(text, mode, fine, foreign):
    for interpreter in (None, foreign):
        problem = await LineBook(interpreter).check_expression(text, mode)
        assert (problem is None) == fine
        if problem:
            assert problem.message
            assert problem.line >= 1


async def test_an_expression_of_another_version_is_asked_of_that_version():
    newer = await InterpreterBook().describe(python_path("3.12"))
    text = 'f"{x["key"]}"'  # the same quotes inside: 3.12 and newer
    assert await LineBook(newer).check_expression(text, "condition") is None
    if sys.version_info < (3, 12):
        problem = await LineBook().check_expression(text, "condition")
        assert isinstance(problem, SyntaxProblem)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", ("==", 5)),
        ("==5", ("==", 5)),
        ("!=5", ("!=", 5)),
        (">=5", (">=", 5)),
        (">5", (">", 5)),
        ("<=5", ("<=", 5)),
        ("<5", ("<", 5)),
        ("%5", ("%", 5)),
        ("  == 50 ", ("==", 50)),
        ("% 007", ("%", 7)),
    ],
)
def test_hit_conditions(text, expected):
    assert parse_hit_condition(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "%0",
        "% 00",
        "=5",
        "===5",
        "5 5",
        "x",
        "-1",
        "5.0",
        "1_0",
        "\u0665",
        ">",
        "5>",
        "9" * 50,
    ],
)
def test_other_hit_conditions_are_refused_with_the_forms(text):
    with pytest.raises(RelayError) as caught:
        parse_hit_condition(text)
    assert caught.value.code is Code.BREAKPOINT_INVALID_CONDITION
    for form in ("==5", "!=5", ">=5", ">5", "<=5", "<5", "%5"):
        assert form in caught.value.details["suggestion"]
        assert form in caught.value.details["forms"]


def test_closest_path(tmp_path):
    (tmp_path / "src" / "shop").mkdir(parents=True)
    (tmp_path / "node_modules").mkdir()
    target = tmp_path / "src" / "shop" / "orders.py"
    for file in (target, tmp_path / "node_modules" / "only.py"):
        file.write_text("x = 1\n")
    assert closest_path(str(target.with_name("order.py"))) == str(target)
    assert closest_path(str(tmp_path / "scr" / "shop" / "orders.py")) == str(target)
    assert closest_path(str(tmp_path / "orders.py")) is None
    assert closest_path(str(tmp_path / "orders.py"), str(tmp_path)) == str(target)
    assert closest_path("orders.py", str(tmp_path)) == str(target)
    assert closest_path(str(tmp_path / "only.py"), str(tmp_path)) is None
    assert closest_path(str(tmp_path / "src" / "shp")) is None  # a folder is no answer
    assert closest_path("a\0b", str(tmp_path)) is None
    assert closest_path("/no/such/place.py", "/no/such") is None


def test_the_search_for_a_name_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(lines_module, "_WALK_ENTRIES", 10)
    deep = tmp_path / "zz"
    deep.mkdir()
    (deep / "wanted.py").write_text("x = 1\n")
    assert closest_path(str(tmp_path / "wanted.py"), str(tmp_path)) == str(deep / "wanted.py")
    for number in range(30):
        (tmp_path / f"{number}.txt").write_text("")
    assert closest_path(str(tmp_path / "wanted.py"), str(tmp_path)) is None
