"""What is said of a line, an expression and a hit condition, and which line is better."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.worker.breakpoints.verification import Verifier
from debug_relay.worker.interpreter.cache import InterpreterCache
from debug_relay.worker.interpreter.resolve import Interpreter, own_interpreter
from debug_relay.worker.source import code_lines as lines_module
from debug_relay.worker.source.code_lines import (
    CodeLines,
    LineFacts,
    SyntaxProblem,
    closest_folder,
    closest_path,
    parse_hit_condition,
)
from debug_relay.worker.source.line_suggestion import verify_line
from tests.kit.statements import every_statement, python_path


@pytest.fixture
def source(tmp_path):
    def write(text: str | bytes, name: str = "prog.py") -> str:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write


async def test_a_program_of_the_same_interpreter_is_judged_by_what_is_known() -> None:
    config = SimpleNamespace(python_path=None, project_root="/project")
    own = own_interpreter()

    async def find(*_: object) -> Interpreter:
        return own

    settings: Any = SimpleNamespace(config=config, params=SimpleNamespace(python_default=None))
    interpreters: Any = SimpleNamespace(find=find)
    verifier = Verifier(settings, interpreters)
    fresh = verifier.code_lines_of(own)  # before anything was judged
    code_lines = await verifier.code_lines()
    assert fresh is not code_lines
    assert verifier.code_lines_of(own) is code_lines
    # Of another interpreter, of optimized code and of another project a file says other things.
    other = structs.replace(own, path="/elsewhere/python3")
    assert verifier.code_lines_of(other).interpreter == other
    assert verifier.code_lines_of(own, 2) is not code_lines
    config.project_root = None
    assert verifier.code_lines_of(own) is not code_lines


async def facts_of(path: str) -> LineFacts:
    return await CodeLines().facts(path)


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
    ("line", "why", "words", "meant"),
    [
        (2, "docstring", "docstring", 3),
        (4, "blank", "line 4 is blank", 6),
        (5, "comment", "line 5 is a comment", 6),
        (9, "continuation", "line 9 is in the middle of the statement that starts at line 6", 6),
        (10, "continuation", "starts at line 6", 6),
        (11, "blank", "line 11 is blank", 12),
        (14, "continuation", "starts at line 12", 20),
        (15, "continuation", "starts at line 12", 20),
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
async def test_judgements(line, why, words, meant, source):
    facts = await facts_of(source(JUDGED))
    verdict = verify_line(facts, line)
    assert (verdict.ok, verdict.why) == (False, why)
    assert words in verdict.message
    assert verdict.meant == meant
    for near in (verdict.above, verdict.below, meant):
        assert near is None or f"line {near} `{facts.text(near)}`" in (verdict.suggestion or "")


MEANT = """\
class Till:
    "Of a shop."

    @cached
    # why it is cached
    @checked(
        1,
    )
    def total(
        self,
    ):
        # the sum
        return sum(
            # of all
            one(),

            two(),
        )


    def empty(self):
        pass

    def full(self):
        pass

    # at the end

for item in till:
    print(item)

# afterwards


def last(): return 1
"""


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (3, 4),  # a blank line in front of the first method
        (5, 6),  # a comment between decorators
        (8, 6),  # the bracket that ends a decorator's call
        (11, 13),  # the end of a function's head
        (12, 13),  # a comment above a statement
        (14, 15),  # a comment in a call, above a part with code of its own
        (16, 17),  # a blank line there
        (18, 13),  # the bracket that ends the call
        (19, 13),  # the blank lines between two functions: the nearer one
        (20, 21),
        (23, 22),  # as near: the end of the block
        (26, 29),
        (27, 25),  # a comment that is indented as the block that ends
        (28, 29),
        (31, 30),
        (32, 35),
    ],
)
async def test_the_line_that_is_meant(line, meant, source):
    verdict = verify_line(await facts_of(source(MEANT)), line)
    assert verdict.meant == meant, verdict


async def test_a_suggestion_shows_both_sides_and_when_a_head_runs(source):
    facts = await facts_of(source(MEANT))
    assert verify_line(facts, 20).suggestion == (
        "Code above: line 17 `two(),`. Code below: line 21 `def empty(self):`, which is probably "
        "meant (it runs when the function is defined; line 22 runs when it is called)."
    )
    assert verify_line(facts, 18).suggestion == (
        "Code above: line 17 `two(),`. Code below: line 21 `def empty(self):`. "
        "Probably meant: line 13 `return sum(`."
    )
    long = await facts_of(source(f"x = {'1' * 500}\n\n", "long.py"))
    assert len(verify_line(long, 2).suggestion or "") < 150


async def test_every_line_is_judged_and_every_line_that_is_named_is_good(interpreter, source):
    facts = await CodeLines(interpreter).facts(source(every_statement(interpreter.minor)))
    for line in range(1, facts.total_lines + 3):
        verdict = verify_line(facts, line)
        assert verdict.ok == (line in facts.lines)
        assert bool(verdict.message) != verdict.ok
        assert (verdict.meant is None) == (verdict.suggestion is None) == verdict.ok
        assert {verdict.above, verdict.below, verdict.meant} - {None} <= facts.lines
        between = range((verdict.above or 0) + 1, verdict.below or facts.total_lines + 1)
        assert verdict.ok or not facts.lines.intersection(between)


async def test_a_good_line_needs_no_words(source):
    verdict = verify_line(await facts_of(source(JUDGED)), 6)
    assert verdict.ok
    assert (verdict.message, verdict.suggestion, verdict.meant) == ("", None, None)


async def test_an_empty_file_has_no_line_that_could_be_meant(source):
    facts = await facts_of(source(""))
    verdict = verify_line(facts, 1)
    assert (facts.total_lines, verdict.why, verdict.meant) == (0, "past_end", None)
    assert "empty" in verdict.message


async def test_what_looks_like_a_comment_inside_a_string_is_none(source):
    facts = await facts_of(source('x = """\n# text\n\n"""\n'))
    assert [verify_line(facts, line).why for line in (2, 3, 4)] == ["continuation"] * 3
    assert verify_line(facts, 2).statement == 1


async def test_what_is_too_deep_for_a_tree_still_has_lines(source):
    text = "if a:\n    pass\n" + "elif b:\n    pass\n" * 900 + "x = 1\n\n"
    facts = await facts_of(source(text))
    assert facts.syntax_error is None
    assert len(text.splitlines()) - 1 in facts.lines
    assert verify_line(facts, len(text.splitlines())).why == "blank"


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
        ("import os\nos.getpid()", "program", True),
        ("  x = 1\n  y = 2", "program", False),
        ("await x", "program", False),
        ("return 1", "program", False),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_expressions(text, mode, fine, foreign):
    for interpreter in (None, foreign):
        problem = await CodeLines(interpreter).check_expression(text, mode)
        assert (problem is None) == fine
        if problem:
            assert problem.message
            assert problem.line >= 1


async def test_an_expression_of_another_version_is_asked_of_that_version():
    newer = await InterpreterCache().describe(python_path("3.12"))
    text = 'f"{x["key"]}"'  # the same quotes inside: 3.12 and newer
    assert await CodeLines(newer).check_expression(text, "condition") is None
    if sys.version_info < (3, 12):
        problem = await CodeLines().check_expression(text, "condition")
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


def test_closest_folder(tmp_path):
    (tmp_path / "src" / "shop").mkdir(parents=True)
    (tmp_path / "src" / "ship.py").touch()
    assert closest_folder(str(tmp_path / "scr" / "shp")) == str(tmp_path / "src" / "shop")
    assert closest_folder(str(tmp_path / "src" / "ship.pi")) is None  # a file is no answer
    assert closest_folder("/no/such/place") is None


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
