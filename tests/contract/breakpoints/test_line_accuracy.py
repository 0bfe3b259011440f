"""A stop is exactly on the line that was asked for: every line of every kind of statement, on every
Python, against what the interpreter itself says that it ran.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

from tests.kit.client import Client, Session
from tests.kit.source import Source, version_of

# Runs from its first line to its last; each construct is there with the odd shapes that it has.
EVERYTHING = '''\
"""Docstring
of two lines."""
from __future__ import annotations

import os, sys
from os import (
    path,
    # a comment
    sep,
)

plain: int
typed: "list[int]" = []
pair = (
    1,
    2,
)
a = b = 1; c = 2; d = \\
    3


def decorator(
    first=1,
):
    """Says something."""
    # a comment

    def wrap(function):
        def inner(*args, **kwargs):
            # only passes on
            return function(
                *args,
                **kwargs
            )

        return inner

    return wrap


@decorator(
    first=2,
)
def decorated(
    value,
    second=len(
        "abc"
    ),
):
    global G
    G = value

    def closed():
        nonlocal value
        value += 1
        return (
            value
        )

    return closed()


class Empty: pass


class Thing(
    object,
):
    """Class docstring.

    # not a comment
    """

    field: int = 5

    @property
    def prop(self): return 1

    @staticmethod
    def static():
        return [
            i
            for i in range(3)
            if i
        ]

    async def coro(self):
        async with self as s:
            pass
        async for i in self:
            await self.nothing()
        else:
            ...
        return [j async for j in self if j]

    async def nothing(self):
        return None

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        return None

    def __aiter__(self):
        self.left = 2
        return self

    async def __anext__(self):
        self.left -= 1
        if self.left < 0:
            raise StopAsyncIteration
        return self.left

    def gen(self):
        got = yield 5
        yield from (
            [got]
        )


decorated(3)
t = Thing()
t.prop
t.static()
for item in t.gen():
    print(item)

if a == 2:
    never = 1
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
    never = 2

if 0:
    dropped = 1

while a < 5:
    a += 1
    if a == 2:
        continue
    if a == 4:
        break
else:
    never = 3

for i, j in (
    (1, 2),
    (3, 4),
):
    pass
else:
    after_loop = 1

try:
    raise ValueError(
        "text"
    ) from None
except (
    KeyError,
    ValueError,
) as error:
    print(error)
except Exception:
    never = 4
else:
    never = 5
finally:
    last = 1

try:
    pass
finally:
    last = 2

with open(
    os.devnull
) as f, open(os.devnull) as g:
    f.read()

def returns_in_finally():
    try:
        return 1
    finally:
        last = 3

returns_in_finally()
f1 = lambda: (
    1,
    a,
)
f1()
c2 = {
    k: v
    for k, v in {1: 2}.items()
}
s1 = f"""
{a}
  # not a comment

{
b
!r}
"""
assert a, (
    "message"
)
"a string that stands alone"
...
if (n := 10) > 5: print(n); m = n
v = not (
    a
    or b
)
print(a
      .bit_length(
      ))
def one(): return 1
one(
)
loop = t.coro()
try:
    while True:
        loop.send(None)
except StopIteration as end:
    print(end.value)
exec("pass"
)
\x0c
the_end = 1
# the last comment
'''
MATCH = """
match a:
    case 7:
        never = 6
    case 4 if (
        b
    ):
        # comment
        print(a)
    case _:
        ...
"""
# What the interpreter tells a tracer that it runs.
ORACLE = """
import json, sys
path = sys.argv[1]
ran = []
def trace(frame, event, arg):
    if frame.f_code.co_filename != path:
        return None
    if event == "line":
        ran.append(frame.f_lineno)
    return trace
with open(path, encoding="utf-8") as file:
    code = compile(file.read(), path, "exec", dont_inherit=True)
out, sys.stdout = sys.stdout, open("/dev/null", "w")
sys.settrace(trace)
exec(code, {"__name__": "__main__"})
sys.settrace(None)
print(json.dumps(sorted(set(ran))), file=out)
"""


def lines_run(python: str, program: Source) -> set[int]:
    done = subprocess.run(
        [python, "-c", ORACLE, str(program)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return set(json.loads(done.stdout))


def written(source: Callable[..., Source], python: str) -> Source:
    return source(EVERYTHING + (MATCH if version_of(python) >= (3, 10) else ""))


def set_on_every_line(session: Session, program: Source, **fields: Any) -> dict[int, Any]:
    count = len(program.text.split("\n")) - 1
    batch = [{"file": str(program), "line": line, **fields} for line in range(1, count + 1)]
    answer = session.post("/breakpoints", {"breakpoints": batch}).ok()
    return {breakpoint["line"]: breakpoint for breakpoint in answer["breakpoints"]}


def test_every_line_that_runs_stops_there_and_nothing_else_stops(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = written(source, python)
    ran = lines_run(python, program)
    with relay.session(python_path=python) as session:
        asked = set_on_every_line(session, program, hit_condition="1")
        verified = {line for line, breakpoint in asked.items() if breakpoint["verified"]}
        assert ran <= verified
        assert len(ran) > 100
        stopped = []
        answer = session.launch(program)
        while answer["status"] == "paused":
            stopped.append(answer["current_location"]["line"])
            answer = session.resume()
        assert answer["exit_code"] == 0
        assert sorted(stopped) == sorted(ran)
        hits = {e["body"]["current_location"]["line"]: e["body"]["hit_breakpoint_ids"]
                for e in session.events("stopped")}  # fmt: skip
        assert hits == {line: [asked[line]["id"]] for line in ran}


def test_every_line_without_code_is_refused_and_names_one_that_has(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = written(source, python)
    text = program.text.split("\n")
    with relay.session(python_path=python) as session:
        asked = set_on_every_line(session, program)
        verified = {line for line, breakpoint in asked.items() if breakpoint["verified"]}
        for line, breakpoint in asked.items():
            if line in verified:
                assert (breakpoint["message"], breakpoint["suggestion"]) == (None, None)
                continue
            assert breakpoint["message"].startswith("No executable code")
            named = NAMED.findall(breakpoint["suggestion"])
            assert named
            for found, shown in named:
                assert int(found) in verified
                assert shown == text[int(found) - 1].strip()
            assert "robably meant" in breakpoint["suggestion"]
        for line in range(1, len(text)):
            if not text[line - 1].strip() or text[line - 1].strip().startswith("# only"):
                assert line not in verified


NAMED = re.compile(r"line (\d+) `([^`]*)`")
PROBABLY = re.compile(r"Probably meant: line \d+ `([^`]*)`|line \d+ `([^`]*)`, which is probably")
MEANT = {
    "# only passes on": "return function(",
    "# within": "print(",
    "global G": "G = value",
    "nonlocal value": "value += 1",
}


def test_the_neighbour_that_is_named_is_the_one_that_is_meant(
    relay: Client, source: Callable[..., Source], python: str
) -> None:
    program = source(EVERYTHING)
    text = [line.strip() for line in program.text.split("\n")]
    with relay.session(python_path=python) as session:
        for words, meant in MEANT.items():
            answer = session.break_at(program, text.index(words) + 1)
            assert answer["verified"] is False, words
            # In a call of several lines each argument may have code of its own.
            shown = PROBABLY.search(answer["suggestion"])
            assert shown is not None
            assert (shown[1] or shown[2]) in (meant, 'len("x"),', "a,"), words
