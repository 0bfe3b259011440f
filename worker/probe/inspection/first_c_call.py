"""Finds the class in C that a line calls before it calls anything else.

Python calls a profile function for functions in C, but not for classes: `dict()` and `deque()` are
invisible to it. So we parse the line, and look up what is evaluated first as Python would, if that
runs no code of the program. If it cannot be known in this way, we report none.
"""

import ast
import linecache
import textwrap
import types

from debug_relay.worker.probe.values.attributes import own
from debug_relay.worker.probe.values.class_facts import full_name, lookup

LINES = 20  # Lines of one statement.
_CALL = type.__dict__["__call__"]
_PYTHON = (types.FunctionType, classmethod, staticmethod)
_HEADS = {
    ast.If: ("test",),
    ast.While: ("test",),
    ast.For: ("iter",),
    ast.AsyncFor: ("iter",),
    ast.Assert: ("test",),
    ast.With: ("items",),
    ast.AsyncWith: ("items",),
}
# The calls inside these nodes run later, or perhaps never.
_APART = (
    ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.FunctionDef,
    ast.AsyncFunctionDef, ast.ClassDef, ast.Try,
)  # fmt: skip
_FORKED = {ast.IfExp: "test", ast.BoolOp: "values"}


class Unclear(Exception):
    """The first call depends on values."""


def class_in_c(frame):
    """The name of the class in C; None if the first call is another one, or is unknown."""
    try:
        call = _first(_statement(frame.f_code.co_filename, frame.f_lineno))
    except (SyntaxError, ValueError, RecursionError, MemoryError, Unclear):
        return None
    found = None if call is None else valued(call.func, frame)
    return full_name(found) if issubclass(type(found), type) and _is_made_in_c(found) else None


def _statement(path, line):
    """The statement that begins at the line, without the lines of its block."""
    text = ""
    for at in range(line, line + LINES):
        text += linecache.getline(path, at)
        whole = textwrap.dedent(text)
        whole = whole[2:] if whole.startswith("elif ") else whole
        for end in ("", " pass"):
            try:
                return ast.parse(whole.rstrip() + end).body[0]
            except (SyntaxError, IndexError):
                continue
    raise SyntaxError


def _first(node):
    """The first call in the order in which Python evaluates."""
    if isinstance(node, _APART):
        return None
    if type(node) in _FORKED:
        first = getattr(node, _FORKED[type(node)])
        found = _first(first[0] if type(first) is list else first)
        if found is None and any(isinstance(part, ast.Call) for part in ast.walk(node)):
            raise Unclear
        return found
    for part in _parts(node):
        found = _first(part)
        if found is not None:
            return found
    return node if isinstance(node, ast.Call) else None


def _parts(node):
    if type(node) in _HEADS:
        held = [getattr(node, name) for name in _HEADS[type(node)]]
        return held[0] if type(held[0]) is list else held
    if isinstance(node, ast.Assign):
        return [node.value, *node.targets]
    if isinstance(node, ast.AnnAssign):
        return [part for part in (node.value, node.target) if part is not None]
    return ast.iter_child_nodes(node)


def valued(node, frame):
    """The value of a name, or of an attribute of a module, a class or an object itself."""
    if isinstance(node, ast.Name):
        for names in (frame.f_locals, frame.f_globals, frame.f_builtins):
            if node.id in names:
                return names[node.id]
        return None
    if not isinstance(node, ast.Attribute):
        return None
    owner = valued(node.value, frame)
    kind = type(owner)
    if issubclass(kind, type):
        return lookup(owner, node.attr)
    return own(owner, kind).get(node.attr)


def _is_made_in_c(kind):
    if lookup(type(kind), "__call__") is not _CALL:
        return False
    return not any(type(lookup(kind, name)) in _PYTHON for name in ("__new__", "__init__"))
