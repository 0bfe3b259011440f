"""Every kind of statement, as a file of each Python version, and where those Pythons are."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

OURS = "{}.{}".format(*sys.version_info[:2])
FOREIGN = "3.8" if OURS != "3.8" else "3.12"


@cache
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
