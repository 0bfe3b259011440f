"""Reads the facts of a source text in one Python version: lines with code, and the other lines.

It compiles and never runs the text. The worker imports it for its own Python version. For any other
version, the session's interpreter runs it as a script (`-I -S`, text on stdin, JSON on stdout), so
it must keep to the standard library and the syntax of Python 3.8, and import nothing of the relay.
"""

from __future__ import annotations

import ast
import dis
import io
import json
import sys
import tokenize
import types
import warnings
from collections.abc import Iterator

TYPE_CHECKING = False  # to import typing takes as long as to read a file
if TYPE_CHECKING:
    from typing import Any

CODE, BLANK, COMMENT, STRING, INSIDE, BARE = "code", "blank", "comment", "string", "inside", "bare"
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def read_facts(data: bytes, optimize: int = 0) -> dict[str, Any]:
    """The facts of a file whose bytes are `data`, as plain JSON values."""
    try:
        text = _decode(data)
    except _Undecodable as error:
        return _facts(_split(data.decode("latin-1")), set(), error.problem, _Structure())
    source_lines = _split(text)
    try:
        code = _compile(text, "exec", optimize=optimize)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        return _facts(source_lines, set(), _problem(error, text), _Structure())
    structure = _structure(text, source_lines)
    # An empty module still has a `return None`, which old versions place on line 1.
    lines = {
        line
        for line in _code_lines(code)
        if 1 <= line <= len(source_lines)
        and (line in structure.in_string or _plain_kind(source_lines[line - 1]) is None)
    }
    return _facts(source_lines, lines, None, structure)


def check(text: str, mode: str) -> dict[str, Any] | None:
    """Why `text` does not compile as a condition, expression or program; None when it does."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if mode == "expression" else 0
    try:
        if mode == "program":
            _compile(text, "exec", flags)
        else:
            _compile(text.strip(), "eval", flags)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        return _problem(error, text)
    return None


def _compile(text: str, mode: str, flags: int = 0, optimize: int = -1) -> Any:
    with warnings.catch_warnings():
        # A doubtful escape is only a warning in the program; as an error it would hide the whole
        # file.
        warnings.simplefilter("ignore")
        return compile(text, "<source>", mode, flags, True, optimize)


class _Undecodable(Exception):
    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.problem = {"line": line, "offset": 1, "text": "", "message": message}


def _decode(data: bytes) -> str:
    """Decodes as `tokenize.open` does: byte order mark, coding cookie, universal newlines."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        with io.TextIOWrapper(io.BytesIO(data), encoding) as stream:
            return stream.read()
    except SyntaxError as error:
        raise _Undecodable(_line_of_cookie(data), error.msg) from None
    except UnicodeDecodeError as error:
        line = len(_split(error.object[: error.start].decode("latin-1") + "?"))
        message = f"not {error.encoding}: byte 0x{error.object[error.start]:02x}: {error.reason}"
        raise _Undecodable(line, message) from None
    except (LookupError, ValueError) as error:
        # Codecs that turn text into text, and codecs that fail in other ways.
        raise _Undecodable(_line_of_cookie(data), f"encoding problem: {error}") from None


def _line_of_cookie(data: bytes) -> int:
    """The one of the first two lines that breaks the encoding."""
    for number, line in enumerate(data.split(b"\n")[:2], 1):
        if b"coding" in line or not line.isascii():
            return number
    return 1


def _split(text: str) -> list[str]:
    """Lines as Python counts them: a form feed or U+2028 does not end a line."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _code_lines(code: types.CodeType) -> Iterator[int]:
    pending = [code]
    while pending:
        current = pending.pop()
        for _, line in dis.findlinestarts(current):
            if line is not None:
                yield line
        pending.extend(const for const in current.co_consts if isinstance(const, types.CodeType))


def _problem(error: BaseException, text: str) -> dict[str, Any]:
    line, offset, shown, message = 1, 1, None, str(error)
    if isinstance(error, SyntaxError):
        line, offset, shown = error.lineno or 1, error.offset or 1, error.text
        message = error.msg
    elif isinstance(error, (RecursionError, MemoryError)):
        message = "too deeply nested to compile: %s" % (message or type(error).__name__)
    if "\0" in text:
        before = text[: text.index("\0")]
        line, offset = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        shown, message = None, "source code cannot contain null bytes"
    if shown is None:
        lines = _split(text)
        shown = lines[line - 1] if 1 <= line <= len(lines) else ""
    if getattr(error, "offset", None) == 0:
        offset = len(shown.rstrip()) + 1  # something is missing at the line's end
    return {
        "line": line,
        "offset": max(1, offset),
        "text": _sound(shown.rstrip("\n"))[:1000],
        "message": _sound(message),
    }


class _Structure:
    """The places of statements, as far as a syntax tree is available."""

    def __init__(self) -> None:
        # First line, last line of the head (of all, when it has no body), last line.
        self.statements: list[tuple[int, int, int]] = []
        self.in_string: set[int] = set()  # lines whose beginning is inside a string
        self.idle_strings: set[int] = set()  # docstrings and other strings that are statements


def _structure(text: str, source_lines: list[str]) -> _Structure:
    found = _Structure()
    try:
        tree = _compile(text, "exec", ast.PyCF_ONLY_AST)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Code that compiles can still be too deep for a tree of objects; then the structure is
        # unknown.
        return found
    pending: list[Any] = list(tree.body)
    while pending:
        node = pending.pop()
        for name in _BLOCKS:
            pending.extend(getattr(node, name, ()))
        first, last = _span(node)
        if last > first:
            _add_strings(node, found.in_string)
        if isinstance(node, ast.Expr) and _is_text(node.value):
            found.idle_strings.update(range(first, last + 1))
        head = last
        body = getattr(node, "body", None) or getattr(node, "cases", None)
        if body:
            head = max(first, _span(body[0])[0] - 1)
            while head > first and _is_aside(head, source_lines, found.in_string):
                head -= 1
        found.statements.append((first, head, last))
    found.statements.sort(key=lambda span: (span[0], -span[2]))
    return found


def _is_aside(line: int, source_lines: list[str], in_string: set[int]) -> bool:
    return line not in in_string and _plain_kind(source_lines[line - 1]) is not None


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _span(node: Any) -> tuple[int, int]:
    if not hasattr(node, "lineno"):  # a `case` node has no line number
        return node.pattern.lineno, _span(node.body[-1])[1]
    decorators = getattr(node, "decorator_list", ())
    return min([node.lineno] + [item.lineno for item in decorators]), node.end_lineno


def _add_strings(statement: Any, in_string: set[int]) -> None:
    """Adds the lines after the first of every string in the statement's own expressions."""
    pending = [statement]
    while pending:
        node = pending.pop()
        kind = type(node).__name__
        literal = kind == "Constant" and isinstance(node.value, (str, bytes))
        if literal or kind in ("JoinedStr", "TemplateStr"):
            # We go no deeper: before 3.12, the parts of an f-string have made-up line numbers.
            in_string.update(range(node.lineno + 1, node.end_lineno + 1))
            continue
        for name, value in ast.iter_fields(node):
            if name in _BLOCKS and isinstance(value, list):
                continue
            children = value if isinstance(value, list) else [value]
            pending.extend(child for child in children if isinstance(child, ast.AST))


def _facts(
    source_lines: list[str],
    lines: set[int],
    problem: dict[str, Any] | None,
    structure: _Structure,
) -> dict[str, Any]:
    return {
        "lines": sorted(lines),
        "total_lines": len(source_lines),
        "source_lines": [_sound(line) for line in source_lines],
        "syntax_error": problem,
        "kinds": _kinds(source_lines, lines, structure),
        "statements": structure.statements,
    }


def _kinds(source_lines: list[str], lines: set[int], structure: _Structure) -> list[str]:
    continued = {
        line for first, head, _ in structure.statements for line in range(first + 1, head + 1)
    }

    def kind(number: int, text: str) -> str:
        if number in lines:
            return CODE
        if number in structure.idle_strings:
            return STRING
        if _is_aside(number, source_lines, structure.in_string):
            return _plain_kind(text) or BARE
        return INSIDE if number in continued else BARE

    return [kind(number, text) for number, text in enumerate(source_lines, 1)]


def _plain_kind(line: str) -> str | None:
    bare = line.strip(" \t\f\r\n")
    return BLANK if not bare else COMMENT if bare.startswith("#") else None


def _sound(text: str) -> str:
    """The text without lone surrogates, which our JSON decoder refuses."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def main() -> None:
    what, argument = sys.argv[1:3]
    data = sys.stdin.buffer.read()
    answer = (
        read_facts(data, int(argument))
        if what == "facts"
        else check(data.decode("utf-8", "surrogatepass"), argument)
    )
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
