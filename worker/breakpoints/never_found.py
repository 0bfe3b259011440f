"""Tells of function breakpoints whose function the program never had, with the closest names.

Only the program knows its functions, and it has ended. So the files that it ran, and those beside
its script, are read for definitions.
"""

from __future__ import annotations

import ast
import asyncio
import difflib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from debug_relay.worker.breakpoints.functions import LOOKED_FOR
from debug_relay.worker.breakpoints.table import BreakpointTable, Entry

_MOST_FILES: Final = 100  # Files that are read for definitions.
_LARGEST_BYTES: Final = 1 << 20  # A larger file is not read.
_MOST_NAMES: Final = 3  # Close names that a message has.
_SIMILAR: Final = 0.6  # The least similarity of a close name.
_DEEPEST: Final = 20  # Levels of classes and functions inside each other.

ENDED: Final = "the program has ended, and never had"

Definitions = dict[str, str]  # qualified name → file:line


async def warnings(
    table: BreakpointTable,
    files: Iterable[str],
    changed: Callable[[str, list[Entry]], None],
) -> list[str]:
    """One warning for each function that was never found; the breakpoint has it as its message."""
    missing = [
        entry
        for entry in table.functions()
        if not entry.verified and entry.enabled and entry.message == LOOKED_FOR
    ]
    known = await asyncio.to_thread(definitions, files) if missing else {}
    for entry in missing:
        if entry.id in table:
            now = replace(table.one(entry.id))
            now.message, now.suggestion = message(now, known)
            table.put(now)
            changed("changed", [now])
    return [
        f"{entry.id}: {entry.message}. {entry.suggestion}"
        for entry in table.functions()
        if entry.message is not None and entry.message.startswith(ENDED)
    ]


def definitions(files: Iterable[str]) -> Definitions:
    """The functions that the files define. Blocks for as long as the disk does."""
    found: Definitions = {}
    for file in list(dict.fromkeys(_with_neighbours(files)))[:_MOST_FILES]:
        try:
            if os.path.getsize(file) > _LARGEST_BYTES:
                continue
            with open(file, "rb") as source:
                tree = ast.parse(source.read(_LARGEST_BYTES))
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            continue  # another Python may read it
        for name, line in _functions(tree, "", 0):
            found.setdefault(name, f"{file}:{line}")
    return found


def _with_neighbours(files: Iterable[str]) -> Iterator[str]:
    """The files, and the modules beside the first of them, which is the script."""
    given = [file for file in files if file.endswith(".py")]
    yield from given[:1]
    for folder in {os.path.dirname(file) for file in given[:1]}:
        try:
            with os.scandir(folder) as entries:
                names = sorted(one.path for one in entries if one.name.endswith(".py"))
        except OSError:
            names = []
        yield from names[:_MOST_FILES]
    yield from given[1:]


def _functions(tree: ast.AST, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node.lineno
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{prefix}{node.name}."
        else:
            inner = prefix
        if depth < _DEEPEST:
            yield from _functions(node, inner, depth + 1)


def message(entry: Entry, known: Definitions) -> tuple[str, str]:
    """The message about a function that was never found, and the suggestion."""
    name = entry.function or ""
    said = f"{ENDED} a function {name}"
    if name in known:
        return said, f"{known[name]} defines it, but that code never ran."
    close = _closest(name, known)
    if not close:
        return said, "Use the name as Python has it, such as Class.method or package.module.f."
    return said, f"Probably meant: {', '.join(f'{one} ({known[one]})' for one in close)}."


def _closest(name: str, known: Definitions) -> list[str]:
    """Functions with the same last name first, such as the method `K.f` for `f`; then those with a
    similar last name, the most similar first; then those with a similar whole name.
    """
    last = name.rpartition(".")[2]
    same = [one for one in known if one.rpartition(".")[2] == last]
    similar = difflib.get_close_matches(name, known, n=_MOST_NAMES, cutoff=_SIMILAR)
    by_last = {one.rpartition(".")[2]: one for one in known}
    inner = difflib.get_close_matches(last, by_last, n=_MOST_NAMES, cutoff=_SIMILAR)
    return list(dict.fromkeys([*same, *(by_last[one] for one in inner), *similar]))[:_MOST_NAMES]
