"""Finds the lines of a source file that have code, as the session's interpreter compiles it.

Breakpoint verification and traces use it. It reads and compiles, and never runs anything. It knows
nothing of existing breakpoints or of the debugger.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import re
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.system import files
from debug_relay.worker import bundle
from debug_relay.worker.interpreter.query_process import run_briefly
from debug_relay.worker.interpreter.resolve import Interpreter, own_interpreter
from debug_relay.worker.probe.runtime import expressions
from debug_relay.worker.source import line_reader

MAX_SOURCE_BYTES: Final = 20 * 1024 * 1024  # One source file whose lines are verified.
# A longer source is compiled in a separate process: compiling holds the GIL, so even a thread
# would block the event loop, from here on for 10 ms and more.
_IN_PROCESS_BYTES: Final = 32 * 1024
_READ_SECONDS: Final = 20.0  # A separate process reads the lines of a source within this time.
# A separate process checks an expression or a log message within this time.
_CHECK_SECONDS: Final = 10.0
_ANSWER_BYTES: Final = 256 * 1024 * 1024  # The answer of such a process.
_KEPT_BYTES: Final = 32 * 1024 * 1024  # Sources whose lines are kept in memory, together.
_KEPT_FILES: Final = 256  # Sources whose lines are kept in memory.
_WALK_ENTRIES: Final = 2000  # Directory entries that a search for a file of the project looks at.
_PASSED_OVER: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_TEMPLATE_READER: Final = (
    bundle.text("runtime/expressions")
    + """
import json, sys
print(json.dumps(problem_of(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))))
"""
)

Kind = Literal["code", "blank", "comment", "string", "inside", "bare"]
_Key = tuple[str, int, int, int]  # path, mtime, size, inode
Mode = Literal["condition", "expression", "program"]


class SyntaxProblem(Struct, frozen=True):
    """Why a text does not compile; line and offset count from 1."""

    line: int
    offset: int
    text: str
    message: str


class LineFacts(Struct, frozen=True):
    """A file as an interpreter compiles it."""

    lines: frozenset[int]
    total_lines: int
    source_lines: list[str]
    syntax_error: SyntaxProblem | None
    kinds: list[Kind]
    # First line, last line of the head (of all, when it has no body), last line; by first line.
    statements: list[tuple[int, int, int]]

    def text(self, line: int) -> str:
        return self.source_lines[line - 1].strip() if 1 <= line <= self.total_lines else ""

    def kind(self, line: int) -> Kind:
        return self.kinds[line - 1]


class CodeLines:
    """Facts about files for one interpreter, cached as long as a file does not change."""

    def __init__(
        self,
        interpreter: Interpreter | None = None,
        optimize: int = 0,
        project_root: str | None = None,
    ) -> None:
        self.interpreter = interpreter or own_interpreter()
        self._project_root = project_root
        self._optimize = optimize  # the number of -O that the program gets: they remove code
        self._kept: OrderedDict[_Key, LineFacts] = OrderedDict()
        # One at a time, so that a batch of breakpoints in one new file compiles it once.
        self._turn = asyncio.Lock()

    def is_of(self, interpreter: Interpreter, optimize: int, project_root: str | None) -> bool:
        """Whether these facts are for the same interpreter, optimization and project."""
        here = self.interpreter, self._optimize, self._project_root
        return here == (interpreter, optimize, project_root)

    async def facts(self, path: str) -> LineFacts:
        """Facts of the file as it is now; BREAKPOINT_FILE_NOT_FOUND with a `reason` if it cannot be
        read.
        """
        async with self._turn:
            key = await asyncio.to_thread(_identify, path, self._project_root)
            if key not in self._kept:
                data = await asyncio.to_thread(_read_source, path, self._project_root)
                self._kept[key] = await self._read(path, data)
                self._forget_old(key)
            self._kept.move_to_end(key)
            return self._kept[key]

    async def check_expression(self, text: str, mode: Mode) -> SyntaxProblem | None:
        """Why `text` does not compile in the program; None when it does."""
        problem = line_reader.check(text, mode)
        # An expression that is valid in our Python is valid in others; statements of newer versions
        # are not.
        if not self._is_ours and (problem is not None or mode == "program"):
            data = text.encode("utf-8", "surrogatepass")
            answer = await self._run(["check", mode], data, mode, _CHECK_SECONDS)
            return msgspec.json.decode(answer, type=SyntaxProblem | None)
        return None if problem is None else msgspec.convert(problem, SyntaxProblem)

    async def check_template(self, text: str) -> str | None:
        """Why `text` is not a valid log message in the program; None if it is valid."""
        problem: str | None = expressions.problem_of(text)  # type: ignore[no-untyped-call]
        if problem is not None and not self._is_ours:
            data = text.encode("utf-8", "surrogatepass")
            answer = await self._run([], data, "log message", _CHECK_SECONDS, _TEMPLATE_READER)
            return msgspec.json.decode(answer, type=str | None)
        return problem

    @property
    def _is_ours(self) -> bool:
        return self.interpreter.minor == own_interpreter().minor

    async def _read(self, path: str, data: bytes) -> LineFacts:
        if self._is_ours and len(data) <= _IN_PROCESS_BYTES:
            return msgspec.convert(line_reader.read_facts(data, self._optimize), LineFacts)
        answer = await self._run(["facts", str(self._optimize)], data, path, _READ_SECONDS)
        return msgspec.json.decode(answer, type=LineFacts)

    async def _run(
        self,
        words: list[str],
        data: bytes,
        what: str,
        seconds: float,
        reader: str = bundle.LINE_READER,
    ) -> bytes:
        who = self.interpreter
        try:
            reply = await run_briefly(
                who.executable,
                ["-c", reader, *words],
                data,
                seconds,
                _ANSWER_BYTES,
                behind=who.path,
                found=who.found,
            )
        except (OSError, ValueError) as error:
            reason = (
                f"did not answer in {seconds:g} s" if isinstance(error, TimeoutError) else error
            )
            raise _unusable(who, what, str(reason)) from None
        if reply.code:
            said = reply.err.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise _unusable(who, what, f"ended with code {reply.code}: {''.join(said)[:300]}")
        return reply.out

    def _forget_old(self, newest: _Key) -> None:
        for key in [key for key in self._kept if key[0] == newest[0] and key != newest]:
            del self._kept[key]
        while len(self._kept) > _KEPT_FILES or (
            len(self._kept) > 1 and sum(size for _, _, size, _ in self._kept) > _KEPT_BYTES
        ):
            self._kept.popitem(last=False)


def _unusable(who: Interpreter, what: str, reason: str) -> RelayError:
    return RelayError(
        Code.LAUNCH_INTERPRETER_NOT_FOUND,
        f"{who.path} (Python {who.version_text}) could not compile {what}: {reason}",
        "Check the interpreter, or give the session another python_path.",
        python_path=who.path,
    )


def _identify(path: str, root: str | None) -> _Key:
    try:
        facts = os.stat(path)
        files.require_regular(path, facts, MAX_SOURCE_BYTES)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error, root) from None
    return path, facts.st_mtime_ns, facts.st_size, facts.st_ino


def _read_source(path: str, root: str | None) -> bytes:
    try:
        return files.read_bounded(path, MAX_SOURCE_BYTES)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error, root) from None


def _unreadable(path: str, error: OSError | ValueError, root: str | None) -> RelayError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return _refused(path, "missing", "does not exist", closest_path(path, root))
    if isinstance(error, files.FileRefused):
        return _refused(path, error.reason, error.words)
    words = error.strerror if isinstance(error, OSError) else str(error)
    return _refused(path, "unreadable", f"cannot be read: {words}")


def _refused(path: str, reason: str, words: str, closest: str | None = None) -> RelayError:
    return RelayError(
        Code.BREAKPOINT_FILE_NOT_FOUND,
        f"{path} {words}",
        f"Did you mean {closest}?" if closest else "Give the path of a Python source file.",
        path=path,
        reason=reason,
        closest=closest,
    )


_HIT_CONDITION: Final = re.compile(r"\s*(==|!=|>=|<=|>|<|%)?\s*([0-9]{1,18})\s*")


def parse_hit_condition(text: str) -> tuple[str, int]:
    """Operator and number; a bare number is `==`."""
    found = _HIT_CONDITION.fullmatch(text)
    if found is None or (found[1] == "%" and int(found[2]) == 0):
        raise RelayError(
            Code.BREAKPOINT_INVALID_CONDITION,
            f"{text!r} is not a valid hit condition",
            "Use one of 5 ==5 !=5 >=5 >5 <=5 <5 %5 (%5 is every fifth hit; %0 is never).",
            hit_condition=text,
            forms=["5", "==5", "!=5", ">=5", ">5", "<=5", "<5", "%5"],
        )
    return found[1] or "==", int(found[2])


def closest_path(path: str, project_root: str | None = None) -> str | None:
    """The existing file that a missing path most likely means."""
    try:
        return _similar(Path(path)) or _same_name(Path(path), project_root)
    except (OSError, ValueError):
        return None  # only a guess: unreadable folders yield none


def closest_folder(path: str) -> str | None:
    """The existing folder that a missing path most likely means."""
    try:
        return _similar(Path(path), is_folder=True)
    except (OSError, ValueError):
        return None  # only a guess: unreadable folders yield none


def _similar(path: Path, is_folder: bool = False) -> str | None:
    """Correct the wrong parts one after another, from the nearest folder that exists."""
    if not path.is_absolute():
        return None
    here = next(folder for folder in path.parents if folder.is_dir())
    for part in path.relative_to(here).parts:
        if not (here / part).exists():
            names = [entry.name for entry in _entries(str(here))]
            near = difflib.get_close_matches(part, names, 1, 0.6)
            if not near:
                return None
            part = near[0]
        here /= part
    return str(here) if (here.is_dir() if is_folder else here.is_file()) else None


def _same_name(path: Path, project_root: str | None) -> str | None:
    if project_root is None:
        return None
    found = [str(file) for file in _files(project_root) if file.name == path.name]
    return max(
        found,
        key=lambda file: difflib.SequenceMatcher(None, file, str(path)).ratio(),
        default=None,
    )


def _files(root: str) -> Iterator[Path]:
    """Files below `root`, breadth first, among a bounded number of entries."""
    pending, seen = [root], 0
    for folder in pending:
        for entry in _entries(folder):
            seen += 1
            if seen > _WALK_ENTRIES:
                return
            if not entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)
            elif not entry.name.startswith(".") and entry.name not in _PASSED_OVER:
                pending.append(entry.path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(islice(entries, _WALK_ENTRIES))
    except OSError:
        return []  # only a guess is lost
