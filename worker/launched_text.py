"""Whether a frame runs the text that was launched: its file name says `<string>`, like any other
text that a program compiles. Knows source text only, nothing of the program."""

from __future__ import annotations

import ast
from typing import Final

FILE: Final = "<string>"
_NAMED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NAMELESS: Final = {
    "<lambda>": ast.Lambda,
    "<listcomp>": ast.ListComp,
    "<setcomp>": ast.SetComp,
    "<dictcomp>": ast.DictComp,
    "<genexpr>": ast.GeneratorExp,
}


def runs(text: str, name: str, line: int, is_outermost: bool) -> bool:
    """The outermost frame runs the text itself, others what stands in it at that line."""
    if name == "<module>":
        return is_outermost
    # Dotted where the interpreter tells the qualified name.
    short = name.rpartition(".")[2]
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False  # a newer Python's syntax
    for node in nodes:
        is_it = (isinstance(node, _NAMED) and node.name == short) or (
            short in _NAMELESS and isinstance(node, _NAMELESS[short])
        )
        if is_it and isinstance(node, ast.stmt | ast.expr):
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
            if first <= line <= (node.end_lineno or first):
                return True
    return False
