"""Decides whether a breakpoint can be hit, by its file, line, text and expressions.

It verifies requests and existing breakpoints with the present files, before a program gets them. It
knows nothing of the debugger and sets nothing.
"""

from __future__ import annotations

import asyncio
import difflib
import os
from collections.abc import Callable
from typing import Any, Final

import msgspec

from debug_relay.protocol.errors import Code, RelayError
from debug_relay.protocol.models.breakpoints import BreakpointSpec
from debug_relay.protocol.refusals import Problem
from debug_relay.worker.breakpoints import functions, watchpoints
from debug_relay.worker.breakpoints.requests import (
    bad_condition,
    bad_template,
    incomplete,
    text_mismatch,
)
from debug_relay.worker.breakpoints.source_changes import Identity, identity
from debug_relay.worker.breakpoints.table import Entry
from debug_relay.worker.interpreter.cache import InterpreterCache
from debug_relay.worker.interpreter.resolve import Interpreter
from debug_relay.worker.source.code_lines import CodeLines, LineFacts, parse_hit_condition
from debug_relay.worker.source.line_suggestion import verify_line
from debug_relay.worker.state.settings import Settings

_PENDING: Final = "pending: the file does not exist yet"
NO_FILE: Final = "the program runs code of this name; no file on disk has it"
_SHOWN_LINES: Final = 20  # Lines that a refused breakpoint's message lists.


class Verifier:
    def __init__(
        self,
        settings: Settings,
        interpreters: InterpreterCache,
    ) -> None:
        self._settings = settings
        self._interpreters = interpreters
        self._code_lines: CodeLines | None = None
        self.script: Callable[[], str | None] = lambda: None  # the program's, if it has one

    async def code_lines(self) -> CodeLines:
        """The lines that have code for the session's interpreter."""
        if self._code_lines is None:
            config = self._settings.config
            interpreter = await self._interpreters.find(
                config.python_path, None, config.project_root, self._settings.params.python_default
            )
            self._code_lines = CodeLines(interpreter, project_root=config.project_root)
        return self._code_lines

    def forget_interpreter(self) -> None:
        """The session's interpreter may be another now."""
        self._code_lines = None

    def code_lines_of(self, interpreter: Interpreter, optimize: int = 0) -> CodeLines:
        """The lines that have code for a program. If its interpreter is the session's, what was
        read of its files is kept. To read a file for another Python than the relay's own, that
        Python is started.
        """
        root = self._settings.config.project_root
        if self._code_lines is not None and self._code_lines.is_of(interpreter, optimize, root):
            return self._code_lines
        return CodeLines(interpreter, optimize, root)

    def use(self, code_lines: CodeLines) -> None:
        """Verify with the program's own interpreter from now on."""
        self._code_lines = code_lines

    async def verify(self, spec: BreakpointSpec) -> Entry:
        """Verify a breakpoint that is not set here."""
        return await (await self.batch()).verify(spec)

    async def batch(self) -> Batch:
        return Batch(await self.code_lines(), self.absolute, self.script)

    def absolute(self, path: str) -> str:
        path = os.path.expanduser(path)
        if os.path.isabs(path):
            return os.path.normpath(path)
        root = self._settings.config.project_root
        if root is None:
            raise RelayError(
                Code.INVALID_REQUEST,
                f"The path {path} is relative and the session has no project_root",
                "Send an absolute path, or create the session with project_root.",
                errors=[Problem("source.path", "must be absolute", path)],
            )
        return os.path.normpath(os.path.join(root, path))


class Batch:
    """Verifies any number of breakpoints, and reads each file once."""

    def __init__(
        self,
        code_lines: CodeLines,
        absolute: Callable[[str], str],
        script: Callable[[], str | None],
    ) -> None:
        self._code_lines = code_lines
        self._absolute = absolute
        self._script = script
        self._facts: dict[str, LineFacts | RelayError] = {}
        self.seen: dict[str, Identity | None] = {}  # the verified version of each file
        self._real: dict[str, str] = {}
        self._sound: set[str] = set()

    async def verify(self, spec: BreakpointSpec, moves: bool = False) -> Entry:
        """Verify a request; returns the breakpoint as it would be set, or refuses it. With `moves`
        it may be set on another line than the requested one, if that has no code: an IDE shows
        where it is.
        """
        if spec.watch is not None:
            entry = await watchpoints.entry_of(spec, self._code_lines, self._absolute, self._script)
            await self._check_expressions(entry)
            return entry
        if spec.function is not None:
            entry = functions.entry_of(spec, self._absolute)
            await self._check_expressions(entry)
            return entry
        file = spec.source.path if spec.source is not None else spec.file
        if file is None or (spec.line is None) == (spec.text is None):
            raise incomplete(spec, has_file=file is not None)
        path = self._absolute(file)
        line = spec.line if spec.text is None else await self._line_with(path, spec.text)
        assert line is not None
        entry = Entry(
            "",
            path,
            self._real_path(path),
            line,
            condition=spec.condition,
            hit_condition=spec.hit_condition,
            log_message=spec.log_message,
            expected_text=spec.expected_text,
            enabled=spec.enabled,
        )
        await self._check_expressions(entry)
        meant = await self._verify_line(entry, spec.must_exist)
        if moves and meant is not None:
            entry.line = meant
            await self._verify_line(entry, spec.must_exist)
        return entry

    async def changed(self, entry: Entry, **fields: Any) -> Entry:
        """The breakpoint with changed fields. Only those fields may be refused; a file that changed
        on disk is not the caller's mistake.
        """
        changed = msgspec.structs.replace(entry, **fields)
        await self._check_expressions(changed)
        await self.verify_again(changed)
        return changed

    async def verify_again(self, entry: Entry) -> None:
        """Verify a breakpoint again: its file may have appeared, disappeared or changed."""
        if entry.watch is not None:
            await watchpoints.find_lines(entry, self._code_lines, self._absolute, self._script)
            return
        if entry.function is not None:
            return  # only the program knows its functions
        entry.real_path = self._real_path(entry.path)
        try:
            await self._verify_line(entry, must_exist=False)
        except RelayError as error:
            entry.verified = entry.pending = False
            entry.message, entry.suggestion = error.message, error.details["suggestion"]

    async def _check_expressions(self, entry: Entry) -> None:
        hit = entry.hit_condition
        entry.hit = None if hit is None else parse_hit_condition(hit)
        condition = entry.condition
        if condition is not None and condition not in self._sound:
            problem = await self._code_lines.check_expression(condition, "condition")
            if problem is not None:
                raise bad_condition(condition, problem)
            self._sound.add(condition)
        # Editors send an empty message for none. As a message it would make a log point that stops.
        entry.log_message = entry.log_message or None
        if entry.log_message is not None:
            flaw = await self._code_lines.check_template(entry.log_message)
            if flaw is not None:
                raise bad_template(entry.log_message, flaw)

    async def _verify_line(self, entry: Entry, must_exist: bool) -> int | None:
        """Verify the entry's line; returns the line that is probably meant, if it has no code."""
        entry.verified = entry.pending = False
        entry.message = entry.suggestion = None
        try:
            facts = await self._facts_of(entry.path)
        except RelayError as error:
            if error.details.get("reason") != "missing" or must_exist:
                raise
            entry.pending, entry.message = True, _PENDING
            entry.suggestion = error.details["suggestion"]
            return None
        if entry.line > facts.total_lines:
            raise RelayError(
                Code.BREAKPOINT_INVALID_LINE,
                f"{entry.path} has no line {entry.line}: it ends with line {facts.total_lines}",
                f"Use a line from 1 to {facts.total_lines}."
                if facts.total_lines
                else "Write the file first: it is empty.",
                file=entry.path,
                line=entry.line,
                max_line=facts.total_lines,
            )
        if entry.expected_text is not None:
            _require_text(facts, entry)
        verdict = verify_line(facts, entry.line)
        entry.verified = verdict.ok
        if not verdict.ok:
            entry.message = f"No executable code: {verdict.message}"
            entry.suggestion = verdict.suggestion
        return verdict.meant

    async def _line_with(self, path: str, text: str) -> int:
        facts = await self._facts_of(path)
        found = _lines_with(facts, text)
        if len(found) == 1:
            return found[0]
        listed = _listed(facts, found[:_SHOWN_LINES] or _nearest(facts, text))
        what = (
            f"{len(found)} lines of {path} contain {text!r}"
            if found
            else f"No line of {path} contains {text!r}"
        )
        raise text_mismatch(
            what,
            "Send more of the line's text, or its number."
            if found
            else "Send text that one line of the file contains"
            + ("; the nearest are listed." if listed else "; no line is similar."),
            listed,
            file=path,
            text=text,
            matches=len(found),
        )

    async def _facts_of(self, path: str) -> LineFacts:
        known = self._facts.get(path)
        if known is None:
            # Taken before we read the file, so that the file watch notices a change in between.
            self.seen[path] = await asyncio.to_thread(identity, path)
            try:
                known = await self._code_lines.facts(path)
            except RelayError as error:
                known = error
            self._facts[path] = known
        if isinstance(known, RelayError):
            raise RelayError(known.code, known.message, **known.details)
        return known

    def _real_path(self, path: str) -> str:
        if path not in self._real:
            self._real[path] = os.path.realpath(path)
        return self._real[path]


def _require_text(facts: LineFacts, entry: Entry) -> None:
    expected = entry.expected_text
    assert expected is not None
    if expected in facts.source_lines[entry.line - 1]:
        return
    elsewhere = _lines_with(facts, expected)
    around = range(max(1, entry.line - 3), min(facts.total_lines, entry.line + 3) + 1)
    raise text_mismatch(
        f"Line {entry.line} of {entry.path} does not contain {expected!r}: "
        f"it is {facts.text(entry.line)!r}",
        f"It is on line {', '.join(map(str, elsewhere[:5]))}."
        if elsewhere
        else "Read the lines around it, and send the text that is there.",
        _listed(facts, around),
        file=entry.path,
        line=entry.line,
        expected_text=expected,
        found_in=elsewhere[:_SHOWN_LINES],
    )


def _lines_with(facts: LineFacts, text: str) -> list[int]:
    return [number for number, line in enumerate(facts.source_lines, 1) if text in line]


def _nearest(facts: LineFacts, text: str) -> list[int]:
    """Lines that are similar to a text that no line contains."""
    by_text: dict[str, int] = {}
    for number, line in enumerate(facts.source_lines[:20_000], 1):
        by_text.setdefault(line.strip(), number)
    near = difflib.get_close_matches(text.strip(), [known for known in by_text if known], 3, 0.4)
    return [by_text[line] for line in near]


def _listed(facts: LineFacts, numbers: range | list[int]) -> list[dict[str, object]]:
    return [{"line": number, "text": facts.source_lines[number - 1][:500]} for number in numbers]
